//! What the service manager is told, where one started this process and asked for it: systemd's `Type=notify`
//! (`sd_notify(3)`). Without `NOTIFY_SOCKET` in the environment nothing is told.

use sd_notify::NotifyState;

/// The queue manager has read its journal and listens.
pub(super) fn ready(name: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("queue manager {name} is up"))]);
}

/// It stops, because it was told to.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState]) {
    if let Err(error) = sd_notify::notify(states) {
        crate::warning!("the service manager can't be told: {error}");
    }
}
