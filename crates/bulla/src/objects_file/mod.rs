//! `objects.mqsc` in the data directory: what the admin language defines, as MQSC text.
//!
//! The file is written aside, synced and renamed. What stands in it is [`AsText`]'s.

pub(crate) mod copy;
pub(crate) mod start;
#[cfg(test)]
mod survival;

use crate::catalog::Definitions;
use crate::mqsc::objects::{AsText, FILE, LoadError};
use crate::mqsc::parse;
use crate::whole_file;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Definitions and the file that keeps them.
pub trait DefinitionsFile: Sized {
    /// Reads `objects.mqsc` in `directory`; none when there is no such file.
    ///
    /// # Errors
    /// What is wrong, with file and line.
    fn load(directory: &Path) -> Result<Option<Self>, LoadError>;

    /// Whether `word` stands anywhere in `objects.mqsc` in `directory`; true where that can't be read.
    fn may_mention(directory: &Path, word: &str) -> bool;

    /// Writes `objects.mqsc` in `directory`: aside, synced, renamed.
    ///
    /// # Errors
    /// Whatever the file system says, and more than [`load`](Self::load) reads; the file is then the old one.
    fn save(&self, directory: &Path) -> io::Result<()>;
}

impl DefinitionsFile for Definitions {
    fn load(directory: &Path) -> Result<Option<Self>, LoadError> {
        let path = directory.join(FILE);
        let unreadable = |error| LoadError::Unreadable { path: path.clone(), error };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let mut text = String::new();
        // One byte beyond the limit is enough for the parser to refuse it.
        file.take(parse::TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
        Definitions::from_text(&text, &path).map(Some)
    }

    fn may_mention(directory: &Path, word: &str) -> bool {
        match std::fs::read_to_string(directory.join(FILE)) {
            Ok(text) => text.contains(word),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn save(&self, directory: &Path) -> io::Result<()> {
        let text = self.readable_text().map_err(io::Error::other)?;
        whole_file::replace(&directory.join(FILE), text.as_bytes(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::LocalQueue;

    fn built(commands: &str) -> Definitions {
        Definitions::from_commands(commands, Path::new("commands"), Definitions::initial("DEMO")).unwrap()
    }

    #[test]
    fn the_file_is_whole_and_its_owner_s() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        assert!(Definitions::load(directory.path()).unwrap().is_none());
        let definitions = built("DEF QL(ORDERS)");
        definitions.save(directory.path()).unwrap();
        definitions.save(directory.path()).unwrap();
        assert_eq!(Definitions::load(directory.path()).unwrap(), Some(definitions));
        let names: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [FILE]);
        assert_eq!(std::fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_would_not_be_read_back_is_not_saved() {
        let directory = tempfile::tempdir().unwrap();
        let mut definitions = Definitions::initial("QM1");
        definitions.save(directory.path()).unwrap();
        let before = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        let description = "é".repeat(parse::COMMAND_BYTES_MAX / 2);
        definitions.queues.insert("LONG".into(), LocalQueue { description, ..LocalQueue::default() });
        assert!(definitions.save(directory.path()).unwrap_err().to_string().contains("longer than 1048576 bytes"));
        assert_eq!(std::fs::read_to_string(directory.path().join(FILE)).unwrap(), before);
    }
}
