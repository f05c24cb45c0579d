//! `bulla perf stream --topology channel`: a client puts at QM1, the channel seals at QM2 what arrives in clear
//! (SPLPROT(ASPOLICY)), a client gets there what is opened for it.

use super::clerk::{Clerk, SendingEnd};
use super::island::{At, Person, policy, policy_is_needed};
use super::islands::{TLS_KEY, adapters};
use super::partners::Sites;
use super::route::Route;
use super::stream::flow;
use crate::configuration::{Configuration, Getting};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::load::flow::Stream;
use crate::load::{Counts, Load, Loads};
use crate::result::{Goal, Sample};
use crate::run::measure::Running;
use crate::run::statistics::Spread;
use crate::run::{Workload, held};
use crate::site::Settings;
use bulla_device::Histogram;
use std::collections::BTreeMap;

/// Who puts: a user without a key, because an unprotected user has none.
const PUTTER: &str = "putter";

/// Streams that cross from one queue manager to the other.
pub(super) struct Crossings<'h> {
    clerk: Clerk,
    sites: Sites<'h>,
    depth_max: u32,
    /// What is defined: for which configuration, and its channels.
    routes: Vec<(Configuration, Vec<Route>)>,
}

impl<'h> Crossings<'h> {
    /// Nothing is started yet. The transmission queues hold as many messages as the settings say.
    pub(super) fn new(host: &'h dyn Host, clerk: Clerk, settings: Settings) -> Self {
        let depth_max = settings.depth_max;
        let keys = vec![TLS_KEY.to_owned()];
        Crossings { clerk, sites: Sites::new(host, settings, keys), depth_max, routes: Vec::new() }
    }

    /// The routes of a configuration, where they are defined.
    fn routes(&self, configuration: &Configuration) -> Option<&[Route]> {
        let known = self
            .routes
            .iter()
            .find(|(known, routes)| *known == shape(configuration) && routes.len() >= configuration.pairs as usize);
        known.and_then(|(_, routes)| routes.get(..configuration.pairs as usize))
    }
}

/// What makes other queues and channels: not how fast and how much flows through them.
fn shape(configuration: &Configuration) -> Configuration {
    let Configuration {
        quality,
        key,
        reuse,
        sign_batch,
        recipients,
        devices,
        topology,
        cipher,
        client_certificates,
        ..
    } = configuration.clone();
    let getting = Getting { max_depth: configuration.getting.max_depth, ..Getting::default() };
    let default = Configuration { getting, ..Configuration::default() };
    Configuration {
        quality,
        key,
        reuse,
        sign_batch,
        recipients,
        devices,
        topology,
        cipher,
        client_certificates,
        ..default
    }
}

/// Whose ring the channel seals with, and who gets; both at QM2.
fn people(configuration: &Configuration) -> (Person, Vec<Person>) {
    let key = if configuration.key.is_empty() { "any" } else { &configuration.key };
    let person = |name: String| Person { at_one: false, name, key: key.to_owned(), authority: "Demo" };
    let mut getters = vec![person(format!("getter-{key}"))];
    getters.extend((2..=configuration.recipients).map(|number| person(format!("getter-{key}-{number}"))));
    (person(format!("sealer-{key}")), getters)
}

impl Workload for Crossings<'_> {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn transactions(&self) -> &'static str {
        "messages"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        let (sealer, getters) = people(configuration);
        let partners = self.sites.site(&configuration.devices)?;
        let getter = getters.first().map_or("", |getter| &getter.name);
        partners.sign_up(PUTTER, getter)?;
        if policy_is_needed(configuration) {
            partners.introduce([&sealer].into_iter().chain(&getters))?;
        }
        if self.routes(configuration).is_some() {
            return Ok(());
        }
        let set = self.routes.len();
        let depth_max = match configuration.getting.max_depth {
            0 => self.depth_max,
            depth_max => depth_max,
        };
        let route = |number| Route {
            channel: format!("S{set}.{number}"),
            queue: format!("STREAM.{set}.{number}"),
            depth_max,
            cipher: configuration.cipher.clone(),
            caller: if configuration.client_certificates { TLS_KEY.to_owned() } else { String::new() },
            called: if configuration.cipher.is_empty() { String::new() } else { TLS_KEY.to_owned() },
            receiver: if policy_is_needed(configuration) {
                format!("SPLPROT(ASPOLICY) MCAUSER('{}')", sealer.name)
            } else {
                String::new()
            },
            ..Route::default()
        };
        let routes: Vec<Route> = (1..=configuration.pairs).map(route).collect();
        let recipients: Vec<String> = getters.iter().map(Person::dn).collect();
        let policies: String = routes
            .iter()
            .filter_map(|route| policy(configuration, &route.queue, &[sealer.dn()], &recipients))
            .map(|policy| policy + "\n")
            .collect();
        let partners = self.sites.site(&configuration.devices)?;
        partners.define(&routes, &[], "", &policies)?;
        partners.run(&routes, &[])?;
        self.routes.push((shape(configuration), routes));
        Ok(())
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        let routes = self.routes(configuration).map(<[Route]>::to_vec).unwrap_or_default();
        let (_, getters) = people(configuration);
        let getter = getters.first().map_or("", |getter| &getter.name);
        let partners = self.sites.site(&configuration.devices)?;
        let watched = partners.watched();
        let sender = watched.first().ok_or_else(|| Error::Usage("no queue manager sends".to_owned()))?;
        let (mut streams, mut ends) = (Vec::new(), Vec::new());
        for (number, route) in routes.iter().enumerate() {
            let putting = partners.seat(At::One, PUTTER, &route.queue, "");
            let getting = partners.seat(At::Two, getter, "", &route.queue);
            streams.push(Stream::start(&putting, &getting, flow(configuration), number)?);
            ends.push(SendingEnd::of(sender, &route.channel)?);
        }
        let load = Crossing { streams: Loads(streams), clerk: self.clerk.clone(), ends };
        Ok(Running { load: Box::new(load), watched })
    }

    fn goal(&self, sample: &Sample) -> Option<Goal> {
        let rate = sample.configuration.target_rate;
        (rate != 0).then(|| held(rate as f64, sample, self.transactions()))
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        let most = |of: &dyn Fn(&crate::result::Moment) -> Option<f64>| {
            let values = samples.iter().flat_map(|sample| &sample.course).filter_map(of);
            values.max_by(f64::total_cmp).map_or("–".to_owned(), |most| format!("{most:.0}"))
        };
        let waits = samples.iter().flat_map(|sample| &sample.course).filter_map(|moment| moment.xqtime_us);
        let middle = Spread::of(waits).map_or("–".to_owned(), |spread| format!("{:.0}", spread.median));
        vec![
            ("most queued", most(&|moment| moment.depth)),
            ("XQTIME µs", middle),
            ("adapter µs a message: CPU, elapsed", adapters(samples)),
        ]
    }

    fn finish(&mut self) -> Result<()> {
        self.sites.stop()
    }
}

/// Streams, with the time that messages spend on transmission queues.
struct Crossing {
    streams: Loads<Stream>,
    clerk: Clerk,
    ends: Vec<SendingEnd>,
}

impl Load for Crossing {
    fn counts(&self) -> Counts {
        self.streams.counts()
    }

    fn latencies(&self) -> Histogram {
        self.streams.latencies()
    }

    fn goes_on(&self) -> bool {
        self.streams.goes_on()
    }

    fn xqtime_us(&mut self) -> Option<f64> {
        // A queue manager that does not answer is found by those who measure.
        let sum = self.clerk.channel_numbers(&self.ends, "XQTIME").ok()?;
        Some(sum as f64 / self.ends.len().max(1) as f64)
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        self.streams.found()
    }

    fn stop(self: Box<Self>) -> Result<()> {
        Box::new(self.streams).stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Quality;

    #[test]
    fn rate_and_size_make_no_other_channels() {
        let one = Configuration { quality: Quality::Privacy, key: "p256".into(), ..Configuration::default() };
        let other = Configuration { target_rate: 10_000, bytes: 9, pairs: 5, in_flight: 512, ..one.clone() };
        assert_eq!(shape(&one), shape(&other));
        assert_ne!(shape(&one), shape(&Configuration { quality: Quality::Integrity, ..one.clone() }));
        assert_ne!(shape(&one), shape(&Configuration { sign_batch: 64, ..one.clone() }), "another policy");
    }

    #[test]
    fn sealer_and_getters_know_each_other_at_the_receiving_queue_manager() {
        let configuration = Configuration { key: "rsa1024".into(), recipients: 3, ..Configuration::default() };
        let (sealer, getters) = people(&configuration);
        assert_eq!(sealer.dn(), "CN=sealer-rsa1024,O=Demo");
        let names: Vec<&str> = getters.iter().map(|getter| getter.name.as_str()).collect();
        assert_eq!(names, ["getter-rsa1024", "getter-rsa1024-2", "getter-rsa1024-3"]);
        assert!(getters.iter().chain([&sealer]).all(|person| !person.at_one && person.authority == "Demo"));
    }
}
