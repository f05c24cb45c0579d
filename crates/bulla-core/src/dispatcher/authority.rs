//! What is asked of authority: at open, at attach, for each message of a relay, and again when rights have changed.
//!
//! A link's rights are asked for once. After that a message on a link to one name costs nothing for authority, and one
//! on a relay link a comparison of its `to` with the name before; only whether it names another user is looked at in
//! each. When authority changes, every connection and link of a dispatcher is asked about again before it does anything
//! more.

use super::ending;
use super::local::Local;
use super::peer::{Admission, Link, Login, Peer};
use super::producer::{Producer, Relayed};
use crate::asker::Who;
use crate::audit::{self, Refused};
use crate::authority::{CLIENT_CHANNEL, Caller, ObjectType, Right, Rights, Rule, RuleKey, RuleKind, UserSource};
use crate::catalog::{ChannelDefinition, Protection};
use crate::channel::supervisor::UNPROVED;
use crate::denials::{self, LETS_IN};
use crate::events::Event;
use crate::front::LinkId;
use crate::manager::{Manager, State};
use crate::reason::{self, Refusal};
use crate::rights::no_right;
use crate::sign_in::verdict::Identity;
use crate::topics;
use crate::transport::{Shown, Transport};
use slab::Slab;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The client of a connection.
pub fn client<'a>(peer: &'a Peer, local: &Local) -> Who<'a> {
    Who::client(peer.login.identity.user.as_deref(), local.index, peer.place.generation)
}

/// A message on a client's link names another user than the one who puts it. It is refused by the name that was opened.
pub fn no_identity_right(producer: &Producer) -> Refusal {
    let relayed = producer.relayed.as_ref().map(|relayed| relayed.name.as_str());
    crate::rights::no_identity_right(producer.opened.as_deref().or(relayed).unwrap_or_default())
}

/// Tells the operator of an attempt to sign in that was refused, as of any refusal.
pub fn tell_of_sign_in(
    manager: &Manager,
    now: Instant,
    address: String,
    user: Option<String>,
    why: &dyn std::fmt::Display,
) {
    let (action, detail) = (Right::Connect.action(), format!("sign-in refused: {why}"));
    let connection = audit::Who::Connection { user: user.clone(), address: address.clone() };
    let (object, reason) = ("", reason::NOT_AUTHORIZED.code);
    manager.told.audit.refused(now, connection, &Refused { action, object, reason, detail, let_in: false });
    let mut refusals = manager.told.refusals.lock().unwrap_or_else(PoisonError::into_inner);
    if refusals.may_write(now) {
        let name = user.as_deref().map_or_else(String::new, |user| format!(" as {user}"));
        crate::warning!(user, address, reason, "{address}: sign-in{name} refused: {why}");
        let (action, object) = (Right::Connect.action(), String::new());
        refusals.raise(Event::NotAuthorised { user, address, action, object });
        manager.told.refused.store(true, Ordering::Release);
    }
}

/// Closes a connection whose token has expired; asked at each tick, one compare for others.
pub fn end_with_token(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let is_over = peer.login.sign_in.identity.until.is_some_and(|until| local.wall_ms / 1000 >= until);
    if !is_over || peer.front.is_closed() {
        return;
    }
    let refusal = Refusal::new(reason::NOT_AUTHORIZED, "the token has expired: sign in with a new one");
    tell_of(peer, local, &refusal);
    peer.login.admission = Admission::Closed(refusal.clone());
    ending::forget_all(peer, local, state, false);
    peer.front.close(Some(refusal.into()));
    local.touch(peer.place.key);
}

/// Closes a connection whose session is over: signed out of elsewhere, its user gone, or its time. Asked at each tick,
/// one compare for others.
pub fn end_with_session(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let Some(session) = peer.front.session().filter(|_| !peer.front.is_closed()) else { return };
    if local.manager.sign_ins.sessions.goes_on(session, local.now) {
        return;
    }
    let refusal = Refusal::new(reason::NOT_AUTHORIZED, "the session is over: sign in again");
    peer.login.admission = Admission::Closed(refusal.clone());
    ending::forget_all(peer, local, state, false);
    peer.front.close(Some(refusal.into()));
    local.touch(peer.place.key);
}

/// A client signs in anew on a connection that has been let in: what it had by its earlier sign-in goes.
pub fn start_over(peer: &mut Peer, local: &mut Local, state: &mut State) {
    ending::forget_all(peer, local, state, false);
    if let Some(user) = peer.login.user.take() {
        state.clients.users.disconnect(user, local.now);
    }
    peer.login = Login::default();
    peer.opened = None;
}

/// How long a partner that says it has channels may be connected without one, before it is a client like any other.
const CHANNEL_WITHIN: Duration = Duration::from_secs(10);

/// Asks a partner that was let pass for its channels, and has none, whether it may use the queue manager; asked at each
/// tick.
pub fn end_without_channel(peer: &mut Peer, local: &mut Local, state: &mut State) {
    let is_let_in =
        matches!(peer.login.admission, Admission::Open) || peer.channel.calling.is_some() || peer.opened.is_none();
    if is_let_in || peer.channel.is_channel || peer.channel.sending.is_some() || peer.front.is_closed() {
        return;
    }
    let of_channel = |link: &Link| matches!(link, Link::Receiving(_) | Link::Sending(_));
    let since = *peer.login.idle_since.get_or_insert(local.now);
    if local.now.saturating_duration_since(since) < CHANNEL_WITHIN || peer.links.values().any(of_channel) {
        return;
    }
    let Err(refusal) = open_to_clients(peer, local, state) else { return };
    tell_of(peer, local, &refusal);
    ending::forget_all(peer, local, state, false);
    peer.front.close(Some(refusal.into()));
    local.touch(peer.place.key);
}

/// Has an event raised in the next turn of any dispatcher. A lockout is in the audit log.
pub fn raise(manager: &Manager, event: Event) {
    if let Event::LockedOut { user, address, failures, seconds } = &event {
        manager.told.audit.locked_out(user.as_deref(), address.as_deref(), *failures, *seconds);
    }
    manager.told.refusals.lock().unwrap_or_else(PoisonError::into_inner).raise(event);
    manager.told.refused.store(true, Ordering::Release);
}

/// Tells of a partner whom TLS has refused. Each is in the audit log; a client that connects again and again fills
/// neither the log nor the queue of events.
pub fn tell_of_tls(local: &Local, state: &mut State, event: &Event) {
    let Event::TlsRefused { partner, reason, .. } = event else { return };
    let (action, detail) = (Right::Connect.action(), reason.detail.clone());
    let refused = Refused { action, object: "", reason: reason.reason.code, detail, let_in: false };
    let connection = audit::Who::Connection { user: None, address: partner.clone() };
    local.manager.told.audit.refused(local.now, connection, &refused);
    if local.manager.told.peer_lines.may_write(local.now) {
        crate::warning!("{partner}: {reason}");
        state.raise(event, local.wall_ms);
    }
}

/// Tells of refusals that no line was written for; once a tick.
pub fn tell_of_more(manager: &Manager, now: Instant) {
    let more = manager.told.refusals.lock().unwrap_or_else(PoisonError::into_inner).take_left_out(now);
    if let Some(more) = more {
        crate::warning!("{more} more refusals by authority");
    }
    if let Some(more) = manager.told.peer_lines.take_left_out(now) {
        crate::warning!("{more} more lines on what clients and partners did are left out");
    }
}

/// Sub-reason of a refusal by a rule of SET CHLAUTH, which is logged where the rule is found.
const KEPT_OUT: &str = "channel-rule";

/// A partner's `open` has come: a client is asked whether it may use the queue manager, and as whom. A partner of ours
/// is asked when it attaches a client's link, if it does: its channels are asked about by themselves.
///
/// # Errors
/// 2035: the connection is to be closed.
pub fn opened(peer: &mut Peer, local: &Local, state: &mut State) -> Result<(), Refusal> {
    if peer.channel.calling.is_some() {
        // A queue manager that was called for a channel is no client.
        let refusal = Refusal::new(reason::NOT_AUTHORIZED, "the connection is a channel's");
        peer.login.admission = Admission::Closed(refusal);
        return Ok(());
    }
    if peer.partner().is_bulla {
        return Ok(());
    }
    open_to_clients(peer, local, state).inspect_err(|refusal| tell_of(peer, local, refusal))
}

/// Whether a client's link may be attached on this connection at all.
///
/// # Errors
/// 2035, or 2025 where its user has as many connections as it may.
fn open_to_clients(peer: &mut Peer, local: &Local, state: &mut State) -> Result<(), Refusal> {
    if let Admission::Unasked = peer.login.admission {
        peer.login.admission = let_in(peer, local, state).map_or_else(Admission::Closed, |()| Admission::Open);
    }
    match &peer.login.admission {
        Admission::Closed(refusal) => Err(refusal.clone()),
        _ => Ok(()),
    }
}

/// Whether a client may reach that name at all: one that another member of a shared group vouches for reaches the
/// queues of that group, and by their own names. Who can write a group's log gets no rights on other queues by that.
///
/// # Errors
/// 2035
pub fn may_reach(identity: &Identity, state: &State, name: &str) -> Result<(), Refusal> {
    let Some(group) = &identity.vouched_in else { return Ok(()) };
    let is_its = state.definitions.queues.get(name).is_some_and(|queue| queue.group.as_ref() == Some(group));
    if is_its { Ok(()) } else { Err(no_right(Right::Put, name)) }
}

/// Whether one more of a client's links may be attached on this connection.
///
/// # Errors
/// As [`open_to_clients`]; 2017 where its user has as many links as it may.
pub fn may_attach(peer: &mut Peer, local: &Local, state: &mut State) -> Result<(), Refusal> {
    open_to_clients(peer, local, state)?;
    let Some(user) = peer.login.user else { return Ok(()) };
    let suspended = peer.login.identity.user.as_deref().map_or(0, |name| state.clients.resumable.suspended_of(name));
    state.clients.users.may_attach(user, suspended)
}

/// Finds the user in force, and counts the connection as that user's.
fn let_in(peer: &mut Peer, local: &Local, state: &mut State) -> Result<(), Refusal> {
    admit(peer, local, state)?;
    if peer.login.user.is_none() {
        let limits = &state.definitions.user_limits;
        let user = state.clients.users.connect(peer.login.identity.user.as_deref(), limits, local.now)?;
        peer.login.user = Some(user);
        if let (Some(name), share @ 1..) = (&peer.login.identity.user, state.clients.users.key_share(user)) {
            local.manager.workers.adapters.share_keys(name, share, local.now);
        }
    }
    Ok(())
}

/// Finds the user in force: the one who has signed in, or whom the rules make of that, or as whom that one asks to act.
/// CONNECT is asked of the one that the rules have come to.
fn admit(peer: &mut Peer, local: &Local, state: &State) -> Result<(), Refusal> {
    peer.login.identity = Identity::default();
    let is_signed_in = peer.login.sign_in.identity.user.is_some();
    let mut signed_in = peer.login.sign_in.identity.clone();
    let required = state.definitions.queue_manager.sign_in_required;
    if signed_in.vouched_in.is_some() && (is_signed_in || !required) {
        // The member that forwards its links has asked all this, of the client and not of itself. What the user may do
        // on queues is asked here.
        peer.login.identity = signed_in;
        return Ok(());
    }
    let mapped = mapped(peer, local, state, CLIENT_CHANNEL, signed_in.user.as_deref())?;
    if !is_signed_in && (required || mapped.sign_in_required) {
        return Err(Refusal::new(
            reason::NOT_AUTHORIZED,
            "the client has not signed in, and CHCKCLNT(REQUIRED) asks for that",
        ));
    }
    if let Some(user) = mapped.user {
        // The ring of another user is used only where a certificate or a strong proof has led to it, not an address.
        let ring = match mapped.by {
            Some(RuleKind::Peer) => true,
            Some(RuleKind::User) => signed_in.ring,
            _ => false,
        };
        signed_in = Identity { user: Some(user), ring, ..signed_in };
    }
    let may = |user: Option<&str>, right: Right| {
        let rights = state.definitions.authorities.rights(user, ObjectType::QueueManager, "");
        if rights.has(right) { Ok(()) } else { Err(no_right(right, &state.definitions.queue_manager.name)) }
    };
    may(signed_in.user.as_deref(), Right::Connect)?;
    peer.login.identity = match &signed_in.act_as {
        None => signed_in,
        Some(other) => {
            may(signed_in.user.as_deref(), Right::AlternateUser)?;
            // The other user has proved nothing: its ring stays closed.
            Identity { user: Some(other.clone()), ..Identity::default() }
        }
    };
    Ok(())
}

fn kept_out_of(detail: String) -> Refusal {
    Refusal { cause: Some(KEPT_OUT), ..Refusal::new(reason::NOT_AUTHORIZED, detail) }
}

/// What the rules have made of a partner.
#[derive(Default)]
struct Mapped {
    /// Another user (USERSRC(MAP)).
    user: Option<String>,
    /// By what that was.
    by: Option<RuleKind>,
    /// CHCKCLNT(REQUIRED)
    sign_in_required: bool,
}

/// Asks the rules of SET CHLAUTH about a partner on a channel; `user` is who it is without them.
fn mapped(peer: &mut Peer, local: &Local, state: &State, channel: &str, user: Option<&str>) -> Result<Mapped, Refusal> {
    let definitions = &state.definitions;
    if !definitions.queue_manager.channel_authentication || definitions.channel_rules.is_empty() {
        return Ok(Mapped::default());
    }
    let gone = || Refusal::new(reason::NOT_AUTHORIZED, "the partner has hung up");
    let address = peer.address().ok_or_else(gone)?;
    let Shown { subject, issuer, .. } =
        peer.transport.certificate().filter(|shown| shown.is_verified).unwrap_or_default();
    let caller = Caller {
        channel,
        address: address.ip(),
        subject: subject.as_ref(),
        issuer: issuer.as_ref(),
        user: peer.login.sign_in.identity.user.as_deref(),
    };
    let kept_out = |(key, rule): (&RuleKey, &Rule)| {
        let refusal = Refusal::new(reason::NOT_AUTHORIZED, format!("{channel}: kept out by {key}"));
        match rule.warn {
            true => {
                denials::tell(&local.manager, local.now, &format!("{LETS_IN}{address}"), caller.user, &refusal);
                Ok(())
            }
            // Which rule it was is the operator's to know.
            false => {
                denials::tell(&local.manager, local.now, &address.to_string(), caller.user, &refusal);
                Err(kept_out_of(format!("{channel}: no access")))
            }
        }
    };
    let rules = &definitions.channel_rules;
    if let Some(found) = rules.blocking_address(address.ip()) {
        kept_out(found)?;
    }
    let mut mapped = Mapped::default();
    if let Some((key, rule)) = rules.mapping(&caller) {
        mapped.sign_in_required = rule.sign_in_required;
        match &rule.source {
            UserSource::Channel => {}
            UserSource::NoAccess => kept_out((key, rule))?,
            UserSource::Map(user) => {
                mapped.user = Some(user.clone());
                mapped.by = Some(key.kind);
            }
        }
    }
    if let Some(found) = rules.blocking_user(channel, mapped.user.as_deref().or(user)) {
        kept_out(found)?;
    }
    Ok(mapped)
}

/// As whom a partner's channel runs here: its definition, with the MCAUSER that the rules give it.
///
/// # Errors
/// 2035: the rules keep the partner out.
pub fn mapped_channel(
    peer: &mut Peer,
    local: &Local,
    state: &State,
    channel: &str,
    definition: ChannelDefinition,
) -> Result<ChannelDefinition, Refusal> {
    if peer.channel.calling.is_some() {
        // Rules are about who comes, not about who was called.
        prove_for_ring(peer, local, channel, &definition, None)?;
        return Ok(definition);
    }
    let user = local.manager.channel_user(&definition).to_owned();
    let mapped = mapped(peer, local, state, channel, Some(&user))?;
    if mapped.sign_in_required && peer.login.sign_in.identity.user.is_none() {
        let refusal = kept_out_of(format!("{channel}: the partner has not signed in"));
        let from = peer.address_text();
        denials::tell(&local.manager, local.now, &from, None, &refusal);
        return Err(refusal);
    }
    let definition = ChannelDefinition { user: mapped.user.or_else(|| definition.user.clone()), ..definition };
    prove_for_ring(peer, local, channel, &definition, mapped.by)?;
    Ok(definition)
}

/// Whether the partner has proved enough for the channel to use the key ring of its user. A channel that passes bytes
/// on uses none. `by` is the kind of rule that named the user, where one did.
///
/// A verified certificate is a proof, and so is a strong sign-in as the channel's user, or as a user whom a rule maps
/// to that one. An address is none: a user whom a map by address names has its ring closed, whatever the partner has
/// shown.
///
/// # Errors
/// 2063 `cause=partner-unproved`.
pub fn prove_for_ring(
    peer: &Peer,
    local: &Local,
    channel: &str,
    definition: &ChannelDefinition,
    by: Option<RuleKind>,
) -> Result<(), Refusal> {
    let protection = definition.protection;
    if protection == Protection::PassThrough {
        return Ok(());
    }
    let unproved = |why: String| Err(Refusal::security(UNPROVED, format!("{channel}: {why}")));
    if by == Some(RuleKind::Address) {
        let word = protection.word();
        return unproved(format!("SPLPROT({word}) opens no ring of a user whom a map by address names"));
    }
    if peer.transport.has_verified_certificate() {
        return Ok(());
    }
    let user = local.manager.channel_user(definition);
    let signed_in = peer.channel.calling.is_none() && peer.login.sign_in.identity.ring;
    if signed_in && (by == Some(RuleKind::User) || peer.login.sign_in.identity.user.as_deref() == Some(user)) {
        return Ok(());
    }
    let word = protection.word();
    unproved(format!(
        "SPLPROT({word}) opens the ring of {user} only for a partner with a certificate: SSLCIPH, SSLCAUTH(REQUIRED)"
    ))
}

/// Whether a connection from that address is not to be taken at all (BLOCKADDR).
pub fn is_blocked(local: &Local, address: SocketAddr) -> bool {
    let Some(warn) = local.manager.blocks(address.ip()) else { return false };
    let refusal = Refusal::new(reason::NOT_AUTHORIZED, "kept out by CHLAUTH(*) TYPE(BLOCKADDR)");
    let from = if warn { format!("{LETS_IN}{address}") } else { address.to_string() };
    denials::tell(&local.manager, local.now, &from, None, &refusal);
    !warn
}

/// Tells the operator that a client was refused.
pub fn tell_of(peer: &mut Peer, local: &Local, refusal: &Refusal) {
    if refusal.cause == Some(KEPT_OUT) {
        return;
    }
    let from = peer.address_text();
    let user = peer.login.identity.user.as_deref().or(peer.login.sign_in.identity.user.as_deref());
    denials::tell(&local.manager, local.now, &from, user, refusal);
}

/// What a link of a client needs on the name that it has open.
fn needs(link: &Link) -> Option<(Right, &str)> {
    match link {
        Link::Producer(producer) => match producer.publishing.as_ref().and_then(|publishing| publishing.topic()) {
            Some(topic) => Some((Right::Publish, topic)),
            None => Some((Right::Put, producer.opened.as_deref()?)),
        },
        Link::Consumer(consumer) => match consumer.subscription() {
            Some(subscription) => Some((Right::Subscribe, &subscription.topic)),
            None => Some((if consumer.browses() { Right::Browse } else { Right::Get }, &consumer.opened)),
        },
        Link::Receiving(_) | Link::Sending(_) | Link::Coordinator(_) => None,
    }
}

/// Rights have changed: connections and links that have lost theirs end with 2035.
pub fn recheck<T: Transport>(peers: &mut Slab<Peer<T>>, local: &mut Local, state: &mut State) {
    for (key, peer) in peers {
        if peer.channel.calling.is_some() || peer.opened.is_none() || peer.front.is_closed() {
            continue;
        }
        let was = match peer.login.admission {
            Admission::Unasked => continue,
            Admission::Open => Some(peer.login.identity.user.clone()),
            Admission::Closed(_) => None,
        };
        peer.login.admission = let_in(peer, local, state).map_or_else(Admission::Closed, |()| Admission::Open);
        if let (Some(user), Admission::Open) = (&was, &peer.login.admission)
            && *user != peer.login.identity.user
        {
            let refusal = Refusal::new(reason::NOT_AUTHORIZED, "the user in force is another one now: connect again");
            peer.login.admission = Admission::Closed(refusal);
        }
        let closed = match &peer.login.admission {
            Admission::Closed(refusal) => Some(refusal.clone()),
            _ => None,
        };
        match closed {
            Some(refusal) if was.is_some() && !peer.partner().is_bulla => {
                tell_of(peer, local, &refusal);
                ending::forget_all(peer, local, state, false);
                peer.front.close(Some(refusal.into()));
                local.touch(key);
            }
            closed => recheck_links(peer, local, state, closed.as_ref()),
        }
    }
}

fn recheck_links(peer: &mut Peer, local: &mut Local, state: &mut State, closed: Option<&Refusal>) {
    let links: Vec<LinkId> = peer.links.keys().copied().collect();
    for link in links {
        let checked = {
            let Some((right, opened)) = peer.links.get(&link).and_then(needs) else { continue };
            match closed {
                Some(refusal) => Err(refusal.clone()),
                None if matches!(right, Right::Publish | Right::Subscribe) => {
                    state.check_topic(client(peer, local), right, opened).map(|()| Rights::NONE)
                }
                None => state.check(client(peer, local), right, opened),
            }
        };
        match checked {
            Ok(rights) => {
                if let Some(Link::Producer(producer)) = peer.links.get_mut(&link) {
                    producer.any_user = rights.has(Right::SetIdentity);
                }
            }
            Err(refusal) => {
                tell_of(peer, local, &refusal);
                ending::detach(peer, local, state, link, &refusal);
            }
        }
    }
}

/// Whether a relay's message may be put on the queue that it names: a comparison and a look-up, where the one before
/// named it too and no rights have changed.
pub fn relayed(producer: &mut Producer, state: &State, who: Who<'_>, to: &str) -> Result<(), Refusal> {
    let generation = state.generations.authority;
    let queue = state.store.queue(to);
    let is_same = |last: &Relayed| last.generation == generation && last.queue == queue && last.name == to;
    if producer.relayed.as_ref().is_some_and(is_same) {
        return Ok(());
    }
    producer.relayed = None;
    producer.any_user = match to.strip_prefix(topics::PREFIX) {
        Some(topic) => state.check_topic(who, Right::Publish, topic).map(|()| false)?,
        None => state.check(who, Right::Put, to)?.has(Right::SetIdentity),
    };
    producer.relayed = Some(Relayed { name: to.to_owned(), queue, generation });
    Ok(())
}
