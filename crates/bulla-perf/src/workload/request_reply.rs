//! `bulla perf request-reply`: a request and its reply, one at a time for each pair.

use super::stream::{placed, settings};
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::load::client::Broker;
use crate::load::pair::{Exchange, Pair};
use crate::load::{Loads, Seat};
use crate::run::measure::Running;
use crate::run::options::{Common, Defaults, Protection};
use crate::run::{self, Taken, Workload, carry_out};
use crate::site::{Settings, Site, queue_name};
use clap::Args;

/// A requester and its server: how long a round trip takes, and what it costs
#[derive(Args, Debug)]
pub struct RequestReplyArgs {
    /// Requests of a pair that may be under way at once, comma separated
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = "Configurations")]
    in_flight: Vec<u32>,
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    common: Common,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`carry_out`].
pub fn run(args: &RequestReplyArgs, host: &dyn Host) -> Result<Verdict> {
    let own = args.common.is_self()?;
    let defaults = Defaults {
        // What a broker's queues ask for is its affair; here it is only said.
        quality: if own { &Quality::ALL } else { &[Quality::None] },
        key: &["rsa2048"],
        reuse: &[Reuse::Times(32)],
        size: if own { &[2 << 10, 64 << 10, 4 << 20] } else { &[2 << 10] },
        pairs: &[1],
        devices: &["cpu"],
    };
    let mut configurations = Vec::new();
    for configuration in args.protection.product(&defaults)? {
        for in_flight in &args.in_flight {
            configurations.push(Configuration { in_flight: *in_flight, ..configuration.clone() });
        }
    }
    let configurations = placed(&args.common, configurations);
    let site = own.then(|| Site::new(host, settings(&args.common)));
    carry_out(host, &args.common, configurations, &mut RequestReply { common: &args.common, host, site })
}

/// Measures these configurations at queue managers of our own, which start with these settings.
///
/// # Errors
/// As [`run::take`].
pub(crate) fn take(
    host: &dyn Host,
    common: &Common,
    configurations: Vec<Configuration>,
    settings: Settings,
) -> Result<Taken> {
    let site = Some(Site::new(host, settings));
    run::take(host, common, placed(common, configurations), &mut RequestReply { common, host, site })
}

struct RequestReply<'h> {
    common: &'h Common,
    host: &'h dyn Host,
    site: Option<Site<'h>>,
}

impl RequestReply<'_> {
    /// Where each pair asks and answers.
    fn seats(&mut self, configuration: &Configuration) -> Result<Vec<(Seat, Seat)>> {
        if let Some(site) = &mut self.site {
            return own_seats(site, configuration);
        }
        let (asks, answers) = self.common.target.brokers(self.host)?;
        let queues = self.common.target.queues(2 * configuration.pairs as usize)?;
        let pairs = queues.chunks_exact(2).map(|pair| {
            let (requests, replies) = (&pair[0], &pair[1]);
            (seat(&asks, requests, replies), seat(&answers, replies, requests))
        });
        Ok(pairs.collect())
    }
}

fn seat(broker: &Broker, puts: &str, gets: &str) -> Seat {
    Seat { broker: broker.clone(), puts: puts.to_owned(), gets: gets.to_owned() }
}

/// Where each pair asks and answers at a queue manager of our own.
fn own_seats(site: &mut Site<'_>, configuration: &Configuration) -> Result<Vec<(Seat, Seat)>> {
    let manager = site.manager(configuration)?;
    let key = if configuration.quality == Quality::None { "" } else { &configuration.key };
    let (requester, servers) = manager.people(key, configuration.recipients.max(1))?;
    let mut seats = Vec::new();
    for number in 0..configuration.pairs {
        let name = queue_name(configuration, number);
        let (requests, replies) = (format!("{name}.ASK"), format!("{name}.TELL"));
        manager.define_queue(configuration, &requests, &requester, &servers)?;
        // A reply is for one reader whatever a request is for.
        let server = servers.first().map_or("", String::as_str);
        manager.define_queue(configuration, &replies, server, std::slice::from_ref(&requester))?;
        let (asks, answers) = match configuration.quality {
            Quality::None => (manager.broker(&requester), manager.broker(server)),
            _ => (manager.seat(&requester)?, manager.seat(server)?),
        };
        seats.push((seat(&asks, &requests, &replies), seat(&answers, &replies, &requests)));
    }
    Ok(seats)
}

/// Starts the pairs of a configuration at a queue manager of our own.
///
/// # Errors
/// As [`Site::define`], and what the queue manager refuses.
pub(crate) fn start(site: &mut Site<'_>, configuration: &Configuration) -> Result<Running> {
    let pairs = pairs(&own_seats(site, configuration)?, configuration)?;
    Ok(Running { load: Box::new(pairs), watched: vec![site.manager(configuration)?.watched()] })
}

fn pairs(seats: &[(Seat, Seat)], configuration: &Configuration) -> Result<Loads<Pair>> {
    let exchange = Exchange {
        bytes: configuration.bytes as usize,
        persistent: configuration.persistent,
        in_flight: configuration.in_flight,
    };
    let mut pairs = Loads(Vec::new());
    for (number, (asks, answers)) in seats.iter().enumerate() {
        pairs.0.push(Pair::start(asks, answers, exchange, number)?);
    }
    Ok(pairs)
}

impl Workload for RequestReply<'_> {
    fn name(&self) -> &'static str {
        "request-reply"
    }

    fn transactions(&self) -> &'static str {
        "round trips"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        self.seats(configuration).map(drop)
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        let pairs = pairs(&self.seats(configuration)?, configuration)?;
        let watched = match &mut self.site {
            Some(site) => vec![site.manager(configuration)?.watched()],
            None => self.common.target.watched(),
        };
        Ok(Running { load: Box::new(pairs), watched })
    }

    fn finish(&mut self) -> Result<()> {
        self.site.take().map_or(Ok(()), Site::stop)
    }
}
