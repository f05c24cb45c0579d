//! What a queue manager does: queues and who uses them, puts, gets, publications, units of work, channels, protection,
//! triggers, events and reports.
//!
//! No socket and no protocol's connection: a front end ([`front::FrontEnd`]) turns bytes into events, a transport
//! ([`transport::Transport`]) says what a connection runs over, and the program owns both. Time, randomness and storage
//! are arguments.

pub mod accounting;
pub mod adapter;
pub mod arriving;
pub mod asker;
pub mod audit;
pub mod average;
pub mod channel;
pub mod channel_ends;
pub mod clock;
pub mod connections;
pub mod core;
pub mod denials;
pub mod devices;
pub mod dispatcher;
pub mod dynamic;
pub mod envelope;
pub mod events;
pub mod front;
pub mod further_stores;
pub mod group_rings;
pub mod groups_elsewhere;
pub mod idempotency;
pub mod key_use;
pub mod limits;
pub mod log;
pub mod mailbox;
pub mod manager;
pub mod maps;
pub mod message_groups;
pub mod noted;
pub mod ordered_line;
pub mod outgoing;
pub mod random;
pub mod readiness;
pub mod refusals;
pub mod refused_tokens;
pub mod report_options;
pub mod reports;
pub mod reseal;
pub mod resumable;
pub mod rights;
pub mod route;
pub mod sign_in;
pub mod sole_connection;
pub mod stores;
pub mod stranded_now;
pub mod task;
pub mod topics;
pub mod traffic_history;
pub mod transport;
pub mod triggering;
pub mod users;
pub mod wall_clock;
pub mod whole_file;

pub use bulla_catalog as catalog;
pub use bulla_catalog::{addresses, authority, calendar, reason, selector};
pub use bulla_mqsc as mqsc;
