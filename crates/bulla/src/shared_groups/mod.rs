//! Groups of shared queues that this queue manager is a member of: a thread for each that takes part.

mod log;
mod member;
#[cfg(feature = "shared")]
mod tickets;

use crate::catalog::SharedGroup;
use crate::catalog::status::{GroupState, GroupStatus};
use crate::manager::Manager;
use bulla_device::role::{self, Role};
use bulla_queue::StoreNumber;
use bulla_queue::{DirStorage, FileSpill, SPILL_BYTES_MAX_DEFAULT};
pub(crate) use member::Outside;
#[cfg(all(test, feature = "shared"))]
pub(crate) use member::{ANSWERS_ON, LOOK_EVERY, Member as SimulatedMember};
use member::{Member, Order};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

/// Why an order can't be followed. The administrator's turn.
#[derive(Debug)]
pub(crate) enum GroupError {
    /// It takes no part.
    Stopped {
        /// The group.
        group: String,
    },
    /// The system's turn: a thread can't be made, or one has died.
    Thread(io::Error),
}

impl std::fmt::Display for GroupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GroupError::Stopped { group } => write!(f, "shared group {group} is STOPPED here"),
            GroupError::Thread(error) => write!(f, "the group's thread: {error}"),
        }
    }
}

impl std::error::Error for GroupError {}

/// The groups that this queue manager takes part in.
#[derive(Default)]
pub(crate) struct SharedGroups {
    members: Mutex<BTreeMap<String, Running>>,
    numbers: Arc<Numbers>,
}

/// Numbers of stores that are about to be opened.
#[derive(Default)]
pub(crate) struct Numbers(Mutex<Vec<StoreNumber>>);

/// A member's thread.
struct Running {
    orders: mpsc::Sender<Order>,
    status: Arc<Mutex<GroupStatus>>,
    thread: JoinHandle<()>,
}

impl SharedGroups {
    /// Takes part in a group from now on. Where it does already, nothing changes.
    ///
    /// # Errors
    /// [`GroupError::Thread`].
    pub(crate) fn start(
        &self,
        manager: &Arc<Manager>,
        group: &str,
        definition: &SharedGroup,
        scratch: &Path,
    ) -> Result<(), GroupError> {
        let mut members = hold(&self.members);
        if members.get(group).is_some_and(|running| !running.thread.is_finished()) {
            return Ok(());
        }
        let (orders, given) = mpsc::channel();
        let status = Arc::new(Mutex::new(GroupStatus { state: GroupState::Connecting, ..GroupStatus::default() }));
        let outside = outside(manager, group, definition, &status, scratch_of(scratch, group));
        let member = Member::new(manager.clone(), group, definition, outside, self.numbers.clone(), status.clone());
        let thread = std::thread::Builder::new().name(format!("member-{group}")).spawn(move || {
            role::begin(Role::QueueManager);
            member.run(&given);
        });
        let thread = thread.map_err(GroupError::Thread)?;
        members.insert(group.to_owned(), Running { orders, status, thread });
        Ok(())
    }

    /// Takes no part any more: its queues are closed here on return, and where this queue manager was the owner,
    /// another member may take over at once.
    ///
    /// # Errors
    /// [`GroupError::Thread`].
    pub(crate) fn stop(&self, group: &str) -> Result<(), GroupError> {
        let running = hold(&self.members).remove(group);
        running.map_or(Ok(()), Running::end)
    }

    /// The same for all groups.
    ///
    /// # Errors
    /// [`GroupError::Thread`], the first.
    pub(crate) fn stop_all(&self) -> Result<(), GroupError> {
        let all = std::mem::take(&mut *hold(&self.members));
        all.values().for_each(Running::tell_to_end);
        // Each is waited for, whatever becomes of the others.
        let ended: Vec<_> = all.into_values().map(Running::end).collect();
        ended.into_iter().collect()
    }

    /// Owns a group, also where another member owns it.
    ///
    /// # Errors
    /// [`GroupError::Stopped`].
    pub(crate) fn take_over(&self, group: &str) -> Result<(), GroupError> {
        let members = hold(&self.members);
        let sent = members.get(group).map(|running| running.orders.send(Order::TakeOver));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(GroupError::Stopped { group: group.to_owned() }),
        }
    }

    /// How a group stands; none where this queue manager takes no part in it.
    pub(crate) fn status(&self, group: &str) -> Option<GroupStatus> {
        hold(&self.members).get(group).map(|running| hold(&running.status).clone())
    }
}

impl Running {
    fn tell_to_end(&self) {
        // One that has ended needs no telling.
        let _ = self.orders.send(Order::End);
    }

    fn end(self) -> Result<(), GroupError> {
        self.tell_to_end();
        self.thread.join().map_err(|_| GroupError::Thread(io::Error::other("it died")))
    }
}

impl Numbers {
    /// A number that no store has and none is about to have.
    fn take(&self, manager: &Manager) -> Option<StoreNumber> {
        let mut taken = hold(&self.0);
        let state = manager.lock();
        let mut kept = state.left_stores.numbers(manager.live_dispatchers());
        kept.extend(taken.iter());
        let number = state.store.free_number(&kept)?;
        taken.push(number);
        Some(number)
    }

    fn give_back(&self, number: StoreNumber) {
        hold(&self.0).retain(|taken| *taken != number);
    }
}

/// The group's log in its engine, and a folder for what does not fit into memory.
fn outside(
    manager: &Arc<Manager>,
    group: &str,
    definition: &SharedGroup,
    status: &Arc<Mutex<GroupStatus>>,
    scratch: PathBuf,
) -> Outside {
    let (manager, name, definition, status) = (manager.clone(), group.to_owned(), definition.clone(), status.clone());
    Outside {
        log: Box::new(move || log::open(&manager, &name, &definition, &status)),
        scratch: Box::new(move || {
            std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
            let storage = DirStorage::new(scratch.clone());
            let spill = FileSpill::open(storage, SPILL_BYTES_MAX_DEFAULT).map_err(|error| error.to_string())?;
            Ok(Box::new(spill))
        }),
    }
}

/// Where scratch files of a group's messages lie.
fn scratch_of(scratch: &Path, group: &str) -> PathBuf {
    scratch.join(format!("group-{group}"))
}

fn hold<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
