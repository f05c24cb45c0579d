//! Private keys that a key ring here had, that messages need, and that are in no ring any more: a file was removed by
//! hand, say. Which keys the rings had is kept in [`FILE`], so that one that goes while nothing runs is missed, too.

use crate::catalog::status::MissingKey;
use crate::key_use::{Elsewhere, KnownKey, KnownKeys, QueueNeeds};
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// The file, in the data directory.
pub(crate) const FILE: &str = "own-keys.json";
/// Keys that are remembered. What is in rings beyond that many is not missed.
pub(crate) const KEYS_MAX: usize = 20_000;
/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Queues of a missing key that are named; messages are counted on all of them.
const QUEUES_NAMED_MAX: usize = 16;
const VERSION: u32 = 1;

/// A key that a ring has, or had.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
struct Had {
    /// Users whose rings have it.
    users: BTreeSet<String>,
    /// The subject of its certificate.
    subject: String,
    /// The serial number, hexadecimal.
    serial: String,
    /// DER of issuer and serial number, by which messages name the key, hexadecimal.
    name: String,
    /// Its other name, by key identifier, hexadecimal; empty without one.
    id: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    keys: Vec<Had>,
}

/// The keys that the rings had, by name.
#[derive(Default)]
pub(crate) struct OwnKeys {
    path: PathBuf,
    keys: BTreeMap<Vec<u8>, Had>,
    is_saved: bool,
    /// What was said in the log, and is so still.
    said: Option<String>,
}

impl OwnKeys {
    /// Those of a data directory. What can't be read is said in the log and begun anew.
    pub(crate) fn of(data: &Path) -> OwnKeys {
        let path = data.join(FILE);
        let keys = match read(&path) {
            Ok(keys) => keys,
            Err(why) => {
                crate::warning!("{}: {why}: keys that went while nothing ran are not missed", path.display());
                BTreeMap::new()
            }
        };
        OwnKeys { path, keys, is_saved: true, said: None }
    }

    /// Remembers the keys that rings have, and finds those that none has any more though messages need them. One that
    /// no message needs when it is gone is forgotten.
    pub(crate) fn missing(
        &mut self,
        known: &KnownKeys,
        needs: &[QueueNeeds],
        elsewhere: &Elsewhere,
    ) -> Vec<MissingKey> {
        for (name, key) in known.own() {
            self.remember(name, key);
        }
        let mut missing = Vec::new();
        let before = self.keys.len();
        self.keys.retain(|name, had| {
            if known.has(name) || had.users.iter().any(|user| known.is_unread(user)) {
                return true;
            }
            let found = had.needed(name, needs, elsewhere);
            let is_needed = found.messages > 0;
            if is_needed {
                missing.push(found);
            }
            is_needed
        });
        self.is_saved &= self.keys.len() == before;
        missing
    }

    fn remember(&mut self, name: &[u8], key: &KnownKey) {
        let hex = |bytes: &[u8]| base16ct::lower::encode_string(bytes);
        let had = Had {
            users: key.users.iter().chain(&key.locked).cloned().collect(),
            subject: key.subject.to_string(),
            serial: key.serial.clone(),
            name: hex(name),
            id: hex(&key.id),
        };
        let is_new = !self.keys.contains_key(name);
        if (is_new && self.keys.len() >= KEYS_MAX) || self.keys.get(name) == Some(&had) {
            return;
        }
        self.keys.insert(name.to_vec(), had);
        self.is_saved = false;
    }

    /// Writes the file where something has changed. A failure is said once, and it is tried again.
    pub(crate) fn save(&mut self) {
        if self.is_saved {
            return;
        }
        let kept = Kept { version: VERSION, keys: self.keys.values().cloned().collect() };
        let written = serde_json::to_vec_pretty(&kept)
            .map_err(io::Error::other)
            .and_then(|text| whole_file::replace(&self.path, &text, 0o600));
        self.is_saved = written.is_ok();
        let why = written.err().map(|error| error.to_string());
        if let Some(why) = why.as_ref().filter(|_| why != self.said) {
            crate::warning!("{}: {why}: keys that go while nothing runs are not missed", self.path.display());
        }
        self.said = why;
    }
}

impl Had {
    /// The messages that need it, but for those on queues where it is meant to be elsewhere.
    fn needed(&self, name: &[u8], needs: &[QueueNeeds], elsewhere: &Elsewhere) -> MissingKey {
        let id = base16ct::lower::decode_vec(&self.id).unwrap_or_default();
        let mut missing = MissingKey {
            users: self.users.iter().cloned().collect(),
            subject: self.subject.clone(),
            serial: self.serial.clone(),
            names: [name.to_vec(), id].into_iter().filter(|name| !name.is_empty()).collect(),
            ..MissingKey::default()
        };
        let subject = self.subject.parse().ok();
        for of_queue in needs {
            if subject.as_ref().is_some_and(|subject| elsewhere.has(&of_queue.queue, subject)) {
                continue;
            }
            let names_it = |names: &bulla_queue::KeyNames| names.iter().any(|name| missing.is_named(name));
            let named = of_queue.there.iter().filter(|one| one.names.as_ref().is_some_and(names_it));
            let messages: u64 = named.map(|one| u64::from(one.messages)).sum();
            if messages > 0 {
                missing.messages += messages;
                missing.queue_count += 1;
                if missing.queues.len() < QUEUES_NAMED_MAX {
                    missing.queues.push(of_queue.queue.clone());
                }
            }
        }
        missing
    }
}

fn read(path: &Path) -> Result<BTreeMap<Vec<u8>, Had>, String> {
    let said = |error: io::Error| error.to_string();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(said(error)),
        Ok(facts) if facts.len() > FILE_BYTES_MAX => return Err(format!("over {FILE_BYTES_MAX} bytes")),
        Ok(_) => {}
    }
    let kept: Kept = serde_json::from_slice(&std::fs::read(path).map_err(said)?).map_err(|error| error.to_string())?;
    if kept.version != VERSION {
        return Err(format!("version {} is not known", kept.version));
    }
    let by_name = kept.keys.into_iter().take(KEYS_MAX).map(|had| {
        let name = base16ct::lower::decode_vec(&had.name).ok().filter(|name| !name.is_empty());
        Ok((name.ok_or_else(|| format!("{:?} is no name of a key", had.name))?, had))
    });
    by_name.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Definitions;
    use bulla_queue::KeyUse;
    use bulla_seal::certificate::authority::{Authority, Request};
    use bulla_seal::certificate::{Certificate, Curve, KeySpec, KeyUse as Use};
    use bulla_seal::ring::{self, Ring};
    use bytes::Bytes;
    use std::time::SystemTime;

    const P256: KeySpec = KeySpec::Ec(Curve::P256);

    /// A data directory with a key of `billing`.
    fn site() -> (tempfile::TempDir, Certificate) {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let dn = "CN=demo".parse().unwrap();
        let authority = Authority::create(&directory.path().join("ca"), &dn, P256, 10, now).unwrap();
        let (dn, uses) = ("CN=billing".parse().unwrap(), vec![Use::KeyAgree]);
        let request = Request { dn, key: P256, uses, days: 9, alternative_names: Vec::new(), passphrase: None };
        let (certificate, key) = authority.issue(&request, now).unwrap();
        ring::install_own(&directory.path().join("billing"), "billing", &certificate, &[], &key).unwrap();
        (directory, certificate)
    }

    fn known(data: &Path) -> KnownKeys {
        let mut known = KnownKeys::default();
        let dir = data.join("billing");
        match Ring::load(&dir, None) {
            Ok(ring) => known.note_ring("billing", &ring),
            Err(_) => known.note_locked("billing", ring::readable(&dir).ok()),
        }
        known
    }

    fn needs(queue: &str, name: &[u8], messages: u32) -> QueueNeeds {
        let names = [Bytes::copy_from_slice(name), Bytes::from_static(b"another")];
        let there = KeyUse { names: Some(names.into()), messages, bytes: 9, oldest_put_ms: None };
        QueueNeeds { queue: queue.to_owned(), there: vec![there], staged: Vec::new() }
    }

    #[test]
    fn a_key_that_goes_is_missed_while_messages_need_it_over_restarts_too() {
        let (directory, certificate) = site();
        let (data, name) = (directory.path(), certificate.issuer_and_serial());
        let all = [needs("A", name, 3), needs("B", b"other", 9), needs("C", name, 2)];
        let elsewhere = Elsewhere::default();
        let mut keys = OwnKeys::of(data);
        assert!(keys.missing(&known(data), &all, &elsewhere).is_empty());
        keys.save();
        let file = data.join("billing/own/billing.pem");
        let kept = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        for mut keys in [keys, OwnKeys::of(data), OwnKeys::of(data)] {
            let [missing] = keys.missing(&known(data), &all, &elsewhere).try_into().unwrap();
            keys.save();
            assert_eq!((missing.messages, missing.queue_count, missing.queues), (5, 2, vec!["A".into(), "C".into()]));
            assert_eq!((missing.users, missing.subject), (vec!["billing".into()], "CN=billing".into()));
            assert_eq!(missing.serial, certificate.serial_hex());
        }
        // By its other name, too.
        let id = certificate.subject_key_id().unwrap();
        let by_id = [needs("A", &[&[0x80, u8::try_from(id.len()).unwrap()], id].concat(), 1)];
        assert_eq!(OwnKeys::of(data).missing(&known(data), &by_id, &elsewhere).len(), 1);
        whole_file::replace(&file, &kept, 0o600).unwrap();
        assert!(OwnKeys::of(data).missing(&known(data), &all, &elsewhere).is_empty(), "it is back");
        // One that is gone and that nothing needs is forgotten: what comes for it later makes no event.
        std::fs::remove_file(&file).unwrap();
        let mut keys = OwnKeys::of(data);
        assert!(keys.missing(&known(data), &all[1..2], &elsewhere).is_empty());
        keys.save();
        assert!(OwnKeys::of(data).missing(&known(data), &all, &elsewhere).is_empty());
    }

    #[test]
    fn a_key_in_a_ring_that_can_t_be_read_and_one_that_is_elsewhere_are_not_gone() {
        let (directory, certificate) = site();
        let data = directory.path();
        let all = [needs("A", certificate.issuer_and_serial(), 1)];
        let mut keys = OwnKeys::of(data);
        keys.missing(&known(data), &all, &Elsewhere::default());
        let people = data.join("billing/people");
        std::fs::write(people.join("damaged.pem"), "no certificate").unwrap();
        assert!(Ring::load(&data.join("billing"), None).is_err());
        assert!(keys.missing(&known(data), &all, &Elsewhere::default()).is_empty(), "it is locked");
        std::fs::remove_dir_all(&people).unwrap();
        std::fs::write(&people, "no folder").unwrap();
        std::fs::remove_file(data.join("billing/own/billing.pem")).unwrap();
        assert!(keys.missing(&known(data), &all, &Elsewhere::default()).is_empty(), "that is not known");
        std::fs::remove_file(&people).unwrap();
        let mut policy = bulla_seal::Policy::new("A");
        policy.away = vec!["CN=billing".parse().unwrap()];
        let elsewhere = Elsewhere::of(&Definitions::initial("QM1"), Some(&policy));
        assert!(keys.missing(&known(data), &all, &elsewhere).is_empty(), "KEYAWAY");
    }

    #[test]
    fn a_file_that_is_none_is_begun_anew() {
        let (directory, _) = site();
        let data = directory.path();
        let mut keys = OwnKeys::of(data);
        keys.missing(&known(data), &[], &Elsewhere::default());
        keys.save();
        let text = std::fs::read_to_string(data.join(FILE)).unwrap();
        assert_eq!(read(&data.join(FILE)).unwrap(), keys.keys);
        for damaged in
            ["", "[]", &text[1..], &text.replace("\"version\": 1", "\"version\": 2"), &text.replace("\"30", "\"zz")]
        {
            std::fs::write(data.join(FILE), damaged).unwrap();
            assert!(read(&data.join(FILE)).is_err(), "{damaged}");
            let mut keys = OwnKeys::of(data);
            keys.missing(&known(data), &[], &Elsewhere::default());
            keys.save();
            assert_eq!(std::fs::read_to_string(data.join(FILE)).unwrap(), text);
        }
    }
}
