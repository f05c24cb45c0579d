//! What every thread of a queue manager shares, by what it is for.

use super::{Stuck, UnitCounts};
use crate::accounting::Accounts;
use crate::adapter::Adapters;
use crate::arriving::Arriving;
use crate::asker::Owner;
use crate::audit::Audit;
use crate::authority::AddressPattern;
use crate::catalog::LocalQueue;
use crate::catalog::status::MissingRing;
use crate::channel::registry::Channels;
use crate::channel::triggers::Triggers;
use crate::devices::Devices;
use crate::key_use::StagedNeeds;
use crate::limits::ConnectedUsers;
use crate::mailbox::Mailboxes;
use crate::maps::HashMap;
use crate::noted::{Noted, Writer};
use crate::readiness::Readiness;
use crate::refusals::{PeerLines, Refusals};
use crate::resumable::ResumableLinks;
use crate::sign_in::checks::Checks;
use crate::sign_in::lockout::Lockouts;
use crate::sign_in::sessions::Sessions;
use crate::sign_in::tickets::Tickets;
use crate::sign_in::tokens::Tokens;
use crate::sole_connection::SoleConnections;
use crate::stranded_now::StrandedNow;
use crate::task::Tasks;
use crate::traffic_history::TrafficHistory;
use crate::users::Users;
use bulla_queue::{MessageId, QueueId};
use bulla_seal::Opener;
use bulla_seal::certificate::Passphrase;
use bulla_seal::ring::Rings;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

/// Keys, and what opens with them.
pub struct Sealing {
    /// Key rings, by user.
    pub rings: Rings,
    /// What the rings' private keys are encrypted with.
    pub(super) passphrase: Option<Passphrase>,
    /// Opens sealed messages; holds the key cache.
    pub opener: Opener,
}

/// The threads that work, and what they hear of each other by.
pub struct Workers {
    /// The adapters: they seal, open and check.
    pub adapters: Arc<Adapters>,
    /// The crypto devices.
    pub devices: Devices,
    /// One mailbox a dispatcher.
    pub mailboxes: Arc<Mailboxes>,
    /// What tasks do.
    pub tasks: Arc<Tasks>,
}

/// Who may sign in, and who has failed to.
pub struct SignIns {
    /// Users and their verifiers.
    pub users: Users,
    /// Checks the tokens that clients sign in with.
    pub tokens: Tokens,
    /// Passwords and tokens to be checked.
    pub checks: Checks,
    /// Sessions of users who have signed in over HTTP.
    pub sessions: Sessions,
    /// What members of shared groups sign in with that forward links to this one.
    pub tickets: Tickets,
    /// CHCKCLNT(REQUIRED): a client that leaves SASL out is not spoken with.
    pub required: AtomicBool,
    /// Who was wrong how often in signing in.
    pub(super) lockouts: Mutex<Lockouts>,
}

/// How connections are taken in and kept.
pub struct Listening {
    /// Where partners and applications are listened for: `amqp://127.0.0.1:5672`. Set at the start.
    pub addresses: OnceLock<Vec<String>>,
    /// Addresses that are not listened to (BLOCKADDR), and whether that is only a warning.
    pub(super) blocked: RwLock<Vec<(AddressPattern, bool)>>,
    /// Silence after which a partner is given up; it is told half of that.
    pub idle_timeout: Duration,
    /// Bytes of messages that are arriving on all connections.
    pub arriving: Arriving,
    /// Whether clients should come.
    pub readiness: Readiness,
}

/// What is counted since the start.
pub struct Counts {
    /// When the counts of queues and policies began: milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// What protection did, by policy.
    pub accounts: Accounts,
    /// How queues and policies stood.
    pub(super) history: Mutex<TrafficHistory>,
    /// Messages that no key ring here can open, and keys that are gone, when it was looked for last.
    pub(super) stranded: Mutex<StrandedNow>,
    /// Key rings that groups need and that can't be used here.
    pub(super) rings_missing: Mutex<BTreeMap<String, Vec<MissingRing>>>,
    /// Messages refused that their sender had settled, since the operator was last told of them.
    pub dropped: AtomicU64,
}

/// What the operator is told.
pub struct Told {
    /// Who changed what, who was refused, whose keys were used.
    pub audit: Arc<Audit>,
    /// What the log says of refusals by authority.
    pub refusals: Mutex<Refusals>,
    /// Some of them are to be raised as events.
    pub refused: AtomicBool,
    /// What the log says of other things that peers do.
    pub peer_lines: Arc<PeerLines>,
}

/// Queues that live as long as a link; they are in no file.
#[derive(Default)]
pub struct TemporaryQueues {
    /// By name.
    pub queues: HashMap<String, (QueueId, LocalQueue)>,
    /// Who made them.
    pub owners: HashMap<QueueId, Owner>,
    /// Queues that went under other links, and the dispatchers of those, one bit each: each of these links is to be
    /// ended.
    pub gone: Vec<(QueueId, u64)>,
}

/// Messages with which something could not be done yet.
#[derive(Default)]
pub struct Unfinished {
    /// Defective messages whose error queue was full, and the like: locked, tried again at the ticks.
    pub messages: VecDeque<Stuck>,
    /// The operator was told of one of them since the last tick.
    pub told: bool,
}

/// Numbers that grow with changes.
pub struct Generations {
    /// Grows at every change of a definition: handles look their route up again.
    pub definitions: u64,
    /// Grows when a user's rights may have changed: connections and links are asked about again.
    pub authority: u64,
}

/// What is known of all units of work together.
#[derive(Default)]
pub struct UnitTotals {
    /// Bytes of messages in open units of work.
    pub staged_bytes: usize,
    /// Which keys their messages need.
    pub needs: StagedNeeds,
    /// Units of work since the start.
    pub counts: UnitCounts,
}

/// Who is connected.
#[derive(Default)]
pub struct Clients {
    /// Users, and what they have of what is limited.
    pub users: ConnectedUsers,
    /// Clients that want one connection at a time.
    pub sole_connections: SoleConnections,
    /// Clients' links that are kept when their attachment is over, attached and suspended.
    pub resumable: ResumableLinks,
}

/// What goes out to partners.
#[derive(Default)]
pub struct Outbound {
    /// Channels as they run.
    pub channels: Channels,
    /// Transmission queues that start their channels.
    pub triggers: Triggers,
    /// One message of each transmission queue and when it was put, to tell how long messages lie there.
    pub queue_time_probes: HashMap<QueueId, (MessageId, Instant)>,
}

/// Changes of definitions on their way to the journal and the file.
pub struct Changes {
    /// Those that the journal has not synced, and what follows when it has.
    pub noted: Noted,
    /// What has the readable copy of definitions written.
    pub writer: Arc<Writer>,
}

/// What the operator is told of queues.
pub struct Notices {
    /// The manager's lines of the log.
    pub peer_lines: Arc<PeerLines>,
    /// Events whose queue had no room for them, since the operator was last told.
    pub events_lost: u64,
}
