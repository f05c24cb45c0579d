//! Remote queues and aliases of queue managers.

/// A queue of another queue manager, or another name for that queue manager.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RemoteQueue {
    /// DESCR
    pub description: String,
    /// RNAME: the queue's name there; none makes this an alias of a queue manager.
    pub remote_name: Option<String>,
    /// RQMNAME: the queue manager; none can't be opened.
    pub remote_manager: Option<String>,
    /// XMITQ; none for the transmission queue named like the queue manager, or DEFXMITQ.
    pub transmission_queue: Option<String>,
    /// PUT(ENABLED)
    pub put_enabled: bool,
    /// DEFPRTY
    pub default_priority: u8,
    /// DEFPSIST(YES)
    pub default_persistent: bool,
}

impl Default for RemoteQueue {
    fn default() -> Self {
        Self {
            description: String::new(),
            remote_name: None,
            remote_manager: None,
            transmission_queue: None,
            put_enabled: true,
            default_priority: 4,
            default_persistent: false,
        }
    }
}
