//! What `bulla doctor` looks at, and what it finds: one table of checks, and one row for each thing found.
//!
//! The language's rows, the page for people, JSON and the documentation follow from the table.

use std::fmt::{self, Display};

/// Certificates and revocation lists that end within so many days are told of where no number is given.
pub const DAYS_DEFAULT: u64 = 30;
/// Most days that may be asked for.
pub const DAYS_MAX: u64 = 3_650;

/// One thing that is looked at.
#[derive(Debug, Eq, PartialEq)]
pub struct Check {
    /// Its word, as MQSC shows it.
    pub name: &'static str,
    /// What it looks at, one lower-case line.
    pub looks_at: &'static str,
    /// It is about the way of a message, from its put to its get.
    pub of_queue: bool,
    /// It is about the machine and the queue manager as a whole.
    pub of_machine: bool,
}

const fn of_queue(name: &'static str, looks_at: &'static str) -> Check {
    Check { name, looks_at, of_queue: true, of_machine: false }
}

const fn of_machine(name: &'static str, looks_at: &'static str) -> Check {
    Check { name, looks_at, of_queue: false, of_machine: true }
}

const fn of_both(name: &'static str, looks_at: &'static str) -> Check {
    Check { name, looks_at, of_queue: true, of_machine: true }
}

/// Where the name leads.
pub static NAME: Check = of_queue("NAME", "where the name leads: alias, remote queue, model, transmission queue");
/// Whether users can prove who they are.
pub static SIGN_IN: Check = of_both("SIGNIN", "whether the user can sign in: password, token or certificate; lockouts");
/// Rules for connections.
pub static RULES: Check = of_both("CHLAUTH", "rules for connections that keep the user out, or let it in as another");
/// Rights to put.
pub static PUT: Check = of_queue("PUT", "who may connect and put by the name, and whether puts are enabled");
/// Limits.
pub static LIMITS: Check = of_queue("LIMITS", "limits of the user and of the queue that are used up");
/// The policy.
pub static POLICY: Check =
    of_queue("POLICY", "the policy of the name, beside other policies and other names of the queue");
/// Key rings.
pub static RING: Check = of_both("RING", "key rings: that they can be read, and that only their owner can");
/// Signers.
pub static SIGNER: Check =
    of_queue("SIGNER", "who can sign: key, path, dates, revocation, usage, and the list of signers");
/// Recipients.
pub static RECIPIENT: Check = of_queue("RECIP", "each recipient's certificate, and each reader's key");
/// Devices.
pub static DEVICES: Check =
    of_both("DEVICES", "crypto devices, and for each key on a token or in a transit engine the device that has it");
/// Lengths.
pub static SIZE: Check =
    of_queue("SIZE", "lengths of sealed messages against MAXMSGL of queue, queue manager and channel");
/// A sealed and opened trial.
pub static PROBE: Check = of_queue("PROBE", "a message that is sealed and opened in memory; nothing is put");
/// Room on the queue.
pub static DEPTH: Check = of_queue("DEPTH", "room on the queue that a message would lie on");
/// The channel that carries messages away.
pub static CHANNEL: Check = of_queue("CHANNEL", "the channel of the transmission queue, and what it does about seals");
/// Rights to get.
pub static GET: Check = of_queue("GET", "who may connect and get by the name, and whether gets are enabled");
/// Messages that lie there.
pub static MESSAGES: Check = of_queue("MESSAGES", "messages on the queue: whether they open, and for whom");
/// The error queue.
pub static ERROR_QUEUE: Check = of_both("ERRORQ", "the queue that defective messages go to");
/// The dead-letter queue.
pub static DEAD_LETTERS: Check = of_both("DEADQ", "the queue that messages go to which can't be delivered");
/// Whether it runs.
pub static RUNS: Check = of_machine("RUNS", "whether the queue manager runs, and which version of the program");
/// OpenSSL.
pub static OPENSSL: Check = of_machine("OPENSSL", "the cryptographic library in use");
/// The processor's instructions.
pub static INSTRUCTIONS: Check = of_machine("CPU", "the processor's instructions for cryptography");
/// The accelerators' code.
pub static LANES: Check = of_machine("LANES", "the library of accelerators");
/// Locked memory.
pub static MEMORY: Check = of_machine("MEMORY", "whether keys are kept out of swap");
/// Core files.
pub static DUMPS: Check = of_machine("DUMPS", "whether the process can be dumped, or read by others");
/// Open files.
pub static OPEN_FILES: Check = of_machine("FILES", "how many files, and so connections, the process may have open");
/// File modes.
pub static MODES: Check = of_machine("MODES", "owners and modes of the data directory, keys, rings and password files");
/// TLS.
pub static TLS: Check = of_machine("TLS", "certificate and key of the listener");
/// Channels.
pub static CHANNELS: Check = of_machine("CHANNELS", "channels that failed, were stopped, or have messages in doubt");
/// The disk.
pub static DISK: Check = of_both("DISK", "space of the data directory's disk, and whether the journal has its reserve");
/// What ends soon.
pub static DATES: Check = of_both("DATES", "certificates and revocation lists that end soon, or have ended");
/// Certificates that renew by themselves.
pub static ENROLMENT: Check = of_machine(
    "ENROL",
    "certificates that renew by themselves: when they did, when they will, and whether what that needs is there",
);
/// The clock.
pub static CLOCK: Check = of_both("CLOCK", "the clock against files, messages and certificates that are later than it");

/// Every check, in the order of a message's way, then the machine's.
pub static CHECKS: &[&Check] = &[
    &RUNS,
    &NAME,
    &SIGN_IN,
    &RULES,
    &PUT,
    &LIMITS,
    &POLICY,
    &RING,
    &SIGNER,
    &RECIPIENT,
    &DEVICES,
    &SIZE,
    &PROBE,
    &DEPTH,
    &CHANNEL,
    &GET,
    &MESSAGES,
    &ERROR_QUEUE,
    &DEAD_LETTERS,
    &OPENSSL,
    &INSTRUCTIONS,
    &LANES,
    &MEMORY,
    &DUMPS,
    &OPEN_FILES,
    &MODES,
    &TLS,
    &CHANNELS,
    &DISK,
    &DATES,
    &ENROLMENT,
    &CLOCK,
];

/// How bad it is; the worst first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Condition {
    /// A put or get fails because of it.
    Broken,
    /// It works, and should be seen to: soon, or for some users.
    Warning,
    /// It can't be seen from here.
    Unknown,
    /// Nothing is wrong.
    Well,
}

impl Condition {
    /// Every one, the worst first.
    pub const ALL: [Self; 4] = [Self::Broken, Self::Warning, Self::Unknown, Self::Well];

    /// MQSC's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Broken => "BROKEN",
            Self::Warning => "WARNING",
            Self::Unknown => "UNKNOWN",
            Self::Well => "WELL",
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One thing that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnosis {
    /// By which check.
    pub check: &'static Check,
    /// How bad it is.
    pub condition: Condition,
    /// What it is about: `user orders`, `queue ORDERS`; empty for the whole.
    pub about: String,
    /// The sub-reason that a refusal would have, or MQ's reason code; empty where there is none.
    pub cause: String,
    /// What was found, one lower-case line.
    pub details: String,
    /// Commands that mend it, for a shell; none where there is nothing to mend, or no command does.
    pub mend: Vec<String>,
}

/// What was found until now.
#[derive(Debug, Default)]
pub struct Diagnoses(Vec<Diagnosis>);

impl Diagnoses {
    /// Adds one.
    pub fn push(&mut self, diagnosis: Diagnosis) {
        // The same certificate is met in many rings.
        if !self.0.contains(&diagnosis) {
            self.0.push(diagnosis);
        }
    }

    /// Adds one of a condition, without cause or command.
    pub fn say(&mut self, check: &'static Check, condition: Condition, about: impl Into<String>, details: String) {
        self.push(Diagnosis { check, condition, about: about.into(), cause: String::new(), details, mend: Vec::new() });
    }

    /// Nothing is wrong with what a check looks at.
    pub fn well(&mut self, check: &'static Check, about: impl Into<String>, details: impl Into<String>) {
        self.say(check, Condition::Well, about, details.into());
    }

    /// Whether a check has found something that is not well.
    #[must_use]
    pub fn is_ill(&self, check: &Check) -> bool {
        self.0.iter().any(|found| found.check == check && found.condition < Condition::Unknown)
    }

    /// Whether a check has said anything.
    #[must_use]
    pub fn has(&self, check: &Check) -> bool {
        self.0.iter().any(|found| found.check == check)
    }

    /// All of it: the worst first, and of one condition in the order of [`CHECKS`].
    #[must_use]
    pub fn sorted(mut self) -> Vec<Diagnosis> {
        let place = |check: &Check| CHECKS.iter().position(|other| *other == check).unwrap_or(usize::MAX);
        self.0.sort_by_key(|found| (found.condition, place(found.check)));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_a_word_of_its_own_and_is_about_something() {
        for (at, check) in CHECKS.iter().enumerate() {
            assert!(check.of_queue || check.of_machine, "{check:?}");
            assert!(check.name.chars().all(|char| char.is_ascii_uppercase()), "{check:?}");
            assert!(CHECKS.iter().skip(at + 1).all(|other| other.name != check.name), "{check:?}");
        }
    }

    #[test]
    fn what_is_broken_comes_first_and_the_way_of_the_message_is_its_order() {
        let mut found = Diagnoses::default();
        found.well(&NAME, "", "a local queue");
        found.say(&DATES, Condition::Broken, "", "ended".into());
        found.say(&CLOCK, Condition::Warning, "", "set back".into());
        found.say(&RING, Condition::Broken, "", "missing".into());
        found.say(&RING, Condition::Broken, "", "missing".into());
        assert!(found.is_ill(&RING) && !found.is_ill(&NAME) && found.has(&NAME) && !found.has(&TLS));
        let order: Vec<&str> = found.sorted().iter().map(|found| found.check.name).collect();
        assert_eq!(order, ["RING", "DATES", "CLOCK", "NAME"], "the same thing is said once");
    }
}
