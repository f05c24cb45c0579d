//! Programs of every kind: quick, slow, talkative, failing.

use super::*;
use crate::enrolment::command::{ANSWER_BYTES_MAX, Program};
use std::os::unix::fs::PermissionsExt;

/// A shell is a program like any other; the one that is run gets none.
fn script(text: &str) -> Program {
    let arguments = vec!["-c".to_owned(), text.to_owned()];
    Program { path: "/bin/sh".into(), arguments, within: Duration::from_secs(60) }
}

fn run(text: &str) -> Result<String, EnrolError> {
    script(text).run(b"the request\n", &|| false).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[track_caller]
fn refused(result: Result<String, EnrolError>, says: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn a_program_has_the_request_and_nothing_else() {
    assert_eq!(run("cat").unwrap(), "the request\n");
    // What a shell sets by itself.
    let variables = run("exec env").unwrap();
    assert!(variables.lines().all(|line| line.starts_with("PWD=") || line.starts_with("OLDPWD=")), "{variables}");
    assert_eq!(run("exec pwd").unwrap(), "/\n");
    // No file that this process has open: no journal, no key.
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = run("exec ls -l /proc/self/fd").unwrap();
    assert!(open.contains("pipe:") && !open.contains(&file.path().display().to_string()), "{open}");
    assert_eq!(run("exit 0").unwrap(), "", "a program need not read its input");
}

#[test]
fn how_a_program_fails_is_told_with_its_first_words() {
    refused(
        run("echo; echo ' no such\tprofile '>&2; echo more >&2; exit 3"),
        "refused: exit status 3: no such profile",
    );
    refused(run("kill -9 $$"), "ended by signal 9");
    assert!(matches!(run("echo soon >&2; exit 75"), Err(EnrolError::NotYet { said }) if said == "soon"));
    let long = run("i=0; while [ $i -lt 300 ]; do printf 'xxxxxxxxxxxxxxxxxxxxx' >&2; i=$((i+1)); done; exit 1");
    assert!(long.unwrap_err().to_string().len() < 300);
    let missing = Program { path: "/nonexistent/program".into(), ..script("") };
    assert!(matches!(missing.run(b"", &|| false), Err(EnrolError::File { .. })));
}

#[test]
fn a_program_that_does_not_end_is_ended_with_all_that_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("child");
    // The child would hold the pipe open for an hour.
    let text = format!("sleep 3600 & echo $! > {}; wait", file.display());
    let hangs = Program { within: Duration::from_millis(300), ..script(&text) };
    assert!(matches!(hangs.run(b"x", &|| false), Err(EnrolError::Late { .. })));
    let child = fs::read_to_string(&file).unwrap().trim().to_owned();
    let state = |stat: String| stat.rsplit(')').next().map(|rest| rest.trim_start().starts_with('Z'));
    let is_gone = || fs::read_to_string(format!("/proc/{child}/stat")).map_or(Some(true), state) == Some(true);
    while !is_gone() {
        std::thread::yield_now();
    }
    // One that ends and leaves a child behind does not keep anyone waiting.
    assert_eq!(run("sleep 3600 & echo done").unwrap(), "done\n");
    let stops = script("sleep 3600").run(b"", &|| true);
    assert!(matches!(stops, Err(EnrolError::Stopping)));
}

#[test]
fn an_answer_has_a_limit_and_must_be_certificates() {
    assert!(matches!(run("cat /dev/zero"), Err(EnrolError::TooLong { bytes_max: ANSWER_BYTES_MAX })));
    let question = |text: &str| {
        let key = P256.generate().unwrap();
        let question = Question {
            request: b"x",
            key: &key,
            former: None,
            now: SystemTime::UNIX_EPOCH,
            is_good: &|_| Ok(()),
            is_stopping: &|| false,
        };
        script(text).certify(&question).unwrap_err().to_string()
    };
    assert!(question("exit 0").contains("no certificate"), "{}", question("exit 0"));
    let garbage = question("echo -----BEGIN CERTIFICATE-----; echo AAAA; echo -----END CERTIFICATE-----");
    assert!(garbage.contains("not the certificate that was asked for"), "{garbage}");
}

#[test]
fn a_program_that_others_may_change_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    for (mode, says) in [(0o777, "others may write it"), (0o775, "others may write it"), (0o600, "ermission denied")] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let program = Program { path: path.clone(), ..script("") };
        refused(program.run(b"", &|| false).map(|_| String::new()), says);
    }
}
