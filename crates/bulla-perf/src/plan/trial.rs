//! Short measurements of queue managers of our own, for calibration and for the check of predictions.

use super::pace;
use super::predict::Workload;
use super::teller::Teller;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::result::Sample;
use crate::run::measure::Timing;
use crate::run::schedule;
use crate::site::{Settings, Site};
use crate::workload::trade::Short;
use crate::workload::{request_reply, stream};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trial {
    pub(crate) workload: Workload,
    pub(crate) configuration: Configuration,
}

/// What a workload of results loads with; none for what is not planned.
pub(crate) fn workload_of(subcommand: &str) -> Option<Workload> {
    match subcommand {
        "request-reply" => Some(Workload::RequestReply),
        "stream" | "key-size" | "key-reuse" | "devices" => Some(Workload::Stream),
        _ => None,
    }
}

/// Measures each of them so often, in turns, and how fast the cores are meanwhile. A configuration whose devices this
/// machine lacks has no samples.
///
/// # Errors
/// What ended a queue manager or a load; [`Error::Interrupted`]: the user did.
pub(crate) fn measure_all(
    host: &dyn Host,
    trials: &[Trial],
    timing: Timing,
    repeats: u32,
    teller: &Teller,
) -> Result<Vec<Vec<Sample>>> {
    let mut site = Site::new(host, Settings::default());
    let https = trials.iter().filter(|trial| trial.workload == Workload::Https);
    let clients = https.map(|trial| trial.configuration.in_flight);
    let mut short = Short::new(host, clients.max().unwrap_or(1));
    let mut lacking = vec![false; trials.len()];
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); trials.len()];
    let turns = schedule::turns(trials.len(), repeats);
    for (number, turn) in turns.iter().enumerate() {
        let (Some(trial), Some(false)) = (trials.get(turn.configuration), lacking.get(turn.configuration)) else {
            continue;
        };
        let described = crate::run::options::describe(&trial.configuration);
        teller.begin(&format!("{} of {}: {} {described}", number + 1, turns.len(), trial.workload.as_str()))?;
        let started = match trial.workload {
            Workload::Stream => stream::start(&mut site, &trial.configuration),
            Workload::RequestReply => request_reply::start(&mut site, &trial.configuration),
            Workload::Https => short.start(&trial.configuration, None),
        };
        let running = match started {
            Err(Error::Device(why)) => {
                teller.say(&format!("left out: {described}: {why}"));
                lacking[turn.configuration] = true;
                continue;
            }
            running => running?,
        };
        let mut sample = pace::watched(host, running, &trial.configuration, timing, teller)?;
        (sample.repeat, sample.workload) = (turn.repeat, trial.workload.as_str().to_owned());
        samples[turn.configuration].push(sample);
    }
    short.finish()?;
    site.stop()?;
    Ok(samples)
}
