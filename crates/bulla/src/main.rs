//! `bulla`: the queue manager and its tools in one program.

use bulla::cli::{self, CliError};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Messages are made on one thread and dropped on another; the system's allocator takes twice as long for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A queue manager whose messages are sealed from the application that puts them to the one that gets them
#[derive(Parser)]
#[command(name = "bulla", version, max_term_width = 100)]
struct Bulla {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Start(cli::start::StartArgs),
    Demo(cli::demo::DemoArgs),
    Mqsc(cli::mqsc::MqscArgs),
    User(cli::user::UserArgs),
    Cert(cli::cert::CertArgs),
    Put(cli::put::PutArgs),
    Get(cli::get::GetArgs),
    Error(cli::error::ErrorArgs),
    Seal(cli::seal::SealArgs),
    Report(cli::report::ReportArgs),
    Perf(cli::perf::PerfArgs),
    Plan(cli::perf::PlanArgs),
    Journal(cli::journal::JournalArgs),
    /// Loads a PKCS#11 module for the process that starts this one.
    #[command(hide = true)]
    TokenHelper,
}

fn main() -> ExitCode {
    let result = match Bulla::parse().command {
        Command::Start(args) => cli::start::run(&args),
        Command::Demo(args) => cli::demo::run(&args),
        Command::Mqsc(args) => return cli::mqsc::run(&args),
        Command::User(args) => cli::user::run(&args),
        Command::Cert(args) => cli::cert::run(&args),
        Command::Put(args) => cli::put::run(&args),
        Command::Get(args) => cli::get::run(&args),
        Command::Error(args) => cli::error::run(&args),
        Command::Seal(args) => cli::seal::run(&args),
        Command::Report(args) => cli::report::run(&args),
        Command::Perf(args) => cli::perf::run(&args),
        Command::Plan(args) => cli::perf::plan(&args),
        Command::Journal(args) => cli::journal::run(&args),
        Command::TokenHelper => cli::token_helper::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error),
    }
}

fn report(error: &CliError) -> ExitCode {
    eprintln!("bulla: error: {error}");
    if let Some(hint) = &error.hint {
        eprintln!("bulla: hint: {hint}");
    }
    ExitCode::from(error.code)
}
