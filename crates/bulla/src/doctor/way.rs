//! The way of a message by its definitions: where the name leads, who may go it, which policy is on it.

use super::{Doctor, TOLD_MAX, access, channels, mend, queues};
use crate::authority::{ObjectType, Right};
use crate::catalog::diagnosis::{Condition, GET, NAME, POLICY, PUT};
use crate::catalog::{Definitions, Destination, ResolveError};
use crate::manager::{Route, State};
use crate::policy_check::{Scope, Subject};
use access::Access;
use bulla_seal::Policy;
use bulla_seal::policy::{Quality, SealedAt, Toleration};
use std::sync::Arc;

/// What is known of the way under the queues' lock, for what is looked at without it.
pub(crate) struct Way {
    /// Where the name leads; none where it leads nowhere.
    pub(super) route: Option<Route>,
    /// The user whose way it is, as whom it is let in; none for all users.
    pub(super) user: Option<String>,
    /// The policy to be tried; none where nothing is sealed.
    pub(crate) subject: Option<Subject>,
}

impl Way {
    /// Looks at everything that is defined, and at what runs.
    pub(crate) fn look(doctor: &mut Doctor<'_>, state: &State, name: &str) -> Self {
        let route = leads(doctor, state, name);
        let asked = doctor.question.user.clone();
        let users = Access::of_all(doctor.manager, state, asked.as_deref(), name);
        let is_remote = route.as_ref().is_some_and(|route| route.transmission.is_some());
        access::sign_in(doctor, &users);
        access::rules(doctor, state, &users);
        access::rights(doctor, name, &users, is_remote);
        access::limits(doctor, state, &users);
        if let Some(route) = &route {
            enabled(doctor, state, name, route);
            queues::room(doctor, state, route);
            match is_remote {
                true => channels::outbound(doctor, state, route),
                false if route.policy.is_some() => channels::inbound(doctor, state, name),
                false => {}
            }
        }
        queues::error_queue(doctor, state);
        queues::dead_letter_queue(doctor, state);
        let policy =
            route.as_ref().map_or_else(|| state.definitions.policies.get(name).cloned(), |it| it.policy.clone());
        let user = users.first().filter(|_| asked.is_some()).map(|access| access.acts_as.clone());
        let subject = policy_of(doctor, state, name, route.as_ref(), policy).map(|policy| {
            let scope = Scope { user: user.clone(), trial_users_max: super::TRIAL_USERS_MAX };
            Subject::new(doctor.manager, state, policy, true, scope)
        });
        Self { route, user, subject }
    }
}

/// Where the name leads.
fn leads(doctor: &mut Doctor<'_>, state: &State, name: &str) -> Option<Route> {
    let about = format!("queue {name}");
    let definitions = &state.definitions;
    match state.put_route(name) {
        Ok(route) => {
            doctor.found.well(&NAME, about, led(definitions, name, &route));
            Some(route)
        }
        Err(refusal) => {
            let code = refusal.reason.code.to_string();
            match definitions.resolve_put(name) {
                Err(ResolveError::IsModel) => {
                    let details = "a model: a link that asks for a queue of its own makes one of it, of another name";
                    doctor.ill(&NAME, Condition::Warning, about, (code, details), Vec::new());
                }
                Err(error) => {
                    let mend = way_back(definitions, name, error);
                    doctor.ill(&NAME, Condition::Broken, about, (code, refusal.detail), mend);
                }
                Ok(_) => doctor.ill(&NAME, Condition::Broken, about, (code, refusal.detail), Vec::new()),
            }
            None
        }
    }
}

/// `alias of ORDERS.IN`, `remote queue: ORDERS at QM2, by the transmission queue QM2`
fn led(definitions: &Definitions, name: &str, route: &Route) -> String {
    let alias = match definitions.aliases.get(name) {
        Some(alias) => format!("alias of {}: ", alias.target),
        None => String::new(),
    };
    match &route.transmission {
        None => format!("{alias}a local queue"),
        Some(header) => {
            let (there, at) = (&header.destination.queue, &header.destination.manager);
            format!("{alias}a remote queue: {there} at {at}, by the transmission queue {}", route.queue_name)
        }
    }
}

/// The command that gives a name somewhere to lead to.
fn way_back(definitions: &Definitions, name: &str, error: ResolveError) -> Vec<String> {
    let quoted = mend::quoted(name);
    let target = definitions.aliases.get(name).map(|alias| alias.target.clone());
    let remote = definitions.remotes.get(target.as_deref().unwrap_or(name));
    let remote_name = mend::quoted(target.as_deref().unwrap_or(name));
    let partner = remote.and_then(|remote| remote.remote_manager.clone());
    let by = remote.and_then(|remote| remote.transmission_queue.clone()).or_else(|| partner.clone());
    let by_default = definitions.queue_manager.default_transmission_queue.clone().unwrap_or_default();
    let of = |name: &str| mend::quoted(name);
    let command = match error {
        ResolveError::BaseIsAlias => {
            let base = target.as_deref().and_then(|target| Some(&definitions.aliases.get(target)?.target));
            // Two aliases may stand for each other.
            let base = base.filter(|base| definitions.queues.contains_key(*base));
            format!("ALTER QALIAS({quoted}) TARGET({})", of(base.map_or("<local queue>", String::as_str)))
        }
        ResolveError::UnknownBase => format!("DEFINE QLOCAL({})", of(target.as_deref().unwrap_or_default())),
        ResolveError::Unknown => format!("DEFINE QLOCAL({quoted})"),
        ResolveError::UnknownManager => match (partner, remote.is_some()) {
            (Some(own), _) if own == definitions.queue_manager.name => {
                format!("ALTER QREMOTE({remote_name}) RQMNAME('<another queue manager>')")
            }
            (Some(partner), _) => format!("DEFINE QLOCAL({}) USAGE(XMITQ)", of(&partner)),
            (None, true) => format!("ALTER QREMOTE({remote_name}) RQMNAME('<queue manager>')"),
            (None, false) => format!("DEFINE QLOCAL({quoted})"),
        },
        ResolveError::NoRemoteName => format!("ALTER QREMOTE({remote_name}) RNAME('<queue there>')"),
        ResolveError::UnknownTransmissionQueue => {
            format!("DEFINE QLOCAL({}) USAGE(XMITQ)", of(by.as_deref().unwrap_or_default()))
        }
        ResolveError::TransmissionQueueUsage => {
            format!("ALTER QLOCAL({}) USAGE(XMITQ)", of(by.as_deref().unwrap_or_default()))
        }
        ResolveError::TransmissionQueueType => format!("ALTER QREMOTE({remote_name}) XMITQ('<transmission queue>')"),
        ResolveError::UnknownDefaultTransmissionQueue => format!("DEFINE QLOCAL({}) USAGE(XMITQ)", of(&by_default)),
        ResolveError::DefaultTransmissionQueueUsage => format!("ALTER QLOCAL({}) USAGE(XMITQ)", of(&by_default)),
        ResolveError::DefaultTransmissionQueueType => "ALTER QMGR DEFXMITQ('<transmission queue>')".to_owned(),
        _ => return Vec::new(),
    };
    vec![mend::mqsc(command)]
}

/// Whether puts and gets are enabled by every definition on the way.
fn enabled(doctor: &mut Doctor<'_>, state: &State, name: &str, route: &Route) {
    let definitions = &state.definitions;
    let target = definitions.aliases.get(name).map_or(name, |alias| alias.target.as_str());
    let alter = |keyword: &str| -> Vec<String> {
        let is_off = |put: bool, get: bool| if keyword == "PUT" { !put } else { !get };
        let of =
            |noun: &str, name: &str| mend::mqsc(format!("ALTER {noun}({}) {keyword}(ENABLED)", mend::quoted(name)));
        let alias = definitions.aliases.get(name).filter(|it| is_off(it.put_enabled, it.get_enabled));
        let remote = definitions.remotes.get(target).filter(|it| is_off(it.put_enabled, true));
        let local = definitions.queues.get(&route.queue_name).filter(|it| is_off(it.put_enabled, it.get_enabled));
        let found = [
            alias.map(|_| of("QALIAS", name)),
            remote.map(|_| of("QREMOTE", target)),
            local.map(|_| of("QLOCAL", &route.queue_name)),
        ];
        found.into_iter().flatten().collect()
    };
    let about = format!("queue {name}");
    if !route.put_enabled {
        doctor.ill(&PUT, Condition::Broken, about.clone(), ("2051", "PUT(DISABLED) on the way"), alter("PUT"));
    }
    if !route.get_enabled && route.transmission.is_none() {
        doctor.ill(&GET, Condition::Broken, about, ("2016", "GET(DISABLED) on the way"), alter("GET"));
    }
}

/// The policy of the name, beside those of others.
fn policy_of(
    doctor: &mut Doctor<'_>,
    state: &State,
    name: &str,
    route: Option<&Route>,
    policy: Option<Arc<Policy>>,
) -> Option<Arc<Policy>> {
    other_names(doctor, state, name, route, policy.as_ref());
    let Some(policy) = policy.filter(|policy| policy.quality() != Quality::None) else {
        doctor.found.well(&POLICY, format!("queue {name}"), "no policy: messages by that name are not sealed");
        return None;
    };
    let about = format!("policy {}", policy.name);
    if policy.toleration == Toleration::Tolerate {
        let details = "TOLERATE: clear messages are let through".to_owned();
        doctor.found.say(&POLICY, Condition::Warning, about.clone(), details);
    }
    if policy.weak {
        let details = "WEAK(YES): nothing is bound, and a changed message may open".to_owned();
        doctor.found.say(&POLICY, Condition::Warning, about.clone(), details);
    }
    if policy.sealed_at == SealedAt::Client {
        let details = "SEALEDAT(CLIENT): clients seal for themselves; a clear message is refused";
        let mend = vec![format!("bulla put --ring \"<ring>\" {} \"<file>\"", mend::shell(name))];
        doctor.ill(&POLICY, Condition::Warning, about.clone(), ("sealed-at-client", details), mend);
    }
    doctor.found.well(&POLICY, about, crate::mqsc::policy::quality(&policy));
    Some(policy)
}

/// Other names that lead to the same queue, and past its policy.
fn other_names(
    doctor: &mut Doctor<'_>,
    state: &State,
    name: &str,
    route: Option<&Route>,
    policy: Option<&Arc<Policy>>,
) {
    let Some(route) = route.filter(|route| route.transmission.is_none()) else { return };
    let definitions = &state.definitions;
    let aliases = definitions.aliases.iter().filter(|(_, alias)| alias.target == route.queue_name);
    let names = aliases.map(|(alias, _)| alias.as_str()).chain(std::iter::once(route.queue_name.as_str()));
    let others: Vec<&str> = names.filter(|other| *other != name).collect();
    for other in others.into_iter().take(TOLD_MAX) {
        let its_policy = definitions.policies.get(other);
        let differs = match (policy, its_policy) {
            (Some(policy), Some(its_policy)) => policy.quality() != its_policy.quality(),
            (Some(policy), None) => policy.quality() != Quality::None,
            (None, Some(its_policy)) => its_policy.quality() != Quality::None,
            (None, None) => false,
        };
        let puts =
            definitions.authorities.records.iter().any(|(key, rights)| {
                key.object == ObjectType::Queue && rights.has(Right::Put) && key.profile.fits(other)
            });
        let leads_here = matches!(definitions.resolve_put(other), Ok(Destination::Local(_)));
        if differs && puts && leads_here {
            let has = its_policy.map_or_else(|| "no policy".to_owned(), |policy| crate::mqsc::policy::quality(policy));
            let details =
                format!("{other} leads to the same queue and has {has}: what is put by it does not fit this one");
            doctor.found.say(&POLICY, Condition::Warning, format!("queue {other}"), details);
        }
    }
}
