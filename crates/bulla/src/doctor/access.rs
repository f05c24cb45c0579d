//! Who may put and get: sign-in, rules for connections, rights, limits.

use super::{Doctor, TOLD_MAX, mend, user as about};
use crate::authority::{CLIENT_CHANNEL, Caller, Entity, ObjectType, Right, RuleKind, UserSource, channel_profile_fits};
use crate::catalog::diagnosis::{Condition, GET, LIMITS, PUT, RULES, SIGN_IN};
use crate::catalog::lockouts::{InForce, Whose};
use crate::folders::TLS;
use crate::manager::{Manager, State};
use crate::policy_check::{USERS_MAX, ring_users};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

/// What one user may do.
pub(crate) struct Access {
    /// The name that it signs in with.
    pub(super) name: String,
    /// As whom a rule for connections lets it in, where it comes from this machine: the same name most of the time.
    pub(super) acts_as: String,
    pub(super) connects: bool,
    pub(super) puts: bool,
    pub(super) gets: bool,
    pub(super) has_password: bool,
}

impl Access {
    /// What a user may do with a name.
    pub(crate) fn of(manager: &Manager, state: &State, user: &str, name: Option<&str>) -> Self {
        let acts_as = mapped(state, user).unwrap_or_else(|| user.to_owned());
        let rights = |object, name: &str| state.definitions.authorities.rights(Some(&acts_as), object, name);
        let may = |right| name.is_some_and(|name| rights(ObjectType::Queue, name).has(right));
        Self {
            connects: rights(ObjectType::QueueManager, "").has(Right::Connect),
            puts: may(Right::Put),
            gets: may(Right::Get),
            has_password: manager.sign_ins.users.exists(user),
            name: user.to_owned(),
            acts_as,
        }
    }

    /// What every user that is known may do with a name, or the one that is asked about; those who may nothing are left
    /// out.
    pub(crate) fn of_all(manager: &Manager, state: &State, asked: Option<&str>, name: &str) -> Vec<Self> {
        if let Some(user) = asked {
            return vec![Self::of(manager, state, user, Some(name))];
        }
        let mut users: BTreeSet<String> =
            manager.sign_ins.users.names().into_iter().chain(ring_users(manager)).collect();
        let records = state.definitions.authorities.records.iter();
        users.extend(records.filter_map(|(key, _)| match key.entity {
            Entity::Principal(user) if !user.starts_with('*') => Some(user.to_string()),
            _ => None,
        }));
        let all = users.iter().take(USERS_MAX).map(|user| Self::of(manager, state, user, Some(name)));
        all.filter(|access| access.puts || access.gets).collect()
    }
}

/// Whom a rule for connections makes of a user who connects from this machine without a certificate.
fn mapped(state: &State, user: &str) -> Option<String> {
    if !state.definitions.queue_manager.channel_authentication {
        return None;
    }
    match &state.definitions.channel_rules.mapping(&caller(user))?.1.source {
        UserSource::Map(other) => Some(other.clone()),
        _ => None,
    }
}

fn caller(user: &str) -> Caller<'_> {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Caller { channel: CLIENT_CHANNEL, address, subject: None, issuer: None, user: Some(user) }
}

/// Whether they can sign in.
pub(super) fn sign_in(doctor: &mut Doctor<'_>, users: &[Access]) {
    let manager = doctor.manager;
    let by_token = manager.sign_ins.tokens.are_taken();
    let by_certificate = manager.data.join(TLS).join("clients.pem").exists();
    let condition = doctor.of_user();
    let asked = doctor.question.user.is_some();
    for access in users.iter().filter(|access| !access.has_password).take(TOLD_MAX) {
        let (user, about) = (&access.name, about(&access.name));
        match () {
            () if by_token || by_certificate => {
                let way = if by_token { "a token" } else { "a certificate" };
                doctor.found.say(
                    &SIGN_IN,
                    Condition::Unknown,
                    about,
                    format!("has no password, and may sign in with {way} of its own"),
                );
            }
            () => {
                let details = "has no password, and neither tokens nor clients' certificates are taken";
                let mend = vec![format!("bulla user add {}", mend::shell(user))];
                doctor.ill(&SIGN_IN, condition, about, ("2035", details), mend);
            }
        }
    }
    let names: BTreeSet<&str> = users.iter().map(|access| access.name.as_str()).collect();
    let lockouts = manager.lockouts().in_force(Instant::now());
    for lockout in lockouts.iter().filter(|lockout| concerns(lockout, &names)).take(TOLD_MAX) {
        locked_out(doctor, lockout);
    }
    if !doctor.found.has(&SIGN_IN) {
        let details = if asked { "has a password, and is not locked out" } else { "no user is locked out" };
        doctor.found.well(
            &SIGN_IN,
            users.first().filter(|_| asked).map_or_else(String::new, |one| about(&one.name)),
            details,
        );
    }
}

fn concerns(lockout: &InForce, names: &BTreeSet<&str>) -> bool {
    lockout.user.as_deref().is_none_or(|user| names.contains(user))
}

fn locked_out(doctor: &mut Doctor<'_>, lockout: &InForce) {
    let seconds = lockout.left.as_secs();
    let from = lockout.address.map_or_else(String::new, |address| format!(" from {address}"));
    let name = lockout.user.as_deref().unwrap_or("*");
    let (condition, details) = match lockout.whose {
        Whose::Pair => (doctor.of_user(), format!("is locked out{from} for {seconds} s: wrong attempts to sign in")),
        Whose::Address => (Condition::Warning, format!("no user signs in{from} for {seconds} s")),
        Whose::User => (Condition::Warning, format!("has one attempt from each new address for {seconds} s")),
    };
    let about = lockout.user.as_deref().map_or_else(String::new, about);
    let mend = vec![mend::mqsc(format!("RESET LOCKOUT({})", mend::quoted(name)))];
    doctor.ill(&SIGN_IN, condition, about, ("2035", details), mend);
}

/// What the rules for connections make of them.
pub(super) fn rules(doctor: &mut Doctor<'_>, state: &State, users: &[Access]) {
    let rules = &state.definitions.channel_rules;
    if !state.definitions.queue_manager.channel_authentication || rules.is_empty() {
        doctor.found.well(&RULES, "", "no rule for connections");
        return;
    }
    for access in users.iter().take(TOLD_MAX) {
        rules_of_user(doctor, state, access);
    }
    // What depends on where a client comes from, or on its certificate, can't be seen here.
    let keeps_out = rules.iter().filter(|(key, rule)| {
        let is_elsewhere = !key.address.is_empty() || !key.peer.is_empty();
        let no_access = rule.source == UserSource::NoAccess && key.kind.maps() && is_elsewhere;
        channel_profile_fits(&key.profile, CLIENT_CHANNEL) && (no_access || key.kind == RuleKind::BlockAddress)
    });
    for (key, _) in keeps_out.take(TOLD_MAX) {
        let details = format!("{key} keeps clients out by where they come from, or by their certificate");
        doctor.found.say(&RULES, Condition::Unknown, "", details);
    }
    if !doctor.found.has(&RULES) {
        doctor.found.well(&RULES, "", "no rule for connections keeps these users out");
    }
}

fn rules_of_user(doctor: &mut Doctor<'_>, state: &State, access: &Access) {
    let rules = &state.definitions.channel_rules;
    let mapping = rules.mapping(&caller(&access.name));
    let kept_out = mapping.filter(|(_, rule)| rule.source == UserSource::NoAccess);
    let blocked = rules.blocking_user(CLIENT_CHANNEL, Some(&access.acts_as));
    for (key, rule) in kept_out.into_iter().chain(blocked) {
        let (condition, what) = match rule.warn {
            true => (Condition::Warning, "would keep it out, but for WARN(YES)"),
            false => (doctor.of_user(), "keeps it out, from this machine and without a certificate"),
        };
        let mend = match key.kind {
            RuleKind::BlockUser => mend::mqsc(format!(
                "SET CHLAUTH({}) TYPE(BLOCKUSER) USERLIST({}) ACTION(REMOVE)",
                mend::quoted(&key.profile),
                mend::quoted(&access.acts_as)
            )),
            // A rule for this very channel and user is asked before all others.
            _ => mend::mqsc(format!(
                "SET CHLAUTH({CLIENT_CHANNEL}) TYPE(USERMAP) CLNTUSER({}) USERSRC(CHANNEL)",
                mend::quoted(&access.name)
            )),
        };
        doctor.ill(&RULES, condition, about(&access.name), ("2035", format!("{key} {what}")), vec![mend]);
    }
    if access.acts_as != access.name {
        let details = format!("is let in as {}, whose rights count", access.acts_as);
        doctor.found.say(&RULES, Condition::Warning, about(&access.name), details);
    }
}

/// Whether they may connect, put and get.
pub(super) fn rights(doctor: &mut Doctor<'_>, name: &str, users: &[Access], goes_away: bool) {
    let authorise = |user: &str, right: &str| {
        let (profile, user) = (mend::quoted(name), mend::quoted(user));
        mend::mqsc(format!("SET AUTHREC PROFILE({profile}) OBJTYPE(QUEUE) PRINCIPAL({user}) AUTHADD({right})"))
    };
    for access in users.iter().filter(|access| !access.connects).take(TOLD_MAX) {
        let user = mend::quoted(&access.acts_as);
        let mend = mend::mqsc(format!("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL({user}) AUTHADD(CONNECT)"));
        let condition = doctor.of_user();
        doctor.ill(&PUT, condition, about(&access.name), ("2035", "may not connect"), vec![mend]);
    }
    let asked = doctor.question.user.clone();
    if let (Some(user), [access]) = (&asked, users) {
        if !access.puts && (goes_away || !access.gets) {
            let mend = vec![authorise(&access.acts_as, "PUT")];
            doctor.ill(&PUT, Condition::Broken, about(user), ("2035", "may not put by that name"), mend);
        }
        if !access.gets && !access.puts && !goes_away {
            let mend = vec![authorise(&access.acts_as, "GET")];
            doctor.ill(&GET, Condition::Broken, about(user), ("2035", "may not get by that name"), mend);
        }
        let (puts, gets) = (access.puts && access.connects, access.gets && access.connects);
        let one = [user];
        told_of(doctor, if puts { &one } else { &[] }, if gets { &one } else { &[] });
        return;
    }
    let that = |may: fn(&&Access) -> bool| -> Vec<&String> {
        users.iter().filter(|access| access.connects).filter(may).map(|access| &access.name).collect()
    };
    let (putters, getters) = (that(|access| access.puts), that(|access| access.gets));
    if putters.is_empty() {
        let mend = vec![authorise("<user>", "PUT")];
        doctor.ill(&PUT, Condition::Warning, "", ("2035", "no user may connect and put by that name"), mend);
    }
    if getters.is_empty() && !goes_away {
        let mend = vec![authorise("<user>", "GET")];
        doctor.ill(&GET, Condition::Warning, "", ("2035", "no user may connect and get by that name"), mend);
    }
    told_of(doctor, &putters, &getters);
}

fn told_of(doctor: &mut Doctor<'_>, putters: &[&String], getters: &[&String]) {
    for (check, users, what) in [(&PUT, putters, "put"), (&GET, getters, "get")] {
        let names: Vec<&str> = users.iter().take(TOLD_MAX).map(|user| user.as_str()).collect();
        let more = users.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        if !names.is_empty() {
            doctor.found.well(check, "", format!("may {what}: {}{more}", names.join(", ")));
        }
    }
}

/// Limits that are used up.
pub(super) fn limits(doctor: &mut Doctor<'_>, state: &State, users: &[Access]) {
    let names: BTreeSet<&str> = users.iter().map(|access| access.acts_as.as_str()).collect();
    for user in state.clients.users.status().iter().filter(|user| names.contains(user.name.as_str())) {
        let used_up = [
            ("MAXCONNS", u64::from(user.connections), u64::from(user.limit.connections)),
            ("MAXHANDS", u64::from(user.links), u64::from(user.limit.links)),
            ("UNACKED", user.unacknowledged_bytes, user.limit.unacknowledged_bytes),
        ];
        for (keyword, _, limit) in used_up.into_iter().filter(|(_, has, limit)| *limit > 0 && has >= limit) {
            let details = format!("has used {keyword}({limit}) up");
            let pattern = if user.pattern.is_empty() { &user.name } else { &user.pattern };
            let mend =
                mend::mqsc(format!("SET LIMIT({}) {keyword}({})", mend::quoted(pattern), limit.saturating_mul(2)));
            let condition = doctor.of_user();
            doctor.ill(&LIMITS, condition, about(&user.name), ("", details), vec![mend]);
        }
    }
}
