//! Who may connect by password: `users` in the data directory.
//!
//! A header line, then a line for each user, `NAME:VERIFIER`, the verifier in the usual text form
//! `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY` (RFC 5803 with base64 parts). No password is kept. The
//! header's secret makes up salts for users that do not exist, always the same for one name, so that names can't be
//! learnt by asking.
//!
//! The file has mode 0600, is written aside, synced and renamed, and is read again when it changed. Writers take turns
//! by a lock on `users.lock`.

pub use crate::catalog::names::{USER_NAME_BYTES_MAX as NAME_BYTES_MAX, is_user_name as is_valid_name};
use crate::sign_in::remembered::Remembered;
use crate::whole_file;
use bulla_amqp::ScramCrypto;
use bulla_amqp::scram::ScramVerifier;
pub use bulla_amqp::scram_openssl::Crypto;
use openssl::{base64, memcmp, rand};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file's name in the data directory.
pub const FILE: &str = "users";
/// The version that is written. A reader refuses a later one.
pub const FORMAT: u32 = 1;
/// Longest password in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Most users.
pub const USERS_MAX: usize = 100_000;
/// Rounds of PBKDF2-HMAC-SHA256 for a new password: what the OWASP Password Storage Cheat Sheet asks for. A guess at a
/// stolen `users` costs as many, and so does a client that signs in by SCRAM, and the first check of a password sent by
/// PLAIN: 0.1 s to 0.3 s.
pub const ITERATIONS: u32 = 600_000;
/// Fewest rounds (RFC 7677, section 4).
pub const ITERATIONS_MIN: u32 = 4_096;
/// Most rounds: a check of more would take longer than a client waits.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// Salt of a new password.
const SALT_BYTES: usize = 16;
const SALT_BYTES_MAX: usize = 64;
/// Most bytes of the file: a line is under 256.
const FILE_BYTES_MAX: u64 = 256 * (USERS_MAX as u64 + 1);

const HEADER: &str = "# bulla users, format ";
const HEADER_SECRET: &str = ", secret ";
const SCHEME: &str = "SCRAM-SHA-256$";

/// The users of one data directory.
#[derive(Debug)]
pub struct Users {
    directory: PathBuf,
    read: Mutex<Snapshot>,
    remembered: Remembered,
}

impl Users {
    /// Reads the users of `directory`, and makes an empty file with a fresh secret when there is none.
    ///
    /// # Errors
    /// The file is unreadable, readable by others, damaged, or from a later program.
    pub fn open(directory: &Path) -> Result<Self, UsersError> {
        if !directory.join(FILE).try_exists().map_err(|error| unreadable(directory, error))? {
            let _turn = lock(directory)?;
            if !directory.join(FILE).exists() {
                let none = List { secret: random(), verifiers: BTreeMap::new(), usual_rounds: ITERATIONS };
                write(directory, &none)?;
            }
        }
        let remembered = Remembered::new(random());
        Ok(Self { directory: directory.into(), read: Mutex::new(Snapshot::read(directory)?), remembered })
    }

    /// The verifier of a user. One that does not exist has one too, which no password fits.
    pub fn verifier(&self, name: &str) -> ScramVerifier {
        let snapshot = self.current();
        snapshot.list.verifiers.get(name).cloned().unwrap_or_else(|| snapshot.list.made_up(name))
    }

    /// True when `password` was found to be that user's before and still is. Costs no derivation; false says nothing.
    pub fn is_remembered(&self, name: &str, password: &str) -> bool {
        self.remembered.has(name, password, &self.verifier(name)) & self.exists(name)
    }

    /// True when `password` is that user's. Takes the same time for users that do not exist.
    pub fn is_password(&self, name: &str, password: &str) -> bool {
        let verifier = self.verifier(name); // the lock is not held while the password is derived
        let known = self.current().list.verifiers.contains_key(name);
        if self.remembered.has(name, password, &verifier) && known {
            return true;
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let derived = ScramVerifier::derive(password, verifier.salt.clone(), verifier.iterations, &Crypto);
        let is_right = memcmp::eq(&derived.stored_key, &verifier.stored_key) & known;
        if is_right {
            self.remembered.keep(name, password, &verifier);
        }
        is_right
    }

    /// True when there is such a user.
    pub fn exists(&self, name: &str) -> bool {
        self.current().list.verifiers.contains_key(name)
    }

    /// Looks at all users at once, by what their passwords are known by; none for a name that is no user's.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&dyn Fn(&str) -> Option<[u8; 32]>) -> T) -> T {
        let snapshot = self.current();
        look(&|name| snapshot.list.verifiers.get(name).map(|verifier| verifier.stored_key))
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.current().list.verifiers.keys().cloned().collect()
    }

    /// The primitives that SCRAM stands on.
    pub fn crypto(&self) -> &'static dyn ScramCrypto {
        &Crypto
    }

    /// Adds a user. The verifier takes `rounds` of PBKDF2, [`ITERATIONS_MIN`] to [`ITERATIONS_MAX`].
    ///
    /// # Errors
    /// There is one of that name, or name, password or rounds cannot be taken.
    pub fn add(&self, name: &str, password: &str, rounds: u32) -> Result<(), UsersError> {
        check_name(name)?;
        let verifier = derived(password, rounds)?;
        self.change(|list| {
            if list.verifiers.contains_key(name) {
                return Err(UsersError::Exists { name: name.into() });
            }
            if list.verifiers.len() >= USERS_MAX {
                return Err(UsersError::TooMany);
            }
            list.verifiers.insert(name.into(), verifier);
            Ok(())
        })
    }

    /// Gives a user another password. The verifier takes `rounds` of PBKDF2, [`ITERATIONS_MIN`] to [`ITERATIONS_MAX`].
    ///
    /// # Errors
    /// There is no such user, or password or rounds cannot be taken.
    pub fn set_password(&self, name: &str, password: &str, rounds: u32) -> Result<(), UsersError> {
        let verifier = derived(password, rounds)?;
        self.change(|list| match list.verifiers.get_mut(name) {
            Some(known) => {
                *known = verifier;
                Ok(())
            }
            None => Err(UsersError::Unknown { name: name.into() }),
        })
    }

    /// Removes a user. Its log-ins over HTTP end; other connections that are open stay open.
    ///
    /// # Errors
    /// There is no such user.
    pub fn remove(&self, name: &str) -> Result<(), UsersError> {
        self.change(|list| match list.verifiers.remove(name) {
            Some(_) => Ok(()),
            None => Err(UsersError::Unknown { name: name.into() }),
        })
    }

    fn change(&self, change: impl FnOnce(&mut List) -> Result<(), UsersError>) -> Result<(), UsersError> {
        let _turn = lock(&self.directory)?;
        let mut snapshot = Snapshot::read(&self.directory)?;
        change(&mut snapshot.list)?;
        write(&self.directory, &snapshot.list)?;
        drop(self.current()); // what was written is what is known
        Ok(())
    }

    /// What the file says now: looked at on each call, read when it is another one. While it cannot be read, what it
    /// said last holds, and the log says so; a file that is gone means that there are no users.
    fn current(&self) -> MutexGuard<'_, Snapshot> {
        let mut snapshot = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.directory.join(FILE));
        if stamp == snapshot.stamp {
            return snapshot;
        }
        match Snapshot::read(&self.directory) {
            Ok(read) => *snapshot = read,
            Err(error) => {
                if stamp.is_none() {
                    snapshot.list.verifiers.clear();
                }
                snapshot.stamp = stamp; // said once for each state of the file
                crate::warning!("users not read again: {error}");
            }
        }
        snapshot
    }
}

/// Why users cannot be read or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum UsersError {
    /// The file system's say.
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The administrator's turn: `chmod 600`.
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Written by a later program.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        format: u32,
    },
    /// A line that is none.
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// Choose another name.
    Exists {
        /// It.
        name: String,
    },
    /// There is no such user.
    Unknown {
        /// The name.
        name: String,
    },
    /// Not a name that a user may have.
    Name {
        /// It.
        name: String,
    },
    /// The password is empty, too long, or has control characters in it.
    Password,
    /// Fewer rounds than [`ITERATIONS_MIN`], or more than [`ITERATIONS_MAX`].
    Rounds {
        /// What was asked for.
        rounds: u32,
    },
    /// There are [`USERS_MAX`].
    TooMany,
}

impl std::error::Error for UsersError {}

impl Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsersError::File { path, error } => write!(f, "{}: {error}", path.display()),
            UsersError::Exposed { path, mode } => {
                write!(f, "{}: others may read it (mode {mode:03o}); chmod 600", path.display())
            }
            UsersError::Newer { path, format } => {
                write!(f, "{}:1: format {format} is newer than this program, which knows {FORMAT}", path.display())
            }
            UsersError::Line { path, line } => write!(f, "{}:{line}: not a line of a users file", path.display()),
            UsersError::Exists { name } => write!(f, "user {name} exists already"),
            UsersError::Unknown { name } => write!(f, "there is no user {name}"),
            UsersError::Name { name } => write!(
                f,
                "{name:?} cannot be a user's name: 1 to {NAME_BYTES_MAX} letters, digits and . _ - @, a letter or digit first"
            ),
            UsersError::Password => {
                write!(f, "a password has 1 to {PASSWORD_BYTES_MAX} bytes and no control characters")
            }
            UsersError::Rounds { rounds } => {
                write!(f, "{rounds} rounds: a password takes {ITERATIONS_MIN} to {ITERATIONS_MAX}")
            }
            UsersError::TooMany => write!(f, "there are {USERS_MAX} users, which is the limit"),
        }
    }
}

/// What the file said when it was last read.
#[derive(Debug)]
struct Snapshot {
    stamp: Option<Stamp>,
    list: List,
}

impl Snapshot {
    fn read(directory: &Path) -> Result<Self, UsersError> {
        // The stamp is older than the text: a change in between is read again, never missed.
        let path = directory.join(FILE);
        let stamp = Stamp::of(&path);
        let file = File::open(&path).map_err(|error| unreadable(directory, error))?;
        let mode = file.metadata().map_err(|error| unreadable(directory, error))?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(UsersError::Exposed { path, mode });
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| unreadable(directory, error))?;
        Ok(Self { stamp, list: List::parse(&text, &path)? })
    }
}

/// Tells one state of the file from the next; a replaced file has another inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    /// The last change of anything, permissions included.
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file at `path`; none where there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

struct List {
    secret: [u8; 32],
    verifiers: BTreeMap<String, ScramVerifier>,
    /// Rounds that most users have: what users who do not exist are offered.
    usual_rounds: u32,
}

/// Secrets stay out of logs.
impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("users", &self.verifiers.len()).finish_non_exhaustive()
    }
}

impl List {
    /// For a user that does not exist: the salt is always the same, and the keys fit no password.
    fn made_up(&self, name: &str) -> ScramVerifier {
        let derive = |what: &str| Crypto.hmac(&self.secret, format!("{what}:{name}").as_bytes());
        let salt = derive("salt").iter().take(SALT_BYTES).copied().collect();
        let iterations = self.usual_rounds;
        ScramVerifier { salt, iterations, stored_key: derive("stored"), server_key: derive("server") }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, UsersError> {
        let wrong = |index: usize| UsersError::Line { path: path.into(), line: index + 1 };
        let mut lines = text.lines().enumerate();
        let header = lines.next().and_then(|(_, line)| line.strip_prefix(HEADER)).ok_or_else(|| wrong(0))?;
        let (format, secret) = header.split_once(HEADER_SECRET).unwrap_or((header, ""));
        let format = format.split(',').next().and_then(|format| format.parse().ok()).ok_or_else(|| wrong(0))?;
        if format > FORMAT {
            return Err(UsersError::Newer { path: path.into(), format });
        }
        let secret = bytes(secret).ok_or_else(|| wrong(0))?;
        let mut verifiers = BTreeMap::new();
        for (index, line) in lines {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, verifier) = line.split_once(':').ok_or_else(|| wrong(index))?;
            let verifier = parse_verifier(verifier).filter(|_| is_valid_name(name)).ok_or_else(|| wrong(index))?;
            if verifiers.insert(name.into(), verifier).is_some() || verifiers.len() > USERS_MAX {
                return Err(wrong(index));
            }
        }
        let usual_rounds = usual_rounds(&verifiers);
        Ok(Self { secret, verifiers, usual_rounds })
    }
}

/// The file's text.
impl Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}{FORMAT}{HEADER_SECRET}{}", base64::encode_block(&self.secret))?;
        for (name, verifier) in &self.verifiers {
            let [salt, stored, server] =
                [&verifier.salt[..], &verifier.stored_key, &verifier.server_key].map(base64::encode_block);
            writeln!(f, "{name}:{SCHEME}{}:{salt}${stored}:{server}", verifier.iterations)?;
        }
        Ok(())
    }
}

/// The rounds that most have, of two counts that are as frequent the greater.
fn usual_rounds(verifiers: &BTreeMap<String, ScramVerifier>) -> u32 {
    let mut users = BTreeMap::<u32, usize>::new();
    for verifier in verifiers.values() {
        *users.entry(verifier.iterations).or_default() += 1;
    }
    users.into_iter().max_by_key(|(rounds, users)| (*users, *rounds)).map_or(ITERATIONS, |(rounds, _)| rounds)
}

fn parse_verifier(text: &str) -> Option<ScramVerifier> {
    let (derivation, keys) = text.strip_prefix(SCHEME)?.split_once('$')?;
    let (iterations, salt) = derivation.split_once(':')?;
    let (stored, server) = keys.split_once(':')?;
    let iterations = iterations.parse().ok().filter(|count| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(count))?;
    let salt = base64::decode_block(salt).ok().filter(|salt| (1..=SALT_BYTES_MAX).contains(&salt.len()))?;
    Some(ScramVerifier { salt, iterations, stored_key: bytes(stored)?, server_key: bytes(server)? })
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    base64::decode_block(text).ok()?.try_into().ok()
}

fn check_name(name: &str) -> Result<(), UsersError> {
    if is_valid_name(name) {
        Ok(())
    } else {
        Err(UsersError::Name { name: name.chars().take(NAME_BYTES_MAX).collect() })
    }
}

/// A password is taken as its UTF-8 bytes: for ASCII that is what SASLprep (RFC 4013) makes of it.
fn derived(password: &str, rounds: u32) -> Result<ScramVerifier, UsersError> {
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&rounds) {
        return Err(UsersError::Rounds { rounds });
    }
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX || password.chars().any(char::is_control) {
        return Err(UsersError::Password);
    }
    Ok(ScramVerifier::derive(password, random::<SALT_BYTES>().to_vec(), rounds, &Crypto))
}

/// A system without randomness can't go on: whatever was made from zeros would be known to all.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rand_bytes(&mut bytes).expect("the system's random generator works");
    bytes
}

/// A writer's turn, until it is dropped.
fn lock(directory: &Path) -> Result<File, UsersError> {
    let path = directory.join("users.lock");
    let open = || {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        file.lock().map(|()| file)
    };
    open().map_err(|error| UsersError::File { path: path.clone(), error })
}

fn write(directory: &Path, list: &List) -> Result<(), UsersError> {
    let mut text = String::new();
    let _ = write!(text, "{list}"); // into a string: cannot fail
    whole_file::replace(&directory.join(FILE), text.as_bytes(), 0o600).map_err(|error| unreadable(directory, error))
}

fn unreadable(directory: &Path, error: io::Error) -> UsersError {
    UsersError::File { path: directory.join(FILE), error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulla_amqp::scram::{ScramClient, ScramServer};
    use std::os::unix::fs::PermissionsExt;

    const ROUNDS: u32 = ITERATIONS_MIN;

    fn users() -> (tempfile::TempDir, Users) {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::open(directory.path()).unwrap();
        (directory, users)
    }

    /// Signs in by SCRAM as a client does.
    fn signs_in(users: &Users, name: &str, password: &str) -> bool {
        let mut client = ScramClient::new(name, password, &Crypto.nonce());
        let mut server = ScramServer::start(&client.first()).unwrap();
        let challenge = server.challenge(users.verifier(server.user()), users.crypto());
        let proof = client.respond(&challenge, &Crypto).unwrap();
        server.finish(&proof, users.crypto()).is_ok_and(|last| client.respond(&last, &Crypto).is_ok())
    }

    #[test]
    fn a_user_signs_in_by_scram_and_by_password_until_removed() {
        let (directory, users) = users();
        users.add("orders", "pässword", ROUNDS).unwrap();
        let others = Users::open(directory.path()).unwrap();
        for users in [&users, &others] {
            assert!(signs_in(users, "orders", "pässword") && users.is_password("orders", "pässword"));
            assert!(!signs_in(users, "orders", "password") && !users.is_password("orders", "password"));
            assert!(!signs_in(users, "billing", "pässword") && !users.is_password("billing", ""));
        }
        users.set_password("orders", "a newer password", ROUNDS).unwrap();
        assert!(others.is_password("orders", "a newer password") && !others.is_password("orders", "pässword"));
        users.add("billing", "b", ROUNDS).unwrap();
        assert_eq!(others.names(), ["billing", "orders"]);
        users.remove("orders").unwrap();
        assert!(!others.exists("orders") && !signs_in(&others, "orders", "a newer password"));
        assert!(!fs::read_to_string(directory.path().join(FILE)).unwrap().contains("a newer password"));
    }

    #[test]
    fn a_password_is_remembered_until_it_is_changed() {
        let (_directory, users) = users();
        users.add("orders", "old", ROUNDS).unwrap();
        assert!(!users.is_remembered("orders", "old"));
        assert!(users.is_password("orders", "old") && users.is_remembered("orders", "old"));
        assert!(!users.is_password("orders", "wrong") && !users.is_remembered("orders", "wrong"));
        users.set_password("orders", "new", ROUNDS).unwrap();
        assert!(!users.is_remembered("orders", "old") && !users.is_password("orders", "old"));
        assert!(users.is_password("orders", "new"));
        users.remove("orders").unwrap();
        assert!(!users.is_remembered("orders", "new") && !users.is_password("orders", "new"));
    }

    #[test]
    fn a_password_of_an_earlier_release_still_works() {
        let (_directory, users) = users();
        users.add("orders", "secret", 20_000).unwrap();
        assert!(users.is_password("orders", "secret") && signs_in(&users, "orders", "secret"));
    }

    #[test]
    fn a_user_that_does_not_exist_looks_like_one_that_does() {
        let (directory, users) = users();
        users.add("orders", "secret", ROUNDS).unwrap();
        let (real, made_up) = (users.verifier("orders"), users.verifier("nobody"));
        assert_eq!((real.salt.len(), real.iterations), (made_up.salt.len(), made_up.iterations));
        assert_eq!(made_up.salt, Users::open(directory.path()).unwrap().verifier("nobody").salt);
        assert_ne!(made_up.salt, users.verifier("nobody2").salt);
        users.add("later", "secret", 5_000).unwrap();
        users.add("latest", "secret", 5_000).unwrap();
        assert_eq!(users.verifier("nobody").iterations, 5_000, "what most have");
        let (_elsewhere, other_users) = self::users();
        assert_ne!(made_up.salt, other_users.verifier("nobody").salt);
    }

    #[test]
    fn the_primitives_are_those_of_the_standards() {
        let hex = |bytes: [u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
        // RFC 4231, test cases 2 and 6
        assert_eq!(
            hex(Crypto.hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(Crypto.hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
        // RFC 7914, section 11
        assert_eq!(
            hex(Crypto.pbkdf2(b"passwd", b"salt", 1)),
            "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc"
        );
        assert_ne!(Crypto.nonce(), Crypto.nonce());
    }

    #[test]
    fn names_and_passwords_that_cannot_be_are_refused() {
        let (_directory, users) = users();
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        for name in ["", ".", "..", "a/b", "a:b", "a b", "-x", "ü", "a\n", &long] {
            assert!(matches!(users.add(name, "secret", ROUNDS), Err(UsersError::Name { .. })), "{name:?}");
        }
        let long = "p".repeat(PASSWORD_BYTES_MAX + 1);
        for password in ["", "a\0b", "a\n", &long] {
            assert!(matches!(users.add("orders", password, ROUNDS), Err(UsersError::Password)), "{password:?}");
        }
        assert!(!users.is_password("orders", &long));
        for rounds in [0, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1] {
            assert!(matches!(users.add("orders", "secret", rounds), Err(UsersError::Rounds { .. })), "{rounds}");
        }
        users.add("a.b@c_d-e", "secret", ROUNDS).unwrap();
        assert!(matches!(users.add("a.b@c_d-e", "secret", ROUNDS), Err(UsersError::Exists { .. })));
        assert!(matches!(users.set_password("x", "secret", ROUNDS), Err(UsersError::Unknown { .. })));
        assert!(matches!(users.remove("x"), Err(UsersError::Unknown { .. })));
    }

    #[test]
    fn a_file_that_is_exposed_damaged_or_newer_is_refused() {
        let (directory, users) = users();
        users.add("orders", "secret", ROUNDS).unwrap();
        let path = directory.path().join(FILE);
        let good = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            let error = Users::open(directory.path()).unwrap_err().to_string();
            error.strip_prefix(path.to_str().unwrap()).unwrap().to_owned()
        };
        assert_eq!(refused(""), ":1: not a line of a users file");
        assert_eq!(
            refused(&good.replace("format 1", "format 2")),
            ":1: format 2 is newer than this program, which knows 1"
        );
        assert_eq!(refused(&good.replace("$4096", "$1")), ":2: not a line of a users file");
        assert_eq!(refused(&good.replace("orders:SCRAM", "orders:MD5")), ":2: not a line of a users file");
        assert_eq!(refused(&format!("{good}\norders")), ":4: not a line of a users file");
        let doubled = format!("{good}{}", good.lines().last().unwrap());
        assert_eq!(refused(&doubled), ":3: not a line of a users file");
        // What was read last holds while the file cannot be read.
        assert!(users.is_password("orders", "secret"));
        fs::write(&path, &good).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Users::open(directory.path()), Err(UsersError::Exposed { mode: 0o640, .. })));
        fs::remove_file(&path).unwrap();
        assert!(!users.exists("orders"));
    }
}
