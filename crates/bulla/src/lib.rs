//! The queue manager as a program: front ends, sockets, start and stop, the command line. The program is a thin `main`
//! over this library, and tests start it in-process.

pub mod activity;
pub mod admin;
mod algorithms;
pub mod audit_log;
pub mod cli;
pub mod cost_activity;
pub mod dead_letters;
mod doctor;
pub mod enrolment;
mod expiring_certificates;
pub mod folders;
mod front;
mod json_names;
pub mod key_rotation;
pub mod log_lines;
pub mod metrics;
mod missing_keys;
mod missing_rings;
pub mod objects_file;
pub mod policy_check;
pub mod serve;
mod shared_groups;
#[cfg(test)]
mod simulation;
mod stranded;
pub mod task_activity;
pub mod tls;
pub mod traffic_activity;
mod trial_device;
pub mod turn;
#[cfg(test)]
mod whole;

pub use bulla_core::{
    accounting, adapter, arriving, asker, audit, average, channel, channel_ends, clock, connections, denials, devices,
    dispatcher, dynamic, envelope, events, further_stores, group_rings, groups_elsewhere, idempotency, key_use, limits,
    log, mailbox, manager, maps, message_groups, noted, ordered_line, outgoing, random, readiness, refusals,
    report_options, reports, reseal, resumable, rights, route, sign_in, sole_connection, stores, stranded_now, task,
    topics, traffic_history, transport, triggering, users, wall_clock, whole_file,
};
pub use bulla_core::{addresses, authority, calendar, catalog, mqsc, reason, selector};
pub use bulla_core::{alarm, note, warning};
