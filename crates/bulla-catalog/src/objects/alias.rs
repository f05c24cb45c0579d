//! Aliases of local queues.

/// Another name for a local queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AliasQueue {
    /// TARGET; need not exist.
    pub target: String,
    /// DESCR
    pub description: String,
    /// GET(ENABLED)
    pub get_enabled: bool,
    /// PUT(ENABLED)
    pub put_enabled: bool,
}

impl Default for AliasQueue {
    fn default() -> Self {
        Self { target: String::new(), description: String::new(), get_enabled: true, put_enabled: true }
    }
}
