//! `bulla trigger`: waits for trigger messages and starts the programs that they name, without a shell.

use super::connection::ConnectionArgs;
use super::{CliError, EXIT_FAILED};
use bulla_amqp::{BodyForm, Delivery, DeliveryState, Error, Sections, Symbol};
use bulla_client::Client;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How long one wait for a trigger message takes, before programs that have ended are looked after.
const WAIT: Duration = Duration::from_millis(500);
/// Most programs at once that may be asked for.
const AT_ONCE_MAX: u16 = 1000;
/// Condition under which a trigger message is rejected that starts nothing.
const NOT_STARTED: &str = "bulla:not-started";

/// Wait on an initiation queue, and start the program of each trigger message
#[derive(Args, Debug)]
pub struct TriggerArgs {
    /// The initiation queue
    #[arg(long)]
    pub queue: String,
    /// A program that may be started, or a folder whose programs may be; repeatable
    #[arg(long, value_name = "PATH", required = true)]
    pub allow: Vec<PathBuf>,
    /// Most programs that run at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=i64::from(AT_ONCE_MAX)))]
    pub at_once: u16,
    /// End after so many trigger messages
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// What a trigger message says.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Trigger {
    queue: String,
    manager: String,
    data: String,
    application: String,
    user_data: String,
    environment_data: String,
}

/// Waits, starts, and tells what came of it.
///
/// # Errors
/// An `--allow` that is not there; the queue manager refused, or the connection broke.
pub fn run(args: &TriggerArgs) -> Result<(), CliError> {
    let allowed = allowed(&args.allow)?;
    let mut client = Client::connect(&args.connection.endpoint()?)?;
    let link = client.receiver(&args.queue, false, false)?.link;
    crate::note!("waiting for trigger messages on {}", args.queue);
    let (tell, told) = mpsc::channel();
    let (mut running, mut seen) = (0, 0);
    while args.count.is_none_or(|count| seen < count) {
        while told.try_recv().is_ok() {
            running -= 1;
        }
        if running >= args.at_once {
            // The next message waits on its queue, where others may take it.
            match told.recv_timeout(WAIT) {
                Ok(()) => running -= 1,
                // However long they run, the queue manager hears of this one.
                Err(RecvTimeoutError::Timeout) => client.tend()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CliError::new(EXIT_FAILED, "the end of a program can't be watched".to_owned()));
                }
            }
            continue;
        }
        let Some(delivery) = client.get(link, Some(WAIT))? else { continue };
        seen += 1;
        let state = match read(&delivery).and_then(|trigger| start(&trigger, &allowed, tell.clone())) {
            Ok(()) => {
                running += 1;
                DeliveryState::Accepted
            }
            Err(why) => {
                crate::warning!("{}: a trigger message started nothing: {why}", args.queue);
                let condition = Symbol::from_static(NOT_STARTED);
                let error = Error { condition, description: Some(why), info: Vec::new() };
                DeliveryState::Rejected(Some(Box::new(error)))
            }
        };
        client.settle(&delivery, state)?;
    }
    drop(tell);
    while told.recv().is_ok() {}
    client.close()?;
    Ok(())
}

/// The programs and folders as they really are, without links on the way.
fn allowed(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    paths.iter().map(|path| path.canonicalize().map_err(|error| CliError::file(path, error))).collect()
}

fn read(delivery: &Delivery) -> Result<Trigger, String> {
    let payload = &delivery.payload;
    let sections = Sections::scan(payload).map_err(|error| error.to_string())?;
    let BodyForm::Data(range) = sections.body else { return Err("it is not one data section".to_owned()) };
    from_json(&payload.slice(range).to_contiguous())
}

fn from_json(bytes: &[u8]) -> Result<Trigger, String> {
    let json: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))?;
    let field = |name: &str| match &json[name] {
        serde_json::Value::String(text) if text.contains('\0') => Err(format!("its {name} holds a null")),
        serde_json::Value::String(text) => Ok(text.clone()),
        _ => Err(format!("it has no {name}")),
    };
    Ok(Trigger {
        queue: field("queue")?,
        manager: field("qmgr")?,
        data: field("trigdata")?,
        application: field("applicid")?,
        user_data: field("userdata")?,
        environment_data: field("envrdata")?,
    })
}

/// The program that APPLICID names, where that may be started.
fn program(application: &str, allowed: &[PathBuf]) -> Result<PathBuf, String> {
    let path = Path::new(application);
    if !path.is_absolute() {
        return Err(format!("APPLICID {application:?} is no absolute path"));
    }
    let real = path.canonicalize().map_err(|error| format!("{application}: {error}"))?;
    let may_start = allowed.iter().any(|allowed| real == *allowed || real.parent() == Some(allowed));
    may_start.then_some(real).ok_or_else(|| format!("{application} is not what --allow lets start"))
}

/// Starts the program with its arguments, none of them looked into: queue, queue manager, TRIGDATA, USERDATA, ENVRDATA.
fn start(trigger: &Trigger, allowed: &[PathBuf], tell: mpsc::Sender<()>) -> Result<(), String> {
    let program = program(&trigger.application, allowed)?;
    let Trigger { queue, manager, data, user_data, environment_data, .. } = trigger;
    let mut command = Command::new(&program);
    command.args([queue, manager, data, user_data, environment_data]).stdin(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    crate::note!("{queue}: {} started, process {}", program.display(), child.id());
    let queue = queue.clone();
    std::thread::spawn(move || {
        let id = child.id();
        match child.wait() {
            Ok(status) if status.success() => crate::note!("{queue}: process {id} has ended well"),
            Ok(status) => crate::warning!("{queue}: process {id} has ended: {status}"),
            Err(error) => crate::warning!("{queue}: process {id}: {error}"),
        }
        // Nothing listens any more once the monitor itself has ended.
        let _ = tell.send(());
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_allowed_is_started_whatever_the_path_looks_like() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        for folder in ["good", "good/below", "bad"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        for file in ["good/run", "good/below/run", "bad/run", "single"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink(root.join("bad/run"), root.join("good/link")).unwrap();
        let allowed = allowed(&[root.join("good"), root.join("single")]).unwrap();
        let at = |name: &str| program(&root.join(name).display().to_string(), &allowed);
        assert_eq!(at("good/run"), Ok(root.join("good/run")));
        assert_eq!(at("good/../single"), Ok(root.join("single")));
        for refused in ["bad/run", "good/below/run", "good/link", "good/../bad/run", "good/none"] {
            assert!(at(refused).is_err(), "{refused}");
        }
        assert!(program("run", &allowed).unwrap_err().contains("no absolute path"));
        assert!(program("", &allowed).is_err());
    }

    #[test]
    fn a_trigger_message_is_whole_or_starts_nothing() {
        let whole =
            r#"{"queue":"Q","qmgr":"QM","process":"P","trigdata":"d","applicid":"/a","userdata":"u v","envrdata":""}"#;
        let trigger = from_json(whole.as_bytes()).unwrap();
        assert_eq!((trigger.application.as_str(), trigger.user_data.as_str()), ("/a", "u v"));
        for field in ["queue", "qmgr", "trigdata", "applicid", "userdata", "envrdata"] {
            let less = whole.replacen(&format!("\"{field}\""), "\"other\"", 1);
            assert_eq!(from_json(less.as_bytes()), Err(format!("it has no {field}")));
        }
        assert!(from_json(whole.replace("u v", "u\\u0000v").as_bytes()).unwrap_err().contains("holds a null"));
        assert!(from_json(b"").unwrap_err().starts_with("it is no JSON"));
    }
}
