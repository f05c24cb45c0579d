//! A run: configurations that take turns, a sample of each in each round, results as lines, and a table at the end.

pub mod measure;
pub mod meters;
pub mod options;
pub mod processor;
mod progress;
pub mod schedule;
pub mod statistics;
pub mod steady;
mod table;

use crate::configuration::Configuration;
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::interrupt::Interrupt;
use crate::report::group::Measured;
use crate::result::{FORMAT, Goal, LeftOut, Line, Machine, Results, Run, Sample};
use measure::{Running, Timing};
use options::Common;
use progress::Progress;
use std::time::SystemTime;

/// What a subcommand brings: how to set a configuration up, and what to load it with.
pub trait Workload {
    /// The subcommand.
    fn name(&self) -> &'static str;

    /// What its transactions are, in the plural: `round trips`.
    fn transactions(&self) -> &'static str;

    /// Sets up what the configuration needs, before anything is measured; called once for each, in their order.
    /// [`Error::Device`] says that it can't be had here, [`Error::Channel`] that its channel does not run: the
    /// configuration is then left out, and named with the reason.
    ///
    /// # Errors
    /// What ends the whole run.
    fn prepare(&mut self, configuration: &Configuration) -> Result<()>;

    /// Starts its load; called for each sample.
    ///
    /// # Errors
    /// What ends the whole run.
    fn start(&mut self, configuration: &Configuration) -> Result<Running>;

    /// What the sample was to hold, where the workload has goals of its own; `--hold` goes before.
    fn goal(&self, _sample: &Sample) -> Option<Goal> {
        None
    }

    /// Further columns of the table at the end: a heading and a text for each sample of a configuration.
    fn columns(&self, _samples: &[&Sample]) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What is to be said of all configurations together, after the table; each with its samples.
    fn conclusion(&self, _samples: &[Vec<Sample>]) -> String {
        String::new()
    }

    /// Ends what it has started.
    ///
    /// # Errors
    /// [`Error::Manager`]: it did not end well.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// What a run has left.
#[derive(Debug)]
pub struct Taken {
    /// The run and its samples, as a file of results has them.
    pub lines: Vec<Line>,
    /// Whether goals were held; none where the user ended the run before it was complete.
    verdict: Option<Verdict>,
}

impl Taken {
    /// Its samples, put together.
    #[must_use]
    pub fn measured(&self) -> Measured {
        let mut measured = Measured::default();
        measured.add(self.lines.clone());
        measured
    }

    /// How it ended.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: the user ended it. Part of a run is not the run, and no goal of it was held or missed.
    pub fn verdict(&self) -> Result<Verdict> {
        self.verdict.ok_or(Error::Interrupted)
    }
}

/// Carries a run out: the configurations are prepared, measured in turns, written and shown.
///
/// # Errors
/// What ended it early, [`Error::Interrupted`] among it. What was measured until then is written.
pub fn carry_out(
    host: &dyn Host,
    common: &Common,
    configurations: Vec<Configuration>,
    workload: &mut dyn Workload,
) -> Result<Verdict> {
    take(host, common, configurations, workload)?.verdict()
}

/// As [`carry_out`], for who has more to say of the samples. What was measured before the user ended it is taken too.
///
/// # Errors
/// What else ended it early. What was measured until then is written.
pub fn take(
    host: &dyn Host,
    common: &Common,
    configurations: Vec<Configuration>,
    workload: &mut dyn Workload,
) -> Result<Taken> {
    let interrupt = Interrupt::watch()?;
    let started = SystemTime::now();
    let mut results = common.out.as_deref().map(Results::append_to).transpose()?;
    let timing = common.timing();
    let mut progress = Progress::new(common.quiet);
    progress.announce(&configurations, common, workload.name());
    let asked_for = configurations.len();
    let (ready, left_out) = prepare(configurations, workload, &interrupt, &mut progress)?;
    let all_are_prepared = ready.len() + left_out.len() == asked_for;
    if all_are_prepared && ready.is_empty() && !left_out.is_empty() {
        return Err(Error::Device("nothing of what was asked for can be had here".to_owned()));
    }
    let machine = Machine::this_one();
    let run = Run {
        format: FORMAT,
        run: format!("{}-{}", statistics::utc(started).replace([' ', ':'], "-"), std::process::id()),
        started: statistics::utc(started),
        workload: workload.name().to_owned(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        target: common.target(),
        machine,
        left_out,
    };
    let mut lines = Lines { results: &mut results, json: common.json, taken: Vec::new() };
    lines.add(Line::Run(Box::new(run.clone())))?;
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ready.len()];
    let turns = schedule::turns(ready.len(), common.repeats);
    let mut taken = 0;
    for (number, turn) in turns.iter().enumerate() {
        if interrupt.came() {
            break;
        }
        let Some(configuration) = ready.get(turn.configuration) else { continue };
        let mut sample = one(host, configuration, timing, workload, common, &mut |live| {
            progress.live(number, turns.len(), configuration, &live);
            !interrupt.came()
        })?;
        (sample.run, sample.repeat) = (run.run.clone(), turn.repeat);
        if interrupt.came() && sample.seconds < timing.measured.as_secs_f64() {
            progress.say("interrupted: the last sample was too short, and is left out");
            break;
        }
        progress.sampled(number, turns.len(), &sample);
        lines.add(Line::Sample(Box::new(sample.clone())))?;
        samples[turn.configuration].push(sample);
        taken += 1;
    }
    workload.finish()?;
    progress.end();
    if !common.json {
        table::print(&run, &samples, workload);
    }
    let is_whole = all_are_prepared && taken == turns.len();
    Ok(Taken { lines: lines.taken, verdict: is_whole.then(|| verdict(&samples)) })
}

/// Those that can be measured here, and the others with the reasons.
fn prepare(
    configurations: Vec<Configuration>,
    workload: &mut dyn Workload,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<(Vec<Configuration>, Vec<LeftOut>)> {
    let (mut ready, mut left_out) = (Vec::new(), Vec::new());
    let count = configurations.len();
    for (number, configuration) in configurations.into_iter().enumerate() {
        if interrupt.came() {
            break;
        }
        progress.preparing(number, count, &configuration);
        match workload.prepare(&configuration) {
            Ok(()) => ready.push(configuration),
            Err(Error::Device(why) | Error::Channel(why)) => {
                progress.say(&format!("left out: {}: {why}", options::describe(&configuration)));
                left_out.push(LeftOut { configuration, why });
            }
            Err(error) => return Err(error),
        }
    }
    Ok((ready, left_out))
}

/// One sample, without the name of its run and the number of its repeat.
fn one(
    host: &dyn Host,
    configuration: &Configuration,
    timing: Timing,
    workload: &mut dyn Workload,
    common: &Common,
    tell: &mut dyn FnMut(measure::Live) -> bool,
) -> Result<Sample> {
    let running = workload.start(configuration)?;
    let mut sample = measure::measure(host, running, configuration, timing, tell)?;
    sample.workload = workload.name().to_owned();
    sample.goal = match common.hold {
        Some(rate) => Some(held(rate, &sample, workload.transactions())),
        None => workload.goal(&sample),
    };
    Ok(sample)
}

/// Whether a sample held a rate: nearly all of it was reached, and nothing piled up.
#[must_use]
pub fn held(rate: f64, sample: &Sample, transactions: &str) -> Goal {
    let grew = steady::backlog(&sample.course).is_some();
    Goal {
        what: format!("{rate:.0} {transactions} a second"),
        wanted: rate,
        reached: sample.rate,
        held: sample.rate >= steady::HELD_SHARE * rate && !grew,
    }
}

/// A configuration holds its goal when more than half of its samples do.
fn verdict(samples: &[Vec<Sample>]) -> Verdict {
    let missed = |samples: &Vec<Sample>| {
        let goals: Vec<bool> = samples.iter().filter_map(|sample| sample.goal.as_ref().map(|goal| goal.held)).collect();
        !goals.is_empty() && goals.iter().filter(|held| **held).count() * 2 <= goals.len()
    };
    if samples.iter().any(missed) { Verdict::Missed } else { Verdict::Done }
}

/// Where lines go: the file, and standard output where it was asked for.
struct Lines<'a> {
    results: &'a mut Option<Results>,
    json: bool,
    taken: Vec<Line>,
}

impl Lines<'_> {
    fn add(&mut self, line: Line) -> Result<()> {
        use std::io::Write;
        if self.json
            && let Ok(text) = serde_json::to_string(&line)
        {
            // A reader that goes away (`| head`) is no failure.
            let _ = writeln!(std::io::stdout().lock(), "{text}");
        }
        self.results.as_mut().map_or(Ok(()), |results| results.add(&line))?;
        self.taken.push(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Moment;

    fn sample(rate: f64, goal: Option<bool>) -> Sample {
        let goal = goal.map(|held| Goal { held, ..Goal::default() });
        Sample { rate, goal, ..Sample::default() }
    }

    #[test]
    fn a_rate_is_held_when_it_is_reached_and_nothing_piles_up() {
        assert!(held(1000.0, &sample(995.0, None), "messages").held);
        assert!(!held(1000.0, &sample(994.0, None), "messages").held);
        let moment = |depth| Moment { rate: 1000.0, depth: Some(depth), ..Moment::default() };
        let course = [0.0, 100.0, 200.0, 300.0].map(moment).to_vec();
        let grows = Sample { course, ..sample(1000.0, None) };
        assert!(!held(1000.0, &grows, "messages").held);
    }

    #[test]
    fn a_goal_is_missed_when_no_majority_of_the_repeats_holds_it() {
        let of = |goals: &[Option<bool>]| verdict(&[goals.iter().map(|goal| sample(1.0, *goal)).collect()]);
        assert_eq!(of(&[None, None]), Verdict::Done);
        assert_eq!(of(&[]), Verdict::Done);
        assert_eq!(of(&[Some(true), Some(false), Some(true)]), Verdict::Done);
        assert_eq!(of(&[Some(true), Some(false)]), Verdict::Missed);
        assert_eq!(of(&[Some(false)]), Verdict::Missed);
    }

    /// Prepares everything but one CipherSpec.
    struct Refusing(&'static str);

    impl Workload for Refusing {
        fn name(&self) -> &'static str {
            "refusing"
        }

        fn transactions(&self) -> &'static str {
            "round trips"
        }

        fn prepare(&mut self, configuration: &Configuration) -> Result<()> {
            match configuration.cipher == self.0 {
                true => Err(Error::Channel("handshake failure".to_owned())),
                false => Ok(()),
            }
        }

        fn start(&mut self, _: &Configuration) -> Result<Running> {
            Err(Error::Usage("nothing is measured here".to_owned()))
        }
    }

    #[test]
    fn a_channel_that_does_not_run_leaves_the_others_to_be_measured() {
        let configurations =
            ["A", "B", "C"].map(|cipher| Configuration { cipher: cipher.to_owned(), ..Configuration::default() });
        let interrupt = Interrupt::watch().unwrap();
        let mut progress = Progress::new(true);
        let prepared = prepare(configurations.to_vec(), &mut Refusing("B"), &interrupt, &mut progress).unwrap();
        assert_eq!(prepared.0, [configurations[0].clone(), configurations[2].clone()]);
        assert_eq!((prepared.1.len(), prepared.1[0].why.as_str()), (1, "handshake failure"));
    }
}
