//! The store that a channel belongs to: this queue manager's own, or that of a group of shared queues.
//!
//! A channel of a group runs at the member that owns it, under the group's name. Its notes lie in the group's log and
//! change in one unit with the group's messages, so the next owner goes on where this one stopped.

use crate::catalog::ChannelDefinition;
use crate::groups_elsewhere::GroupElsewhere;
use crate::manager::State;
use crate::reason::{self, Refusal};
use bulla_queue::StoreNumber;

/// The store that a channel's notes lie in, and its messages.
///
/// # Errors
/// 2345 `cause=group-elsewhere`: it is of a group that this queue manager does not own.
pub fn of(state: &State, channel: &str, definition: &ChannelDefinition) -> Result<StoreNumber, Refusal> {
    let Some(group) = &definition.group else { return Ok(StoreNumber::LOCAL) };
    state.store.store_named(group).ok_or_else(|| {
        let whose = match state.groups_elsewhere.named(group) {
            Some(GroupElsewhere { owner, .. }) if !owner.is_empty() => format!("which {owner} owns"),
            _ => "which is not open here".to_owned(),
        };
        let detail = format!("{channel} is a channel of shared group {group}, {whose}");
        Refusal { cause: Some("group-elsewhere"), ..Refusal::new(reason::CF_NOT_AVAILABLE, detail) }
    })
}
