//! The front end of a call to the partner of a channel.

use super::amqp::Amqp;
use super::{Front, WayOut};
use crate::catalog::{ChannelDefinition, ChannelKind};
use crate::channel::calling::Calling;
use crate::channel::protocol::{self, CAPABILITY, REFUSALS, REQUEST};
use crate::channel::registry::InstanceId;
use crate::channel_ends::caller::CALL_WITHIN;
use crate::channel_ends::sender;
use crate::dispatcher::local::Local;
use crate::reason::Refusal;
use bulla_amqp::{Config, Connection, SaslClient, Symbol, Value};
use std::net::SocketAddr;
use std::time::Instant;
use zeroize::Zeroizing;

/// Most bytes of a password file.
const PASSWORD_BYTES_MAX: u64 = 4 << 10;

/// Where a call goes.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// CONNAME's entry, `host:port`.
    pub(crate) name: String,
    /// What it resolved to.
    pub(crate) address: SocketAddr,
}

impl Target {
    /// The host alone, for TLS and `open`.
    pub(crate) fn host(&self) -> &str {
        let host = self.name.rsplit_once(':').map_or(self.name.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// The front end of a call.
pub(crate) fn front(
    local: &Local,
    id: &InstanceId,
    definition: &ChannelDefinition,
    target: &Target,
) -> Result<(Box<Front>, Calling), Refusal> {
    let mut properties = protocol::identity();
    if definition.kind == ChannelKind::Requester {
        properties.push(protocol::property(REQUEST, Value::from(id.channel.as_str())));
    }
    let mut front = Amqp::new(client(&local.manager.name, definition, target, properties, local.now)?);
    let session = front.begin();
    let calling = Calling { id: id.clone(), deadline: Some(local.now + CALL_WITHIN), session, failure: None };
    Ok((Box::new(front), calling))
}

/// The engine of a call that asks for nothing, which needs no front end.
pub(crate) fn pinging_engine(
    manager: &str,
    definition: &ChannelDefinition,
    target: &Target,
    now: Instant,
) -> Result<Connection, Refusal> {
    client(manager, definition, target, protocol::identity(), now)
}

fn client(
    manager: &str,
    definition: &ChannelDefinition,
    target: &Target,
    properties: protocol::Properties,
    now: Instant,
) -> Result<Connection, Refusal> {
    let config = Config {
        hostname: Some(target.host().to_owned()),
        idle_timeout: sender::idle_timeout(definition.heartbeat),
        offered_capabilities: [CAPABILITY, REFUSALS].map(Symbol::from_static).to_vec(),
        properties,
        ..Config::new(manager)
    };
    Ok(Connection::client(config, credentials(definition)?, Box::new(crate::users::Crypto), now))
}

/// How the partner is told who calls. Between queue managers the certificate counts, which needs no SASL.
fn credentials(definition: &ChannelDefinition) -> Result<SaslClient, Refusal> {
    let Some(user) = &definition.sasl_user else { return Ok(SaslClient::Anonymous) };
    let password = match &definition.password_file {
        Some(path) => first_line(path).map_err(|error| {
            // The refusal may go to the partner; the log has the whole path.
            crate::warning!("{}: {error}", path.display());
            let name = path.file_name().unwrap_or_default();
            Refusal::security("password-file", format!("{}: {error}", name.display()))
        })?,
        None => Zeroizing::new(String::new()),
    };
    Ok(SaslClient::Plain { user: user.clone(), password: password.as_str().to_owned() })
}

fn first_line(path: &std::path::Path) -> std::io::Result<Zeroizing<String>> {
    use std::io::Read;
    let mut text = Zeroizing::new(String::new());
    std::fs::File::open(path)?.take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Zeroizing::new(text.lines().next().unwrap_or_default().to_owned()))
}
