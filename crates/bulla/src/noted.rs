//! Changes of definitions that clients cause: durable subscriptions, permanent dynamic queues, triggers that go off.
//!
//! Such a change is a note in the journal, in the unit that everything else of the turn is synced with, so no client
//! waits for another one's file. What answers the client goes out when the note is synced. A thread of its own writes
//! `objects.mqsc` soon afterwards, without the queues' lock, and takes the notes away that are in the file then. At the
//! start what the file does not have yet comes from the notes.
//!
//! Changes are numbered. The file says up to which number it has them, so a note that is still there when its change
//! has come into the file, or was undone by a command since, changes nothing.

use crate::catalog::Definitions;
use crate::definitions_file::DefinitionsFile;
use crate::manager::{Manager, State};
use crate::mqsc::objects::{AsText, LoadError};
use bulla_queue::{Store, Ticket};
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the names of the notes begin with; the number follows, so that they are in order.
const PREFIX: &str = "definitions.";
/// The least time between two writes of the file.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Notes that are taken away in one unit.
const FORGET_AT_ONCE: usize = 64;

/// What the state knows of it.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// The number of the last change.
    last: u64,
    /// Until when the answers of this turn have to wait.
    ticket: Option<Ticket>,
}

/// Writes `objects.mqsc`.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    wanted: Mutex<Wanted>,
    wake: Condvar,
    /// The generation of the definitions that are in the file. Held while the file is written.
    written: Mutex<u64>,
}

#[derive(Debug, Default)]
struct Wanted {
    is_due: bool,
    is_stopping: bool,
}

impl Noted {
    /// Goes on behind that number.
    pub(crate) fn after(last: u64) -> Self {
        Self { last, ticket: None }
    }

    /// The number of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The name of the note of the next change.
    pub(crate) fn next_name(&self) -> String {
        name(self.last + 1)
    }

    /// The next change has its note, which is synced with that ticket.
    pub(crate) fn noted(&mut self, ticket: Ticket) {
        (self.last, self.ticket) = (self.last + 1, Some(ticket));
    }

    /// Until when answers to what was done since the last call have to wait.
    pub(crate) fn take_ticket(&mut self) -> Option<Ticket> {
        self.ticket.take()
    }
}

fn name(number: u64) -> String {
    format!("{PREFIX}{number:016x}")
}

/// Number and text of each note, in order.
fn notes(store: &Store) -> impl Iterator<Item = (u64, &[u8])> {
    store.notes(PREFIX).filter_map(|(name, text)| {
        let number = u64::from_str_radix(name.strip_prefix(PREFIX)?, 16).ok()?;
        Some((number, text))
    })
}

/// Brings definitions, which have all changes up to the number `through`, up to date with the notes. Says the number of
/// the last one, and whether there was any.
///
/// # Errors
/// A note that makes no sense; `path` is for the message.
pub(crate) fn recover(
    store: &Store,
    definitions: &mut Definitions,
    through: u64,
    path: &Path,
) -> Result<(u64, bool), LoadError> {
    let (mut last, mut is_any) = (through, false);
    for (number, text) in notes(store) {
        is_any = true;
        last = last.max(number);
        if number > through {
            definitions.redo(&String::from_utf8_lossy(text), path)?;
        }
    }
    Ok((last, is_any))
}

/// Takes the notes away of all changes up to that number: they are in the file. Those for which there is no room in the
/// journal go the next time.
pub(crate) fn forget(store: &mut Store, through: u64) {
    let names: Vec<String> =
        notes(store).map(|(number, _)| number).take_while(|number| *number <= through).map(name).collect();
    for names in names.chunks(FORGET_AT_ONCE) {
        let gone: Vec<(&str, Option<&[u8]>)> = names.iter().map(|name| (name.as_str(), None)).collect();
        if store.commit(Vec::new(), &[], &gone).is_err() {
            return;
        }
    }
}

impl Writer {
    /// The file is to be written.
    pub(crate) fn wake(&self) {
        self.wanted().is_due = true;
        self.wake.notify_one();
    }

    /// Writes definitions with all changes up to the number `through`, unless the file has later ones already.
    ///
    /// # Errors
    /// Whatever the file system says; the file is then the old one.
    pub(crate) fn save(&self, definitions: &Definitions, through: u64, generation: u64, data: &Path) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written <= generation {
            definitions.save_through(data, through)?;
            *written = generation;
        }
        Ok(())
    }

    /// The thread's life: writes what is due, once a second at most, until [`stop`](Self::stop); then for the last
    /// time.
    pub(crate) fn run(&self, manager: &Manager) {
        let mut was_told = false;
        loop {
            let is_last = {
                let wanted = self.wanted();
                let wanted = self.wake.wait_while(wanted, |wanted| !wanted.is_due && !wanted.is_stopping);
                let mut wanted = wanted.unwrap_or_else(PoisonError::into_inner);
                if !std::mem::take(&mut wanted.is_due) {
                    return;
                }
                wanted.is_stopping
            };
            let (definitions, through, generation) = {
                let State { definitions, noted, generation, .. } = &*manager.lock();
                (definitions.clone(), noted.last, *generation)
            };
            match self.save(&definitions, through, generation, &manager.data) {
                Ok(()) => {
                    forget(&mut manager.lock().store, through);
                    was_told = false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut was_told, true) {
                        crate::warning!("definitions are in the journal and not in their file yet: {error}");
                    }
                    self.wanted().is_due = !is_last;
                }
            }
            if !is_last {
                let wanted = self.wake.wait_timeout_while(self.wanted(), WRITE_EVERY, |wanted| !wanted.is_stopping);
                drop(wanted.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Ends the thread when it has written what is due.
    pub(crate) fn stop(&self) {
        self.wanted().is_stopping = true;
        self.wake.notify_all();
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        // Two flags, each of which stands for itself.
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Change;
    use crate::catalog::Subscription;
    use crate::mqsc::objects::FILE;
    use bulla_queue::{DirStorage, FileLog, FileLogOptions, FileSpill, Limits, SPILL_BYTES_MAX_DEFAULT};
    use std::time::Instant;

    fn subscription(topic: &str) -> Vec<Change> {
        let queue = Definitions::initial("QM1").queues.into_values().next().unwrap();
        let destination = format!("SYSTEM.MANAGED.DURABLE.{topic}");
        let subscription = Subscription {
            string: topic.to_lowercase(),
            destination: destination.clone(),
            managed: true,
            selector: "colour = 'it''s red'".into(),
            user: Some("orders".into()),
            ..Subscription::default()
        };
        let name = format!("c|{topic}");
        vec![Change::DefineLocal { name: destination, queue }, Change::DefineSubscription { name, subscription }]
    }

    fn all(definitions: &mut Definitions, changes: &[Change]) {
        changes.iter().for_each(|change| definitions.apply(change));
    }

    #[test]
    fn what_is_done_again_is_what_was_done_however_often() {
        let mut wanted = Definitions::initial("QM1");
        let mut done = wanted.clone();
        let made = subscription("A");
        let gone = [Change::DeleteSubscription { name: "c|A".into() }];
        for changes in [&made[..], &gone, &made] {
            all(&mut wanted, changes);
            let text = Definitions::commands(changes).unwrap();
            (0..2).for_each(|_| done.redo(&text, Path::new(FILE)).unwrap());
            assert_eq!(done, wanted, "{text}");
        }
        assert_eq!(Definitions::commands(&[Change::DeleteTopic { name: "T".into() }]), None);
        assert!(done.redo("DELETE TOPIC(T)\n", Path::new(FILE)).is_err());
    }

    #[test]
    fn notes_that_the_file_has_already_change_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let storage = |folder: &str| {
            std::fs::create_dir(directory.path().join(folder)).unwrap();
            DirStorage::new(directory.path().join(folder))
        };
        let log = FileLog::open(storage("journal"), FileLogOptions::default()).unwrap();
        let spill = FileSpill::open(storage("spill"), SPILL_BYTES_MAX_DEFAULT).unwrap();
        let mut store = Store::open(Box::new(log), Box::new(spill), Limits::default(), Instant::now()).unwrap();
        let mut noted = Noted::default();
        for topic in ["A", "B"] {
            let text = Definitions::commands(&subscription(topic)).unwrap();
            let ticket = store.commit(Vec::new(), &[], &[(&noted.next_name(), Some(text.as_bytes()))]).unwrap();
            noted.noted(ticket);
        }
        assert!(noted.take_ticket().is_some() && noted.take_ticket().is_none());
        let names = |through| {
            let mut definitions = Definitions::initial("QM1");
            let last = recover(&store, &mut definitions, through, Path::new(FILE)).unwrap();
            (last, definitions.subscriptions.into_keys().collect::<Vec<_>>())
        };
        assert_eq!(names(0), ((2, true), vec!["c|A".to_owned(), "c|B".to_owned()]));
        assert_eq!(names(1), ((2, true), vec!["c|B".to_owned()]));
        assert_eq!(names(7), ((7, true), vec![]));
        forget(&mut store, 1);
        assert_eq!(notes(&store).map(|(number, _)| number).collect::<Vec<_>>(), [2]);
        forget(&mut store, 2);
        assert_eq!(notes(&store).count(), 0);
    }

    #[test]
    fn an_older_state_never_replaces_a_newer_one() {
        let directory = tempfile::tempdir().unwrap();
        let (old, writer) = (Definitions::initial("QM1"), Writer::default());
        let mut new = old.clone();
        all(&mut new, &subscription("A"));
        writer.save(&new, 5, 9, directory.path()).unwrap();
        writer.save(&old, 4, 8, directory.path()).unwrap();
        assert_eq!(Definitions::load_through(directory.path()).unwrap(), Some((new, 5)));
    }
}

#[cfg(test)]
mod survival;
