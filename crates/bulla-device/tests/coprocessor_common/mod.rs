//! A software token of its own for each test, SoftHSM2's or kryoptic's: a directory with its keys, and this test binary
//! as the helper process.

#![allow(dead_code, unreachable_pub, reason = "each test program uses its part of this")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use bulla_device::coprocessor::{Coprocessor, CoprocessorSettings, HelperCommand, NewKey};
use bulla_device::{Device, DeviceError, Driver, Job, Output, PrivateKey, Work};
use tempfile::TempDir;

pub const PIN: &str = "s3cr3t-pin";
pub const TOKEN: &str = "Bulla test";
pub const JOB_TIMEOUT: Duration = Duration::from_secs(20);
/// Set in the process that is to be the helper.
pub const HELPER_VARIABLE: &str = "BULLA_TEST_TOKEN_HELPER";

/// Where distributions keep SoftHSM2's module.
const MODULES: [&str; 4] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
];

/// Says once in a run why tests did nothing.
pub fn skipped(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| eprintln!("skipped: {why}"));
}

pub fn softhsm_module() -> Option<PathBuf> {
    let module = MODULES.iter().map(PathBuf::from).find(|path| path.exists());
    if module.is_none() || Command::new("softhsm2-util").arg("--version").output().is_err() {
        skipped("SoftHSM2 is not installed (Debian: softhsm2), so nothing here was tested with a token");
        return None;
    }
    module
}

/// Where `make test` puts the module that has ML-DSA and ML-KEM.
const KRYOPTIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.cache/kryoptic/libkryoptic.so");

/// `BULLA_KRYOPTIC`, or what `make test` has built.
pub fn kryoptic_module() -> Option<PathBuf> {
    let module = std::env::var_os("BULLA_KRYOPTIC").map_or_else(|| PathBuf::from(KRYOPTIC), PathBuf::from);
    if !module.exists() {
        skipped(
            "kryoptic is not built (`make clients` does, with libclang), so no token with ML-DSA and ML-KEM was tested",
        );
        return None;
    }
    Some(module.canonicalize().expect("a path"))
}

/// A directory with the token's keys, its configuration and the PIN file.
pub struct Token {
    pub dir: TempDir,
    pub module: PathBuf,
    /// The variable that names the configuration to the module.
    pub variable: &'static str,
}

/// The configuration's name in the directory.
const CONFIGURATION: &str = "token.conf";

impl Token {
    /// Nothing where SoftHSM2 is not installed, which is said.
    pub fn softhsm() -> Option<Token> {
        let module = softhsm_module()?;
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("tokens")).expect("a directory");
        let configuration =
            format!("directories.tokendir = {}\nlog.level = ERROR\n", dir.path().join("tokens").display());
        fs::write(dir.path().join(CONFIGURATION), configuration).expect("a file");
        Some(Token { dir, module, variable: "SOFTHSM2_CONF" }.initialized())
    }

    /// A token that has ML-DSA and ML-KEM. Nothing where its module is not built, or SoftHSM2's tool is not installed,
    /// which is said.
    pub fn kryoptic() -> Option<Token> {
        let module = kryoptic_module().filter(|_| softhsm_module().is_some())?;
        let dir = tempfile::tempdir().expect("a directory");
        let keys = dir.path().join("keys.sql");
        let configuration = format!("[[slots]]\nslot = 1\ndbtype = \"sqlite\"\ndbargs = {keys:?}\n");
        fs::write(dir.path().join(CONFIGURATION), configuration).expect("a file");
        Some(Token { dir, module, variable: "KRYOPTIC_CONF" }.initialized())
    }

    fn initialized(self) -> Token {
        self.util(&["--init-token", "--free", "--label", TOKEN, "--so-pin", "12345678", "--pin", PIN]);
        self.write_pin(PIN);
        self
    }

    pub fn configuration(&self) -> PathBuf {
        self.dir.path().join(CONFIGURATION)
    }

    /// SoftHSM2's tool, which works with any module.
    pub fn util(&self, arguments: &[&str]) {
        let output = Command::new("softhsm2-util")
            .env(self.variable, self.configuration())
            .arg("--module")
            .arg(&self.module)
            .args(arguments)
            .output()
            .expect("softhsm2-util");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn pin_file(&self) -> PathBuf {
        self.dir.path().join("pin")
    }

    pub fn write_pin(&self, pin: &str) {
        fs::write(self.pin_file(), pin).expect("a file");
        fs::set_permissions(self.pin_file(), fs::Permissions::from_mode(0o600)).expect("its mode");
    }

    pub fn settings(&self) -> CoprocessorSettings {
        CoprocessorSettings {
            name: "HSM".to_owned(),
            module: self.module.clone(),
            token: "pkcs11:token=Bulla%20test".parse().expect("a URI"),
            pin_file: Some(self.pin_file()),
            engines: 2,
            job_timeout: JOB_TIMEOUT,
        }
    }

    pub fn command(&self) -> HelperCommand {
        helper_command(&[(self.variable, &self.configuration())])
    }

    pub fn coprocessor(&self) -> Coprocessor {
        Coprocessor::new(self.settings(), self.command())
    }

    /// Puts a private key that was made elsewhere on the token.
    pub fn import(&self, key: &openssl::pkey::PKeyRef<openssl::pkey::Private>, label: &str, id: &str) {
        let path = self.dir.path().join("import.pem");
        fs::write(&path, key.private_key_to_pem_pkcs8().expect("PEM")).expect("a file");
        let path = path.to_str().expect("a path");
        self.util(&["--import", path, "--token", TOKEN, "--pin", PIN, "--label", label, "--id", id]);
    }
}

/// This test binary, of which only the helper's test is run.
pub fn helper_command(variables: &[(&str, &Path)]) -> HelperCommand {
    let mut variables: Vec<(OsString, OsString)> =
        variables.iter().map(|(name, value)| (OsString::from(name), value.as_os_str().to_owned())).collect();
    variables.push((HELPER_VARIABLE.into(), "1".into()));
    HelperCommand {
        program: std::env::current_exe().expect("this program"),
        arguments: ["--exact", "the_helper_process", "--ignored", "--nocapture"].map(OsString::from).to_vec(),
        variables,
    }
}

/// A key that the token makes.
pub fn made(device: &Coprocessor, kind: NewKey) -> PrivateKey {
    let (public, uri) = device.generate(kind, "key").expect("a key");
    PrivateKey::on_token(public, uri.to_string())
}

pub fn engine(device: &Coprocessor) -> Box<dyn Device> {
    device.start_engine().expect("an engine")
}

/// One job through an engine; an engine that is gone gives its own error.
pub fn run(engine: &mut dyn Device, key: &PrivateKey, work: Work) -> Result<Output, DeviceError> {
    let mut jobs = vec![Job { id: 7, ..Job::new(key.clone(), work) }];
    assert_eq!(engine.submit(&mut jobs)?, 1);
    let mut done = Vec::new();
    engine.poll(&mut done)?;
    assert_eq!((done.len(), done[0].id), (1, 7));
    done.remove(0).result
}

/// The source of the module that fails on request; its head says how.
const SHIM_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/pkcs11-shim/shim.c");

/// A token behind the shim.
pub struct Shim {
    pub token: Token,
}

impl Shim {
    /// Before SoftHSM2. Nothing where that, a C compiler or p11-kit's header is missing, which is said.
    pub fn new() -> Option<Shim> {
        Shim::before(Token::softhsm()?)
    }

    /// Nothing where a C compiler or p11-kit's header is missing, which is said.
    pub fn before(token: Token) -> Option<Shim> {
        let flags = Command::new("pkg-config").args(["--cflags", "p11-kit-1"]).output().ok();
        let Some(flags) = flags.filter(|flags| flags.status.success()) else {
            skipped("p11-kit's headers are not installed (Debian: libp11-kit-dev), so no failures were played");
            return None;
        };
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(token.dir.path().join("shim.so"))
            .args(String::from_utf8_lossy(&flags.stdout).split_whitespace())
            .arg(SHIM_SOURCE)
            .output();
        let Ok(built) = built else {
            skipped("there is no C compiler, so no failures were played");
            return None;
        };
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(Shim { token })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.token.dir.path().join(name)
    }

    /// What the token is to do from now on; nothing special with an empty text.
    pub fn play(&self, lines: &str) {
        // Whole or not there: the module reads it at any time.
        fs::write(self.path("control.new"), lines).expect("a file");
        fs::rename(self.path("control.new"), self.path("control")).expect("its name");
    }

    /// Whether what is done once is done.
    pub fn has_played(&self) -> bool {
        !self.path("control").exists()
    }

    /// How often a PIN was tried.
    pub fn logins(&self) -> usize {
        fs::read_to_string(self.path("logins")).unwrap_or_default().lines().count()
    }

    pub fn coprocessor(&self, change: impl FnOnce(&mut CoprocessorSettings)) -> Coprocessor {
        Coprocessor::new(self.settings(change), self.command())
    }

    /// The same token through a module of before PKCS#11 3.2.
    pub fn old_coprocessor(&self) -> Coprocessor {
        let mut command = self.command();
        command.variables.push(("BULLA_SHIM_OLD".into(), "1".into()));
        Coprocessor::new(self.settings(|_| {}), command)
    }

    fn settings(&self, change: impl FnOnce(&mut CoprocessorSettings)) -> CoprocessorSettings {
        let mut settings = CoprocessorSettings { module: self.path("shim.so"), ..self.token.settings() };
        change(&mut settings);
        settings
    }

    fn command(&self) -> HelperCommand {
        helper_command(&[
            (self.token.variable, &self.token.configuration()),
            ("BULLA_SHIM_MODULE", &self.token.module),
            ("BULLA_SHIM_CONTROL", &self.path("control")),
            ("BULLA_SHIM_LOG", &self.path("logins")),
        ])
    }
}
