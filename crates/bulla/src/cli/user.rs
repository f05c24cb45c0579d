//! `bulla user`: who may connect by password.

use super::{CliError, DATA_DEFAULT, EXIT_REFUSED, EXIT_USAGE};
use crate::users::{ITERATIONS, PASSWORD_BYTES_MAX, Users, UsersError};
use clap::{Args, Subcommand};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Manage who may connect by password
#[derive(Args, Debug)]
pub struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,
    /// Data directory of the queue manager
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT, global = true)]
    data: PathBuf,
}

#[derive(Debug, Subcommand)]
enum UserCommand {
    /// Add a user; the password is the first line of the standard input, and a terminal does not show it
    Add(Named),
    /// Give a user another password; log-ins over HTTP end, other connections that are open stay open
    Passwd(Named),
    /// List the users
    List {
        /// Answer in JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a user; log-ins over HTTP end, other connections that are open stay open
    Remove {
        /// The user
        name: String,
    },
}

#[derive(Args, Debug)]
struct Named {
    /// The user: letters, digits and . _ - @
    name: String,
    /// Take the password from the first line of this file
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Rounds of PBKDF2, 4096 to 1000000: fewer make the password easier to guess for who gets hold of the file
    #[arg(long, value_name = "COUNT", default_value_t = ITERATIONS)]
    rounds: u32,
}

/// Does what the arguments say. The queue manager sees changes at once, running or not.
///
/// # Errors
/// There is such a user already, or none; name, password or file cannot be used.
pub fn run(args: &UserArgs) -> Result<(), CliError> {
    let users = Users::open(&args.data).map_err(failed)?;
    match &args.command {
        // Before a password is typed, say that it will be of use.
        UserCommand::Add(Named { name, .. }) if users.exists(name) => {
            return Err(failed(UsersError::Exists { name: name.clone() }));
        }
        UserCommand::Passwd(Named { name, .. }) if !users.exists(name) => {
            return Err(failed(UsersError::Unknown { name: name.clone() }));
        }
        UserCommand::Add(named) => {
            users.add(&named.name, &named.password()?, named.rounds).map_err(failed)?;
            println!("user {} added", named.name);
        }
        UserCommand::Passwd(named) => {
            users.set_password(&named.name, &named.password()?, named.rounds).map_err(failed)?;
            println!("password of {} changed", named.name);
        }
        UserCommand::Remove { name } => {
            users.remove(name).map_err(failed)?;
            println!("user {name} removed");
        }
        UserCommand::List { json: true } => println!("{:#}", serde_json::Value::from(users.names())),
        UserCommand::List { json: false } => users.names().iter().for_each(|name| println!("{name}")),
    }
    Ok(())
}

fn failed(error: UsersError) -> CliError {
    match &error {
        UsersError::Exists { name } => CliError::new(EXIT_REFUSED, error.to_string())
            .hint(format!("bulla user passwd {name} changes the password")),
        UsersError::Unknown { .. } => CliError::new(EXIT_REFUSED, error.to_string()).hint("bulla user list"),
        UsersError::Name { .. } | UsersError::Password | UsersError::Rounds { .. } => {
            CliError::new(EXIT_USAGE, error.to_string())
        }
        _ => CliError::failed(error.to_string()),
    }
}

impl Named {
    fn password(&self) -> Result<Zeroizing<String>, CliError> {
        let read = match &self.password_file {
            Some(path) => std::fs::File::open(path).and_then(first_line),
            None => {
                let silenced = Silenced::begin();
                if io::stdin().is_terminal() {
                    eprint!("password for {}: ", self.name);
                }
                let line = first_line(io::stdin());
                if silenced.is_some() {
                    // The line end was not shown either.
                    eprintln!();
                }
                line
            }
        };
        read.map_err(|error| CliError::new(EXIT_USAGE, format!("no password: {error}")))
    }
}

/// A terminal at the standard input that does not show what is typed, until this is dropped.
struct Silenced(Termios);

impl Silenced {
    /// None where the standard input is no terminal.
    fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for Silenced {
    fn drop(&mut self) {
        // Where the terminal has gone there is nothing to give back.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

fn first_line(from: impl Read) -> io::Result<Zeroizing<String>> {
    // Line end, and one byte more than a password may have, so that a longer one is noticed.
    let limit = PASSWORD_BYTES_MAX as u64 + 3;
    let mut line = Zeroizing::new(String::with_capacity(PASSWORD_BYTES_MAX + 3));
    io::BufReader::new(from.take(limit)).read_line(&mut line)?;
    let end = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(end);
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        user: UserArgs,
    }

    #[test]
    fn users_come_and_go_by_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().to_str().unwrap();
        let password = directory.path().join("password");
        std::fs::write(&password, "first line\r\nsecond\n").unwrap();
        let file = format!("--password-file={}", password.to_str().unwrap());
        let bulla = |arguments: &[&str]| {
            let line = [&["user", "--data", data], arguments].concat();
            run(&Line::try_parse_from(line).unwrap().user).map_err(|error| error.code)
        };
        assert_eq!(bulla(&["add", "orders", &file]), Ok(()));
        assert_eq!(bulla(&["add", "orders", &file]), Err(EXIT_REFUSED));
        assert!(Users::open(directory.path()).unwrap().is_password("orders", "first line"));
        std::fs::write(&password, "other").unwrap();
        assert_eq!(bulla(&["passwd", "orders", &file]), Ok(()));
        assert!(Users::open(directory.path()).unwrap().is_password("orders", "other"));
        assert_eq!(bulla(&["list"]), Ok(()));
        assert_eq!(bulla(&["remove", "orders"]), Ok(()));
        assert_eq!(bulla(&["remove", "orders"]), Err(EXIT_REFUSED));
        assert_eq!(bulla(&["add", "no good", &file]), Err(EXIT_USAGE));
        assert_eq!(bulla(&["add", "orders", "--password-file=/nowhere"]), Err(EXIT_USAGE));
        assert_eq!(bulla(&["add", "orders", &file, "--rounds", "4095"]), Err(EXIT_USAGE));
        assert_eq!(bulla(&["add", "orders", &file, "--rounds", "4096"]), Ok(()));
    }
}
