//! Who a client is: SASL as the server speaks it (AMQP part 5, section 5.3).

use super::Local;
use super::attach::DELAYED_DELIVERY;
use super::peer::{Identity, Peer};
use crate::channel::caller;
use crate::channel::protocol::CAPABILITY;
use crate::events::Event;
use crate::mailbox::Letter;
use crate::{tls, users};
use bulla_amqp::scram::ScramServer;
use bulla_amqp::{Config, Connection, Mechanism, PlainResponse, SaslOffer, Symbol};
use zeroize::Zeroizing;

/// An exchange that takes more than one step.
pub(crate) enum Exchange {
    /// SCRAM: the challenge is out.
    Challenged(Box<ScramServer>),
    /// SCRAM: the proof was good and the server's own is out; the client's empty answer ends it.
    Proved(Identity),
}

/// The engine of a new connection; `certificate` says that the client has shown a verified one.
pub(crate) fn engine(local: &Local, certificate: bool) -> Connection {
    let config = Config {
        max_frame_size: MAX_FRAME_BYTES,
        channel_max: CHANNEL_MAX,
        idle_timeout: Some(IDLE_TIMEOUT),
        offered_capabilities: ["ANONYMOUS-RELAY", DELAYED_DELIVERY, CAPABILITY].map(Symbol::from_static).to_vec(),
        properties: caller::identity(),
        ..Config::new(&*local.manager.name)
    };
    Connection::server(config, offer(certificate), local.now)
}

/// Largest frame accepted, in bytes: a message of 4 MB comes in four.
const MAX_FRAME_BYTES: u32 = 1 << 20;
/// Highest channel: sessions of a connection, less one.
const CHANNEL_MAX: u16 = 255;
/// Silence after which a connection is given up.
const IDLE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

/// EXTERNAL stands first, and only where a certificate was verified: some clients pick it wherever it is offered.
fn offer(certificate: bool) -> SaslOffer {
    let external = certificate.then_some(Mechanism::External);
    let others = [Mechanism::ScramSha256, Mechanism::Plain, Mechanism::Anonymous];
    SaslOffer { mechanisms: external.into_iter().chain(others).collect(), allow_bare_amqp: true }
}

/// A client names its mechanism.
pub(crate) fn init(peer: &mut Peer, local: &Local, mechanism: Mechanism, response: &[u8]) {
    match mechanism {
        Mechanism::Anonymous => done(peer, Identity::default()),
        Mechanism::Plain => plain(peer, local, response),
        Mechanism::External => external(peer, response),
        Mechanism::ScramSha256 => match ScramServer::start(response) {
            Ok(mut exchange) => {
                let users = &local.manager.users;
                let challenge = exchange.challenge(users.verifier(exchange.user()), users.crypto());
                peer.sasl = Some(Exchange::Challenged(Box::new(exchange)));
                peer.engine.sasl_challenge(challenge);
            }
            Err(error) => refuse(peer, &error),
        },
    }
}

/// A client answers a challenge.
pub(crate) fn response(peer: &mut Peer, local: &Local, response: &[u8]) {
    match peer.sasl.take() {
        Some(Exchange::Challenged(exchange)) => match exchange.finish(response, local.manager.users.crypto()) {
            Ok(proof) => {
                let identity = Identity { user: Some(exchange.user().to_owned()), ring: true, act_as: None };
                peer.sasl = Some(Exchange::Proved(identity));
                peer.engine.sasl_challenge(proof);
            }
            Err(error) => refuse(peer, &error),
        },
        Some(Exchange::Proved(identity)) => done(peer, identity),
        None => refuse(peer, &"a response without a challenge"),
    }
}

fn plain(peer: &mut Peer, local: &Local, response: &[u8]) {
    let Some(plain) = PlainResponse::parse(response) else { return refuse(peer, &"a malformed response") };
    let Some(act_as) = other_user(plain.authorization, plain.user) else { return refuse(peer, &NO_USER) };
    let identity = Identity { user: Some(plain.user.to_owned()), ring: peer.socket.is_tls(), act_as };
    let (user, password) = (plain.user.to_owned(), Zeroizing::new(plain.password.to_owned()));
    let (manager, index, key, generation) = (local.manager.clone(), local.index, peer.key, peer.generation);
    // Deriving a key from a password takes milliseconds on purpose: not on this thread.
    let taken = local.manager.adapters.submit_aside(Box::new(move || {
        let identity = manager.users.is_password(&user, &password).then_some(identity);
        if let Some(mailbox) = manager.mailboxes.get(index) {
            mailbox.post(Letter::SignedIn { peer: key, generation, identity });
        }
    }));
    if !taken {
        refuse(peer, &"too busy to look at a password");
    }
}

/// A password was looked at.
pub(crate) fn signed_in(peer: &mut Peer, identity: Option<Identity>) {
    match identity {
        Some(identity) => done(peer, identity),
        None => refuse(peer, &"wrong user or password"),
    }
}

fn external(peer: &mut Peer, authorization: &[u8]) {
    let user = peer.socket.established().and_then(|ssl| ssl.peer_certificate()).and_then(|cert| tls::user_of(&cert));
    match user {
        Some(user) => match std::str::from_utf8(authorization).ok().and_then(|other| other_user(other, &user)) {
            Some(act_as) => done(peer, Identity { user: Some(user), ring: true, act_as }),
            None => refuse(peer, &NO_USER),
        },
        None => refuse(peer, &"the certificate names no user"),
    }
}

const NO_USER: &str = "the user to act as cannot be one";

/// The user that a client asks to act as, where it is another one; whether it may is asked at open. None where no user can have
/// the name.
fn other_user(authorization: &str, user: &str) -> Option<Option<String>> {
    let is_other = !authorization.is_empty() && authorization != user;
    (!is_other || users::is_valid_name(authorization)).then(|| is_other.then(|| authorization.to_owned()))
}

fn done(peer: &mut Peer, identity: Identity) {
    peer.signed_in = identity;
    peer.engine.sasl_outcome(true);
}

fn refuse(peer: &mut Peer, why: &dyn std::fmt::Display) {
    let address = super::peer::address(&mut peer.socket);
    crate::warning!("{address}: sign-in refused: {why}");
    peer.refused = Some(Event::NotAuthorised { user: None, address, action: "connect", object: String::new() });
    peer.engine.sasl_outcome(false);
}
