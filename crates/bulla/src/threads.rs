//! The threads of dispatchers, of adapters and of checks that there are.

use crate::mailbox::Left;
use std::io;
use std::thread::JoinHandle;

/// The threads that there are.
#[derive(Default)]
pub(crate) struct Pools {
    /// By index; none where the thread has been joined.
    pub(crate) dispatchers: Vec<Option<JoinHandle<io::Result<Left>>>>,
    pub(crate) adapters: Vec<JoinHandle<()>>,
    pub(crate) checkers: Vec<JoinHandle<()>>,
    /// Dispatchers and adapters where CHIDISPS and CHIADAPS are AUTO.
    pub(crate) started_with: (usize, usize),
    /// The queue manager ends: no thread is made any more.
    pub(crate) is_ending: bool,
}
