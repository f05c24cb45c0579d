//! `bulla perf published key-size`: what longer keys cost a requester and a server whose keys are on crypto cards.
//!
//! The study's figures that are known to us are four rates with integrity and 2 KB, and the times of its cards
//! (`docs/measurements/key-size.md`, [`bulla_device::Profile`]).

use super::beside::{Beside, Pair, Row};
use super::figure::Figure;
use super::page::{Page, Pages};
use crate::configuration::{Configuration, Quality, Reuse};
use crate::error::{Error, Result, Verdict};
use crate::host::Host;
use crate::report::bars::{Bars, Series};
use crate::report::chart::Chart;
use crate::report::document::{self, Section};
use crate::report::field::differing;
use crate::report::group::{Group, Measured};
use crate::report::number::number;
use crate::report::table::{Cell, Table};
use crate::result::{DeviceUse, Sample};
use crate::run::options::{Common, Defaults, Protection};
use crate::site::Settings;
use crate::workload::request_reply;
use bulla_device::Profile;
use bulla_seal::certificate::Strength;
use clap::Args;

/// Keys of the study that only sign.
const CURVES: [&str; 3] = ["p192", "p224", "p521"];
/// The key that others are compared with.
const SHORTEST: &str = "rsa1024";
/// Payload of the published rates, bytes.
const PUBLISHED_BYTES: u64 = 2 << 10;
/// Published transactions a second with integrity and 2 KB.
const RATES: [(&str, f64); 4] = [(SHORTEST, 1342.0), ("rsa4096", 122.0), ("p192", 804.0), ("p521", 149.0)];
/// Published utilisation of one device by two of its functions, percent.
const FUNCTIONS: [f64; 2] = [73.8, 78.9];
/// From here on a device is busy all the time, percent; as `bulla report crypto` has it.
const SATURATED_PERCENT: f64 = 99.5;

/// What longer keys cost: requests and replies with keys on cards and here, as published and as measured
#[derive(Args, Debug)]
pub(super) struct KeySizeArgs {
    #[command(flatten)]
    protection: Protection,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    pages: Pages,
}

/// Does what the arguments say.
///
/// # Errors
/// [`Error::Usage`]; else as [`request_reply::take`] and [`Pages::write`].
pub(super) fn run(args: &KeySizeArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.no_broker()?;
    let configurations = configurations(&args.protection)?;
    let settings = Settings {
        tls: args.common.tls,
        client_seal: args.common.client_seal,
        options: args.common.start.clone(),
        split: true,
        ..Settings::default()
    };
    let taken = request_reply::take(host, &args.common, configurations, settings)?;
    let measured = taken.measured();
    args.pages.write(page(&measured), &measured, args.common.json)?;
    taken.verdict()
}

fn configurations(protection: &Protection) -> Result<Vec<Configuration>> {
    let mut keys = vec![SHORTEST, "rsa2048", "rsa4096"];
    keys.extend(CURVES);
    let all = protection.product(&Defaults {
        quality: &[Quality::Integrity, Quality::Privacy, Quality::Confidentiality],
        key: &keys,
        reuse: &[Reuse::Times(1), Reuse::Times(32), Reuse::Times(64), Reuse::Unlimited],
        size: &[2 << 10, 64 << 10, 4 << 20],
        pairs: &[1],
        devices: &["modelled:1a+2c", "cpu", "1a"],
    })?;
    // The study's message container wraps keys by RSA alone.
    let is_of_the_study = |one: &Configuration| one.quality == Quality::Integrity || !one.key.starts_with('p');
    let found: Vec<Configuration> = all.into_iter().filter(is_of_the_study).collect();
    if found.is_empty() {
        return Err(Error::Usage("the study has curves with integrity alone".to_owned()));
    }
    Ok(found)
}

fn page(measured: &Measured) -> Page {
    let groups: Vec<&Group> = measured.groups.iter().collect();
    Page {
        title: "Key sizes, published and ours".to_owned(),
        lead: vec![
            "The study: a requester and a server on a mainframe's queue manager with message security, one request under way, keys on an accelerator (A) and coprocessors (C). Signatures and curves are done by C, the other operations of RSA by A: ME with the public exponent, CRT with the primes.".to_owned(),
            "Ours: modelled:1a+2c are cards that this machine has not, with the times in the table of service times. They give real results no earlier than these say.".to_owned(),
        ],
        sections: vec![rates(&groups), changes(&groups), devices(&groups), activity(&groups), times(), strengths()],
    }
}

/// The published rate of a configuration.
fn published(one: &Configuration) -> Option<f64> {
    let is_it =
        one.quality == Quality::Integrity && one.bytes == PUBLISHED_BYTES && one.pairs == 1 && one.in_flight == 1;
    RATES.iter().find(|(key, _)| is_it && *key == one.key).map(|(_, rate)| *rate)
}

fn section(title: &str, words: &[&str]) -> Section {
    let words = words.iter().map(|words| (*words).to_owned()).collect();
    Section { title: title.to_owned(), words, ..Section::default() }
}

fn label(group: &Group, groups: &[&Group]) -> String {
    group.label(&differing(groups))
}

fn rates(groups: &[&Group]) -> Section {
    let row = |group: &&Group| Row {
        label: label(group, groups),
        pairs: vec![Pair { published: published(&group.configuration).map(Figure::published), ours: group.rate() }],
    };
    beside(
        ("Rates, published beside ours", "key-size/published-rate", "transactions a second"),
        "A transaction is a request and its reply: two messages that are sealed and opened. Known to us are rates with integrity and 2 KB; those of other sizes, qualities and keys are not. Longer bars are better.",
        groups.iter().map(row).collect(),
    )
}

fn changes(groups: &[&Group]) -> Section {
    let change = |rate: f64, of: f64| 100.0 * (rate / of - 1.0);
    let row = |group: &&Group| {
        let shortest = Configuration { key: SHORTEST.to_owned(), ..group.configuration.clone() };
        let is_it = |other: &&&Group| other.configuration == shortest && other.setting == group.setting;
        let own = groups.iter().find(is_it).and_then(|group| group.rate());
        let theirs = published(&group.configuration).zip(published(&shortest));
        Row {
            label: label(group, groups),
            pairs: vec![Pair {
                published: theirs.map(|(rate, of)| Figure::derived((change(rate, of) * 10.0).round() / 10.0)),
                ours: own.and_then(|of| group.value(|sample| Some(change(sample.rate, of.middle)))),
            }],
        }
    };
    let rows = groups.iter().filter(|group| group.configuration.key != SHORTEST).map(row).collect();
    beside(
        ("Change against RSA 1024", "key-size/change", "change of the rate, %"),
        "How the rate changes where nothing but the key is another one. The study's are derived from its rates.",
        rows,
    )
}

fn beside((title, name, measure): (&str, &str, &str), description: &str, rows: Vec<Row>) -> Section {
    let beside = Beside {
        name: name.to_owned(),
        title: title.to_owned(),
        description: description.to_owned(),
        rows_are: "configuration".to_owned(),
        measures: vec![measure.to_owned()],
        rows,
    };
    if beside.rows.is_empty() {
        return section(title, &["Nothing of this was measured."]);
    }
    Section { figures: vec![beside.figure(0)], ..section(title, &[]) }
}

/// What device time of a transaction is told apart.
const PARTS: [&str; 4] = ["C", "A-ME", "A-CRT", "others"];

/// Device time of a transaction by [`PARTS`], milliseconds.
fn parts_ms(sample: &Sample) -> [f64; 4] {
    let mut parts = [0.0; 4];
    for device in &sample.devices {
        for used in &device.operations {
            let part = match (is_coprocessor(device), is_accelerator(device), used.format.as_str()) {
                (true, ..) => 0,
                (_, true, "RSA ME") => 1,
                (_, true, _) => 2,
                _ => 3,
            };
            parts[part] += used.count as f64 * used.execution_us / 1e3 / (sample.transactions.max(1)) as f64;
        }
    }
    parts
}

fn is_coprocessor(device: &DeviceUse) -> bool {
    device.name.trim_start_matches("MODEL.").starts_with("COPROC")
}

fn is_accelerator(device: &DeviceUse) -> bool {
    device.name.trim_start_matches("MODEL.").starts_with("ACCEL")
}

fn devices(groups: &[&Group]) -> Section {
    let title = "Device time of a transaction";
    let measured: Vec<&&Group> =
        groups.iter().filter(|group| group.samples.iter().any(|one| !one.devices.is_empty())).collect();
    if measured.is_empty() {
        return section(title, &["No device was used."]);
    }
    let of =
        |group: &Group, part: usize| group.value(|sample| Some(parts_ms(sample)[part])).filter(|ms| ms.middle > 0.0);
    let series: Vec<Series> = PARTS
        .iter()
        .enumerate()
        .map(|(part, name)| Series {
            name: (*name).to_owned(),
            values: measured.iter().map(|group| of(group, part)).collect(),
        })
        .filter(|series| series.values.iter().any(Option::is_some))
        .collect();
    let columns = std::iter::once("configuration".to_owned()).chain(series.iter().map(|series| series.name.clone()));
    let row = |at: usize| {
        let values = series.iter().map(|series| Cell::value(series.values[at]));
        std::iter::once(Cell::text(label(measured[at], groups))).chain(values).collect()
    };
    let table = Table {
        caption: format!("{title}: milliseconds"),
        columns: columns.collect(),
        rows: (0..measured.len()).map(row).collect(),
    };
    let chart = Chart::Bars(Bars {
        categories: measured.iter().map(|group| label(group, groups)).collect(),
        series,
        stacked: true,
        measure: "milliseconds a transaction".to_owned(),
        ..Bars::default()
    });
    let figure = document::Figure {
        name: "key-size/device-time".to_owned(),
        title: title.to_owned(),
        description: "How long devices are busy with one transaction, by coprocessors (C), accelerators with the public exponent (A-ME) and with the primes (A-CRT), and all others, the processor among them. Shorter bars are better.".to_owned(),
        chart,
        remarks: vec!["The study's own device times of a transaction are not known to us.".to_owned()],
        table,
    };
    Section { figures: vec![figure], ..section(title, &[]) }
}

/// A device's utilisation by form, as the activity report has it: percent of the time.
fn by_form(sample: &Sample, device: &DeviceUse) -> Vec<(String, f64)> {
    let mut forms: Vec<(String, f64)> = Vec::new();
    for used in &device.operations {
        let percent = 100.0 * used.count as f64 * used.execution_us / (sample.seconds * 1e6).max(1.0);
        match forms.iter_mut().find(|(form, _)| *form == used.format) {
            Some((_, sum)) => *sum += percent,
            None => forms.push((used.format.clone(), percent)),
        }
    }
    forms
}

/// Lines of a device, as they are shown: their sum, the sum that ends at 100, and what it advises.
fn shown(lines: &[(String, f64)]) -> [Cell; 4] {
    let sum: f64 = lines.iter().map(|(_, percent)| percent).sum();
    let texts: Vec<String> =
        lines.iter().map(|(form, percent)| format!("{form} {percent:.1}").trim().to_owned()).collect();
    let advice = if sum >= SATURATED_PERCENT { "another device is due" } else { "none is due" };
    [
        Cell::text(texts.join(" + ")),
        Cell::text(format!("{sum:.1}")),
        Cell::text(format!("{:.1}", sum.min(100.0))),
        Cell::text(advice),
    ]
}

fn activity(groups: &[&Group]) -> Section {
    let row = |whose: String, device: String, lines: &[(String, f64)]| {
        [Cell::text(whose), Cell::text(device)].into_iter().chain(shown(lines)).collect::<Vec<Cell>>()
    };
    let theirs = FUNCTIONS.map(|percent| (String::new(), percent));
    let mut rows = vec![row("the study (published)".to_owned(), "a card with two functions".to_owned(), &theirs)];
    for group in groups.iter().filter(|group| group.is_modelled()) {
        let Some(sample) = group.typical() else { continue };
        let used = sample.devices.iter().map(|device| (device, by_form(sample, device)));
        for (device, lines) in used.filter(|(_, lines)| !lines.is_empty()) {
            rows.push(row(label(group, groups), format!("{} (modelled)", device.name), &lines));
        }
    }
    let columns = ["run", "device", "lines, %", "together", "shown, %", "advice"].map(str::to_owned).to_vec();
    let table = Table { caption: "Crypto activity".to_owned(), columns, rows };
    let words = [
        "Lines of a device may add up to more than 100, because execution times are means; the device's own utilisation ends there, and says that another device is due. `bulla report crypto` shows the same for a queue manager that runs.",
    ];
    Section { tables: vec![table], ..section("The activity report", &words) }
}

fn times() -> Section {
    let rows = [Profile::coprocessor(), Profile::accelerator()].into_iter().flat_map(|profile| {
        let name = profile.name().to_owned();
        let row = move |time: bulla_device::ServiceTime| {
            let ms = time.time.as_secs_f64() * 1e3;
            vec![
                Cell::text(format!("{name}: {} {}", time.shape.form, time.shape.bits)),
                Cell::text(format!("{} ({})", number(ms), time.mark)),
            ]
        };
        profile.times().map(row).collect::<Vec<_>>()
    });
    let table = Table {
        caption: "Service times of modelled cards, milliseconds".to_owned(),
        columns: vec!["card and operation".to_owned(), "ms".to_owned()],
        rows: rows.collect(),
    };
    let words = [
        "How each derived time follows is in docs/operating/devices.md. RSA 1024, RSA 4096, P-192 and P-521 of the coprocessor are derived from the rates above: that these come out is the model's doing, and no confirmation of it.",
    ];
    Section { tables: vec![table], ..section("Service times", &words) }
}

fn strengths() -> Section {
    let row = |strength: Strength| {
        let bits = if strength.bits == Strength::TABLE[0].bits {
            format!("at most {}", strength.bits)
        } else {
            strength.bits.to_string()
        };
        vec![
            Cell::text(bits),
            Cell::text(format!("RSA {}", strength.rsa_bits)),
            Cell::text(format!("P-{}", strength.curve_bits)),
        ]
    };
    let table = Table {
        caption: "Keys of like strength".to_owned(),
        columns: ["bits of security", "RSA", "curve"].map(str::to_owned).to_vec(),
        rows: Strength::TABLE.into_iter().map(row).collect(),
    };
    Section { tables: vec![table], ..section("Strength", &["Source: NIST SP 800-57 part 1, revision 5, table 2."]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::OperationUse;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: KeySizeArgs,
    }

    fn plan(options: &[&str]) -> Result<Vec<Configuration>> {
        configurations(&Line::parse_from([&["key-size"], options].concat()).args.protection)
    }

    #[test]
    fn curves_sign_and_do_nothing_else() {
        let cases = plan(&["--devices", "cpu", "--size", "2k"]).unwrap();
        let of = |quality| cases.iter().filter(|one| one.quality == quality).count();
        assert_eq!((of(Quality::Integrity), of(Quality::Privacy), of(Quality::Confidentiality)), (6, 3, 3 * 4));
        assert!(plan(&["--quality", "privacy", "--key", "p192"]).is_err());
    }

    /// Invented.
    fn group(key: &str, rate: f64) -> Group {
        let used = |operation: &str, format: &str, execution_us| OperationUse {
            operation: operation.into(),
            format: format.into(),
            count: 200,
            execution_us,
            ..OperationUse::default()
        };
        let device = |name: &str, operations| DeviceUse { name: name.into(), operations, ..DeviceUse::default() };
        let sample = Sample {
            rate,
            seconds: 1.0,
            transactions: 100,
            devices: vec![
                device("MODEL.COPROC1", vec![used("rsa-sign", "RSA CRT", 500.0)]),
                device("MODEL.ACCEL1", vec![used("rsa-verify", "RSA ME", 50.0), used("rsa-unwrap", "RSA CRT", 100.0)]),
                device("CPU", vec![used("rsa-wrap", "RSA ME", 10.0)]),
            ],
            ..Sample::default()
        };
        let configuration = Configuration {
            quality: Quality::Integrity,
            key: key.into(),
            bytes: PUBLISHED_BYTES,
            devices: "modelled:1a+2c".into(),
            ..Configuration::default()
        };
        let samples = vec![Sample { configuration: configuration.clone(), ..sample }];
        Group { workload: "request-reply".into(), configuration, setting: 0, samples }
    }

    #[test]
    fn device_time_is_told_by_card_and_arithmetic() {
        let parts = parts_ms(&group("rsa1024", 1.0).samples[0]);
        assert_eq!(parts.map(|ms| (ms * 1000.0).round()), [1000.0, 100.0, 200.0, 20.0]);
    }

    #[test]
    fn published_rates_and_what_follows_from_them_stand_beside_ours() {
        let groups = [group("rsa1024", 1000.0), group("rsa2048", 700.0), group("rsa4096", 100.0)];
        let groups: Vec<&Group> = groups.iter().collect();
        let cells = |section: Section, row: usize| -> Vec<String> {
            section.figures[0].table.rows[row].iter().map(Cell::shown).collect()
        };
        assert_eq!(cells(rates(&groups), 0)[1], "1,342 (published)");
        assert_eq!(cells(rates(&groups), 1)[1], "", "none is known");
        let change = cells(changes(&groups), 1);
        assert_eq!((change[1].as_str(), change[2].as_str()), ("−90.9 (derived)", "−90 (modelled)"), "{change:?}");
    }

    #[test]
    fn the_published_activity_is_shown_as_100_percent() {
        let table = &activity(&[]).tables[0];
        let row: Vec<String> = table.rows[0].iter().map(Cell::shown).collect();
        assert_eq!(row[2..], ["73.8 + 78.9", "152.7", "100.0", "another device is due"]);
    }

    #[test]
    fn service_times_say_where_they_are_from() {
        let shown: Vec<String> =
            times().tables[0].rows.iter().map(|row| format!("{} {}", row[0].shown(), row[1].shown())).collect();
        assert!(shown.contains(&"coprocessor: RSA CRT 2048 0.596 (published)".to_owned()), "{shown:?}");
        assert!(shown.iter().all(|line| line.ends_with("(published)") || line.ends_with("(derived)")), "{shown:?}");
    }

    #[test]
    fn an_unused_value_is_no_bar() {
        assert!(devices(&[]).figures.is_empty());
    }
}
