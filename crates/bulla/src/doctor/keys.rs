//! Keys and certificates of the way: who can seal, who can open, and a message that is sealed and opened in memory.

use super::{Doctor, TOLD_MAX, Way, dates, files, machine, mend, messages, user as about};
use crate::catalog::diagnosis::{Check, Condition, MESSAGES, POLICY, PROBE, RECIPIENT, RING, SIGNER, SIZE};
use crate::catalog::findings::{Fate, Findings, NameFinding, UserFinding, Why};
use crate::catalog::status::Stranded;
use crate::manager::Manager;
use bulla_seal::policy::{ContentCipher, Pqc, SignatureDigest};
use bulla_seal::ring::Ring;
use bulla_seal::{Dn, OpenError, Policy};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What a user gets who lacks a key of the kind that PQC(REQUIRED) asks for.
const ML_DSA: &str = "ml-dsa-65";
const ML_KEM: &str = "ml-kem-768";

/// Adds what was found of keys, lengths and messages, and what takes files: dates, disk and clock. The queues are not
/// locked meanwhile.
pub(crate) fn look(doctor: &mut Doctor<'_>, way: &Way, findings: Option<&Findings>, now: SystemTime) {
    if let Some(findings) = findings {
        let view = View { findings, asked: way.user.clone(), is_remote: way.is_remote() };
        rings(doctor, &view);
        names(doctor, &view);
        seals_and_opens(doctor, &view);
        trials(doctor, &view);
        lengths(doctor, way, findings);
        lying(doctor, &view);
        if let Some(conflict) = &findings.conflict {
            let policy = format!("policy {}", findings.policy.name);
            doctor.ill(&POLICY, Condition::Broken, policy, ("policy", conflict), Vec::new());
        }
        for left_out in &findings.left_out {
            doctor.found.say(&PROBE, Condition::Unknown, "", format!("left out: {left_out}"));
        }
        let users: Vec<String> =
            findings.users.iter().filter(|user| view.concerns(user)).map(|it| it.user.clone()).collect();
        machine::keys_elsewhere(doctor, &users, Some(&findings.policy));
        dates::of_rings(doctor, &users, &findings.policy, now);
    }
    files::disk(&doctor.manager.data, &mut doctor.found);
    files::clock(&doctor.manager.data, &mut doctor.found, now);
}

impl Way {
    fn is_remote(&self) -> bool {
        self.route.as_ref().is_some_and(|route| route.transmission.is_some())
    }
}

/// What was found, and for whom it is looked at.
struct View<'a> {
    findings: &'a Findings,
    asked: Option<String>,
    is_remote: bool,
}

impl View<'_> {
    fn is_asked(&self, user: &str) -> bool {
        self.asked.as_deref() == Some(user)
    }

    /// Whether the user's keys are looked at.
    fn concerns(&self, user: &UserFinding) -> bool {
        match &self.asked {
            Some(asked) => *asked == user.user,
            None => user.may_put || user.may_get,
        }
    }
}

fn ring_of(manager: &Manager, user: &str) -> Option<Arc<Ring>> {
    manager.ring(user, Instant::now()).ok()
}

/// Whether the rings can be read.
fn rings(doctor: &mut Doctor<'_>, view: &View<'_>) {
    let users = view.findings.users.iter().filter(|user| view.concerns(user));
    let (mut read, mut told) = (Vec::new(), 0_usize);
    for user in users {
        match &user.ring {
            Ok(()) => read.push(user.user.as_str()),
            Err(_) if told >= TOLD_MAX => {}
            Err(why) => {
                told += 1;
                let mend = match doctor.manager.ring(&user.user, Instant::now()) {
                    Err(error) => mend::ring(doctor.manager, &user.user, &error),
                    Ok(_) => Vec::new(),
                };
                let able = |other: &UserFinding| {
                    (user.may_put && other.may_put && other.seals.is_ok())
                        || (user.may_get && other.may_get && other.opens.is_ok())
                };
                let others = view.asked.is_none() && view.findings.users.iter().any(able);
                let condition = if others { Condition::Warning } else { Condition::Broken };
                doctor.ill(&RING, condition, about(&user.user), (why.cause.clone(), why.details.clone()), mend);
            }
        }
    }
    if !read.is_empty() {
        read.truncate(TOLD_MAX);
        doctor.found.well(&RING, "", format!("rings that can be read: {}", read.join(", ")));
    }
}

/// The names in the policy. Where no ring here has a good certificate of one, no message is sealed or opened for it.
fn names(doctor: &mut Doctor<'_>, view: &View<'_>) {
    for name in &view.findings.names {
        let check = if name.signs { &SIGNER } else { &RECIPIENT };
        let keyword = format!("{}('{}')", check.name, name.dn);
        match &name.found {
            Some((used, whose)) => {
                let details = format!("{}, until {}, in the rings of {}", used.key, used.not_after, whose.join(", "));
                doctor.found.well(check, keyword, details);
            }
            None => missing(doctor, check, keyword, (name, new_kind(&view.findings.policy, name.signs))),
        }
    }
}

/// No ring here has a good certificate of a name. One that is no good is not a missing one.
fn missing(
    doctor: &mut Doctor<'_>,
    check: &'static Check,
    keyword: String,
    (name, kind): (&NameFinding, Option<&str>),
) {
    const ABSENT: &str = "unknown-dn";
    let bad = name.missing.iter().find(|(_, why)| why.cause != ABSENT).or_else(|| name.missing.first());
    let owner = owner(doctor.manager, &name.dn);
    match bad {
        Some((user, why)) => {
            let mend = mend::certificate(doctor.manager, user, owner.as_deref(), (&name.dn, kind), &why.cause);
            doctor.ill(check, Condition::Broken, keyword, (why.cause.clone(), why.details.clone()), mend);
        }
        None => {
            // A signer may sign elsewhere.
            let condition = if name.signs { Condition::Unknown } else { Condition::Broken };
            let details = "no key ring here has a certificate of it";
            let mend = if name.signs { Vec::new() } else { vec![mend::import("<user>", "person")] };
            doctor.ill(check, condition, keyword, (ABSENT, details), mend);
        }
    }
}

/// The kind of key that a new one has to be, to sign or to be written to; none where the policy takes several.
fn new_kind(policy: &Policy, signs: bool) -> Option<&'static str> {
    (policy.pqc == Pqc::Required).then_some(if signs { ML_DSA } else { ML_KEM })
}

/// Whose ring has a private key of that name.
fn owner(manager: &Manager, dn: &str) -> Option<String> {
    let dn: Dn = dn.parse().ok()?;
    let mut users = crate::policy_check::ring_users(manager);
    users.find(|user| {
        ring_of(manager, user).is_some_and(|ring| ring.own().iter().any(|own| *own.certificate.dn() == dn))
    })
}

/// Who may put and can't seal, who may get and can't open. It is one user's business while others can.
fn seals_and_opens(doctor: &mut Doctor<'_>, view: &View<'_>) {
    let findings = view.findings;
    let some_seals = findings.users.iter().any(|user| user.may_put && user.seals.is_ok());
    let some_opens = findings.users.iter().any(|user| user.may_get && user.opens.is_ok());
    let condition = |some| if view.asked.is_none() && some { Condition::Warning } else { Condition::Broken };
    for user in findings.users.iter().filter(|user| view.concerns(user) && user.ring.is_ok()).take(TOLD_MAX) {
        if let (true, Err(why)) = (user.may_put, &user.seals) {
            let (check, mend) = not_sealed(doctor, view, &user.user, why);
            let said = (why.cause.clone(), format!("may put and can't seal: {}", why.details));
            doctor.ill(check, condition(some_seals), about(&user.user), said, mend);
        }
        if let (true, Err(why)) = (user.may_get, &user.opens) {
            let (check, mend) = not_opened(doctor, view, &user.user, why);
            let said = (why.cause.clone(), format!("may get and can't open: {}", why.details));
            doctor.ill(check, condition(some_opens), about(&user.user), said, mend);
        }
    }
}

/// Which check it is that a user can't seal, and what mends it.
fn not_sealed(doctor: &Doctor<'_>, view: &View<'_>, user: &str, why: &Why) -> (&'static Check, Vec<String>) {
    let manager = doctor.manager;
    let policy = &view.findings.policy;
    let lacks = |name: &&NameFinding| !name.signs && name.missing.iter().any(|(who, its)| who == user && its == why);
    let recipient = view.findings.names.iter().find(lacks);
    let set = |attribute: String| vec![mend::mqsc(format!("SET POLICY({}) {attribute}", mend::quoted(&policy.name)))];
    let own =
        |user: &str| ring_of(manager, user).and_then(|ring| Some(ring.own().first()?.certificate.dn().to_string()));
    match (why.cause.as_str(), recipient) {
        // PQC asks for a key of another kind: a new one where it is post-quantum, else what the policy says is changed.
        ("recipient-key", Some(name)) if policy.pqc == Pqc::Required && why.details.contains("PQC(REQUIRED)") => {
            let mend = match owner(manager, &name.dn) {
                Some(owner) => {
                    let key = mend::new_key(&manager.data, &owner, &name.dn);
                    vec![format!("{key} --key {ML_KEM} --share {}", mend::shell(user))]
                }
                None => vec![mend::import(user, "person")],
            };
            (&RECIPIENT, mend)
        }
        ("recipient-key", Some(_)) if why.details.contains("ML-KEM key needs") => {
            (&RECIPIENT, anew(Policy { encrypt: Some(ContentCipher::Aes256Gcm), ..(**policy).clone() }))
        }
        ("recipient-key", Some(_)) if policy.pqc == Pqc::None && why.details.contains("PQC(NONE)") => {
            (&RECIPIENT, anew(Policy { pqc: Pqc::Allowed, ..(**policy).clone() }))
        }
        ("signer-key", _) if policy.pqc == Pqc::Required => {
            let dn = own(user).unwrap_or_else(|| format!("CN={user}"));
            (&SIGNER, vec![format!("{} --key {ML_DSA}", mend::new_key(&manager.data, user, &dn))])
        }
        ("signer-key", _) => (&SIGNER, anew(Policy { pqc: Pqc::Allowed, ..(**policy).clone() })),
        ("unknown-dn" | "recipient-key", None) => {
            let by_key = Policy { key_transport: Default::default(), ..(**policy).clone() };
            (&RECIPIENT, anew(by_key))
        }
        (_, Some(name)) => {
            let from = name.found.as_ref().and_then(|(_, whose)| whose.first());
            let shared = from.and_then(|from| shared(manager, from, user, &name.dn));
            let owner = owner(manager, &name.dn);
            let wanted = (name.dn.as_str(), new_kind(policy, name.signs));
            let mended = || mend::certificate(manager, user, owner.as_deref(), wanted, &why.cause);
            (&RECIPIENT, shared.filter(|_| why.cause == "unknown-dn").unwrap_or_else(mended))
        }
        ("signer-not-authorised", _) => match own(user) {
            Some(dn) => (&SIGNER, set(format!("ACTION(ADD) SIGNER({})", mend::quoted(&dn)))),
            None => (&SIGNER, Vec::new()),
        },
        ("signature-does-not-fit", _) => {
            // RSA-PSS is too long for the key, or the digest weaker than ML-DSA.
            let fitting = if why.details.contains("ML-DSA") {
                Policy { sign: Some(SignatureDigest::Sha512), ..(**policy).clone() }
            } else {
                Policy { signature_scheme: Default::default(), ..(**policy).clone() }
            };
            (&SIGNER, anew(fitting))
        }
        ("policy", _) => (&POLICY, vec![mend::mqsc(format!("CHECK POLICY({})", mend::quoted(&policy.name)))]),
        (cause, _) => {
            let dn = own(user).unwrap_or_else(|| format!("CN={user}"));
            (&SIGNER, mend::certificate(manager, user, Some(user), (&dn, new_kind(policy, true)), cause))
        }
    }
}

/// The command that sets the policy with something else in it.
fn anew(policy: Policy) -> Vec<String> {
    vec![mend::mqsc(crate::mqsc::policy::text(&Arc::new(policy)))]
}

/// The commands by which one user's ring gets a certificate that another's has.
fn shared(manager: &Manager, from: &str, to: &str, dn: &str) -> Option<Vec<String>> {
    let (ring, dn) = (ring_of(manager, from)?, Dn::of_signer(dn).ok()?);
    let own = ring.own().iter().map(|own| &own.certificate);
    let mut certificates = own.chain(ring.people().iter().map(|person| &person.certificate));
    let wanted = certificates.find(|certificate| *certificate.dn() == dn)?;
    mend::share(&ring, to, wanted)
}

/// Which check it is that a user can't open, and what mends it.
fn not_opened(doctor: &Doctor<'_>, view: &View<'_>, user: &str, why: &Why) -> (&'static Check, Vec<String>) {
    let manager = doctor.manager;
    let policy = &view.findings.policy;
    match why.cause.as_str() {
        "not-a-recipient" => {
            let own = ring_of(manager, user).and_then(|ring| Some(ring.own().first()?.certificate.dn().clone()));
            let lacks_kind = |dn: &Dn| policy.pqc == Pqc::Required && policy.recipients.contains(dn);
            let own_name = own.as_ref().map(Dn::to_string);
            let mend = match own_name {
                Some(name) if own.as_ref().is_some_and(lacks_kind) => {
                    vec![format!("{} --key {ML_KEM}", mend::new_key(&manager.data, user, &name))]
                }
                Some(dn) => {
                    let add = format!("ACTION(ADD) RECIP({})", mend::quoted(&dn));
                    vec![mend::mqsc(format!("SET POLICY({}) {add}", mend::quoted(&policy.name)))]
                }
                None => vec![mend::new_key(&manager.data, user, &format!("CN={user}"))],
            };
            (&RECIPIENT, mend)
        }
        "policy" => (&POLICY, vec![mend::import(user, "person")]),
        cause => (&SIGNER, mend::certificate(manager, user, None, ("", new_kind(policy, false)), cause)),
    }
}

/// What was sealed and opened to see.
fn trials(doctor: &mut Doctor<'_>, view: &View<'_>) {
    let not_a_recipient = OpenError::NotARecipient.cause();
    let (mut opened, mut failed) = (Vec::new(), 0_usize);
    for trial in &view.findings.trials {
        let pair = format!("{} → {}", trial.by, trial.for_whom);
        match &trial.result {
            Ok(()) => opened.push(pair),
            // Who is no recipient was told of already.
            Err(why) if why.cause == not_a_recipient => {}
            Err(_) if failed >= TOLD_MAX => {}
            Err(why) => {
                failed += 1;
                let (check, mend) = not_opened(doctor, view, &trial.for_whom, why);
                let mend = if *check == POLICY { Vec::new() } else { mend };
                let details = format!("what {} seals does not open for {}: {}", trial.by, trial.for_whom, why.details);
                doctor.ill(&PROBE, Condition::Broken, pair, (why.cause.clone(), details), mend);
            }
        }
    }
    if !opened.is_empty() {
        opened.truncate(TOLD_MAX);
        doctor.found.well(&PROBE, "", format!("sealed and opened in memory: {}", opened.join(", ")));
    } else if failed == 0 {
        let seals = view.findings.users.iter().any(|user| view.concerns(user) && user.may_put && user.seals.is_ok());
        let details = match (seals, view.is_remote) {
            (true, true) => "seals; that it opens shows at its reader, elsewhere",
            (true, false) => "seals; no reader here has a key to open it",
            (false, _) => "not tried: no user here who may put can seal",
        };
        doctor.found.say(&PROBE, Condition::Unknown, "", details.to_owned());
    }
}

/// Lengths against MAXMSGL.
fn lengths(doctor: &mut Doctor<'_>, way: &Way, findings: &Findings) {
    let Some(route) = &way.route else { return };
    let (about, max) = (format!("queue {}", route.queue_name), route.message_bytes_max);
    let alter =
        |bytes: usize| vec![mend::mqsc(format!("ALTER QLOCAL({}) MAXMSGL({bytes})", mend::quoted(&route.queue_name)))];
    let empty = findings.sizes.first().map(|(payload, sealed)| sealed.saturating_sub(*payload));
    match (findings.payload_max, empty, doctor.question.bytes) {
        (Some(longest), _, Some(bytes)) if bytes > longest as u64 => {
            let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
            let details =
                format!("a payload of {bytes} bytes is too long once it is sealed: {longest} fit MAXMSGL({max})");
            let mend = alter(max.saturating_add(wanted.saturating_sub(longest)));
            doctor.ill(&SIZE, Condition::Broken, about, ("2030", details), mend);
        }
        (Some(longest), ..) => {
            let details =
                format!("payloads of up to {longest} bytes fit MAXMSGL({max}), sealed and without properties");
            doctor.found.well(&SIZE, about, details);
        }
        (None, Some(seal), _) => {
            let details = format!("the seal alone takes {seal} bytes of MAXMSGL({max}): no message fits");
            doctor.ill(&SIZE, Condition::Broken, about, ("2030", details), alter(seal.saturating_mul(2).max(65_536)));
        }
        (None, None, _) => {
            doctor.found.say(
                &SIZE,
                Condition::Unknown,
                about,
                "not known: no user here who may put can seal".to_owned(),
            );
        }
    }
}

/// What becomes of the messages on the queue.
fn lying(doctor: &mut Doctor<'_>, view: &View<'_>) {
    let findings = view.findings;
    let Stranded { no_key, locked, .. } = findings.stranded;
    let (unread, first) = findings.for_no_user;
    if no_key > 0 {
        let details = format!("no key ring here has a key that opens {}", messages(no_key));
        doctor.ill(&MESSAGES, Condition::Broken, "", ("not-a-recipient", details), vec![mend::import("<user>", "own")]);
    }
    if locked > 0 {
        let details = format!("the key that opens {} is in a key ring that can't be read", messages(locked));
        doctor.ill(&MESSAGES, Condition::Broken, "", ("key-ring", details), Vec::new());
    }
    if no_key == 0 && unread > findings.away {
        let details = format!("no user here can open {}, the first is number {first}", messages(unread));
        doctor.ill(&MESSAGES, Condition::Broken, "", ("not-a-recipient", details), vec![mend::import("<user>", "own")]);
    }
    let mut opens = 0;
    for found in findings
        .messages
        .iter()
        .filter(|found| found.user.as_deref().is_none_or(|user| view.asked.is_none() || view.is_asked(user)))
    {
        let whose = found.user.as_deref().map_or_else(String::new, about);
        let (count, first) = (messages(found.count), found.first);
        match &found.fate {
            Fate::Defective(why) => {
                let details =
                    format!("{count} would go to the error queue, the first is number {first}: {}", why.details);
                let mend = vec!["bulla error list".to_owned()];
                doctor.ill(&MESSAGES, Condition::Broken, whose, (why.cause.clone(), details), mend);
            }
            Fate::Stays(why) => {
                let details = format!("{count} can't be opened now, the first is number {first}: {}", why.details);
                let user = found.user.as_deref().unwrap_or_default();
                let mend = mend::certificate(doctor.manager, user, None, ("", None), &why.cause);
                doctor.ill(&MESSAGES, Condition::Broken, whose, (why.cause.clone(), details), mend);
            }
            Fate::NotMine if found.user.as_deref().is_some_and(|user| view.is_asked(user)) => {
                let details = format!("{count} are for other readers, the first is number {first}");
                doctor.ill(&MESSAGES, Condition::Warning, whose, ("not-a-recipient", details), Vec::new());
            }
            Fate::NotMine => {}
            Fate::Opens | Fate::Clear | Fate::Form => opens += found.count,
        }
    }
    if !doctor.found.is_ill(&MESSAGES) {
        let details = match (findings.looked_at, opens) {
            (0, _) => "there are none to look at".to_owned(),
            (looked, _) => format!("{} looked at, {} not", messages(looked), findings.left),
        };
        doctor.found.well(&MESSAGES, "", details);
    }
}
