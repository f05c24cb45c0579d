//! Which core works for whom, where cards are modelled: the arithmetic of a card that is not there, and the customers,
//! are kept away from the core that the queue manager has.

use crate::error::{Error, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;

/// Cores that a set can have.
const CORES_MAX: usize = CpuSet::MAX_CPU;
/// How the threads of modelled cards are called; names of threads have 15 characters.
const MODELLED: &str = "device-MODEL";

/// Two cores of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores {
    queue_manager: usize,
    others: usize,
}

impl Cores {
    /// Takes the first two cores that this process may use. The calling thread, and those that it starts from now on,
    /// have the second one.
    ///
    /// # Errors
    /// [`Error::Usage`]: there is only one; [`Error::System`].
    pub(super) fn take() -> Result<Cores> {
        let own = sched_getaffinity(None).map_err(system)?;
        let mut cores = (0..CORES_MAX).filter(|core| own.is_set(*core));
        let (Some(queue_manager), Some(others)) = (cores.next(), cores.next()) else {
            return Err(Error::Usage("--pin needs two cores".to_owned()));
        };
        let cores = Cores { queue_manager, others };
        keep(None, cores.others)?;
        Ok(cores)
    }

    /// Gives a queue manager its core, and the second one to the cards that are modelled in it. Threads that it starts
    /// later have the core of the thread that starts them.
    ///
    /// # Errors
    /// [`Error::System`].
    pub(super) fn give(&self, pid: u32) -> Result<()> {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?;
            // A thread may end while it is looked at.
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            let Some(id) = task.file_name().to_str().and_then(|id| id.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            let core = if name.starts_with(MODELLED) { self.others } else { self.queue_manager };
            match keep(Some(id), core) {
                Err(Error::System(error)) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                kept => kept?,
            }
        }
        Ok(())
    }
}

fn keep(thread: Option<Pid>, core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(thread, &set).map_err(system)
}

fn system(error: rustix::io::Errno) -> Error {
    Error::System(error.into())
}
