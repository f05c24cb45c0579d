//! The questions that `bulla init` asks on a terminal where it is given no file.

use super::super::CliError;
use super::file::{ListenTable, Protection, QueueTable, SiteFile, UserTable};
use std::io::{BufRead, Read, Write};

/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 4096;
/// Most queues that are asked for: more go into a file.
const QUEUES_MAX: usize = 100;

/// Asks for what a file would say; an empty answer takes what stands in brackets.
///
/// # Errors
/// The answers end before the questions do.
pub(super) fn ask(from: &mut dyn BufRead, to: &mut dyn Write) -> Result<SiteFile, CliError> {
    let mut terminal = Terminal { from, to };
    terminal.tell("An empty answer takes what stands in brackets. Nothing is written before the last question.")?;
    let organisation = terminal.ask("Organisation, for the names in certificates", "Demo")?;
    let mut file = SiteFile { organisation: Some(organisation), ..SiteFile::default() };
    let reached = terminal.choose("Do clients on other machines connect", &["no", "yes"])?;
    if reached == "yes" {
        file.listen = ListenTable { amqps: Some("0.0.0.0:5671".into()), ..ListenTable::default() };
        file.hosts = terminal.list("Host names and addresses that they use, besides this machine's own", "")?;
    }
    let users = terminal.list("Users, each with a password and a key ring", "orders, billing")?;
    let first = users.first().cloned().unwrap_or_default();
    let second = users.get(1).cloned().unwrap_or_else(|| first.clone());
    file.users = users.into_iter().map(|user| (user, UserTable::default())).collect();
    let mut default = "ORDERS";
    while file.queues.len() < QUEUES_MAX {
        let name = terminal.ask("A queue (an empty answer ends the questions)", default)?;
        if name.is_empty() {
            break;
        }
        let protection = terminal.choose("Its protection", &["privacy", "confidentiality", "integrity", "none"])?;
        let queue = QueueTable {
            protection: match protection {
                "confidentiality" => Protection::Confidentiality,
                "integrity" => Protection::Integrity,
                "none" => Protection::None,
                _ => Protection::Privacy,
            },
            put: terminal.list("Users who put", &first)?,
            get: terminal.list("Users who get", &second)?,
            browse: Vec::new(),
        };
        file.queues.insert(name, queue);
        default = "";
    }
    Ok(file)
}

struct Terminal<'a> {
    from: &'a mut dyn BufRead,
    to: &'a mut dyn Write,
}

impl Terminal<'_> {
    fn tell(&mut self, text: &str) -> Result<(), CliError> {
        writeln!(self.to, "{text}").map_err(|error| CliError::failed(error.to_string()))
    }

    fn ask(&mut self, question: &str, default: &str) -> Result<String, CliError> {
        let brackets = if default.is_empty() { String::new() } else { format!(" [{default}]") };
        let asked = write!(self.to, "{question}{brackets}: ").and_then(|()| self.to.flush());
        asked.map_err(|error| CliError::failed(error.to_string()))?;
        let mut line = String::new();
        let read = (&mut *self.from).take(ANSWER_BYTES_MAX).read_line(&mut line);
        match read.map_err(|error| CliError::failed(error.to_string()))? {
            0 => Err(CliError::failed("the answers end before the questions do; nothing was written")),
            _ if line.trim().is_empty() => Ok(default.to_owned()),
            _ => Ok(line.trim().to_owned()),
        }
    }

    fn list(&mut self, question: &str, default: &str) -> Result<Vec<String>, CliError> {
        let answer = self.ask(question, default)?;
        Ok(answer.split([',', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    /// One of the words; the first is the default.
    fn choose<'w>(&mut self, question: &str, words: &[&'w str]) -> Result<&'w str, CliError> {
        loop {
            let default = words.first().copied().unwrap_or_default();
            let answer = self.ask(&format!("{question}: {}", words.join(", ")), default)?;
            match words.iter().find(|word| **word == answer) {
                Some(word) => return Ok(word),
                None => self.tell("One of these words.")?,
            }
        }
    }
}
