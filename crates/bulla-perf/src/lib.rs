//! What protection costs: load generator, reports, and capacity planner.
//!
//! `bulla perf` is a client like any other: it speaks AMQP 1.0 to whatever broker it is pointed at, and starts queue
//! managers of its own with `--self`. What it measures goes into a file of JSON lines ([`result`]), in words that
//! reports and the planner share ([`configuration`]). The program that it belongs to is reached through [`host::Host`]
//! alone.

pub mod configuration;
pub mod error;
pub mod host;
mod interrupt;
pub mod load;
pub mod machine;
pub mod perf;
pub mod plan;
pub mod published;
pub mod report;
pub mod result;
pub mod run;
pub mod site;
pub mod spelling;
pub mod workload;
