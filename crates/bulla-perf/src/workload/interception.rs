//! Streams as studies of interception have them: through a channel that seals, or through one queue manager whose
//! getter is slow, whose queues are short, whose memory is small, or whose receivers take short messages alone.

use super::clerk::Clerk;
use super::crossing::Crossings;
use super::stream::{Streams, crossing, in_flight, settings};
use crate::configuration::{Configuration, Getting};
use crate::error::Result;
use crate::host::Host;
use crate::load::{Counts, Load};
use crate::result::Sample;
use crate::run::measure::Running;
use crate::run::options::Common;
use crate::run::{self, Taken, Workload};
use crate::site::Settings;
use bulla_device::Histogram;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
        let crossings = Crossings::new(host, clerk.clone(), settings(&common));
        let mut streams = Interception { host, common: &common, clerk, crossings, sites: Vec::new() };
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
    clerk: Clerk,
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
        let Running { load, watched } = self.carrier(configuration).start(configuration)?;
        let data = watched.first().and_then(|watched| watched.data.clone());
        let load = match data.filter(|_| configuration.getting.getter_rate > 0) {
            Some(data) => Box::new(Behind { load, clerk: self.clerk.clone(), data }),
            None => load,
        };
        Ok(Running { load, watched })
    }

    fn columns(&self, samples: &[&Sample]) -> Vec<(&'static str, String)> {
        self.crossings.columns(samples)
    }

    fn finish(&mut self) -> Result<()> {
        let ends: Vec<Result<()>> = self.sites.iter_mut().map(|(_, streams)| streams.finish()).collect();
        ends.into_iter().chain([self.crossings.finish()]).collect()
    }
}

/// A stream whose getter falls behind, with what becomes of the messages meanwhile.
struct Behind {
    load: Box<dyn Load>,
    clerk: Clerk,
    /// The data directory of its queue manager, whose queues no one else puts on.
    data: PathBuf,
}

impl Behind {
    fn greatest(&self, command: &'static str, keyword: &'static str) -> Option<f64> {
        // A queue manager that does not answer is found by those who measure.
        self.clerk.greatest(&self.data, command, keyword).ok().map(|value| value as f64)
    }
}

impl Load for Behind {
    fn counts(&self) -> Counts {
        self.load.counts()
    }

    fn latencies(&self) -> Histogram {
        self.load.latencies()
    }

    fn goes_on(&self) -> bool {
        self.load.goes_on()
    }

    fn begin(&mut self) {
        self.load.begin();
    }

    fn lump(&self) -> u64 {
        self.load.lump()
    }

    fn is_over(&self) -> bool {
        self.load.is_over()
    }

    fn xqtime_us(&mut self) -> Option<f64> {
        self.load.xqtime_us()
    }

    fn qtime_us(&mut self) -> Option<f64> {
        self.greatest("DISPLAY QSTATUS(*) QTIME WHERE(OPPROCS GT 0)", "QTIME")
    }

    fn scratch_used_bytes(&mut self) -> Option<f64> {
        self.greatest("DISPLAY COSTSTATUS(PROCESS) SCRATCHUSED", "SCRATCHUSED")
    }

    fn found(&mut self) -> BTreeMap<String, f64> {
        self.load.found()
    }

    fn stop(self: Box<Self>) -> Result<()> {
        self.load.stop()
    }
}
