//! `objects.mqsc`: the readable copy of what the journal has.
//!
//! Its last line says from which journal it was written, after which change, and the digest of what stands above. So a
//! start can tell a file that was written a moment before a crash from one that was edited, and from one that was put
//! there from elsewhere.

use crate::catalog::Definitions;
use crate::mqsc::objects::{AsText, FILE};
use crate::noted::Origin;
use crate::whole_file;
use openssl::sha::{Sha256, sha256};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How the last line begins.
const TAIL: &str = "* copy of journal ";
const AFTER_CHANGE: &str = " after change ";
const DIGEST: &str = ", sha256 ";
/// How the last line ends.
const HOW_TO_CHANGE: &str = "; to change definitions edit another file: bulla mqsc --apply FILE";
/// What the name of a file that was edited begins with; a number follows.
const EDITED: &str = "objects.mqsc.edited-";
/// Edited files that may lie there.
const EDITED_MAX: u32 = 1_000;

/// Most bytes of the last line: its words, a journal's identity, a number and a digest are some 230.
const LAST_LINE_BYTES_MAX: u64 = 1 << 10;
/// Bytes of the file that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// What lies in the data directory.
#[derive(Debug)]
pub(crate) enum Found {
    /// No file.
    Missing,
    /// A file as a queue manager wrote it.
    Written(String),
    /// A file without the last line, as older versions wrote it.
    Older(String),
    /// A file whose text is another than was written.
    Edited(String),
}

/// Looks at the file.
///
/// # Errors
/// It can't be read.
pub(crate) fn look(data: &Path) -> io::Result<Found> {
    let text = match fs::read(data.join(FILE)) {
        Ok(bytes) => {
            String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(error),
    };
    Ok(if is_as_written(&text) {
        Found::Written(text)
    } else if !text.contains(TAIL) {
        Found::Older(text)
    } else {
        Found::Edited(text)
    })
}

/// What the last line says, where it is right; none where there is no such file, or where it was edited. Reads the file
/// piece by piece: with a hundred thousand definitions it has 80 MB.
///
/// # Errors
/// It can't be read.
pub(crate) fn written_from(data: &Path) -> io::Result<Option<Origin>> {
    let file = match fs::File::open(data.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len();
    let mut piece = vec![0; PIECE_BYTES];
    let end = &mut piece[..bytes.min(LAST_LINE_BYTES_MAX) as usize];
    file.read_exact_at(end, bytes - end.len() as u64)?;
    let above_last = end.strip_suffix(b"\n").and_then(|end| end.iter().rposition(|byte| *byte == b'\n'));
    let Some(last) = above_last.and_then(|place| std::str::from_utf8(&end[place + 1..]).ok()) else { return Ok(None) };
    let above = bytes - last.len() as u64;
    let Some((origin, digest)) = said(last) else { return Ok(None) };
    let digest = digest.to_owned();
    let (mut at, mut hash) = (0, Sha256::new());
    while at < above {
        let piece = &mut piece[..(above - at).min(PIECE_BYTES as u64) as usize];
        file.read_exact_at(piece, at)?;
        hash.update(piece);
        at += piece.len() as u64;
    }
    Ok((digest == base16ct::lower::encode_string(&hash.finish())).then_some(origin))
}

/// Whether the digest in the last line is that of what stands above.
fn is_as_written(text: &str) -> bool {
    let Some(place) = text.strip_suffix('\n').and_then(|text| text.rfind('\n')) else { return false };
    let (above, last) = text.split_at(place + 1);
    said(last).is_some_and(|(_, digest)| digest == base16ct::lower::encode_string(&sha256(above.as_bytes())))
}

/// What a last line says: where the file comes from, and the digest.
fn said(last: &str) -> Option<(Origin, &str)> {
    let said = last.trim_end().strip_prefix(TAIL)?.strip_suffix(HOW_TO_CHANGE)?;
    let (journal, said) = said.split_once(AFTER_CHANGE)?;
    let (change, digest) = said.split_once(DIGEST)?;
    Some((Origin { journal: journal.to_owned(), change: change.parse().ok()? }, digest))
}

/// Writes the file: aside, synced, renamed.
///
/// # Errors
/// Whatever the file system says; the file is then the old one.
pub(crate) fn write(data: &Path, definitions: &Definitions, origin: &Origin) -> io::Result<()> {
    let mut text = definitions.readable_text().map_err(io::Error::other)?;
    let digest = base16ct::lower::encode_string(&sha256(text.as_bytes()));
    let Origin { journal, change } = origin;
    text.push_str(&format!("{TAIL}{journal}{AFTER_CHANGE}{change}{DIGEST}{digest}{HOW_TO_CHANGE}\n"));
    whole_file::replace(&data.join(FILE), text.as_bytes(), 0o600)
}

/// Keeps an edited file under a name of its own, and says which.
///
/// # Errors
/// Whatever the file system says, and too many of them; the file is then where it was.
pub(crate) fn set_aside(data: &Path) -> io::Result<PathBuf> {
    let free = (1..=EDITED_MAX).map(|number| data.join(format!("{EDITED}{number}"))).find(|path| !path.exists());
    let aside = free.ok_or_else(|| io::Error::other(format!("there are {EDITED_MAX} files {EDITED}N already")))?;
    fs::rename(data.join(FILE), &aside)?;
    fs::File::open(data)?.sync_all()?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noted::journal_name;
    use crate::objects_file::DefinitionsFile;

    #[test]
    fn a_file_is_as_it_was_written_or_edited() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        assert!(matches!(look(data).unwrap(), Found::Missing));
        assert_eq!(written_from(data).unwrap(), None);
        let definitions = Definitions::initial("QM1");
        let wanted = Origin { journal: journal_name(Some([7; 16])), change: 12 };
        write(data, &definitions, &wanted).unwrap();
        let Found::Written(written) = look(data).unwrap() else { panic!("it was written so") };
        assert_eq!(written_from(data).unwrap(), Some(wanted));
        assert_eq!(Definitions::load(data).unwrap(), Some(definitions));
        assert!(written.len() > LAST_LINE_BYTES_MAX as usize);
        let end = written.trim_end().rfind('\n').unwrap();
        let edits = [
            written.replacen("MAXDEPTH(5000)", "MAXDEPTH(6000)", 1),
            written.replace("change 12", "change x"),
            format!("{written}DEFINE QLOCAL(A)\n"),
            written.trim_end().to_owned(),
        ];
        for edited in edits {
            assert_ne!(edited, written);
            fs::write(data.join(FILE), &edited).unwrap();
            assert!(matches!(look(data).unwrap(), Found::Edited(text) if text == edited), "{edited}");
            assert_eq!(written_from(data).unwrap(), None, "{edited}");
        }
        for older in [&written[..=end], ""] {
            fs::write(data.join(FILE), older).unwrap();
            assert!(matches!(look(data).unwrap(), Found::Older(text) if text == older), "{older}");
            assert_eq!(written_from(data).unwrap(), None, "{older}");
        }
        let [first, second] = [(); 2].map(|()| {
            fs::write(data.join(FILE), "edited").unwrap();
            set_aside(data).unwrap()
        });
        assert_eq!([first, second], ["objects.mqsc.edited-1", "objects.mqsc.edited-2"].map(|name| data.join(name)));
        assert!(matches!(look(data).unwrap(), Found::Missing));
    }
}
