//! Commands that mend what was found. What only a person knows stands in `<` and `>`.

use crate::folders::{AUTHORITIES, RINGS};
use crate::manager::Manager;
use bulla_seal::certificate::Certificate;
use bulla_seal::ring::{Ring, RingError};
use std::path::Path;

/// A command in the admin language, for a shell.
pub(super) fn mqsc(command: impl AsRef<str>) -> String {
    format!("bulla mqsc -c {}", shell(command.as_ref()))
}

/// One word for a shell, whatever is in it: names in certificates are made by others.
pub(crate) fn shell(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-/@:,=+%".contains(char);
    let is_literal_in_quotes = |char: char| !"\"$`\\!".contains(char) && !char.is_control();
    match () {
        () if !text.is_empty() && text.chars().all(is_plain) => text.to_owned(),
        () if text.chars().all(is_literal_in_quotes) => format!("\"{text}\""),
        () => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A value in quotes, as the admin language takes it.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The authority of the data directory that certificates are signed by: the only one beside `local`.
pub(super) fn authority(data: &Path) -> String {
    let entries = std::fs::read_dir(data.join(AUTHORITIES)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let founded: Vec<String> = names.filter(|name| name != "local").collect();
    match founded.as_slice() {
        [only] => only.clone(),
        _ => "<authority>".to_owned(),
    }
}

/// A new key and certificate in a user's ring.
pub(super) fn new_key(data: &Path, user: &str, dn: &str) -> String {
    let signer = authority(data);
    format!("bulla cert create --ring {} --dn {} --signer {}", shell(user), shell(dn), shell(&signer))
}

/// What mends a ring that can't be read.
pub(super) fn ring(manager: &Manager, user: &str, error: &RingError) -> Vec<String> {
    match error {
        RingError::Missing { .. } => vec![new_key(&manager.data, user, &format!("CN={user}"))],
        RingError::Exposed { path, .. } => {
            let mode = if path.is_dir() { "700" } else { "600" };
            vec![format!("chmod {mode} {}", shell(&path.display().to_string()))]
        }
        error if error.is_locked() => vec!["bulla start --passphrase-file \"<file>\"".to_owned()],
        RingError::Io { path, .. } => vec![format!("ls -l {}", shell(&path.display().to_string()))],
        _ => {
            let ring = manager.data.join(RINGS).join(user);
            vec![format!("ls -lR {}", shell(&ring.display().to_string()))]
        }
    }
}

/// A user's ring as another member of a shared group has it.
pub(super) fn copied_ring(data: &Path, user: &str) -> String {
    let from = format!("<member>:<data>/{RINGS}/{user}");
    format!("scp -rp {} {}", shell(&from), shell(&format!("{}/", data.join(RINGS).display())))
}

/// What mends a certificate that is no good in the ring of `user`, by the cause that a refusal has. `owner` has its
/// private key, where a ring here has it; `kind` is the kind of key that a new one has to be, where there is but one.
pub(super) fn certificate(
    manager: &Manager,
    user: &str,
    owner: Option<&str>,
    (dn, kind): (&str, Option<&str>),
    cause: &str,
) -> Vec<String> {
    let new_key = |user: &str, dn: &str| {
        let kind = kind.map(|kind| format!(" --key {kind}")).unwrap_or_default();
        format!("{}{kind}", new_key(&manager.data, user, dn))
    };
    match cause {
        "unknown-dn" => vec![import(user, "person")],
        "no-key" => vec![new_key(user, &format!("CN={user}"))],
        "crl-stale" | "crl-missing" => fresh_list(&manager.data, user),
        "certificate-not-yet-valid" => vec!["date -u".to_owned()],
        "untrusted" => vec![import(user, "trust")],
        "key-unavailable" => vec![mqsc("DISPLAY DEVSTATUS(*)")],
        _ => match owner {
            Some(owner) if owner != user => {
                vec![format!("{} --share {}", new_key(owner, dn), shell(user))]
            }
            Some(owner) => vec![new_key(owner, dn)],
            None => vec![import(user, "person")],
        },
    }
}

/// A fresh revocation list, into the rings that trust its authority, or from a file into one.
pub(super) fn fresh_list(data: &Path, user: &str) -> Vec<String> {
    match authority(data).as_str() {
        founded if !founded.starts_with('<') => vec![format!("bulla cert revoke --signer {}", shell(founded))],
        _ => vec![import(user, "crl")],
    }
}

/// A file goes into a ring.
pub(super) fn import(user: &str, place: &str) -> String {
    format!("bulla cert import \"<file>\" --ring {} --as {place}", shell(user))
}

/// A certificate that another ring here has goes into a user's.
pub(super) fn share(from: &Ring, to: &str, wanted: &Certificate) -> Option<Vec<String>> {
    let own = from.own().iter().find(|own| own.certificate == *wanted).map(|own| own.label.as_str());
    let label = own.or_else(|| {
        let person = from.people().iter().find(|person| person.certificate == *wanted);
        person.map(|person| person.label.as_str())
    })?;
    let file = shell(&format!("{label}.pem"));
    Some(vec![
        format!("bulla cert export {} --ring {} --out {file}", shell(label), shell(from.user())),
        format!("bulla cert import {file} --ring {} --as person", shell(to)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_to_be_pasted_into_a_shell_is_one_word_there_whatever_is_in_it() {
        for (text, word) in [
            ("orders", "orders"),
            ("", "\"\""),
            ("CN=orders,O=Demo", "CN=orders,O=Demo"),
            ("SET POLICY(Q) RECIP('CN=b')", "\"SET POLICY(Q) RECIP('CN=b')\""),
            ("CN=$(reboot)", "'CN=$(reboot)'"),
            ("a`b'c", "'a`b'\\''c'"),
            ("a\nb", "'a\nb'"),
            ("CN=x\"; reboot; \"", "'CN=x\"; reboot; \"'"),
        ] {
            assert_eq!(shell(text), word);
        }
        assert_eq!(quoted("O'Neil"), "'O''Neil'");
    }
}
