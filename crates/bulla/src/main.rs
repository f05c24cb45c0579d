//! `bulla`: the queue manager and its tools in one program.

use bulla::cli::perf::{PerfArgs, PlanArgs};
use bulla::cli::{self, CliError};
use bulla::log_lines::{self, Format, Level};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Messages are made on one thread and dropped on another; the system's allocator takes twice as long for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A queue manager whose messages are sealed from the application that puts them to the one that gets them
#[derive(Parser)]
#[command(name = "bulla", version, max_term_width = 100)]
struct Bulla {
    /// Let this process be dumped and its memory be read by other processes of the same user: for debugging alone
    #[arg(long, global = true, hide_short_help = true)]
    allow_dumps: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(cli::init::InitArgs),
    Start(cli::start::StartArgs),
    Demo(cli::demo::DemoArgs),
    Mqsc(cli::mqsc::MqscArgs),
    User(cli::user::UserArgs),
    Cert(cli::cert::CertArgs),
    Key(cli::key::KeyArgs),
    Reseal(cli::reseal::ResealArgs),
    Put(cli::put::PutArgs),
    Get(cli::get::GetArgs),
    Error(cli::error::ErrorArgs),
    Trigger(cli::trigger::TriggerArgs),
    Dlq(cli::dlq::DlqArgs),
    Policy(cli::policy::PolicyArgs),
    Doctor(cli::doctor::DoctorArgs),
    Seal(cli::seal::SealArgs),
    Report(cli::report::ReportArgs),
    /// Measure what protection costs: `bulla perf --help`
    #[command(disable_help_flag = true)]
    Perf(Words),
    /// Plan capacity: what a setup would do, and what a rate needs: `bulla plan --help`
    #[command(disable_help_flag = true)]
    Plan(Words),
    Journal(cli::journal::JournalArgs),
    Audit(cli::audit::AuditArgs),
    Completions(cli::completions::CompletionsArgs),
    Manual(cli::manual::ManualArgs),
    /// Loads a PKCS#11 module for the process that starts this one.
    #[command(hide = true)]
    TokenHelper,
}

/// What a command was told, for a parser of its own: the many options of measuring would cost the queue manager's start
/// megabytes.
#[derive(Args)]
struct Words {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

#[derive(Parser)]
#[command(name = "bulla perf", max_term_width = 100)]
struct Perf {
    #[command(flatten)]
    args: PerfArgs,
}

#[derive(Parser)]
#[command(name = "bulla plan", max_term_width = 100)]
struct Plan {
    #[command(flatten)]
    args: PlanArgs,
}

/// Parses them, or ends with what is wrong, or with the help that was asked for.
fn parsed<T: Parser>(name: &str, Words { words }: Words) -> T {
    T::parse_from(std::iter::once(OsString::from(name)).chain(words))
}

/// The whole command line, with the options of the commands that have a parser of their own.
fn whole() -> clap::Command {
    let own = |name: &'static str, command: clap::Command| {
        move |short: clap::Command| {
            let about = short.get_about().cloned().unwrap_or_default();
            command.name(name).about(about)
        }
    };
    Bulla::command()
        .mut_subcommand("perf", own("perf", Perf::command()))
        .mut_subcommand("plan", own("plan", Plan::command()))
}

fn main() -> ExitCode {
    let Bulla { allow_dumps, command } = Bulla::parse();
    match &command {
        Command::Start(args) => log_lines::begin(args.lines.log, args.lines.log_level),
        _ => log_lines::begin(Format::Text, Level::Note),
    }
    cli::secrecy::begin(allow_dumps);
    let result = match command {
        Command::Init(args) => cli::init::run(&args),
        Command::Start(args) => cli::start::run(&args),
        Command::Demo(args) => cli::demo::run(&args),
        Command::Mqsc(args) => return cli::mqsc::run(&args),
        Command::User(args) => cli::user::run(&args),
        Command::Cert(args) => cli::cert::run(&args),
        Command::Key(args) => cli::key::run(&args),
        Command::Reseal(args) => cli::reseal::run(&args),
        Command::Put(args) => cli::put::run(&args),
        Command::Get(args) => cli::get::run(&args),
        Command::Error(args) => cli::error::run(&args),
        Command::Trigger(args) => cli::trigger::run(&args),
        Command::Dlq(args) => cli::dlq::run(&args),
        Command::Policy(args) => cli::policy::run(&args),
        Command::Doctor(args) => cli::doctor::run(&args),
        Command::Seal(args) => cli::seal::run(&args),
        Command::Report(args) => cli::report::run(&args),
        Command::Perf(words) => cli::perf::run(&parsed::<Perf>("bulla perf", words).args),
        Command::Plan(words) => cli::perf::plan(&parsed::<Plan>("bulla plan", words).args),
        Command::Journal(args) => cli::journal::run(&args),
        Command::Audit(args) => cli::audit::run(&args),
        Command::Completions(args) => cli::completions::run(&args, whole()),
        Command::Manual(args) => cli::manual::run(&args, whole()),
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
