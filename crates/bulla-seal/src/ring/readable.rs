//! The certificates of a ring of which not every file can be read.

use std::path::Path;

use super::load::{self, Place};
use super::{Person, RingError};

/// The certificates in those files of a ring that can be read. Nothing is opened, sealed or believed with them.
#[derive(Debug, Default)]
pub struct Readable {
    /// Of the ring's own keys.
    pub own: Vec<Person>,
    /// Of other people.
    pub people: Vec<Person>,
}

/// Reads what can be read of a ring, whatever is wrong with the rest of it: damaged files are passed over, and so are
/// permissions. A ring that is not there has nothing.
///
/// # Errors
/// The ring, or its folder `own` or `people`, can't be listed: what is in it is not known.
pub fn readable(dir: &Path) -> Result<Readable, RingError> {
    Ok(Readable { own: of_place(dir, Place::Own)?, people: of_place(dir, Place::People)? })
}

fn of_place(dir: &Path, place: Place) -> Result<Vec<Person>, RingError> {
    let paths = match load::list(&dir.join(place.name()), place) {
        Err(RingError::Io { kind: std::io::ErrorKind::NotFound, .. }) => return Ok(Vec::new()),
        paths => paths?,
    };
    let person = |path: &std::path::PathBuf| {
        // As of other people: with no key read, its permissions don't count.
        let (bytes, _) = load::bytes(path, Place::People).ok()?;
        let mut chain = load::certificates(path, &bytes).ok()?;
        let certificate = chain.remove(0); // not empty
        Some(Person { label: load::label(path), certificate, chain })
    };
    Ok(paths.iter().filter_map(person).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{Curve, KeySpec, KeyUse, authority::Authority, authority::Request};
    use crate::ring;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    #[test]
    fn what_can_be_read_of_a_damaged_ring_is_read() {
        let data = tempfile::tempdir().unwrap();
        let (now, p256) = (SystemTime::now(), KeySpec::Ec(Curve::P256));
        let authority = Authority::create(&data.path().join("ca"), &"CN=demo".parse().unwrap(), p256, 10, now).unwrap();
        let issue = |dn: &str| {
            let uses = vec![KeyUse::DocSign];
            let dn = dn.parse().unwrap();
            let request = Request { dn, key: p256, uses, days: 9, alternative_names: Vec::new(), passphrase: None };
            authority.issue(&request, now).unwrap()
        };
        let dir = data.path().join("billing");
        assert!(readable(&dir).unwrap().own.is_empty(), "there is none");
        let (own, key) = issue("CN=billing");
        ring::install_own(&dir, "billing", &own, &[], &key).unwrap();
        ring::install_person(&dir, "orders", &issue("CN=orders").0, &[]).unwrap();
        fs::write(dir.join("people/damaged.pem"), "no certificate").unwrap();
        fs::write(dir.join("own/damaged.pem"), "no key").unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(ring::survey(&dir).is_err());
        let found = readable(&dir).unwrap();
        let names = |people: &[Person]| people.iter().map(|one| one.certificate.dn().to_string()).collect::<Vec<_>>();
        assert_eq!((names(&found.own), names(&found.people)), (vec!["CN=billing".into()], vec!["CN=orders".into()]));
        fs::remove_dir_all(dir.join("people")).unwrap();
        fs::write(dir.join("people"), "no folder").unwrap();
        assert!(matches!(readable(&dir), Err(RingError::Io { .. })), "what is in it is not known");
    }
}
