//! The admin language, MQSC, from one table.
//!
//! A command's way: [`parse`] turns text into statements with the words of [`table`], [`run`] carries them out on
//! whatever implements [`run::Administered`], [`reply`] shows the answers as text or JSON; [`compose`] makes the text
//! of a command that comes in pieces; `unit` carries several out together, and [`difference`] says which it takes to
//! get from here to there. `nouns` know what the attributes of one object mean together, and [`meters`] what devices
//! count, [`protection`] what policies do, [`tasks`] what tasks do, [`costs`] what roles cost; [`traffic`] reads
//! queues' and policies' rows back, `authority` is about records, [`topic_status`] about how topics and subscriptions
//! stand, `channel_rule` about rules for connections, `connection` about who is connected, `lockout` about who has to
//! wait, and `diagnosis` about what is wrong. [`objects`] keeps what the commands define as MQSC text that is read back
//! by the same parser. [`reference`](mod@reference) turns the table into `HELP` and the reference page; [`import`]
//! reads what IBM MQ's tools write.
//!
//! No files, sockets or threads; what is defined, and what a status shows, is [`bulla_catalog`]'s.

mod administered;
mod algorithm_use;
mod attributes;
pub mod channel;
pub mod compose;
mod connection;
pub mod costs;
pub mod dead_letters;
mod diagnosis;
pub mod difference;
mod enrolment;
pub mod import;
pub mod kept;
mod key_rotation;
mod key_use;
mod lockout;
mod log_in;
pub mod meters;
mod nouns;
pub mod objects;
pub mod parse;
pub mod policy;
mod policy_check;
pub mod protection;
pub mod reference;
pub mod reply;
mod reseal;
mod rows;
pub mod run;
mod status;
pub mod table;
pub mod tasks;
pub mod topic_status;
pub mod traffic;
mod unit;

#[cfg(test)]
mod metered;
#[cfg(test)]
pub(crate) mod transcripts;

pub use diagnosis::DoctorQuestion;
pub use policy::all_from_text as policies_from_text;
pub use policy_check::PolicyQuestion;
pub use reply::Reply;
pub use reseal::{RESEAL_MESSAGES_MAX, ResealQuestion, Resealed, Select};
pub use run::{
    AdminError, Administered, Oversight, Replay, Replayed, SHOWN_BYTES_MAX, execute, execute_apart, execute_overseen,
};
