//! Channels whose SSLGROUPS can't do what they ask for.

use crate::catalog::cipher_spec::{self, Protocols};
use crate::catalog::{Change, Object};

/// Those whose SSLGROUPS have no effect, or keep them from connecting at all: an administrator who asks for a group
/// would not expect that, and may take it for privacy that is not there.
pub(super) fn unused_groups(changes: &[Change]) -> Vec<String> {
    changes.iter().filter_map(unused).collect()
}

fn unused(change: &Change) -> Option<String> {
    let (Change::Define { name, object: Object::Channel(channel) }
    | Change::Alter { name, object: Object::Channel(channel) }) = change
    else {
        return None;
    };
    if channel.key_groups.is_empty() {
        return None;
    }
    let Some(spec) = &channel.cipher_spec else {
        return Some(format!("channel {name} runs without TLS, whatever SSLGROUPS says: set SSLCIPH"));
    };
    let older = cipher_spec::find(spec).is_some_and(|spec| spec.protocols == Protocols::Tls12);
    let none_left = older && channel.key_groups.iter().all(|group| group.hybrid);
    none_left.then(|| {
        format!("channel {name} can't connect: groups with ML-KEM are for TLS 1.3, and SSLCIPH({spec}) is of TLS 1.2")
    })
}
