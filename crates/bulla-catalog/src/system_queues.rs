//! Queues of the queue manager's own.

/// Where undeliverable messages go unless DEADQ says otherwise.
pub const DEAD_LETTER_QUEUE: &str = "SYSTEM.DEAD.LETTER.QUEUE";

/// Where defective messages go.
pub const ERROR_QUEUE: &str = "SYSTEM.PROTECTION.ERROR.QUEUE";

/// Where defective messages of a group's shared queues go: in the same log, so that one moves there in one unit.
pub fn error_queue_of(group: &str) -> String {
    format!("SYSTEM.ERROR.{group}")
}

/// Where messages of a group's shared queues go that can't be processed or delivered.
pub fn dead_letter_queue_of(group: &str) -> String {
    format!("SYSTEM.DEAD.{group}")
}

/// What dynamic queues are made of unless they ask for another model.
pub const DEFAULT_MODEL: &str = "SYSTEM.DEFAULT.MODEL.QUEUE";

/// Names that begin so belong to the queue manager.
pub const SYSTEM_PREFIX: &str = "SYSTEM.";

/// Events about rights and certificates.
pub const MANAGER_QUEUE: &str = "SYSTEM.ADMIN.QMGR.EVENT";

/// Events about depths.
pub const PERFORMANCE_QUEUE: &str = "SYSTEM.ADMIN.PERFM.EVENT";

/// Events about channels and their TLS.
pub const CHANNEL_QUEUE: &str = "SYSTEM.ADMIN.CHANNEL.EVENT";

/// The event queues, with what they are for.
pub const QUEUES: [(&str, &str); 3] = [
    (MANAGER_QUEUE, "Events: refusals, certificates about to expire"),
    (PERFORMANCE_QUEUE, "Events: queues that are deep, shallow again, full"),
    (CHANNEL_QUEUE, "Events: channels that start, stop and fail in TLS"),
];
