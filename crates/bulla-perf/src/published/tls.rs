//! `bulla perf published tls`: what TLS adds to a round trip through a pair of channels, by CipherSpec, and what a
//! renewal of its keys takes (SSLRKEYC).

use super::beside::{Beside, EMPTY_CELLS, Pair, Row};
use super::figure::Figure;
use super::ours::{self, found};
use super::page::{Page, Pages};
use crate::configuration::Configuration;
use crate::error::{Result, Verdict};
use crate::host::Host;
use crate::report::document::Section;
use crate::report::group::{Group, Measured};
use crate::report::number;
use crate::run::options::{Common, bytes, key};
use crate::workload::channel::{self, ADDED_US, RAW_US, RESET_US, RESETS, reset_bytes};
use clap::Args;

/// What an AES-GCM CipherSpec added to a round trip in the study: payload, µs. Of the CBC CipherSpecs, no figure for
/// each is known to us.
const ADDED_BY_GCM: [(u64, f64); 2] = [(8 << 10, 35.0), (32 << 10, 154.0)];
/// What a renewal of a pair's keys took in the study, milliseconds.
const RESET_MS: &str = "6 to 10";
/// What the rows of tables are.
const ROWS_ARE: &str = "CipherSpec, payload, SSLRKEYC";

/// Round trips through a pair of channels: what each CipherSpec adds, and what a renewal of its keys takes
#[derive(Args, Debug)]
pub(super) struct TlsArgs {
    /// CipherSpecs of both channels, comma separated; they are compared with none, which is always measured
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ECDHE_RSA_AES_256_CBC_SHA384,TLS_RSA_WITH_AES_256_CBC_SHA256,ECDHE_ECDSA_AES_256_CBC_SHA384",
        help_heading = "Configurations"
    )]
    cipher: Vec<String>,
    /// Payloads, comma separated: bytes, or with k or m
    #[arg(long, value_delimiter = ',', value_parser = bytes, default_value = "8k,32k", help_heading = "Configurations")]
    size: Vec<u64>,
    /// SSLRKEYC, comma separated; 0 for never, which is always measured
    #[arg(long, value_delimiter = ',', value_parser = reset_bytes, default_value = "0,1m", help_heading = "Configurations")]
    reset: Vec<u64>,
    /// The key of certificates for CipherSpecs with RSA
    #[arg(long, default_value = "rsa2048", value_parser = key, help_heading = "Configurations")]
    rsa_key: String,
    /// The key of certificates for CipherSpecs with ECDSA
    #[arg(long, default_value = "p256", value_parser = key, help_heading = "Configurations")]
    ec_key: String,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    pages: Pages,
}

/// Does what the arguments say.
///
/// # Errors
/// As [`channel::take`], and [`Pages::write`].
pub(super) fn run(args: &TlsArgs, host: &dyn Host) -> Result<Verdict> {
    args.common.no_broker()?;
    let taken = channel::take(&args.common, configurations(args), &args.rsa_key, host)?;
    let measured = taken.measured();
    args.pages.write(page(&measured), &measured, args.common.json)?;
    taken.verdict()
}

/// Without TLS first, then each CipherSpec without renewals, then with them: each is compared with those before it.
fn configurations(args: &TlsArgs) -> Vec<Configuration> {
    let mut found: Vec<Configuration> = Vec::new();
    for size in &args.size {
        let plain = Configuration { bytes: *size, topology: "channel".to_owned(), ..Configuration::default() };
        let with = |cipher: &String, reset_bytes: u64| Configuration {
            key: if cipher.contains("ECDSA") { args.ec_key.clone() } else { args.rsa_key.clone() },
            cipher: cipher.clone(),
            client_certificates: true,
            reset_bytes,
            ..plain.clone()
        };
        let ciphers = || args.cipher.iter().filter(|cipher| *cipher != "none");
        found.push(plain.clone());
        found.extend(ciphers().map(|cipher| with(cipher, 0)));
        for reset in args.reset.iter().filter(|reset| **reset > 0) {
            found.extend(ciphers().map(|cipher| with(cipher, *reset)));
        }
    }
    found
}

fn page(measured: &Measured) -> Page {
    let groups: Vec<&Group> = measured.groups.iter().collect();
    let (added, reset) = (added(&groups), resets(&groups));
    let section = Section {
        title: "Published beside ours".to_owned(),
        words: vec![
            EMPTY_CELLS.to_owned(),
            "What TLS adds is the mean round trip less that without TLS of the same payload. A renewal is what round trips with SSLRKEYC take longer than those of the same CipherSpec without, divided by how many renewals there were; noise may take it below 0. Under TLS 1.2 a renewal is a whole handshake, and both ends show certificates.".to_owned(),
        ],
        figures: vec![added.figure(0), reset.figure(0)],
        tables: vec![ours::table(
            "Ours alone",
            ROWS_ARE,
            &[
                ("round trip, µs", &|sample| Some(sample.latency_us?.mean)),
                ("TLS adds, µs", &|sample| found(sample, ADDED_US)),
                ("ciphers alone, µs", &|sample| found(sample, RAW_US)),
                ("resets in a sample", &|sample| found(sample, RESETS)),
            ],
            &groups,
            label,
        )],
        ..Section::default()
    };
    Page {
        title: "TLS on channels, published and ours".to_owned(),
        lead: vec!["The study: a request and its reply through a pair of channels between two queue managers on a mainframe, one message in flight, 8 KB and 32 KB, with CBC CipherSpecs of RSA and elliptic curves, SSLRKEYC 0 and 1,048,576.".to_owned()],
        sections: vec![section],
    }
}

/// What TLS adds to a round trip.
fn added(groups: &[&Group]) -> Beside {
    let is_one = |group: &&&Group| group.configuration.reset_bytes == 0;
    let row = |group: &&Group| {
        let Configuration { cipher, bytes, .. } = &group.configuration;
        let known = ADDED_BY_GCM.iter().find(|(size, _)| size == bytes && cipher.contains("_GCM_"));
        let published = known.map(|(_, us)| Figure::published(*us));
        let ours = group.value(|sample| found(sample, ADDED_US));
        Row { label: label(group), pairs: vec![Pair { published, ours }] }
    };
    Beside {
        name: "tls/added".to_owned(),
        title: "What TLS adds to a round trip".to_owned(),
        description: "Microseconds beyond a round trip without TLS. Shorter bars are better.".to_owned(),
        rows_are: ROWS_ARE.to_owned(),
        measures: vec!["TLS adds, µs".to_owned()],
        rows: groups.iter().filter(is_one).map(row).collect(),
    }
}

/// What a renewal of keys takes.
fn resets(groups: &[&Group]) -> Beside {
    let is_one = |group: &&&Group| group.configuration.reset_bytes > 0;
    let row = |group: &&Group| {
        let ours = group.value(|sample| Some(found(sample, RESET_US)? / 1e3));
        Row { label: label(group), pairs: vec![Pair { published: Figure::words(RESET_MS), ours }] }
    };
    Beside {
        name: "tls/resets".to_owned(),
        title: "What a renewal of keys takes".to_owned(),
        description: "Milliseconds a renewal of a pair's keys. Shorter bars are better.".to_owned(),
        rows_are: ROWS_ARE.to_owned(),
        measures: vec!["ms a reset".to_owned()],
        rows: groups.iter().filter(is_one).map(row).collect(),
    }
}

fn label(group: &Group) -> String {
    let Configuration { cipher, bytes, reset_bytes, .. } = &group.configuration;
    let cipher = if cipher.is_empty() { "none" } else { cipher };
    let reset = if *reset_bytes == 0 { String::new() } else { format!(" · SSLRKEYC {reset_bytes}") };
    format!("{cipher} · {}{reset}", number::bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::Cell;
    use crate::result::Sample;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TlsArgs,
    }

    #[test]
    fn each_cipherspec_has_a_certificate_of_its_own_kind() {
        let plan = configurations(&Line::parse_from(["tls"]).args);
        assert_eq!(plan.len(), 14, "two payloads of none and of three CipherSpecs with and without renewals");
        for one in &plan {
            let expected = match one.cipher.as_str() {
                "" => "",
                cipher if cipher.contains("ECDSA") => "p256",
                _ => "rsa2048",
            };
            assert_eq!((one.key.as_str(), one.client_certificates), (expected, !one.cipher.is_empty()), "{one:?}");
        }
        assert_eq!(plan.iter().map(|one| one.reset_bytes).max(), Some(1_048_576));
        assert!(plan[..4].iter().all(|one| one.bytes == 8192 && one.reset_bytes == 0), "{plan:?}");
    }

    /// Invented.
    fn group(cipher: &str, reset_bytes: u64, found: &[(&str, f64)]) -> Group {
        let configuration =
            Configuration { bytes: 8192, cipher: cipher.into(), reset_bytes, ..Configuration::default() };
        let found = found.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let sample = Sample { configuration: configuration.clone(), found, ..Sample::default() };
        Group { workload: "channel".into(), configuration, setting: 0, samples: vec![sample] }
    }

    #[test]
    fn what_is_published_stands_where_it_belongs_and_nothing_is_guessed() {
        let groups = [
            group("", 0, &[]),
            group("ECDHE_RSA_AES_256_GCM_SHA384", 0, &[(ADDED_US, 70.0)]),
            group("ECDHE_RSA_AES_256_CBC_SHA384", 0, &[(ADDED_US, 90.0)]),
            group("ECDHE_RSA_AES_256_CBC_SHA384", 1 << 20, &[(RESET_US, 2500.0), (RESETS, 8.0)]),
        ];
        let groups: Vec<&Group> = groups.iter().collect();
        let shown = |beside: Beside, nth: usize| beside.table().rows[nth].iter().map(Cell::shown).collect::<Vec<_>>();
        assert_eq!(shown(added(&groups), 0)[..3], ["none · 8 KB", "", ""]);
        let gcm = shown(added(&groups), 1);
        assert_eq!(gcm[1..4], ["35 (published)", "70", "2"], "{gcm:?}");
        let cbc = shown(added(&groups), 2);
        assert_eq!((cbc[1].as_str(), cbc[2].as_str(), cbc[3].as_str()), ("", "90", ""), "{cbc:?}");
        let reset = shown(resets(&groups), 0);
        assert_eq!(reset[1..3], ["6 to 10 (published)", "2.50"], "{reset:?}");
    }
}
