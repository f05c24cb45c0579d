//! What is wrong on the way from a put to its get, or with the machine: what is broken first, why, and the command that
//! mends it. Nothing is changed by looking.
//!
//! [`way`] and [`access`] look at definitions and what runs, under the queues' lock; [`keys`] at rings and at a message
//! that is sealed and opened in memory, [`dates`] at what ends soon, [`machine`] and [`files`] at the process and its
//! data directory, which needs no running queue manager, [`enrolment`] at what renews by itself. [`mend`] has the
//! commands. The table of checks is [`crate::catalog::diagnosis`]'s.

mod access;
mod channels;
pub(crate) mod dates;
pub(crate) mod enrolment;
pub(crate) mod files;
mod keys;
pub(crate) mod machine;
mod mend;
mod queues;
mod way;

pub(crate) use keys::look as keys;
pub(crate) use mend::shell;
pub(crate) use way::Way;

use crate::catalog::diagnosis::{Check, Condition, Diagnoses, Diagnosis, RING, RUNS};
use crate::catalog::status::{EnrolmentStatus, MissingRing};
use crate::manager::{Manager, State};
use crate::mqsc::DoctorQuestion;
use crate::policy_check::USERS_MAX;
use access::Access;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Messages of the queue that are looked at.
pub(crate) const MESSAGES_MAX: usize = 200;
/// How long they are looked at.
pub(crate) const MESSAGES_TIME_MAX: Duration = Duration::from_millis(500);
/// Users on either side of the trials.
pub(crate) const TRIAL_USERS_MAX: usize = 4;
/// Things of one sort that are told of one by one.
const TOLD_MAX: usize = 20;

/// What is asked, and what was found until now.
pub(crate) struct Doctor<'a> {
    pub(crate) manager: &'a Arc<Manager>,
    pub(crate) question: &'a DoctorQuestion,
    pub(crate) found: Diagnoses,
}

impl<'a> Doctor<'a> {
    pub(crate) fn new(manager: &'a Arc<Manager>, question: &'a DoctorQuestion) -> Self {
        Self { manager, question, found: Diagnoses::default() }
    }

    /// What is known of the machine under the queues' lock.
    pub(crate) fn manager_as_a_whole(&mut self, state: &State) {
        queues::error_queue(self, state);
        queues::dead_letter_queue(self, state);
        channels::all(self, state);
        machine::devices(self, state);
        if let Some(user) = &self.question.user {
            let access = Access::of(self.manager, state, user, None);
            access::sign_in(self, std::slice::from_ref(&access));
            access::rules(self, state, std::slice::from_ref(&access));
        }
    }

    /// What takes no queue: the process, the data directory, rings, and what renews by itself, as `enrolments` has it.
    pub(crate) fn machine(&mut self, now: SystemTime, enrolments: &[EnrolmentStatus]) {
        let data = &self.manager.data;
        let details = format!("{} runs, version {}", self.manager.name, env!("CARGO_PKG_VERSION"));
        self.found.well(&RUNS, "", details);
        machine::process(&mut self.found);
        let listeners = self.manager.listening.addresses.get();
        let uses_tls =
            listeners.is_some_and(|all| all.iter().any(|it| it.starts_with("amqps") || it.starts_with("https")));
        files::look(data, &mut self.found, now, self.question.ahead, uses_tls);
        enrolment::look(data, &mut self.found, Some(enrolments), self.question.user.as_deref(), now);
        let users = match &self.question.user {
            Some(user) => vec![user.clone()],
            None => crate::policy_check::ring_users(self.manager).take(USERS_MAX).collect(),
        };
        machine::keys_elsewhere(self, &users, None);
        self.rings_of_groups();
    }

    /// Key rings without which this queue manager can't do for users what the owner of a shared group can.
    fn rings_of_groups(&mut self) {
        let groups = self.manager.rings_missing().clone();
        for (group, rings) in groups {
            let asked = |ring: &&MissingRing| self.question.user.as_ref().is_none_or(|user| *user == ring.user);
            let rings: Vec<MissingRing> = rings.iter().filter(asked).take(TOLD_MAX).cloned().collect();
            for MissingRing { user: name, why } in rings {
                let details = format!("{why}; shared group {group} needs it where this queue manager owns it");
                let mend = vec![mend::copied_ring(&self.manager.data, &name)];
                self.ill(&RING, Condition::Warning, user(&name), ("group-ring", details), mend);
            }
        }
    }

    /// How bad it is when something is wrong for one user: that user's way is broken; where all are asked about, others
    /// may be well.
    fn of_user(&self) -> Condition {
        if self.question.user.is_some() { Condition::Broken } else { Condition::Warning }
    }

    fn ill(
        &mut self,
        check: &'static Check,
        condition: Condition,
        about: impl Into<String>,
        (cause, details): (impl Into<String>, impl Into<String>),
        mend: Vec<String>,
    ) {
        let (about, cause, details) = (about.into(), cause.into(), details.into());
        self.found.push(Diagnosis { check, condition, about, cause, details, mend });
    }
}

/// `user orders`
fn user(name: &str) -> String {
    format!("user {name}")
}

/// `1 message`, `2 messages`
fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}
