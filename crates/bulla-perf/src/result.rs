//! What a measuring run leaves behind: a file of JSON lines, first the run, then each sample as it is taken.
//!
//! The page is `docs/formats/results.md`. A reader takes lines whose `format` it knows, and passes over fields that it
//! does not.

use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::spelling;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// The format that is written; those before it are read too. Format 1 joined the words of a name by `-`.
pub const FORMAT: u32 = 2;
/// Longest line that is read, in bytes.
pub const LINE_BYTES_MAX: usize = 16 << 20;

/// One line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// A run begins.
    Run(Box<Run>),
    /// One configuration was measured once.
    Sample(Box<Sample>),
}

/// What holds for all samples of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// What its samples call it.
    pub run: String,
    /// When it began, UTC: `2026-11-22 08:00:00`.
    pub started: String,
    /// The workload: the subcommand.
    pub workload: String,
    /// The whole command line.
    pub command: String,
    /// The version of Bulla that measured.
    pub version: String,
    /// What was measured: `self`, or an address.
    pub target: String,
    /// The machine that measured.
    pub machine: Machine,
    /// What was asked for and can't be had here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// A configuration that was asked for and not measured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct LeftOut {
    /// Which one.
    pub configuration: Configuration,
    /// Why it can't be had here; one lower-case line.
    pub why: String,
}

/// A machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Machine {
    /// The processor as the system calls it.
    pub processor: String,
    /// Cores that processes may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub system: String,
    /// Whether the processor says that it is a virtual one.
    pub is_virtual: bool,
    /// Instructions that matter to cryptography: `aes`, `sha_ni`, `avx512ifma`, …
    pub instructions: Vec<String>,
    /// OpenSSL's version.
    pub openssl: String,
}

/// One configuration, measured once.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Sample {
    /// Its run.
    pub run: String,
    /// The workload: the subcommand.
    pub workload: String,
    /// What was measured.
    pub configuration: Configuration,
    /// Which repeat, from 1.
    pub repeat: u32,
    /// How long it was measured, in seconds, after the warm-up.
    pub seconds: f64,
    /// Messages that arrived.
    pub messages: u64,
    /// Transactions: round trips, one-way messages, handshakes, as the workload has it.
    pub transactions: u64,
    /// Transactions a second.
    pub rate: f64,
    /// How long a transaction took; none where that was not watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// Processor time a transaction, microseconds by role; see [`ROLES`]. What no role owns is under `unattributed`.
    #[serde(with = "spelling::by_name")]
    pub cpu_us: BTreeMap<String, f64>,
    /// The process's own count of all that, of queue managers and application, microseconds a transaction.
    pub process_cpu_us: f64,
    /// What each device did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceUse>,
    /// What each task did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskUse>,
    /// Cores that were busy, with whatever.
    pub cores_busy: f64,
    /// Of them, those that neither the application nor the queue managers used.
    pub cores_elsewhere: f64,
    /// Cores that the hypervisor took for other guests; not among the busy ones.
    pub cores_stolen: f64,
    /// Moments in the sample's course.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<Moment>,
    /// Why the sample is not one of a steady state: `the backlog grew`, `others used 0.4 cores`. Empty where it is.
    pub unsteady: Vec<String>,
    /// What was to be held; none where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// What the planner said before it was measured; none where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// What else the workload found, by name with its unit: `reset-us`, `raw-aead-us`, `bound`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", with = "spelling::by_name")]
    pub found: BTreeMap<String, f64>,
}

/// Roles in the order in which charts stack them; [`Sample::cpu_us`] has each by this name.
pub const ROLES: [&str; 9] = [
    "application",
    "queue-manager",
    "channel-initiator",
    "tls",
    "protection",
    "devices",
    "journal",
    "administration",
    "unattributed",
];

/// How long transactions took, microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Latency {
    /// On average.
    pub mean: f64,
    /// At the median.
    pub p50: f64,
    /// Nine of ten were not slower.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

/// What a device did in a sample.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct DeviceUse {
    /// Its name.
    pub name: String,
    /// CPU, SOFTWARE, ACCELERATOR, COPROCESSOR; a modelled one is MODELLED.
    pub kind: String,
    /// Percent of the time that it was busy.
    pub busy_percent: f64,
    /// Jobs by operation and shape.
    pub operations: Vec<OperationUse>,
}

/// Jobs of one operation and key size.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct OperationUse {
    /// `rsa-sign`, `ecdsa-verify`, …
    pub operation: String,
    /// `ME`, `CRT`, `EC`, …: the arithmetic.
    pub format: String,
    /// Bits of the key.
    pub bits: u32,
    /// How many.
    pub count: u64,
    /// Execution time of one, microseconds.
    pub execution_us: f64,
    /// From submission to result, microseconds, on average.
    pub latency_us: f64,
}

/// What a task did in a sample; class(4) terms.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct TaskUse {
    /// DISPATCHER, ADAPTER, TLS, JOURNAL, DEVICE.
    pub kind: String,
    /// Its name; with more than one queue manager, `QM2 adapter-0`.
    pub name: String,
    /// Requests.
    pub requests: u64,
    /// Percent of the time in requests.
    pub busy_percent: f64,
    /// Processor time of a request, microseconds.
    pub cpu_us: f64,
    /// A request's elapsed time, microseconds.
    pub elapsed_us: f64,
    /// Of it, neither on the processor nor done: microseconds.
    pub wait_us: f64,
}

/// How it stood at one moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Moment {
    /// Seconds from the sample's begin.
    pub at: f64,
    /// Transactions a second since the moment before.
    pub rate: f64,
    /// Messages on the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<f64>,
    /// XQTIME of the channel, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xqtime_us: Option<f64>,
    /// QTIME of the queue, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qtime_us: Option<f64>,
    /// Bytes of messages that lie in scratch files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch_used_bytes: Option<f64>,
    /// Cores busy, with whatever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores_busy: Option<f64>,
    /// Percent of the time that the busiest device was busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_busy_percent: Option<f64>,
}

/// Something that was to be held.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Goal {
    /// In words: `10000 messages a second`.
    pub what: String,
    /// What was wanted.
    pub wanted: f64,
    /// What was reached.
    pub reached: f64,
    /// Whether that is enough.
    pub held: bool,
}

/// What the planner said of a sample.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Predicted {
    /// Transactions a second, on cores as fast as they were during the sample.
    pub rate: f64,
    /// The same on cores as fast as when the machine was calibrated: said before the sample was taken. 0 in results of
    /// earlier versions.
    pub calibrated: f64,
    /// What would hold it back.
    pub bottleneck: String,
    /// What did hold it back, as far as the sample shows: stations, fullest first.
    pub found: Vec<String>,
}

/// A file of results that grows while a run goes on.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: File,
}

impl Results {
    /// Opens a file to add a run to; what is in it stays.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn append_to(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { path: path.to_owned(), file: file.map_err(|error| Error::file(path, error))? })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn add(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line).map_err(|error| Error::file(&self.path, error.into()))?;
        text.push('\n');
        // One write a line: a run that is killed leaves whole lines.
        self.file.write_all(text.as_bytes()).map_err(|error| Error::file(&self.path, error))
    }
}

/// Reads a file of results; empty lines are passed over.
///
/// # Errors
/// [`Error::File`], and [`Error::Content`] with the line that is not one, or is of a format that this version does not
/// know.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let file = File::open(path).map_err(|error| Error::file(path, error))?;
    parse(BufReader::new(file), path)
}

/// Reads what came from that file.
///
/// # Errors
/// As [`read`].
pub fn parse(mut reader: impl BufRead, path: &Path) -> Result<Vec<Line>> {
    let (mut lines, mut text) = (Vec::new(), Vec::new());
    for number in 1.. {
        text.clear();
        let mut limited = std::io::Read::take(&mut reader, LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut text).map_err(|error| Error::file(path, error))?;
        if read == 0 {
            break;
        }
        let wrong = |wrong: String| Error::Content { path: path.to_owned(), line: number, wrong };
        if text.len() > LINE_BYTES_MAX {
            return Err(wrong(format!("a line of more than {LINE_BYTES_MAX} bytes")));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let json = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let line = serde_json::from_value(spelling::respelled(json)).map_err(|error| wrong(error.to_string()))?;
        if let Line::Run(run) = &line
            && !(1..=FORMAT).contains(&run.format)
        {
            return Err(wrong(format!("results of format {}; this version reads 1 to {FORMAT}", run.format)));
        }
        lines.push(line);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let run = Line::Run(Box::new(Run { format: FORMAT, run: "1".into(), ..Run::default() }));
        let sample = Line::Sample(Box::new(Sample { run: "1".into(), rate: 12.5, ..Sample::default() }));
        Results::append_to(&path).unwrap().add(&run).unwrap();
        Results::append_to(&path).unwrap().add(&sample).unwrap();
        assert_eq!(read(&path).unwrap(), [run, sample]);
    }

    #[test]
    fn names_are_written_with_underscores_and_read_in_both_spellings() {
        let old = concat!(
            r#"{"kind":"sample","process-cpu-us":3.5,"cpu-us":{"queue-manager":2.5},"found":{"reset-us":1.5},"#,
            r#""configuration":{"quality":"none","bytes":1,"in-flight":7,"devices":"modelled:1c","topology":"end-to-end"}}"#,
        );
        let read = parse(old.as_bytes(), Path::new("old")).unwrap();
        let [Line::Sample(sample)] = read.as_slice() else { panic!("{read:?}") };
        assert_eq!((sample.process_cpu_us, sample.configuration.in_flight), (3.5, 7));
        assert_eq!((sample.cpu_us["queue-manager"], sample.found["reset-us"]), (2.5, 1.5));
        let new = serde_json::to_string(&read[0]).unwrap();
        for name in ["process_cpu_us", "cpu_us", "queue_manager", "reset_us", "in_flight"] {
            assert!(new.contains(&format!("\"{name}\":")), "{new}");
        }
        assert_eq!(parse(new.as_bytes(), Path::new("new")).unwrap(), read);
    }

    #[test]
    fn results_kept_in_the_repository_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measurements");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut samples = 0;
        for file in files.filter(|file| file.extension().is_some_and(|ending| ending == "jsonl")) {
            for line in read(&file).unwrap() {
                let Line::Sample(sample) = line else { continue };
                samples += 1;
                assert!(sample.process_cpu_us > 0.0 && sample.cpu_us.contains_key("unattributed"), "{sample:?}");
            }
        }
        assert!(samples > 100, "{samples}");
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        for (text, at) in
            [("\n{\"kind\":\"run\",\"format\":1}\nhello\n", ":3: "), ("{\"kind\":\"run\",\"format\":99}", ":1: ")]
        {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(at), "{error}");
        }
    }
}
