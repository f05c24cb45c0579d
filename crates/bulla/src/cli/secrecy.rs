//! What keeps a process's memory to itself: clear keys, passwords and payloads are in it.

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// No core file is written of this process, and no other process of the same user may trace it or read its memory and its
/// environment, unless that is asked for. Programs that this one starts may be dumped again where they raise their limit.
pub fn begin(allow_dumps: bool) {
    if allow_dumps {
        crate::warning!("--allow-dumps: this process's memory, with clear keys in it, can be read and dumped");
        return;
    }
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        crate::warning!("other processes of this user can read this one's memory: {error}");
    }
    // The ceiling stays, for what `bulla trigger` starts; without the first call nothing is dumped whatever the limit.
    let allowed = getrlimit(Resource::Core);
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: allowed.maximum }) {
        crate::warning!("this process can be dumped: {error}");
    }
}
