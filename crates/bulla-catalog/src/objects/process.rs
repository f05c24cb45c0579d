//! Processes: what a queue with TRIGGER starts.

/// What a queue with TRIGGER starts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Process {
    /// DESCR
    pub description: String,
    /// APPLICID
    pub application: String,
    /// USERDATA
    pub user_data: String,
    /// ENVRDATA
    pub environment_data: String,
}
