//! What is defined, at a start: by the journal, which wins over the file; of an older directory, by the file.

use super::copy::{self, Found};
use crate::catalog::Definitions;
use crate::folders::JOURNAL;
use crate::manager::attributes;
use crate::mqsc::difference;
use crate::mqsc::kept;
use crate::mqsc::objects::{AsText, FILE, LoadError, through_of};
use crate::noted::{CHANGES_NOTE, Origin, changes_note, journal_name, read_changes_note};
use crate::objects_file::DefinitionsFile;
use crate::stores::Stores;
use bulla_queue::{DefinitionUnit, JournalError, OpenError, QueueChange, ReadError, Reserve, StoreNumber};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What the names of the notes begin with in which the journal kept what clients changed, before it had records of
/// definitions; the number follows.
const OLD_NOTES: &str = "definitions.";

/// What is defined.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) definitions: Definitions,
    /// The number of the last change.
    pub(crate) last: u64,
    /// The number of the last change that is in the file.
    pub(crate) written: u64,
}

/// Why it is not known what is defined.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The operator's turn: the text of the definitions.
    Definitions(LoadError),
    /// The operator's turn: the journal.
    Journal(OpenError),
    /// The file system's say.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Reads what is defined. What the journal does not have yet, because the directory is new or older than records of
/// definitions, comes into it in one commit. A file that was edited is kept aside, and the log says so.
///
/// # Errors
/// What is wrong with the journal, or with the file where that counts; what `accept` says.
pub(crate) fn load<E: From<Failed>>(
    store: &mut Stores,
    data: &Path,
    initial: impl FnOnce() -> Definitions,
    accept: impl FnOnce(&Definitions) -> Result<(), E>,
) -> Result<Loaded, E> {
    let kept = records(store)?;
    let is_kept = kept::are_whole(&kept);
    let definitions = match is_kept {
        true => kept::from_records(&kept, &data.join(JOURNAL)).map_err(Failed::Definitions)?,
        false => {
            let base = older(store, data)?.unwrap_or_else(initial);
            // What another store than the local one has already.
            kept::add(base, &kept, &data.join(JOURNAL)).map_err(Failed::Definitions)?
        }
    };
    accept(&definitions)?;
    let (before, written) = store.note(CHANGES_NOTE).and_then(read_changes_note).unwrap_or_default();
    let last = keep(store, &definitions, kept, (before, written))?;
    let origin = Origin { journal: journal_name(store.identity()), change: last };
    let is_right = is_kept && compare(data, &definitions, &origin, (before, written))? && before == last;
    if is_right && written == last {
        return Ok(Loaded { definitions, last, written: last });
    }
    if !is_right && let Err(error) = copy::write(data, &definitions, &origin) {
        crate::warning!("definitions are in the journal and not in {FILE} yet: {error}");
        return Ok(Loaded { definitions, last, written });
    }
    // From here on a file that differs was edited. Where that can't be noted, it is with the next change.
    let notes = [(CHANGES_NOTE, Some(&changes_note(last, last)[..]))];
    let unit = DefinitionUnit { notes: &notes, reserve: Reserve::Whole, ..DefinitionUnit::default() };
    if let Err(error) = store.commit_definitions(StoreNumber::LOCAL, &unit) {
        crate::warning!("that {FILE} is written is not noted in the journal: {error}");
    }
    Ok(Loaded { definitions, last, written: last })
}

/// The records of definitions in the journals of all stores: texts by name.
fn records(store: &mut Stores) -> Result<BTreeMap<String, String>, Failed> {
    let mut records = BTreeMap::new();
    let read = store.read_objects(&mut |name, text| {
        records.insert(name.to_owned(), String::from_utf8_lossy(text).into_owned());
    });
    read.map_err(|(name, error)| {
        Failed::Journal(match error {
            ReadError::DamagedObject { at } => {
                OpenError::Damaged { at, reason: format!("the definition of {name} is not what was written") }
            }
            ReadError::Log(error) => OpenError::Log(error),
            error => OpenError::Log(bulla_queue::log::LogError::Failed { reason: error.to_string() }),
        })
    })?;
    Ok(records)
}

/// What is defined in a directory whose journal has no records of it: by the file, and by the notes of what clients
/// changed since it was written. None where there is no file.
fn older(store: &Stores, data: &Path) -> Result<Option<Definitions>, Failed> {
    let Some(mut definitions) = Definitions::load(data).map_err(Failed::Definitions)? else { return Ok(None) };
    let path = data.join(FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| file(&path, error))?;
    let through = through_of(&text);
    for (name, text) in store.notes(OLD_NOTES) {
        let number = name.strip_prefix(OLD_NOTES).and_then(|number| u64::from_str_radix(number, 16).ok());
        if number.is_some_and(|number| number > through) {
            let text = String::from_utf8_lossy(text);
            definitions.redo(&text, &data.join(JOURNAL)).map_err(Failed::Definitions)?;
        }
    }
    Ok(Some(definitions))
}

/// Brings the journal's records in line with what is defined, in one commit that is durable on return. Says the number
/// of the last change.
fn keep(
    store: &mut Stores,
    definitions: &Definitions,
    mut kept: BTreeMap<String, String>,
    (last, written): (u64, u64),
) -> Result<u64, Failed> {
    // Of a hundred thousand definitions none differs at most starts: only texts that do are held.
    let differs = kept::differing(definitions, &mut kept);
    let mut objects: Vec<(&str, Option<&[u8]>)> =
        differs.iter().map(|(name, text)| (name.as_str(), Some(text.as_bytes()))).collect();
    objects.extend(kept.keys().map(|name| (name.as_str(), None)));
    let missing = definitions.queues.iter().filter(|(name, _)| store.queue(name).is_none());
    let queues: Vec<QueueChange<'_>> = missing
        .map(|(name, queue)| QueueChange::Define { name, attributes: attributes(name, queue, definitions) })
        .collect();
    let old: Vec<String> = store.notes(OLD_NOTES).map(|(name, _)| name.to_owned()).collect();
    if objects.is_empty() && queues.is_empty() && old.is_empty() {
        return Ok(last);
    }
    let number = changes_note(last + 1, written);
    let mut notes: Vec<(&str, Option<&[u8]>)> = old.iter().map(|name| (name.as_str(), None)).collect();
    notes.push((CHANGES_NOTE, Some(&number)));
    let unit = DefinitionUnit { queues: &queues, objects: &objects, notes: &notes, reserve: Reserve::Whole };
    let failed = |reason: String| Failed::Journal(OpenError::Log(bulla_queue::log::LogError::Failed { reason }));
    store
        .commit_definitions(StoreNumber::LOCAL, &unit)
        .map_err(|error| failed(format!("definitions can't be kept: {error}")))?;
    store.sync(Instant::now()).map_err(|error: JournalError| failed(error.to_string()))?;
    Ok(last + 1)
}

/// Compares the file with what the journal has. Says whether the file is right as it is; one that was edited, or that
/// is not the one which was written last, is kept aside, and the log says so.
fn compare(
    data: &Path,
    definitions: &Definitions,
    origin: &Origin,
    (last, written): (u64, u64),
) -> Result<bool, Failed> {
    let path = data.join(FILE);
    let of = copy::written_from(data).map_err(|error| file(&path, error))?;
    if let Some(of) = of.filter(|of| of.journal == origin.journal && (written..=last).contains(&of.change)) {
        return Ok(of.change == last);
    }
    let found = copy::look(data).map_err(|error| file(&path, error))?;
    let (text, why) = match found {
        Found::Missing => {
            crate::warning!("{FILE} was not there; it is written anew from the journal");
            return Ok(false);
        }
        // A crash came between the commit that took an older version's file over and the first file of this one.
        Found::Older(_) if written == 0 => return Ok(false),
        Found::Written(text) => (text, "is not the file that the queue manager wrote last"),
        Found::Older(text) | Found::Edited(text) => (text, "was changed since the queue manager wrote it"),
    };
    let differs = match Definitions::from_text(&text, &path) {
        Ok(edited) if edited == *definitions => return Ok(false),
        Ok(edited) => match difference::steps(definitions, &edited).len() {
            1 => "one command makes the difference".to_owned(),
            steps => format!("{steps} commands make the difference"),
        },
        Err(error) => format!("it can't be read: {error}"),
    };
    let aside = copy::set_aside(data).map_err(|error| file(&path, error))?;
    let (data, aside) = (data.display(), aside.display());
    crate::warning!(
        "{FILE} {why}, and {differs}. The journal counts: what it has is defined, and is in {FILE} again. The other file \
         is kept as {aside}; to see what it would change: bulla mqsc --data {data} --diff {aside} --prune; to make \
         it so: bulla mqsc --data {data} --apply {aside} --prune"
    );
    Ok(false)
}

fn file(path: &Path, error: io::Error) -> Failed {
    Failed::File { path: path.to_owned(), error }
}
