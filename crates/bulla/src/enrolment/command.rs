//! A program that gets a certificate: the request on its standard input, the certificate and those above it on its
//! standard output. No shell, no environment, and an end to its time and to what it may say.

use super::EnrolError;
use super::safe_file::check_safe;
use super::source::{Question, Source};
use bulla_seal::certificate::Certificate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Most bytes of the answer: a certificate and those above it.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Most certificates of the answer.
pub const ANSWER_CERTIFICATES_MAX: usize = 16;
/// Most bytes that are kept of what the program writes to its standard error; the rest is read and forgotten.
const SAID_BYTES_MAX: usize = 4 << 10;
/// Most characters of that in an error.
const SAID_CHARS_MAX: usize = 200;
/// How often the program is looked at for a reason to end it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// EX_TEMPFAIL of sysexits.h: the program says that there is no decision yet.
const NOT_YET: i32 = 75;

/// The program, as the configuration has it.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its arguments, none of them looked into.
    pub arguments: Vec<String>,
    /// How long it may take.
    pub within: Duration,
}

impl Source for Program {
    fn certify(&self, question: &Question<'_>) -> Result<Vec<Certificate>, EnrolError> {
        let answer = self.run(question.request, question.is_stopping)?;
        let unreadable = |why: &dyn std::fmt::Display| EnrolError::Answer { why: why.to_string() };
        let all = Certificate::all_from_pem(&answer, ANSWER_CERTIFICATES_MAX).map_err(|error| unreadable(&error))?;
        if all.is_empty() { Err(unreadable(&"it holds no certificate")) } else { Ok(all) }
    }
}

impl Program {
    /// Runs the program with `input`, and returns what it wrote. It is a process group of its own, which ends with it.
    ///
    /// # Errors
    /// It can't be started, does not end in time, writes too much, or ends otherwise than with exit status 0.
    pub fn run(&self, input: &[u8], is_stopping: &dyn Fn() -> bool) -> Result<Vec<u8>, EnrolError> {
        let path = self.path.canonicalize().map_err(EnrolError::file(&self.path))?;
        check_safe(&path)?;
        let mut command = Command::new(&path);
        command.args(&self.arguments).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running { child: command.spawn().map_err(EnrolError::file(&path))?, status: None };
        let ended = running.talk(input, self.within, is_stopping).map_err(EnrolError::file(&path))?;
        // Whatever it started ends, too, before its number can be given to another process.
        let status = running.end().map_err(EnrolError::file(&path))?;
        match ended {
            Talk::Late => Err(EnrolError::Late { seconds: self.within.as_secs() }),
            Talk::Stopping => Err(EnrolError::Stopping),
            Talk::TooLong => Err(EnrolError::TooLong { bytes_max: ANSWER_BYTES_MAX }),
            Talk::Ended { answer, said } => match status.code() {
                Some(0) => Ok(answer),
                Some(NOT_YET) => Err(EnrolError::NotYet { said: in_a_line(&said) }),
                Some(code) => Err(EnrolError::Refused { how: format!("exit status {code}"), said: in_a_line(&said) }),
                None => {
                    let how = format!("ended by signal {}", status.signal().unwrap_or_default());
                    Err(EnrolError::Refused { how, said: in_a_line(&said) })
                }
            },
        }
    }
}

/// What came of it.
enum Talk {
    /// The program has ended.
    Ended { answer: Vec<u8>, said: Vec<u8> },
    /// Its time is over.
    Late,
    /// Its answer is too long.
    TooLong,
    /// It is not waited for any more.
    Stopping,
}

/// The program while it runs. It does not outlive this.
struct Running {
    child: Child,
    /// Its exit status, once that was taken: its number may be another process's then.
    status: Option<ExitStatus>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // A program that can't be ended is the system's.
        let _ = self.end();
    }
}

impl Running {
    /// Ends whatever is left of the group, and takes the program's exit status.
    fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        // Where all of them have ended there is nothing to be ended.
        let _ = kill_process_group(pid(&self.child)?, Signal::KILL);
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// Writes the input, reads what comes, until the program has ended or has to.
    fn talk(&mut self, input: &[u8], within: Duration, is_stopping: &dyn Fn() -> bool) -> io::Result<Talk> {
        let ends = Instant::now() + within;
        let process = pidfd_open(pid(&self.child)?, PidfdFlags::empty())?;
        let mut pipes = Pipes::of(&mut self.child)?;
        let (mut left, mut answer, mut said) = (input, Vec::new(), Vec::new());
        loop {
            let has_ended = pipes.wait(&process)?;
            pipes.write(&mut left)?;
            let is_whole = read(&mut pipes.output, &mut answer, ANSWER_BYTES_MAX)?;
            read(&mut pipes.errors, &mut said, SAID_BYTES_MAX)?;
            if !is_whole {
                return Ok(Talk::TooLong);
            }
            if has_ended {
                return Ok(Talk::Ended { answer, said });
            }
            if is_stopping() {
                return Ok(Talk::Stopping);
            }
            if Instant::now() >= ends {
                return Ok(Talk::Late);
            }
        }
    }
}

/// Its pipes; each is none once it is closed.
struct Pipes {
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
}

impl Pipes {
    fn of(child: &mut Child) -> io::Result<Pipes> {
        let pipes = Pipes { input: child.stdin.take(), output: child.stdout.take(), errors: child.stderr.take() };
        pipes.input.as_ref().map_or(Ok(()), without_waiting)?;
        pipes.output.as_ref().map_or(Ok(()), without_waiting)?;
        pipes.errors.as_ref().map_or(Ok(()), without_waiting)?;
        Ok(pipes)
    }

    /// Until something can be done, or it is time for a look. Whether the program has ended.
    fn wait(&self, process: &impl AsFd) -> io::Result<bool> {
        let mut waited = vec![PollFd::new(process, PollFlags::IN)];
        waited.extend(self.input.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        waited.extend(self.output.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        waited.extend(self.errors.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let timeout = Timespec::try_from(LOOK_EVERY).map_err(io::Error::other)?;
        match poll(&mut waited, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            result => {
                result?;
                Ok(waited.first().is_some_and(|process| !process.revents().is_empty()))
            }
        }
    }

    /// Writes what fits; the pipe is closed behind the last byte, or where the program does not read any more.
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()> {
        while let Some(pipe) = &mut self.input {
            match pipe.write(left) {
                Ok(written) => *left = left.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // It may know enough already.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => *left = &[],
                Err(error) => return Err(error),
            }
            if left.is_empty() {
                self.input = None;
            }
        }
        Ok(())
    }
}

/// Reads what is there and keeps so many bytes. Whether nothing had to be left out.
fn read(pipe: &mut Option<impl Read>, kept: &mut Vec<u8>, bytes_max: usize) -> io::Result<bool> {
    let mut piece = [0; 4096];
    while let Some(open) = pipe {
        match open.read(&mut piece) {
            Ok(0) => *pipe = None,
            Ok(length) => {
                let fits = length.min(bytes_max - kept.len());
                kept.extend_from_slice(&piece[..fits]);
                if fits < length {
                    return Ok(false);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn without_waiting(pipe: &impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(pipe)?;
    Ok(fcntl_setfl(pipe, flags | OFlags::NONBLOCK)?)
}

fn pid(child: &Child) -> io::Result<Pid> {
    let raw = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::Error::other("a process without a number"))
}

/// The first line that says something, without what could disturb a log.
fn in_a_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().map(|char| if char.is_control() { ' ' } else { char }).take(SAID_CHARS_MAX).collect()
}
