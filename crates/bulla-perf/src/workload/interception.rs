//! Streams as studies of interception have them: through a channel that seals, or through one queue manager whose
//! getter is slow, whose queues are short, whose memory is small, or whose receivers take short messages alone.

use super::clerk::Clerk;
use super::crossing::Crossings;
use super::stream::{Streams, crossing, in_flight, settings};
use crate::configuration::{Configuration, Getting};
use crate::error::Result;
use crate::host::Host;
use crate::result::Sample;
use crate::run::measure::Running;
use crate::run::options::Common;
use crate::run::{self, Taken, Workload};
use crate::site::Settings;

/// Takes samples of these streams: what a rate comes to is what is looked for, and no goal. Always
/// with queue managers of our own.
///
/// # Errors
/// As [`run::take`].
pub(crate) fn take(common: &Common, configurations: Vec<Configuration>, host: &dyn Host) -> Result<Taken> {
    let common = Common { own: true, ..common.clone() };
    let filled = |one| Configuration { in_flight: in_flight(&one), ..one };
    let configurations = configurations.into_iter().map(filled).collect();
    Clerk::during(host, |clerk| {
        let crossings = Crossings::new(host, clerk, settings(&common));
        let mut streams = Interception { host, common: &common, crossings, sites: Vec::new() };
        run::take(host, &common, configurations, &mut streams)
    })
}

/// A stream through a channel that seals.
pub(crate) fn through_a_channel(configuration: Configuration) -> Configuration {
    crossing(configuration)
}

struct Interception<'h> {
    host: &'h dyn Host,
    common: &'h Common,
    crossings: Crossings<'h>,
    /// Queue managers by how long their queues are, and how much memory they have.
    sites: Vec<((u32, u32), Streams<'h>)>,
}

impl<'h> Interception<'h> {
    /// What carries the streams of a configuration.
    fn carrier(&mut self, configuration: &Configuration) -> &mut dyn Workload {
        if configuration.topology == "channel" {
            return &mut self.crossings;
        }
        let Getting { max_depth, memory_mib, .. } = configuration.getting;
        let at = match self.sites.iter().position(|(known, _)| *known == (max_depth, memory_mib)) {
            Some(at) => at,
            None => {
                let mut settings = settings(self.common);
                if max_depth > 0 {
                    settings = Settings { depth_max: max_depth, ..settings };
                }
                if memory_mib > 0 {
                    settings.options.push(format!("--memory={memory_mib}"));
                }
                self.sites.push(((max_depth, memory_mib), Streams::new("stream", self.host, self.common, settings)));
                self.sites.len() - 1
            }
        };
        &mut self.sites[at].1
    }
}

impl Workload for Interception<'_> {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn transactions(&self) -> &'static str {
        "messages"
    }

    fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
        self.carrier(configuration).prepare(configuration)
    }

    fn start(&mut self, configuration: &Configuration) -> Result<Running> {
        self.carrier(configuration).start(configuration)
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        self.crossings.columns(samples)
    }

    fn finish(&mut self) -> Result<()> {
        let ends: Vec<Result<()>> = self.sites.iter_mut().map(|(_, streams)| streams.finish()).collect();
        ends.into_iter().chain([self.crossings.finish()]).collect()
    }
}
