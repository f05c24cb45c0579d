//! Certificates as `list` shows them, one a row: of rings, or of an authority's ledger.

use super::{Data, authority_failed, label_of, ring_failed, yes_no};
use crate::cli::CliError;
use bulla_seal::certificate::authority::Authority;
use bulla_seal::certificate::{Certificate, CertificateError, KeyKind, Role, Strength, Usage, utc};
use bulla_seal::ring::{self, Ring};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// One certificate in a list.
pub(super) struct Row {
    label: String,
    serial: String,
    key: Option<(KeyKind, u32)>,
    from: Option<SystemTime>,
    until: String,
    private: Option<bool>,
    status: String,
    /// What key and extensions allow, while the certificate is valid.
    roles: Option<Vec<Role>>,
    rings: Vec<String>,
    dn: String,
}

impl Row {
    pub(super) fn cells(&self) -> [String; 11] {
        let day = |time: &str| time.chars().take(10).collect::<String>();
        [
            self.label.clone(),
            self.key.map_or_else(|| "-".to_owned(), |(kind, _)| kind.to_string()),
            self.key.map_or_else(|| "-".to_owned(), |(_, bits)| bits.to_string()),
            self.strength_bits().map_or_else(|| "-".to_owned(), |bits| bits.to_string()),
            self.from.map_or_else(|| "-".to_owned(), |from| day(&utc(from))),
            day(&self.until),
            self.private.map_or("-", yes_no).to_owned(),
            self.status.clone(),
            match self.roles.as_deref() {
                None | Some([]) => "-".to_owned(),
                Some(roles) => roles.iter().map(Role::to_string).collect::<Vec<_>>().join(","),
            },
            if self.rings.is_empty() { "-".to_owned() } else { self.rings.join(",") },
            self.dn.clone(),
        ]
    }

    /// Bits of security of the key.
    fn strength_bits(&self) -> Option<u32> {
        self.key.and_then(|(kind, bits)| Strength::of(kind, bits)).map(|strength| strength.bits)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "label": self.label,
            "serial": self.serial,
            "key_type": self.key.map(|(kind, _)| kind.to_string()),
            "key_size": self.key.map(|(_, bits)| bits),
            "strength_bits": self.strength_bits(),
            "from": self.from.map(utc),
            "until": self.until,
            "private_key": self.private,
            "status": self.status,
            "good_for": self.roles.as_ref().map(|roles| roles.iter().map(Role::to_string).collect::<Vec<_>>()),
            "rings": self.rings,
            "dn": self.dn,
        })
    }
}

/// Every certificate of the rings once, with all places where it is.
pub(super) fn ring_rows(data: &Data<'_>, only: Option<&str>, now: SystemTime) -> Result<Vec<Row>, CliError> {
    let rings = match only {
        Some(user) => BTreeMap::from([(user.to_owned(), data.ring(user)?)]),
        None => data.rings()?,
    };
    let mut rows: BTreeMap<(String, [u8; 32]), Row> = BTreeMap::new();
    for (user, dir) in &rings {
        let survey = match ring::survey(dir) {
            Ok(survey) => survey,
            Err(error) if only.is_some() => return Err(ring_failed(error)),
            Err(error) => {
                eprintln!("bulla: warning: ring of {user} is left out: {error}");
                continue;
            }
        };
        let own = survey.own.iter().map(|own| ("own", own.label.clone(), &own.certificate, own.chain.as_slice()));
        let people = survey.ring.people().iter();
        let people = people.map(|one| ("person", one.label.clone(), &one.certificate, one.chain.as_slice()));
        let trust = survey.ring.trust().iter().map(|root| ("trust", label_of(root), root, &[][..]));
        let domains = survey.ring.domains().iter();
        let domains = domains.flat_map(|(domain, all)| all.iter().map(move |root| (domain, root)));
        let domains = domains.map(|(domain, root)| ("trust", format!("spiffe.{domain}"), root, &[][..]));
        for (place, label, certificate, chain) in own.chain(people).chain(trust).chain(domains) {
            let status = match place {
                "trust" => certificate.check_dates(now).map_or_else(|error| word(&error), |()| "valid".to_owned()),
                _ => status(&survey.ring, certificate, chain, now),
            };
            let key = (certificate.dn().to_string(), *certificate.fingerprint());
            let row = rows.entry(key).or_insert_with(|| Row {
                label,
                serial: certificate.serial_hex(),
                key: Some((certificate.key_kind(), certificate.key_bits())),
                from: Some(certificate.not_before()),
                until: utc(certificate.not_after()),
                private: Some(false),
                status: status.clone(),
                roles: Some(certificate.roles()),
                rings: Vec::new(),
                dn: certificate.dn().to_string(),
            });
            row.rings.push(format!("{user}({place})"));
            if place == "own" {
                row.private = Some(true);
            }
            // Rings may know different revocation lists: the worst news is the news.
            if row.status == "valid" {
                row.status = status;
            }
        }
    }
    Ok(rows.into_values().collect())
}

/// What an authority issued, by its ledger.
pub(super) fn issued_rows(data: &Data<'_>, name: &str, now: SystemTime) -> Result<Vec<Row>, CliError> {
    let records = Authority::ledger(&data.authority(name)?).map_err(authority_failed)?;
    let rows = records.into_iter().map(|record| {
        let status = match (record.revoked_at(), record.not_after()) {
            (Some(_), _) => "revoked",
            (None, Some(until)) if now >= until => "expired",
            _ => "valid",
        };
        Row {
            label: record.serial.clone(),
            until: record.not_after().map_or_else(|| "-".to_owned(), utc),
            serial: record.serial,
            key: None,
            from: None,
            private: None,
            status: status.to_owned(),
            roles: None,
            rings: Vec::new(),
            dn: record.dn,
        }
    });
    Ok(rows.collect())
}

/// Whether a certificate is good for anything in this ring, and if not, why.
pub(super) fn status(ring: &Ring, certificate: &Certificate, chain: &[Certificate], now: SystemTime) -> String {
    let usages = [Usage::Sign, Usage::KeyTransport, Usage::DataEncipherment, Usage::KeyAgreement];
    let usage = usages.into_iter().find(|usage| certificate.check_usage(*usage).is_ok()).unwrap_or(Usage::Sign);
    match ring.verify(certificate, chain, usage, now, now) {
        Ok(_) => "valid".to_owned(),
        Err(error) => word(&error),
    }
}

pub(super) fn word(error: &CertificateError) -> String {
    error.cause().trim_start_matches("certificate-").to_owned()
}
