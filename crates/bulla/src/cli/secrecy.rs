//! What keeps a process's memory to itself: clear keys, passwords and payloads are in it.

use super::{CliError, EXIT_START};
use bulla_device::key_memory::{self, KeyMemory};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// No core file is written of this process, and no other process of the same user may trace it or read its memory and
/// its environment, unless that is asked for. Programs that this one starts may be dumped again where they raise their
/// limit.
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

/// Private keys are kept out of swap as far as the system allows it, and with `all` everything else, too. Called before
/// the first key is read, and before there is another thread.
///
/// # Errors
/// All of it was asked for, and the system does not allow it.
pub fn keep_in_memory(all: bool) -> Result<(), CliError> {
    let reserved = key_memory::reserve();
    if all {
        return key_memory::lock_all().map_err(|error| CliError {
            hint: Some(
                "ulimit -l unlimited; in the service's unit LimitMEMLOCK=infinity or AmbientCapabilities=CAP_IPC_LOCK"
                    .to_owned(),
            ),
            ..CliError::new(EXIT_START, format!("--lock-memory: {error}"))
        });
    }
    if !matches!(reserved, KeyMemory::Locked { .. }) {
        crate::warning!("{reserved}");
    }
    Ok(())
}
