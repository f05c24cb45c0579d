//! `bulla perf published buffer`: sealed messages for receivers that take 2 KB, and for receivers that take more.

use super::beside::{Beside, EMPTY_CELLS, Pair, Row};
use super::figure::Figure;
use super::ours;
use super::page::{Page, Pages};
use crate::configuration::{Configuration, Getting, Quality, Reuse};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::report::chart::Value;
use crate::report::document::Section;
use crate::report::field::differing;
use crate::report::group::{Group, Measured};
use crate::run::options::{Common, bytes, key};
use crate::workload::interception;
use clap::Args;

/// What the study says of a buffer that the message fits into, and its sealed form does not.
const SHORT_BUFFER: &str = "half of the other or less";
/// Payload of a message that has 2 KB with its sections.
const BYTES: &str = "1792";

/// Sealed messages for receivers that take messages of 2 KB, and for those that take 20 KB
#[derive(Args, Debug)]
pub(super) struct BufferArgs {
    /// The longest message that receivers take (max-message-size), comma separated: bytes, or with k or m
    #[arg(long, value_delimiter = ',', value_parser = bytes, default_value = "2k,20k", help_heading = "Configurations")]
    receiver: Vec<u64>,
    /// Payload: bytes, or with k or m. With the sections around it the message is to be no longer than receivers take
    #[arg(long, default_value = BYTES, value_parser = bytes, help_heading = "Configurations")]
    size: u64,
    /// Qualities of protection, comma separated
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "integrity,privacy,confidentiality",
        help_heading = "Configurations"
    )]
    quality: Vec<Quality>,
    /// The key of signers and recipients
    #[arg(long, default_value = "rsa2048", value_parser = key, help_heading = "Configurations")]
    key: String,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    pages: Pages,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`interception::take`], and [`Pages::write`].
pub(super) fn run(args: &BufferArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.no_broker()?;
    let taken = interception::take(&args.common, configurations(args), host)?;
    let measured = taken.measured();
    args.pages.write(page(&measured), &measured, args.common.json)?;
    taken.verdict()
}

fn configurations(args: &BufferArgs) -> Vec<Configuration> {
    let mut found = Vec::new();
    for quality in &args.quality {
        for receiver in &args.receiver {
            found.push(Configuration {
                quality: *quality,
                key: if *quality == Quality::None { String::new() } else { args.key.clone() },
                reuse: Reuse::Times(if *quality == Quality::Confidentiality { 32 } else { 0 }),
                bytes: args.size,
                getting: Getting { receiver_bytes: *receiver, ..Getting::default() },
                ..Configuration::default()
            });
        }
    }
    found
}

fn page(measured: &Measured) -> Page {
    let groups: Vec<&Group> = measured.groups.iter().collect();
    let fields = differing(&groups);
    let label = |group: &Group| group.label(&fields);
    let section = Section {
        title: "Published beside ours".to_owned(),
        words: vec![
            EMPTY_CELLS.to_owned(),
            "A sealed message is longer than what was put. In the study a get with a buffer for the message alone is done again with a longer one. Here the size that counts is that of the opened message, so nothing is done twice, and both receivers should have the same rate. A message that is too long for a receiver ends its link with 2080 and stays for others.".to_owned(),
        ],
        figures: vec![beside(&groups).figure(0)],
        tables: vec![ours::table("Ours alone", "receiver", &[("messages/s", &|sample| Some(sample.rate))], &groups, label)],
        ..Section::default()
    };
    Page {
        title: "Receivers with short buffers, published and ours".to_owned(),
        lead: vec![
            "The study: protected messages of 2 KB are got with a buffer of 2 KB and with one of 20 KB.".to_owned(),
        ],
        sections: vec![section],
    }
}

/// Rates of the shortest receivers in percent of the longest ones', by protection.
fn beside(groups: &[&Group]) -> Beside {
    let bytes = |group: &&Group| group.configuration.getting.receiver_bytes;
    let mut rows = Vec::new();
    for quality in Quality::ALL {
        let of: Vec<&Group> = groups.iter().copied().filter(|group| group.configuration.quality == quality).collect();
        let (Some(short), Some(long)) =
            (of.iter().min_by_key(|one| bytes(one)), of.iter().max_by_key(|one| bytes(one)))
        else {
            continue;
        };
        let share = long.rate().filter(|_| bytes(short) < bytes(long)).and_then(|all| {
            let share = |rate: f64| 100.0 * rate / all.middle;
            let rate = short.rate()?;
            let steady = rate.steady && all.steady;
            let (middle, least, most) = (share(rate.middle), share(rate.least), share(rate.most));
            Some(Value { middle, least, most, steady, ..rate })
        });
        let published = if quality == Quality::None { None } else { Figure::words(SHORT_BUFFER) };
        rows.push(Row { label: quality.to_string(), pairs: vec![Pair { published, ours: share }] });
    }
    Beside {
        name: "buffer/rates".to_owned(),
        title: "Rate with a short buffer".to_owned(),
        description:
            "Messages a second of receivers that take short messages alone, in percent of those that take long ones."
                .to_owned(),
        rows_are: "protection".to_owned(),
        measures: vec!["short receiver, % of the long one's rate".to_owned()],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::Cell;
    use crate::result::Sample;

    /// Invented.
    fn group(receiver_bytes: u64, rate: f64) -> Group {
        let getting = Getting { receiver_bytes, ..Getting::default() };
        let configuration = Configuration { quality: Quality::Privacy, getting, ..Configuration::default() };
        let sample = Sample { configuration: configuration.clone(), rate, ..Sample::default() };
        Group { workload: "stream".into(), configuration, setting: 0, samples: vec![sample] }
    }

    #[test]
    fn the_short_receiver_is_compared_with_the_long_one_of_the_same_protection() {
        let groups = [group(2048, 990.0), group(20_480, 1000.0)];
        let table = beside(&groups.iter().collect::<Vec<_>>()).table();
        let row: Vec<String> = table.rows[0].iter().map(Cell::shown).collect();
        assert_eq!(row[..3], ["privacy", "half of the other or less (published)", "99"], "{row:?}");
        let alone = beside(&[&groups[0]]).table();
        assert_eq!(alone.rows[0][2], Cell::Empty, "nothing to compare with");
    }
}
