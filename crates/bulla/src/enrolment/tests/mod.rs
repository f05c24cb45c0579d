//! What renews by itself: on a virtual clock, with an authority that does what a test asks of it.

mod command;
mod configuration;
mod judged;
mod renewals;
mod two_years;

use super::configuration::{Configuration, FILE};
use super::enroller::{Enroller, Enrolments, Host};
use super::source::{Question, Source};
use super::{EnrolError, due};
use crate::audit::Entry;
use crate::catalog::status::{EnrolmentPlace, EnrolmentState, EnrolmentStatus};
use crate::events::Event;
use crate::folders::{AUTHORITIES, RINGS, TLS};
use crate::key_rotation::Rotation;
use bulla_device::MlDsa;
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::create::{AlternativeName, Asked};
use bulla_seal::certificate::{Certificate, Curve, KeyKind, KeySpec, KeyUse, Passphrase};
use bulla_seal::dn::Dn;
use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const P256: KeySpec = KeySpec::Ec(Curve::P256);
const DAY: Duration = Duration::from_secs(86_400);
/// What the test's authority is asked for is valid for so many days.
const DAYS: u32 = 90;

fn dn(name: &str) -> Dn {
    format!("CN={name}").parse().unwrap()
}

/// What the authority does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Signs,
    Refuses,
    HasNotDecided,
    /// Signs RSA and EC keys alone.
    KnowsNoPostQuantum,
    /// Signs a key of its own instead.
    SignsAnotherKey,
}

/// A data directory with users who know nobody yet, and an authority that is elsewhere.
struct Site {
    dir: tempfile::TempDir,
    now: Cell<SystemTime>,
    /// What the monotonic clock shows, which goes as the other one does.
    monotonic: Cell<Instant>,
    does: Rc<Cell<Does>>,
    asked: Rc<Cell<usize>>,
    has_read: Cell<bool>,
    events: RefCell<Vec<Event>>,
    audited: RefCell<Vec<Entry>>,
    enroller: RefCell<Enroller>,
    shown: Arc<Enrolments>,
}

impl Site {
    fn new(configuration: &str) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_219_200);
        for folder in [RINGS, TLS] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let authority = Authority::create(&dir.path().join(AUTHORITIES).join("away"), &dn("Away"), P256, 3650, now);
        fs::write(dir.path().join("away.pem"), authority.unwrap().root().to_pem()).unwrap();
        let shown = Arc::<Enrolments>::default();
        let site = Site {
            dir,
            now: Cell::new(now),
            monotonic: Cell::new(Instant::now()),
            does: Rc::new(Cell::new(Does::Signs)),
            asked: Rc::default(),
            has_read: Cell::new(true),
            events: RefCell::default(),
            audited: RefCell::default(),
            enroller: RefCell::new(Enroller::new(shown.clone())),
            shown,
        };
        site.configure(configuration);
        site
    }

    fn configure(&self, rest: &str) {
        let authority = "[authorities.away]\ncommand = [\"/bin/false\"]\ntrust = \"away.pem\"\n";
        let path = self.dir.path().join(FILE);
        fs::write(&path, format!("{authority}{rest}")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, mode).unwrap();
    }

    fn authority(&self) -> Authority {
        Authority::open(&self.dir.path().join(AUTHORITIES).join("away")).unwrap()
    }

    fn ring(&self, user: &str) -> PathBuf {
        self.dir.path().join(RINGS).join(user)
    }

    fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
        self.monotonic.set(self.monotonic.get() + time);
    }

    /// Looks, with so many seconds between.
    fn looks(&self, count: u32) {
        for _ in 0..count {
            self.enroller.borrow_mut().look(self, self.monotonic.get());
            self.pass(Duration::from_secs(1));
        }
    }

    fn row(&self, name: &str) -> EnrolmentStatus {
        let rows = self.shown.rows().unwrap();
        rows.into_iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name} is not shown"))
    }

    fn own(&self, user: &str) -> Vec<Certificate> {
        let survey = bulla_seal::ring::survey(&self.ring(user)).unwrap();
        survey.own.into_iter().map(|own| own.certificate).collect()
    }

    /// A key of billing's, with a certificate of that authority that ends after so many days.
    fn add_key(&self, label: &str, key: KeySpec, uses: &[KeyUse], days: u32) -> Certificate {
        let (dn, uses) = (dn("billing"), uses.to_vec());
        let request = Request { dn, key, uses, days, alternative_names: Vec::new(), passphrase: None };
        let (certificate, pem) = self.authority().issue(&request, self.now.get()).unwrap();
        bulla_seal::ring::install_own(&self.ring("billing"), label, &certificate, &[], &pem).unwrap();
        certificate
    }

    fn failures(&self) -> Vec<(String, u32, u64, bool)> {
        let of = |event: &Event| match event {
            Event::EnrolmentFailed { why, failures, retry_seconds, is_pressing, .. } => {
                (why.clone(), *failures, *retry_seconds, *is_pressing)
            }
            other => panic!("{other:?}"),
        };
        self.events.borrow().iter().map(of).collect()
    }
}

impl Host for Site {
    fn data(&self) -> &Path {
        self.dir.path()
    }

    fn passphrase(&self) -> Option<&Passphrase> {
        None
    }

    fn wall(&self) -> SystemTime {
        self.now.get()
    }

    fn has_read(&self, _rotation: &Rotation, _now: Instant) -> bool {
        self.has_read.get()
    }

    fn raise(&self, event: &Event) {
        self.events.borrow_mut().push(event.clone());
    }

    fn audit(&self, entry: Entry) {
        self.audited.borrow_mut().push(entry);
    }

    fn is_stopping(&self) -> bool {
        false
    }

    fn source(&self, _configuration: &Configuration, _authority: &str) -> Result<Box<dyn Source>, EnrolError> {
        let (does, asked) = (self.does.clone(), self.asked.clone());
        Ok(Box::new(Away { authority: self.authority(), now: self.now.get(), does, asked }))
    }
}

/// The authority that is elsewhere.
struct Away {
    authority: Authority,
    now: SystemTime,
    does: Rc<Cell<Does>>,
    asked: Rc<Cell<usize>>,
}

impl Source for Away {
    fn certify(&self, question: &Question<'_>) -> Result<Vec<Certificate>, EnrolError> {
        self.asked.set(self.asked.get() + 1);
        let asked = Asked::of(question.request).unwrap();
        let tls = [KeyUse::Handshake];
        let is_post_quantum = KeyKind::of_device(bulla_device::KeyKind::of(question.key).unwrap()).is_post_quantum();
        let both = [KeyUse::DocSign, KeyUse::KeyAgree];
        let uses: &[KeyUse] = match asked.names.is_empty() {
            true if is_post_quantum => &both[..1],
            true => &both,
            false => &tls,
        };
        match self.does.get() {
            Does::KnowsNoPostQuantum if is_post_quantum => {
                Err(EnrolError::Refused { how: "exit status 1".into(), said: "unknown kind of key".into() })
            }
            Does::Signs | Does::KnowsNoPostQuantum => {
                let signed = self.authority.sign_request(question.request, uses, DAYS, &asked.names, self.now).unwrap();
                Ok(vec![self.authority.root().clone(), signed])
            }
            Does::Refuses => Err(EnrolError::Refused { how: "exit status 1".into(), said: "not today".into() }),
            Does::HasNotDecided => Err(EnrolError::NotYet { said: "ask the officer".into() }),
            Does::SignsAnotherKey => {
                let request = Request {
                    dn: asked.dn,
                    key: P256,
                    uses: uses.to_vec(),
                    days: DAYS,
                    alternative_names: asked.names,
                    passphrase: None,
                };
                Ok(vec![self.authority.issue(&request, self.now).unwrap().0])
            }
        }
    }
}
