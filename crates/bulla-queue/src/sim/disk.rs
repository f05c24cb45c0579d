//! A disk in memory that can stop at any step and then shows what a real one might have kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use crate::storage::{Storage, StorageFile};

/// A real disk writes no less than this at once.
const SECTOR_BYTES: usize = 512;

/// What becomes of what was not synced when the power goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Nothing of it is there.
    Lost,
    /// All is there but the second half of the last write, and of the last change of a name.
    Torn,
    /// Each sector and each change of a name is there or not, as the seed says.
    Mixed(u64),
    /// All is there.
    Kept,
}

/// What happens at a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The power goes: this step and all later ones fail and do nothing.
    Crash,
    /// This step fails with an input/output error. A write may have done half; a sync leaves what it should have synced
    /// readable and, whatever is synced later, not durable.
    Io,
    /// From this step on nothing can grow.
    Full,
}

/// A directory in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changes: Vec<Change>,
    inodes: Vec<Inode>,
    locked: BTreeSet<String>,
    steps: u64,
    fault: Option<(u64, Fault)>,
    crashed: bool,
    full: bool,
    random: u64,
}

#[derive(Clone, Debug)]
enum Change {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Clone, Debug, Default)]
struct Inode {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync.
    writes: Vec<(usize, Vec<u8>)>,
    /// Writes that a failed sync has given up.
    abandoned: Vec<(usize, Vec<u8>)>,
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Change::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Change::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            Change::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

fn overlay(bytes: &mut Vec<u8>, offset: usize, written: &[u8]) {
    if bytes.len() < offset + written.len() {
        bytes.resize(offset + written.len(), 0);
    }
    bytes[offset..offset + written.len()].copy_from_slice(written);
}

/// What a seed decides about the write or the change of a name with that number.
fn drawn_for(seed: u64, index: usize) -> Rng {
    Rng::with_seed(seed << 20 ^ index as u64)
}

impl Inode {
    fn after_crash(&self, fate: Fate) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let writes: Vec<_> = self.abandoned.iter().chain(&self.writes).collect();
        for (index, (offset, written)) in writes.iter().enumerate() {
            match fate {
                Fate::Lost => {}
                Fate::Kept => overlay(&mut bytes, *offset, written),
                Fate::Torn if index + 1 < writes.len() => overlay(&mut bytes, *offset, written),
                Fate::Torn => overlay(&mut bytes, *offset, &written[..written.len() / 2]),
                Fate::Mixed(seed) => {
                    let mut random = drawn_for(seed, index);
                    let mut at = 0;
                    while at < written.len() {
                        let end = ((offset + at) / SECTOR_BYTES + 1) * SECTOR_BYTES - offset;
                        let end = end.min(written.len());
                        if random.bool() {
                            overlay(&mut bytes, offset + at, &written[at..end]);
                        }
                        at = end;
                    }
                }
            }
        }
        bytes
    }
}

impl State {
    /// Counts a step. Says whether it fails, and whether half of it is done then.
    fn step(&mut self, grows: bool) -> io::Result<()> {
        if self.crashed {
            return Err(io::Error::other("the power is gone"));
        }
        let step = self.steps;
        self.steps += 1;
        match self.fault {
            Some((at, Fault::Crash)) if step >= at => {
                self.crashed = true;
                return Err(io::Error::other("the power is gone"));
            }
            Some((at, Fault::Io)) if step == at => {
                return Err(io::Error::other("input/output error"));
            }
            Some((at, Fault::Full)) if step >= at => self.full = true,
            _ => {}
        }
        if self.full && grows { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }
}

impl SimDisk {
    /// A new disk on which something happens at a step, counted from 0.
    #[must_use]
    pub fn with_fault(step: u64, fault: Fault) -> Self {
        let disk = Self::default();
        disk.set_fault(step, fault);
        disk
    }

    /// Lets something happen at a step, counted from 0 over the life of the disk.
    pub fn set_fault(&self, step: u64, fault: Fault) {
        self.state().fault = Some((step, fault));
    }

    /// Lets files grow, or not. A crash that is to come still comes.
    pub fn set_full(&self, full: bool) {
        let mut state = self.state();
        state.full = full;
        state.fault = state.fault.filter(|(_, fault)| *fault == Fault::Crash);
    }

    /// Steps that changed or synced something so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// Whether the power is gone.
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.state().crashed
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let state = self.state();
        state.names.values().map(|&inode| state.inodes[inode].current.len() as u64).sum()
    }

    /// The files with their sizes in bytes.
    #[must_use]
    pub fn files(&self) -> Vec<(String, u64)> {
        let state = self.state();
        state.names.iter().map(|(name, &inode)| (name.clone(), state.inodes[inode].current.len() as u64)).collect()
    }

    /// The disk as it might be found when the power is back.
    #[must_use]
    pub fn after_crash(&self, fate: Fate) -> SimDisk {
        let state = self.state();
        let mut names = state.durable_names.clone();
        for (index, change) in state.changes.iter().enumerate() {
            let kept = match fate {
                Fate::Lost => false,
                Fate::Torn => index + 1 < state.changes.len(),
                Fate::Mixed(seed) => drawn_for(!seed, index).bool(),
                Fate::Kept => true,
            };
            if kept {
                change.apply(&mut names);
            }
        }
        let inodes: Vec<_> = state
            .inodes
            .iter()
            .map(|inode| inode.after_crash(fate))
            .map(|bytes| Inode { current: bytes.clone(), durable: bytes, ..Inode::default() })
            .collect();
        let found = State { durable_names: names.clone(), names, inodes, random: state.random, ..State::default() };
        SimDisk(Arc::new(Mutex::new(found)))
    }

    /// The contents of a file, for a look from outside.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.inodes[*state.names.get(name)?].current.clone())
    }

    /// Puts contents into a file and makes them durable, for damage from outside. Counts no step.
    pub fn set_contents(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let inode = state.inodes.len();
        state.inodes.push(Inode { current: bytes.clone(), durable: bytes, ..Inode::default() });
        state.names.insert(name.to_owned(), inode);
        state.durable_names.insert(name.to_owned(), inode);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for SimDisk {
    type File = SimFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let inode = self.state().find(name)?;
        Ok(SimFile { disk: self.clone(), inode, lock: None })
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let mut state = self.state();
        state.step(true)?;
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.change(Change::Create(name.to_owned(), inode));
        drop(state);
        Ok(SimFile { disk: self.clone(), inode, lock: None })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step(false)?;
        state.find(from)?;
        state.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step(false)?;
        state.find(name)?;
        state.change(Change::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step(false)?;
        state.changes.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn lock(&self, name: &str) -> io::Result<Option<SimFile>> {
        let mut state = self.state();
        if !state.locked.insert(name.to_owned()) {
            return Ok(None);
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        drop(state);
        Ok(Some(SimFile { disk: self.clone(), inode, lock: Some(name.to_owned()) }))
    }

    fn random(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.random = Rng::with_seed(state.random).u64(..);
        Ok(state.random)
    }
}

/// A file on a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: usize,
    lock: Option<String>,
}

impl StorageFile for SimFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes[self.inode].current.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        if state.crashed {
            return Err(io::Error::other("the power is gone"));
        }
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = offset.checked_add(into.len()).and_then(|end| state.inodes[self.inode].current.get(offset..end));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> io::Result<bool> {
        self.read_at(offset, into).map(|()| true)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let grows = offset + bytes.len() > state.inodes[self.inode].current.len();
        let stepped = state.step(grows);
        if state.crashed {
            return stepped;
        }
        // A write that fails may have done half, unless it is space that it lacks.
        let done = match &stepped {
            Ok(()) => bytes,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => &[],
            Err(_) => &bytes[..bytes.len() / 2],
        };
        let inode = &mut state.inodes[self.inode];
        overlay(&mut inode.current, offset, done);
        inode.writes.push((offset, done.to_vec()));
        stepped
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        let zeros = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        self.write_at(0, &zeros).map(|()| true)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let stepped = state.step(false);
        if state.crashed {
            return stepped;
        }
        let inode = &mut state.inodes[self.inode];
        let writes = std::mem::take(&mut inode.writes);
        if stepped.is_err() {
            inode.abandoned.extend(writes);
            return stepped;
        }
        for (offset, written) in writes {
            overlay(&mut inode.durable, offset, &written);
        }
        Ok(())
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        if let Some(name) = self.lock.take() {
            self.disk.state().locked.remove(&name);
        }
    }
}
