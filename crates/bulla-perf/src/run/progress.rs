//! How far a run has come, on standard error: one line that is written over on a terminal, a line for each sample
//! otherwise.

use super::measure::Live;
use super::options::{Common, describe};
use crate::configuration::Configuration;
use crate::result::Sample;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often the line is written over.
const EVERY: Duration = Duration::from_millis(250);

pub(super) struct Progress {
    quiet: bool,
    terminal: bool,
    shown_at: Option<Instant>,
    begun: Option<Instant>,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Progress {
        Progress { quiet, terminal: std::io::stderr().is_terminal(), shown_at: None, begun: None }
    }

    /// What is to be done, and how long that takes.
    pub(super) fn announce(&mut self, configurations: &[Configuration], common: &Common, workload: &str) {
        let count = configurations.len();
        let s = |count: u64| if count == 1 { "" } else { "s" };
        self.say(&format!(
            "{workload}: {count} configuration{}, {} sample{} of {} s each after {} s of warm-up: about {}, and what it takes to set up",
            s(count as u64),
            common.repeats,
            s(common.repeats.into()),
            common.seconds,
            common.warm_up,
            time(common.duration(count)),
        ));
    }

    /// Before anything is measured.
    pub(super) fn preparing(&mut self, number: usize, count: usize, configuration: &Configuration) {
        if self.terminal {
            self.line(&format!("setting up {} of {count}: {}", number + 1, describe(configuration)));
        }
    }

    /// While a sample is taken.
    pub(super) fn live(&mut self, number: usize, count: usize, configuration: &Configuration, live: &Live) {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if !self.terminal || self.shown_at.is_some_and(|shown| shown.elapsed() < EVERY) {
            return;
        }
        let done = (number as f64 + live.done) / count.max(1) as f64;
        let left = begun.elapsed().as_secs_f64() * (1.0 - done) / done.max(1e-3);
        let depth = live.depth.map_or(String::new(), |depth| format!(", {depth} queued"));
        let left = if done > 0.01 { time(Duration::from_secs_f64(left.min(1e6))) } else { "…".to_owned() };
        let rate = live.rate;
        self.line(&format!("[{}/{count}] {}: {rate:.0}/s{depth} · {left} left", number + 1, describe(configuration)));
    }

    /// A sample was taken.
    pub(super) fn sampled(&mut self, number: usize, count: usize, sample: &Sample) {
        let mut line = format!("[{}/{count}] {}: {:.0}/s", number + 1, describe(&sample.configuration), sample.rate);
        if let Some(latency) = &sample.latency_us {
            line.push_str(&format!(", p50 {:.0} µs, p99 {:.0} µs", latency.p50, latency.p99));
        }
        if !sample.unsteady.is_empty() {
            line.push_str(&format!(" (not steady: {})", sample.unsteady.join("; ")));
        }
        if sample.goal.as_ref().is_some_and(|goal| !goal.held) {
            line.push_str(" (not held)");
        }
        self.say(&line);
    }

    /// A line that stays.
    pub(super) fn say(&mut self, text: &str) {
        self.end();
        if !self.quiet {
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// The line that is written over goes.
    pub(super) fn end(&mut self) {
        if self.shown_at.take().is_some() {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }

    fn line(&mut self, text: &str) {
        if !self.quiet {
            self.shown_at = Some(Instant::now());
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        }
    }
}

/// A time as one says it.
fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=89 => format!("{seconds} s"),
        seconds @ 90..=5399 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_one_says_them() {
        let told = [0, 89, 90, 600, 5_400].map(|seconds| time(Duration::from_secs(seconds)));
        assert_eq!(told, ["0 s", "89 s", "2 min", "10 min", "1 h 30 min"]);
    }
}
