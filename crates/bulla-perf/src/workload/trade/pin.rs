//! Which core works for whom, where cards are modelled: the arithmetic of a card that is not there, and the customers,
//! are kept away from the cores that the queue manager has.

use crate::error::{Error, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;

/// Cores that a set can have.
const CORES_MAX: usize = CpuSet::MAX_CPU;
/// How the threads of modelled cards are called; names of threads have 15 characters.
const MODELLED: &str = "device-MODEL";

/// The cores of this machine, shared out.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    queue_manager: Vec<usize>,
    others: Vec<usize>,
}

impl Cores {
    /// Takes the first `count` cores that this process may use for the queue manager. The calling thread, and those
    /// that it starts from now on, have all others.
    ///
    /// # Errors
    /// [`Error::Usage`]: no other is left; [`Error::System`].
    pub(super) fn take(count: usize) -> Result<Cores> {
        let own = sched_getaffinity(None).map_err(system)?;
        let mut queue_manager: Vec<usize> = (0..CORES_MAX).filter(|core| own.is_set(*core)).collect();
        if queue_manager.len() <= count {
            let message = format!("--pin {count} needs {} cores or more", count.saturating_add(1));
            return Err(Error::Usage(message));
        }
        let others = queue_manager.split_off(count);
        keep(None, &others)?;
        Ok(Cores { queue_manager, others })
    }

    /// Gives a queue manager its cores, and the others to the cards that are modelled in it. Threads that it starts
    /// later have the cores of the thread that starts them.
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
            let cores = if name.starts_with(MODELLED) { &self.others } else { &self.queue_manager };
            match keep(Some(id), cores) {
                Err(Error::System(error)) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                kept => kept?,
            }
        }
        Ok(())
    }
}

fn keep(thread: Option<Pid>, cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    sched_setaffinity(thread, &set).map_err(system)
}

fn system(error: rustix::io::Errno) -> Error {
    Error::System(error.into())
}
