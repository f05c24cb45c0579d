//! A group's log, as its definition says how it is reached.

use crate::catalog::SharedGroup;
use crate::catalog::status::GroupStatus;
use crate::manager::Manager;
use bulla_queue::Log;
use bulla_queue::log::LogError;
use std::io;
use std::sync::{Arc, Mutex};

#[cfg(not(feature = "shared"))]
pub(crate) fn open(
    _manager: &Arc<Manager>,
    _group: &str,
    _definition: &SharedGroup,
    _status: &Arc<Mutex<GroupStatus>>,
) -> Result<Box<dyn Log>, LogError> {
    Err(LogError::Unavailable(io::Error::other("this program was built without shared queues")))
}

/// Connects to the engine, and makes the log where there is none. Waits for the network. Where the owner's process is
/// says the group's status, when it is asked for.
///
/// # Errors
/// [`LogError::Unavailable`] with what is wrong: see [`JetStreamLog::open`].
#[cfg(feature = "shared")]
pub(crate) fn open(
    manager: &Arc<Manager>,
    group: &str,
    definition: &SharedGroup,
    status: &Arc<Mutex<GroupStatus>>,
) -> Result<Box<dyn Log>, LogError> {
    use super::hold;
    use crate::random::Random;
    use bulla_device::role::{self, Role};
    use bulla_shared::{Durability, JetStreamLog, Options, Tls};

    let owner = manager.lock().definitions.queue_manager.name.clone();
    let instance = u64::from_le_bytes(Random::system().bytes());
    let scheme = if definition.authorities.is_some() { "tls" } else { "nats" };
    let servers = definition.servers.iter().map(|server| format!("{scheme}://{server}")).collect();
    let mut options = Options::new(group, &owner, instance, servers);
    if let (Some(authorities), Some(certificate), Some(key)) =
        (&definition.authorities, &definition.certificate, &definition.key)
    {
        readable(key)?;
        options.tls =
            Some(Tls { authorities: authorities.clone(), certificate: certificate.clone(), key: key.clone() });
    }
    if let Some(credentials) = &definition.credentials {
        readable(credentials)?;
    }
    options.credentials = definition.credentials.clone();
    options.monitors = definition.monitors.clone();
    options.replicas = definition.copies as usize;
    options.stream_bytes = definition.log_bytes;
    options.durability = if definition.durable_required { Durability::Required } else { Durability::AsFound };
    let (status, own) = (status.clone(), definition.address.clone().unwrap_or_default());
    options.owner_at = Arc::new(move || {
        let address = hold(&status).owner_address.clone();
        // This process says nothing of the owner's, which may have been started anew here.
        (!address.is_empty() && address != own).then_some(address)
    });
    let told = Arc::downgrade(manager);
    options.waker = Arc::new(move || {
        // A queue manager that has ended needs no waking.
        if let Some(manager) = told.upgrade() {
            manager.ring_all();
            manager.synced.ring();
        }
    });
    options.thread_begins = Arc::new(|| role::begin(Role::Journal));
    let (tickets, name) = (Arc::downgrade(manager), group.to_owned());
    options.answers = Arc::new(move |question| super::tickets::answer(&*tickets.upgrade()?, &name, question));
    let log = JetStreamLog::open(options)?;
    let asker = Arc::new(super::tickets::OwnerAsker(log.asker()));
    manager.lock().groups_elsewhere.set_asker(group, asker);
    Ok(Box::new(log))
}

/// A secret that others can read is none.
#[cfg(feature = "shared")]
fn readable(file: &std::path::Path) -> Result<(), LogError> {
    let refused = |what: &str| LogError::Unavailable(io::Error::other(format!("{}: {what}", file.display())));
    let metadata = std::fs::metadata(file).map_err(|error| refused(&error.to_string()))?;
    match std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 {
        0 => Ok(()),
        _ => Err(refused("others than its owner can read it: chmod 600")),
    }
}
