//! AMQP's words for who a client is, and the core's: SASL responses and `open`.

use super::super::client::{Introduction, Proof, SolePolicy, TokenRefused};
use super::super::outcome::{Failure, Said};
use crate::channel::protocol::{self, CAPABILITY, PRODUCT, REFUSALS, REQUEST, VERSION};
use bulla_amqp::{BearerResponse, Mechanism, Open, PlainResponse, Symbol, Value, condition};
use bytes::Bytes;
use zeroize::Zeroizing;

/// What a client desires that is to be the only one of its container, and what it is offered (AMQP Enforcing Connection
/// Uniqueness, version 1.0).
const SOLE_CONNECTION: &str = "sole-connection-for-container";
/// Property of an open: which of two connections is to go.
const ENFORCEMENT_POLICY: &str = "sole-connection-enforcement-policy";
/// Property of the answer: which connections are looked at.
const DETECTION_POLICY: &str = "sole-connection-detection-policy";
/// Those that have asked to be the only one, and no others.
const WEAK: u32 = 1;
/// Property of an open that is followed by a close.
const ESTABLISHMENT_FAILED: &str = "amqp:connection-establishment-failed";

/// How a client begins to prove who it is (AMQP part 5, section 5.3).
pub(super) fn proof(mechanism: Mechanism, response: &[u8]) -> Proof {
    match mechanism {
        Mechanism::Anonymous => Proof::Nothing,
        Mechanism::Plain => match PlainResponse::parse(response) {
            Some(PlainResponse { authorization, user, password }) => Proof::Password {
                user: user.to_owned(),
                password: Zeroizing::new(password.to_owned()),
                act_as: authorization.to_owned(),
            },
            None => Proof::UnreadablePassword,
        },
        // What is no UTF-8 is no user's name either way.
        Mechanism::External => Proof::Certificate { act_as: String::from_utf8_lossy(response).into_owned() },
        Mechanism::OAuthBearer => match BearerResponse::parse(response) {
            Some(BearerResponse { authorization, token }) => {
                Proof::Token { token: Zeroizing::new(token.to_owned()), act_as: authorization }
            }
            None => Proof::UnreadableToken,
        },
        Mechanism::Ticket => Proof::Ticket(Zeroizing::new(response.to_vec())),
        Mechanism::ScramSha256 => Proof::Scram(Bytes::copy_from_slice(response)),
    }
}

/// Why a token is refused, as RFC 7628 (section 3.2.2) has it: a registered code (RFC 6749, section 4.1.2.1; RFC 6750,
/// section 3.1), and no more than that.
pub(super) fn token_refused(why: TokenRefused) -> Bytes {
    let status = match why {
        TokenRefused::Unreadable => "invalid_request",
        TokenRefused::Invalid => "invalid_token",
    };
    Bytes::from(format!("{{\"status\":\"{status}\"}}"))
}

/// What a client's open says of it.
pub(crate) fn introduction(open: &Open) -> Introduction {
    let told = |name| protocol::text(&open.properties, name);
    let offers = |name| open.offered_capabilities.iter().any(|known| known.as_str() == name);
    Introduction {
        container: open.container_id.clone(),
        product: told(PRODUCT).unwrap_or_default(),
        version: told(VERSION).unwrap_or_default(),
        wants_to_be_sole: sole(open),
        has_channels: offers(CAPABILITY),
        takes_refusals: offers(REFUSALS),
        requests: told(REQUEST),
    }
}

/// A client's wish to be the only connection of its container.
fn sole(open: &Open) -> Option<Result<SolePolicy, Failure>> {
    let is_desired = open.desired_capabilities.iter().any(|desired| desired.as_str() == SOLE_CONNECTION);
    let property = open.properties.iter().find(|(name, _)| name.as_str() == ENFORCEMENT_POLICY);
    is_desired.then(|| match property {
        None | Some((_, Value::Uint(0))) => Ok(SolePolicy::RefuseConnection),
        Some((_, Value::Uint(1))) => Ok(SolePolicy::CloseExisting),
        Some(_) => {
            let text = format!("{ENFORCEMENT_POLICY} is a uint, 0 (refuse-connection) or 1 (close-existing)");
            Err(Failure::Said(Said::new(condition::INVALID_FIELD.as_str(), text)))
        }
    })
}

/// Capabilities and properties by which a client is told that it is the only one of its container.
pub(super) fn is_sole(policy: SolePolicy) -> (Vec<Symbol>, Vec<(Symbol, Value)>) {
    let properties = vec![
        (Symbol::from_static(DETECTION_POLICY), Value::Uint(WEAK)),
        (Symbol::from_static(ENFORCEMENT_POLICY), Value::Uint(policy as u32)),
    ];
    (vec![Symbol::from_static(SOLE_CONNECTION)], properties)
}

/// Properties of the open of a connection that is refused.
pub(super) fn refused() -> Vec<(Symbol, Value)> {
    vec![(Symbol::from_static(ESTABLISHMENT_FAILED), Value::Bool(true))]
}
