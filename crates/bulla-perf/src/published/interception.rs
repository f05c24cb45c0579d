//! `bulla perf published interception`: a stream into a channel that seals, at a stated rate; what putter, getter and
//! protection cost; and what becomes of messages that a slow getter leaves behind.

use super::beside::{Beside, EMPTY_CELLS, Pair, Row};
use super::figure::Figure;
use super::ours::{self, Of, found};
use super::page::{Page, Pages};
use crate::configuration::{Configuration, Getting, Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::report::bars::Series;
use crate::report::chart::{Chart, Value};
use crate::report::course;
use crate::report::document::{self, Section};
use crate::report::field::differing;
use crate::report::group::{Group, Measured};
use crate::report::panels::Panels;
use crate::result::Sample;
use crate::run::measure::{
    GETTER_US, OPENING_US, PUTTER_US, SCRATCH_BYTES, SCRATCH_MESSAGES, SCRATCH_WAIT_US, SEALING_US,
};
use crate::run::options::{Common, bytes, key};
use crate::workload::interception;
use clap::Args;

/// The rate and the payload of the study, and its key.
const RATE: u64 = 10_000;
const BYTES: u64 = 2 << 10;
const KEY: &str = "rsa1024";

/// What the study reports of a protection: messages a second, adapter's elapsed time a message in µs, and what
/// protection adds to the getter in µs a message.
struct Published {
    quality: Quality,
    reuse: Reuse,
    rate: f64,
    elapsed_us: Option<f64>,
    getter_us: Option<f64>,
}

/// Its confidentiality adds 5 µs to the getter; with which reuse is not known to us, so that stands with 32.
const PUBLISHED: [Published; 4] = [
    Published {
        quality: Quality::Integrity,
        reuse: Reuse::Times(0),
        rate: 3_250.0,
        elapsed_us: Some(275.0),
        getter_us: Some(13.0),
    },
    Published {
        quality: Quality::Privacy,
        reuse: Reuse::Times(0),
        rate: 2_510.0,
        elapsed_us: Some(365.0),
        getter_us: Some(14.0),
    },
    Published {
        quality: Quality::Confidentiality,
        reuse: Reuse::Times(1),
        rate: 7_750.0,
        elapsed_us: None,
        getter_us: None,
    },
    Published {
        quality: Quality::Confidentiality,
        reuse: Reuse::Times(32),
        rate: 10_000.0,
        elapsed_us: Some(17.0),
        getter_us: Some(5.0),
    },
];

/// Operations with keys that a put and a get have.
const OPERATIONS_OF_PUTS: [&str; 4] = ["rsa-sign", "ecdsa-sign", "rsa-wrap", "ecdh-ephemeral"];
const OPERATIONS_OF_GETS: [&str; 4] = ["rsa-verify", "ecdsa-verify", "rsa-unwrap", "ecdh-derive"];

/// What is measured of each protection beside the study, µs a message but for the depth.
const OURS: [(&str, Of<'static>); 8] = [
    ("putter", &|sample| found(sample, PUTTER_US)),
    ("getter", &|sample| found(sample, GETTER_US)),
    ("protection at put", &|sample| found(sample, SEALING_US)),
    ("protection at get", &|sample| found(sample, OPENING_US)),
    ("keys at put", &|sample| operations_us(sample, &OPERATIONS_OF_PUTS)),
    ("keys at get", &|sample| operations_us(sample, &OPERATIONS_OF_GETS)),
    ("longest XQTIME", &|sample| longest(sample, |moment| moment.xqtime_us)),
    ("most queued, messages", &|sample| longest(sample, |moment| moment.depth)),
];
/// What is measured of a getter that falls behind.
const BEHIND: [(&str, Of<'static>); 6] = [
    ("messages/s got", &|sample| Some(sample.rate)),
    ("most queued", &|sample| longest(sample, |moment| moment.depth)),
    ("refused with 2053, a second", &|sample| Some(found(sample, "refused-2053")? / sample.seconds.max(1e-9))),
    ("messages to scratch files", &|sample| found(sample, SCRATCH_MESSAGES)),
    ("MiB to scratch files", &|sample| Some(found(sample, SCRATCH_BYTES)? / f64::from(1 << 20))),
    ("wait for scratch files, µs a message", &|sample| found(sample, SCRATCH_WAIT_US)),
];

/// A stream into a channel that seals: rates against the target, what putter, getter and protection cost, and a getter
/// that falls behind
#[derive(Args, Debug)]
pub(super) struct InterceptionArgs {
    /// Messages a second that are put
    #[arg(long, default_value_t = RATE, value_parser = clap::value_parser!(u64).range(1..=100_000_000), help_heading = "Configurations")]
    rate: u64,
    /// Payload: bytes, or with k or m
    #[arg(long, default_value = "2k", value_parser = bytes, help_heading = "Configurations")]
    size: u64,
    /// The key of signers and recipients
    #[arg(long, default_value = KEY, value_parser = key, help_heading = "Configurations")]
    key: String,
    /// Qualities of protection, comma separated
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "none,integrity,privacy,confidentiality",
        help_heading = "Configurations"
    )]
    quality: Vec<Quality>,
    /// How often confidentiality uses a content key again, comma separated
    #[arg(long, value_delimiter = ',', default_value = "0,1,32,64,unlimited", help_heading = "Configurations")]
    reuse: Vec<Reuse>,
    /// Messages a second that the slow getter takes; half of the rate unless given
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000), help_heading = "Configurations")]
    getter_rate: Option<u64>,
    /// Memory for messages where the getter falls behind, MiB: what is beyond goes to scratch files
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_048_576), help_heading = "Configurations")]
    memory: u32,
    /// MAXDEPTH of the short queue, which a slow getter fills (2053)
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=999_999_999), help_heading = "Configurations")]
    max_depth: u32,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    pages: Pages,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`interception::take`], and [`Pages::write`].
pub(super) fn run(args: &InterceptionArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.no_broker()?;
    let taken = interception::take(&args.common, configurations(args), host)?;
    let measured = taken.measured();
    args.pages.write(page(&measured), &measured, args.common.json)?;
    taken.verdict()
}

/// Each protection through a channel that seals; then the slow getter with little memory, and with a short queue, both
/// unprotected at one queue manager, so that nothing else holds the stream back.
fn configurations(args: &InterceptionArgs) -> Vec<Configuration> {
    let plain = Configuration { bytes: args.size, target_rate: args.rate, ..Configuration::default() };
    let mut found = Vec::new();
    for quality in &args.quality {
        let key = if *quality == Quality::None { String::new() } else { args.key.clone() };
        let one = Configuration { quality: *quality, key, ..plain.clone() };
        let reuses = if *quality == Quality::Confidentiality { &args.reuse[..] } else { &[Reuse::Times(0)][..] };
        found.extend(reuses.iter().map(|reuse| Configuration { reuse: *reuse, ..one.clone() }));
    }
    let mut found: Vec<Configuration> = found.into_iter().map(interception::through_a_channel).collect();
    let slow = Getting { getter_rate: args.getter_rate.unwrap_or(args.rate.div_ceil(2)), ..Getting::default() };
    for getting in [Getting { memory_mib: args.memory, ..slow }, Getting { max_depth: args.max_depth, ..slow }] {
        found.push(Configuration { getting, ..plain.clone() });
    }
    found
}

fn page(measured: &Measured) -> Page {
    let groups: Vec<&Group> = measured.groups.iter().collect();
    let (crossing, behind): (Vec<&Group>, Vec<&Group>) =
        groups.into_iter().partition(|group| group.configuration.topology == "channel");
    let mut behind_figures = vec![left_behind(&behind)];
    behind_figures.extend(course::of_queues("interception", &behind));
    let sections = vec![
        Section {
            title: "Published beside ours".to_owned(),
            words: vec![
                EMPTY_CELLS.to_owned(),
                "The adapter's elapsed time is from the beginning of a message to its end, waits for devices included. The study's stand beside RSA 1024, 2 KB and 10,000 messages a second; its getter's +5 µs is for confidentiality, with which reuse is not known to us, and stands with 32.".to_owned(),
                "Protection at put and at get is the queue managers' processor time for sealing and for opening, without operations with keys; those have columns of their own. What is added to the getter is its application's processor time and opening, less the same where nothing is protected.".to_owned(),
                "XQTIME over time, and the depth of the queues, are charts of the report on the run.".to_owned(),
            ],
            figures: vec![rates(&crossing).figure(0), costs(&crossing).figure(0)],
            tables: vec![ours::table("Ours alone", "protection", &OURS, &crossing, label)],
            ..Section::default()
        },
        Section {
            title: "A getter that falls behind".to_owned(),
            words: vec![
                "Messages that are not persistent stay in memory up to --memory; what is beyond is written to scratch files, and read back when its turn has come. A queue that has MAXDEPTH messages refuses the next one with 2053; the putter puts it again after 5 ms.".to_owned(),
                "There is no channel on the way, and so no XQTIME: how long messages wait is the time on their queue.".to_owned(),
            ],
            figures: behind_figures,
            ..Section::default()
        },
    ];
    Page {
        title: "Interception, published and ours".to_owned(),
        lead: vec!["The study: 10,000 messages a second of 2 KB stream from a client that protects nothing over a channel into a mainframe's queue manager, whose channel initiator seals them (RSA 1024); a client gets and opens them.".to_owned()],
        sections,
    }
}

/// What the study reports of a group's protection; none where the group is of another key, payload or rate.
fn published(group: &Group) -> Option<&'static Published> {
    let Configuration { quality, reuse, key, bytes, target_rate, .. } = &group.configuration;
    let is_shape = key == KEY && *bytes == BYTES && *target_rate == RATE;
    PUBLISHED.iter().find(|known| is_shape && known.quality == *quality && known.reuse == *reuse)
}

fn rates(groups: &[&Group]) -> Beside {
    let row = |group: &&Group| {
        let known = published(group);
        let figure = |of: fn(&Published) -> Option<f64>| known.and_then(of).map(Figure::published);
        let ours = |of: &dyn Fn(&Sample) -> Option<f64>| group.value(of);
        let pairs = vec![
            Pair { published: figure(|known| Some(known.rate)), ours: ours(&|sample| Some(sample.rate)) },
            Pair { published: figure(|known| known.elapsed_us), ours: ours(&adapters_us) },
        ];
        Row { label: label(group), pairs }
    };
    Beside {
        name: "interception/rates".to_owned(),
        title: "Messages a second against the target".to_owned(),
        description: "Messages a second that are got. Longer bars are better.".to_owned(),
        rows_are: "protection".to_owned(),
        measures: ["messages/s", "adapter elapsed, µs a message"].map(str::to_owned).to_vec(),
        rows: groups.iter().map(row).collect(),
    }
}

fn costs(groups: &[&Group]) -> Beside {
    let getting = |sample: &Sample| Some(found(sample, GETTER_US)? + found(sample, OPENING_US).unwrap_or(0.0));
    let plain = groups.iter().find(|group| group.configuration.quality == Quality::None);
    let plain_us = plain.and_then(|group| Some(group.value(getting)?.middle));
    let row = |group: &&Group| {
        let is_plain = group.configuration.quality == Quality::None;
        let added = |sample: &Sample| Some(getting(sample)? - plain_us?);
        let pair = Pair {
            published: published(group).and_then(|known| known.getter_us).map(Figure::published),
            ours: if is_plain { None } else { group.value(added) },
        };
        Row { label: label(group), pairs: vec![pair] }
    };
    Beside {
        name: "interception/costs".to_owned(),
        title: "What putter, getter and protection cost".to_owned(),
        description: "Processor time that protection adds to the getter, µs a message. Shorter bars are better."
            .to_owned(),
        rows_are: "protection".to_owned(),
        measures: vec!["added to the getter, µs a message".to_owned()],
        rows: groups.iter().map(row).collect(),
    }
}

/// What became of messages that the getter left behind.
fn left_behind(groups: &[&Group]) -> document::Figure {
    let fields = differing(groups);
    let label = |group: &Group| group.label(&fields);
    let title = "Messages that a slow getter leaves behind";
    let values = |of: Of<'_>| groups.iter().map(|group| group.value(of)).collect::<Vec<Option<Value>>>();
    document::Figure {
        name: "interception/behind".to_owned(),
        title: title.to_owned(),
        description: "Each column has a scale of its own.".to_owned(),
        table: ours::table(title, "setup", &BEHIND, groups, label),
        chart: Chart::Panels(Panels {
            categories: groups.iter().map(|group| label(group)).collect(),
            series: BEHIND.iter().map(|(name, of)| Series { name: (*name).to_owned(), values: values(of) }).collect(),
            measure: "each on its own scale".to_owned(),
        }),
        remarks: Vec::new(),
    }
}

/// The most that the moments of a sample have of something.
fn longest(sample: &Sample, of: fn(&crate::result::Moment) -> Option<f64>) -> Option<f64> {
    sample.course.iter().filter_map(of).max_by(f64::total_cmp)
}

/// Elapsed time of adapters, microseconds a message.
fn adapters_us(sample: &Sample) -> Option<f64> {
    let adapters = sample.tasks.iter().filter(|task| task.kind == "ADAPTER");
    let us: f64 = adapters.map(|task| task.requests as f64 * task.elapsed_us).sum();
    (us > 0.0 && sample.transactions > 0).then(|| us / sample.transactions as f64)
}

/// Execution time of such operations with keys, microseconds a message.
fn operations_us(sample: &Sample, names: &[&str]) -> Option<f64> {
    let used = sample.devices.iter().flat_map(|device| &device.operations);
    let us: f64 = used
        .filter(|used| names.contains(&used.operation.as_str()))
        .map(|used| used.count as f64 * used.execution_us)
        .sum();
    (us > 0.0 && sample.transactions > 0).then(|| us / sample.transactions as f64)
}

fn label(group: &Group) -> String {
    let Configuration { quality, reuse, .. } = group.configuration;
    match quality {
        Quality::None => "unprotected".to_owned(),
        Quality::Confidentiality => format!("{quality} · reuse {reuse}"),
        quality => quality.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::{Cell, Table};
    use crate::result::{DeviceUse, Moment, OperationUse, TaskUse};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: InterceptionArgs,
    }

    #[test]
    fn each_protection_crosses_and_two_getters_fall_behind() {
        let plan = configurations(&Line::parse_from(["interception"]).args);
        let (crossing, behind): (Vec<_>, Vec<_>) = plan.iter().partition(|one| one.topology == "channel");
        assert_eq!((crossing.len(), behind.len()), (8, 2));
        assert!(plan.iter().all(|one| one.target_rate == RATE && one.bytes == BYTES));
        let getting: Vec<Getting> = behind.iter().map(|one| one.getting).collect();
        assert!(getting.iter().all(|getting| getting.getter_rate == RATE / 2));
        assert_eq!((getting[0].memory_mib, getting[1].max_depth), (8, 5_000));
    }

    /// Invented.
    fn group(quality: Quality, found: &[(&str, f64)]) -> Group {
        let key = if quality == Quality::None { "" } else { KEY };
        let configuration = Configuration {
            quality,
            key: key.into(),
            target_rate: RATE,
            topology: "channel".into(),
            ..Configuration::default()
        };
        let verify =
            OperationUse { operation: "rsa-verify".into(), count: 50, execution_us: 20.0, ..OperationUse::default() };
        let sample = Sample {
            configuration: configuration.clone(),
            transactions: 100,
            rate: 6_500.0,
            seconds: 2.0,
            devices: vec![DeviceUse { operations: vec![verify], ..DeviceUse::default() }],
            tasks: vec![TaskUse { kind: "ADAPTER".into(), requests: 200, elapsed_us: 55.0, ..TaskUse::default() }],
            course: vec![Moment { depth: Some(7.0), xqtime_us: Some(90.0), ..Moment::default() }],
            found: found.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..Sample::default()
        };
        Group { workload: "stream".into(), configuration, setting: 0, samples: vec![sample] }
    }

    fn shown(table: &Table, nth: usize) -> Vec<String> {
        table.rows[nth].iter().map(Cell::shown).collect()
    }

    #[test]
    fn what_protection_adds_to_the_getter_is_its_time_and_opening_beyond_the_unprotected_one() {
        let groups = [
            group(Quality::None, &[(GETTER_US, 4.0)]),
            group(Quality::Integrity, &[(GETTER_US, 5.0), (OPENING_US, 12.0), (SEALING_US, 21.0)]),
        ];
        let groups: Vec<&Group> = groups.iter().collect();
        let table = costs(&groups).table();
        assert_eq!(shown(&table, 0)[..3], ["unprotected", "", ""]);
        let row = shown(&table, 1);
        assert_eq!(row[..4], ["integrity", "13 (published)", "13", "1"], "{row:?}");
        let alone = shown(&ours::table("", "", &OURS, &groups, label), 1);
        assert_eq!(alone[1..], ["", "5", "21", "12", "", "10", "90", "7"], "{alone:?}");
        let row = shown(&rates(&groups).table(), 1);
        assert_eq!(row[..4], ["integrity", "3,250 (published)", "6,500", "2"], "{row:?}");
        assert!(row.contains(&"275 (published)".to_owned()) && row.contains(&"110".to_owned()), "{row:?}");
    }

    #[test]
    fn what_is_left_behind_is_shown_as_it_develops() {
        let moment = |at: f64, qtime_us: f64, used: f64| Moment {
            at,
            depth: Some(10.0 * at),
            qtime_us: Some(qtime_us),
            scratch_used_bytes: Some(used),
            ..Moment::default()
        };
        let mut scratch = group(Quality::None, &[]);
        scratch.samples[0].course = vec![moment(1.0, 40.0, 0.0), moment(2.0, 900.0, 2048.0)];
        let figures = course::of_queues("interception", &[&scratch]);
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        let of = |kind: &str| format!("interception/{kind}-over-time");
        assert_eq!(names, [of("depth"), of("qtime"), of("scratch")], "there is no channel");
        assert_eq!(shown(&figures[1].table, 1)[1], "900");
        assert_eq!(shown(&figures[2].table, 1)[1], "2,048");
    }

    #[test]
    fn what_was_left_behind_is_counted() {
        let refused = group(Quality::None, &[("refused-2053", 500.0)]);
        let scratch =
            group(Quality::None, &[(SCRATCH_MESSAGES, 1000.0), (SCRATCH_BYTES, 2_097_152.0), (SCRATCH_WAIT_US, 3.0)]);
        let figure = left_behind(&[&refused, &scratch]);
        assert_eq!(shown(&figure.table, 0)[3..], ["250", "", "", ""]);
        assert_eq!(shown(&figure.table, 1)[3..], ["", "1,000", "2", "3"]);
    }
}
