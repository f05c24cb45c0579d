//! CipherSpecs: what a channel's SSLCIPH may say, under the names of IBM MQ and of IANA. One table.

use std::fmt::Write;

/// One row: a suite, or one of the `ANY_…` names for several.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CipherSpec {
    /// MQ's name.
    pub ibm: &'static str,
    /// IANA's name of the suite; `None` for the `ANY_…` names.
    pub iana: Option<&'static str>,
    /// OpenSSL's name of the suite.
    pub openssl: Option<&'static str>,
    /// Which protocols it is for.
    pub protocols: Protocols,
    /// No forward secrecy: who gets the private key later can read what was recorded. Only for a channel that names it.
    pub weak: bool,
}

/// The versions of TLS that a CipherSpec allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocols {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
    /// Either; the newer one where both sides have it.
    Both,
}

impl Protocols {
    /// As it stands in the reference page.
    fn word(self) -> &'static str {
        match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
            Self::Both => "1.2, 1.3",
        }
    }
}

const fn tls13(name: &'static str) -> CipherSpec {
    CipherSpec { ibm: name, iana: Some(name), openssl: Some(name), protocols: Protocols::Tls13, weak: false }
}

const fn tls12(ibm: &'static str, iana: &'static str, openssl: &'static str) -> CipherSpec {
    CipherSpec { ibm, iana: Some(iana), openssl: Some(openssl), protocols: Protocols::Tls12, weak: false }
}

const fn weak(name: &'static str, openssl: &'static str) -> CipherSpec {
    CipherSpec { ibm: name, iana: Some(name), openssl: Some(openssl), protocols: Protocols::Tls12, weak: true }
}

const fn any(ibm: &'static str, protocols: Protocols) -> CipherSpec {
    CipherSpec { ibm, iana: None, openssl: None, protocols, weak: false }
}

/// Every CipherSpec, those to be preferred first.
pub const ALL: &[CipherSpec] = &[
    any("ANY_TLS12_OR_HIGHER", Protocols::Both),
    any("ANY_TLS13_OR_HIGHER", Protocols::Tls13),
    any("ANY_TLS13", Protocols::Tls13),
    any("ANY_TLS12", Protocols::Tls12),
    tls13("TLS_AES_256_GCM_SHA384"),
    tls13("TLS_CHACHA20_POLY1305_SHA256"),
    tls13("TLS_AES_128_GCM_SHA256"),
    tls12("ECDHE_ECDSA_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    tls12("ECDHE_RSA_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    tls12("ECDHE_ECDSA_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    tls12("ECDHE_RSA_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    tls12("ECDHE_ECDSA_AES_256_CBC_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
    tls12("ECDHE_RSA_AES_256_CBC_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
    tls12("ECDHE_ECDSA_AES_128_CBC_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
    tls12("ECDHE_RSA_AES_128_CBC_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
    weak("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    weak("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
    weak("TLS_RSA_WITH_AES_256_CBC_SHA256", "AES256-SHA256"),
    weak("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
];

/// The CipherSpec of that name, MQ's or IANA's; case does not matter.
#[must_use]
pub fn find(name: &str) -> Option<&'static CipherSpec> {
    ALL.iter().find(|spec| {
        spec.ibm.eq_ignore_ascii_case(name) || spec.iana.is_some_and(|iana| iana.eq_ignore_ascii_case(name))
    })
}

/// The suite of that IANA name, as a channel's status shows it.
#[must_use]
pub fn negotiated(iana: &str) -> Option<&'static CipherSpec> {
    ALL.iter().find(|spec| spec.iana == Some(iana))
}

impl CipherSpec {
    /// Whether a connection on which `iana` was agreed is what this CipherSpec asks for.
    #[must_use]
    pub fn allows(&self, iana: &str) -> bool {
        self.suites().any(|suite| suite.iana == Some(iana))
    }

    /// OpenSSL's list of the TLS 1.2 suites; empty where only TLS 1.3 is allowed.
    #[must_use]
    pub fn tls12_list(&self) -> String {
        self.list(Protocols::Tls12)
    }

    /// OpenSSL's list of the TLS 1.3 suites; empty where only TLS 1.2 is allowed.
    #[must_use]
    pub fn tls13_list(&self) -> String {
        self.list(Protocols::Tls13)
    }

    fn list(&self, protocol: Protocols) -> String {
        let names = self.suites().filter(|suite| suite.protocols == protocol).filter_map(|suite| suite.openssl);
        names.collect::<Vec<_>>().join(":")
    }

    /// The suites it stands for: itself, or all that are not weak of its protocols.
    fn suites(&self) -> impl Iterator<Item = &'static CipherSpec> {
        let (me, protocols) = (self.iana, self.protocols);
        ALL.iter().filter(move |suite| match me {
            Some(_) => suite.iana == me,
            None => {
                let protocol_fits = protocols == Protocols::Both || suite.protocols == protocols;
                suite.iana.is_some() && !suite.weak && protocol_fits
            }
        })
    }
}

/// OpenSSL's lists, TLS 1.2 and TLS 1.3, for clients of the listener, who were not promised a CBC suite.
pub fn listener_lists() -> (String, String) {
    let list = |protocol, authenticated: fn(&str) -> bool| {
        let suites = ALL.iter().filter(|suite| suite.protocols == protocol && !suite.weak);
        suites.filter_map(|suite| suite.openssl).filter(|name| authenticated(name)).collect::<Vec<_>>().join(":")
    };
    (list(Protocols::Tls12, |name| name.contains("-GCM-")), list(Protocols::Tls13, |_| true))
}

/// The reference page.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(PREFACE);
    for spec in ALL {
        let remark = match (spec.iana, spec.weak) {
            (None, _) => "any row below of that protocol that is not weak",
            (Some(_), true) => "weak: no forward secrecy",
            (Some(_), false) => "",
        };
        let iana = spec.iana.map_or(String::new(), |iana| format!("`{iana}`"));
        let openssl = spec.openssl.map_or(String::new(), |name| format!("`{name}`"));
        let _ = writeln!(page, "| `{}` | {iana} | {openssl} | {} | {remark} |", spec.ibm, spec.protocols.word());
    }
    page.push_str(&crate::tls_group::page());
    page
}

const PREFACE: &str = "\
# CipherSpecs

Look up here what `SSLCIPH` and `SSLGROUPS` may name. The page is made from the tables in
`crates/bulla-catalog/src/cipher_spec.rs` and `tls_group.rs`; a test compares them, and writes this page where
`BULLA_REWRITE` is set.

`SSLCIPH` of a channel takes the name in the first column, which is IBM MQ's, or the one in the second, which is IANA's.
Either names one suite. The `ANY_…` names let the two ends agree on the best suite that both have, the first row of the
table first. `DISPLAY CHSTATUS` shows the suite that was agreed on. A connection with any other is refused with reason
2400.

A suite that is marked *weak* is never agreed on under an `ANY_…` name, nor by a client of the listener: a channel must
name it. Clients of the listener are offered TLS 1.3, and TLS 1.2 with ECDHE and GCM.

| SSLCIPH | IANA | OpenSSL | TLS | |
| --- | --- | --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_reference_page_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cipherspecs.md");
        if std::env::var_os("BULLA_REWRITE").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == page(), "docs/reference/cipherspecs.md is old: run this test with BULLA_REWRITE=1");
    }

    #[test]
    fn each_row_is_found_by_both_its_names() {
        for spec in ALL {
            assert_eq!(find(&spec.ibm.to_lowercase()), Some(spec));
            if let Some(iana) = spec.iana {
                assert_eq!(find(iana), Some(spec));
                assert_eq!(negotiated(iana), Some(spec));
            }
        }
        assert_eq!(find("TLS_RSA_WITH_NULL_SHA256"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn an_any_name_stands_for_what_is_not_weak_of_its_protocols() {
        let any = |name: &str| find(name).unwrap();
        assert!(any("ANY_TLS12").allows("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"));
        assert!(!any("ANY_TLS12").allows("TLS_RSA_WITH_AES_128_GCM_SHA256"));
        assert!(!any("ANY_TLS12").allows("TLS_AES_256_GCM_SHA384"));
        assert!(any("ANY_TLS12_OR_HIGHER").allows("TLS_AES_256_GCM_SHA384"));
        assert!(any("ANY_TLS12_OR_HIGHER").allows("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"));
        assert!(!any("ANY_TLS13_OR_HIGHER").allows("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"));
        assert_eq!(any("ANY_TLS13").tls12_list(), "");
        let (tls12, tls13) = listener_lists();
        assert!(!tls12.split(':').any(|name| !name.starts_with("ECDHE-") || !name.contains("GCM")), "{tls12}");
        assert_eq!(tls13.split(':').count(), 3);
    }

    #[test]
    fn a_named_suite_allows_itself_alone() {
        for spec in ALL.iter().filter(|spec| spec.iana.is_some()) {
            let allowed = ALL.iter().filter_map(|other| other.iana).filter(|iana| spec.allows(iana)).count();
            assert_eq!(allowed, 1, "{}", spec.ibm);
        }
    }
}
