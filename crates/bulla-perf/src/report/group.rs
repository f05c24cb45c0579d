//! Samples put together: what was measured again and again in the same configuration is one group, with median and
//! spread.

use super::chart::Value;
use super::field::{Field, words};
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::result::{Line, Machine, Run, Sample, read};
use std::collections::HashMap;
use std::path::PathBuf;

/// Most configurations that a report takes.
pub const GROUPS_MAX: usize = 2000;
/// Most samples that a report takes.
pub const SAMPLES_MAX: usize = 100_000;

/// What held for a group beside its configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// The machine that measured.
    pub machine: Machine,
    /// The version that measured.
    pub version: String,
    /// What was measured: `self`, or an address.
    pub target: String,
}

/// The samples of one workload, one configuration and one setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The workload.
    pub workload: String,
    /// The configuration.
    pub configuration: Configuration,
    /// Which of [`Measured::settings`].
    pub setting: usize,
    /// The samples in the order of the files; one at least.
    pub samples: Vec<Sample>,
}

/// All that some files hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The runs.
    pub runs: Vec<Run>,
    /// Where and what they measured, each once.
    pub settings: Vec<Setting>,
    /// The groups, in the order in which they were first measured.
    pub groups: Vec<Group>,
}

impl Measured {
    /// Reads files of results.
    ///
    /// # Errors
    /// [`Error::File`], and [`Error::Content`] where a file is none of results, or holds more than [`GROUPS_MAX`] and
    /// [`SAMPLES_MAX`] allow.
    pub fn read(paths: &[PathBuf]) -> Result<Self> {
        let (mut measured, mut samples) = (Self::default(), 0);
        for path in paths {
            let lines = read(path)?;
            samples += lines.len();
            measured.add(lines);
            let wrong = |wrong: String| Error::Content { path: path.clone(), line: 0, wrong };
            if samples > SAMPLES_MAX {
                return Err(wrong(format!("more than {SAMPLES_MAX} lines in all")));
            }
            if measured.groups.len() > GROUPS_MAX {
                return Err(wrong(format!("more than {GROUPS_MAX} configurations in all")));
            }
        }
        Ok(measured)
    }

    /// Adds the lines of one file. A sample whose run the file does not hold has a setting of which nothing is known.
    pub fn add(&mut self, lines: Vec<Line>) {
        let mut settings: HashMap<String, usize> = HashMap::new();
        let mut groups: HashMap<String, usize> = HashMap::new();
        for (at, group) in self.groups.iter().enumerate() {
            groups.insert(key(&group.workload, &group.configuration, group.setting), at);
        }
        for line in lines {
            match line {
                Line::Run(run) => {
                    let Run { machine, version, target, .. } = (*run).clone();
                    settings.insert(run.run.clone(), self.setting(Setting { machine, version, target }));
                    self.runs.push(*run);
                }
                Line::Sample(sample) => {
                    let known = settings.get(&sample.run).copied();
                    let setting = known.unwrap_or_else(|| self.setting(Setting::default()));
                    let key = key(&sample.workload, &sample.configuration, setting);
                    let at = *groups.entry(key).or_insert_with(|| {
                        let (workload, configuration) = (sample.workload.clone(), sample.configuration.clone());
                        self.groups.push(Group { workload, configuration, setting, samples: Vec::new() });
                        self.groups.len() - 1
                    });
                    self.groups[at].samples.push(*sample);
                }
            }
        }
    }

    fn setting(&mut self, setting: Setting) -> usize {
        self.settings.iter().position(|known| *known == setting).unwrap_or_else(|| {
            self.settings.push(setting);
            self.settings.len() - 1
        })
    }

    /// The workloads, in the order in which they were first measured, each with its groups.
    #[must_use]
    pub fn workloads(&self) -> Vec<(&str, Vec<&Group>)> {
        let mut workloads: Vec<(&str, Vec<&Group>)> = Vec::new();
        for group in &self.groups {
            match workloads.iter_mut().find(|(name, _)| *name == group.workload) {
                Some((_, groups)) => groups.push(group),
                None => workloads.push((&group.workload, vec![group])),
            }
        }
        workloads
    }
}

/// What makes samples one group.
fn key(workload: &str, configuration: &Configuration, setting: usize) -> String {
    // A configuration is numbers and strings: its JSON is always to be had.
    let configuration = serde_json::to_string(configuration).unwrap_or_default();
    format!("{setting} {configuration} {workload}")
}

impl Group {
    /// Whether a modelled device took part.
    #[must_use]
    pub fn is_modelled(&self) -> bool {
        self.configuration.devices.contains("modelled")
            || self
                .samples
                .iter()
                .flat_map(|sample| &sample.devices)
                .any(|device| device.kind.eq_ignore_ascii_case("modelled"))
    }

    /// Whether every sample was taken in a steady state.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.samples.iter().all(|sample| sample.unsteady.is_empty())
    }

    /// Median and spread of something over the samples that have it.
    #[must_use]
    pub fn value(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<Value> {
        let mut values: Vec<f64> = self.samples.iter().filter_map(of).filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Value { middle, least, most, steady: self.is_steady(), modelled: self.is_modelled() })
    }

    /// Transactions a second.
    #[must_use]
    pub fn rate(&self) -> Option<Value> {
        self.value(|sample| Some(sample.rate))
    }

    /// Processor time a transaction, µs: the processes' own count, or where that is missing the sum of the roles.
    #[must_use]
    pub fn processor_us(&self) -> Option<Value> {
        self.value(|sample| {
            let roles: f64 = sample.cpu_us.values().sum();
            Some(if sample.process_cpu_us > 0.0 { sample.process_cpu_us } else { roles }).filter(|time| *time > 0.0)
        })
    }

    /// The sample whose rate is nearest to the median.
    #[must_use]
    pub fn typical(&self) -> Option<&Sample> {
        let middle = self.rate()?.middle;
        self.samples.iter().min_by(|one, other| (one.rate - middle).abs().total_cmp(&(other.rate - middle).abs()))
    }

    /// What a reader must know of it: why samples were not steady, and that a device is modelled. Each reason once.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = if self.is_modelled() { vec!["modelled".to_owned()] } else { Vec::new() };
        for sample in &self.samples {
            for reason in &sample.unsteady {
                let remark = match self.samples.len() {
                    1 => format!("not steady: {reason}"),
                    _ => format!("not steady in repeat {}: {reason}", sample.repeat),
                };
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        }
        remarks
    }

    /// It in the words of those fields, and whether it is modelled.
    #[must_use]
    pub fn label(&self, fields: &[Field]) -> String {
        let label = words(fields, self);
        match label.as_str() {
            "" if self.is_modelled() => "modelled".to_owned(),
            "" => "measured".to_owned(),
            _ if self.is_modelled() && !label.contains("modelled") => format!("{label} (modelled)"),
            _ => label,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(run: &str, repeat: u32, rate: f64) -> Line {
        Line::Sample(Box::new(Sample { run: run.into(), workload: "stream".into(), repeat, rate, ..Sample::default() }))
    }

    fn run(run: &str, target: &str) -> Line {
        Line::Run(Box::new(Run { run: run.into(), target: target.into(), ..Run::default() }))
    }

    #[test]
    fn repeats_are_one_group_with_median_and_spread() {
        let mut measured = Measured::default();
        measured.add(vec![run("1", "self"), sample("1", 1, 10.0), sample("1", 2, 30.0), sample("1", 3, 11.0)]);
        let [group] = measured.groups.as_slice() else { panic!("{measured:?}") };
        let rate = group.rate().unwrap();
        assert_eq!((rate.middle, rate.least, rate.most), (11.0, 10.0, 30.0));
        assert_eq!(group.typical().unwrap().repeat, 3);
    }

    #[test]
    fn another_machine_or_target_is_another_group() {
        let mut measured = Measured::default();
        measured.add(vec![run("1", "self"), sample("1", 1, 10.0), run("2", "other:5672"), sample("2", 1, 10.0)]);
        // The same name of a run in another file is another run.
        measured.add(vec![sample("1", 1, 10.0)]);
        assert_eq!((measured.groups.len(), measured.settings.len()), (3, 3));
    }

    #[test]
    fn a_reason_is_told_with_its_repeat() {
        let mut measured = Measured::default();
        let shaky = Sample { repeat: 2, unsteady: vec!["the backlog grew".into()], ..Sample::default() };
        measured.add(vec![Line::Sample(Box::default()), Line::Sample(Box::new(shaky))]);
        let group = &measured.groups[0];
        assert_eq!(group.remarks(), ["not steady in repeat 2: the backlog grew"]);
        assert!(!group.rate().unwrap().steady);
    }
}
