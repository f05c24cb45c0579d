//! `bulla perf published https`: a trading application over HTTPS whose handshakes are signed in software, by the
//! processor's instructions, or by one and two crypto cards.

use super::beside::{Beside, EMPTY_CELLS, Pair, Row};
use super::figure::Figure;
use super::page::{Page, Pages};
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::report::chart::Value;
use crate::report::document::Section;
use crate::report::field::differing;
use crate::report::group::{Group, Measured};
use crate::report::trade::{self as report, Published};
use crate::workload::trade;
use clap::Args;

/// A trading application over HTTPS with RSA 4096: rate, cores, cost and response time, as published and as measured
#[derive(Args, Debug)]
pub(super) struct HttpsArgs {
    #[command(flatten)]
    trade: trade::TradeArgs,
    #[command(flatten)]
    pages: Pages,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`trade::take`], and [`Pages::write`].
pub(super) fn run(args: &HttpsArgs, host: &dyn Host) -> Result<Verdict> {
    let taken = trade::take(&args.trade, host)?;
    let measured = taken.measured();
    args.pages.write(page(&measured), &measured, args.trade.is_silent())?;
    taken.verdict()
}

fn page(measured: &Measured) -> Page {
    let groups: Vec<&Group> = measured.groups.iter().collect();
    let beside = beside(&groups);
    let section = Section {
        title: "Published beside ours".to_owned(),
        words: vec![EMPTY_CELLS.to_owned(), "The study's cost and cores are those of four processors that served the application; ours are the queue manager's, without the customers and without the arithmetic of modelled cards. Its figures stand beside setups with RSA 4096, one request a connection and no resumed sessions.".to_owned()],
        tables: vec![beside.table()],
        ..Section::default()
    };
    Page {
        title: "HTTPS transactions, published and ours".to_owned(),
        lead: vec!["The study: a stock-trading application over HTTPS on a mainframe with four processors, RSA 4096 under TLS 1.2, the keys' operations done in software, by the processor's instructions, or by one and two crypto cards. Rates and costs are published in relation to software's.".to_owned()],
        sections: vec![section],
    }
}

/// A measure of the study.
struct Measure {
    name: &'static str,
    published: fn(&Published) -> &'static str,
    ours: fn(&Group, &[&Group]) -> Option<Value>,
}

const MEASURES: [Measure; 6] = [
    Measure {
        name: "transactions a second, % of software's",
        published: |known| known.rate,
        ours: |group, groups| report::against(group, groups, |sample| sample.rate),
    },
    Measure {
        name: "processor time a transaction, % of software's",
        published: |known| known.cost,
        ours: |group, groups| report::against(group, groups, report::cost_us),
    },
    Measure {
        name: "mean response, ms",
        published: |known| known.response,
        ours: |group, _| group.value(|sample| Some(sample.latency_us?.mean / 1e3)),
    },
    Measure {
        name: "jobs with devices",
        published: |known| known.pending,
        ours: |group, _| group.value(|sample| Some(report::pending(sample))),
    },
    Measure {
        name: "cores of the server",
        published: |known| known.cores,
        ours: |group, _| group.value(|sample| Some(report::cores(sample))),
    },
    Measure { name: "busiest device, %", published: |_| "", ours: |group, _| group.value(report::busiest) },
];

fn beside(groups: &[&Group]) -> Beside {
    let fields = differing(groups);
    let row = |group: &&Group| Row {
        label: group.label(&fields),
        pairs: MEASURES
            .iter()
            .map(|measure| Pair {
                published: Figure::words(report::published(group, measure.published)),
                ours: (measure.ours)(group, groups),
            })
            .collect(),
    };
    Beside {
        name: "https/published".to_owned(),
        title: "A trading application over HTTPS".to_owned(),
        rows_are: "setup".to_owned(),
        measures: MEASURES.iter().map(|measure| measure.name.to_owned()).collect(),
        rows: groups.iter().map(row).collect(),
        ..Beside::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;
    use crate::report::table::Cell;
    use crate::result::Sample;

    /// Invented.
    fn group(devices: &str, key: &str, rate: f64) -> Group {
        let configuration =
            Configuration { key: key.into(), devices: devices.into(), requests: 1, ..Configuration::default() };
        let sample = Sample { configuration: configuration.clone(), rate, seconds: 1.0, ..Sample::default() };
        Group { workload: "trade".into(), configuration, setting: 0, samples: vec![sample] }
    }

    #[test]
    fn a_card_stands_beside_what_was_published_of_one() {
        let groups = [
            group("software", "rsa4096", 100.0),
            group("modelled:1a", "rsa4096", 520.0),
            group("modelled:1a", "p256", 9.0),
        ];
        let table = beside(&groups.iter().collect::<Vec<_>>()).table();
        let row = |nth: usize| table.rows[nth].iter().map(Cell::shown).collect::<Vec<_>>();
        assert_eq!(row(1)[1..3], ["more than 5 × (published)", "520 (modelled)"]);
        assert!(row(1).contains(&"5 to 8 (published)".to_owned()), "{:?}", row(1));
        assert_eq!(row(2)[1], "", "nothing was published of curves");
    }
}
