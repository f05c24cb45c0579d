//! The rights there are, and on which objects.

use std::fmt::{self, Display};

/// What a record gives rights on (OBJTYPE).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ObjectType {
    /// QMGR: the queue manager; it has no profile.
    QueueManager,
    /// QUEUE: every name that can be opened, local, alias, remote and model queues alike.
    Queue,
    /// CHANNEL
    Channel,
    /// A topic object, by its name.
    Topic,
}

impl ObjectType {
    /// Each.
    pub const EVERY: [ObjectType; 4] =
        [ObjectType::QueueManager, ObjectType::Queue, ObjectType::Channel, ObjectType::Topic];

    /// MQSC's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ObjectType::QueueManager => "QMGR",
            ObjectType::Queue => "QUEUE",
            ObjectType::Channel => "CHANNEL",
            ObjectType::Topic => "TOPIC",
        }
    }

    /// Of MQSC's word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|known| known.word() == word)
    }

    /// Every right that there is on such an object.
    #[must_use]
    pub fn rights(self) -> Rights {
        Right::EVERY.iter().filter(|right| right.is_on(self)).fold(Rights::NONE, |all, right| all.with(right.alone()))
    }
}

impl Display for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One right. Each is asked for somewhere: `docs/operating/authority.md` says where.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u16)]
pub enum Right {
    /// CONNECT, on the queue manager: to use it at all.
    Connect = 1,
    /// ALTUSR, on the queue manager: to sign in as oneself and act as another user.
    AlternateUser = 1 << 1,
    /// INQ, on a queue: to be told its attributes over HTTP, and over AMQP its policy and the destination that a seal
    /// is bound to.
    Inquire = 1 << 2,
    /// PUT, on a queue.
    Put = 1 << 3,
    /// GET, on a queue: to take messages off it.
    Get = 1 << 4,
    /// BROWSE, on a queue: to read messages and leave them there.
    Browse = 1 << 5,
    /// SETID, on a queue: to put messages whose `user-id` is another user's.
    SetIdentity = 1 << 6,
    /// DSP, on a model queue: to make dynamic queues from it.
    Display = 1 << 7,
    /// CTRL, on a channel: to have it started by a requester.
    Control = 1 << 8,
    /// DLT, on a permanent dynamic queue: to delete it on closing, for others than its maker.
    Delete = 1 << 9,
    /// PUB, on a topic object: to publish on its topic and on those below.
    Publish = 1 << 10,
    /// SUB, on a topic object: to subscribe to its topic and to those below.
    Subscribe = 1 << 11,
    /// SET, on a queue: to change whether it takes and gives messages, and its trigger.
    Set = 1 << 12,
}

impl Right {
    /// Each, in the order in which they are shown.
    pub const EVERY: [Right; 13] = [
        Right::Connect,
        Right::AlternateUser,
        Right::Inquire,
        Right::Set,
        Right::Put,
        Right::Get,
        Right::Browse,
        Right::SetIdentity,
        Right::Display,
        Right::Delete,
        Right::Control,
        Right::Publish,
        Right::Subscribe,
    ];

    /// MQSC's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Right::Connect => "CONNECT",
            Right::AlternateUser => "ALTUSR",
            Right::Inquire => "INQ",
            Right::Set => "SET",
            Right::Put => "PUT",
            Right::Get => "GET",
            Right::Browse => "BROWSE",
            Right::SetIdentity => "SETID",
            Right::Display => "DSP",
            Right::Control => "CTRL",
            Right::Delete => "DLT",
            Right::Publish => "PUB",
            Right::Subscribe => "SUB",
        }
    }

    /// What is done by it, as events call it.
    pub fn action(self) -> &'static str {
        match self {
            Right::Connect => "connect",
            Right::AlternateUser => "act-as",
            Right::Inquire => "inquire",
            Right::Set => "set",
            Right::Put => "put",
            Right::Get => "get",
            Right::Browse => "browse",
            Right::SetIdentity => "set-user",
            Right::Display => "make-dynamic",
            Right::Control => "start",
            Right::Delete => "delete",
            Right::Publish => "publish",
            Right::Subscribe => "subscribe",
        }
    }

    /// On which objects there is such a right.
    #[must_use]
    pub fn is_on(self, object: ObjectType) -> bool {
        let on = match self {
            Right::Connect | Right::AlternateUser => ObjectType::QueueManager,
            Right::Control => ObjectType::Channel,
            Right::Publish | Right::Subscribe => ObjectType::Topic,
            _ => ObjectType::Queue,
        };
        on == object
    }

    /// True for what MQ counts as the administration of an object, and not as its use.
    fn is_administration(self) -> bool {
        matches!(self, Right::Display | Right::Delete | Right::Control)
    }

    /// This right and no other.
    #[must_use]
    pub fn alone(self) -> Rights {
        Rights(self as u16)
    }
}

impl Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Rights(u16);

impl Rights {
    /// No right.
    pub const NONE: Rights = Rights(0);

    /// Those rights.
    #[must_use]
    pub fn of(rights: &[Right]) -> Self {
        rights.iter().fold(Rights::NONE, |all, right| all.with(right.alone()))
    }

    /// Whether that one is among them. One `and`.
    #[must_use]
    pub fn has(self, right: Right) -> bool {
        self.0 & right as u16 != 0
    }

    /// Both together.
    #[must_use]
    pub fn with(self, more: Rights) -> Rights {
        Rights(self.0 | more.0)
    }

    /// Those that are not among `less`.
    #[must_use]
    pub fn without(self, less: Rights) -> Rights {
        Rights(self.0 & !less.0)
    }

    /// The rights' words in the order in which they are shown; `NONE` for none.
    #[must_use]
    pub fn words(self) -> Vec<&'static str> {
        match self {
            Rights::NONE => vec![NONE],
            rights => Right::EVERY.iter().filter(|right| rights.has(**right)).map(|right| right.word()).collect(),
        }
    }

    /// What a word of AUTHADD or AUTHRMV stands for on an object of that type; none where the object has no such right.
    #[must_use]
    pub fn meant_by(word: &str, object: ObjectType) -> Option<Rights> {
        let of = |is_meant: fn(Right) -> bool| {
            let meant = Right::EVERY.iter().filter(|right| right.is_on(object) && is_meant(**right));
            meant.fold(Rights::NONE, |all, right| all.with(right.alone()))
        };
        match word {
            NONE => Some(Rights::NONE),
            ALL => Some(object.rights()),
            ALL_MQI => Some(of(|right| !right.is_administration())),
            ALL_ADMINISTRATION => Some(of(Right::is_administration)),
            word => {
                Right::EVERY.iter().find(|right| right.word() == word && right.is_on(object)).map(|one| one.alone())
            }
        }
    }
}

/// Every right on the object.
pub const ALL: &str = "ALL";
/// Every right to use the object.
pub const ALL_MQI: &str = "ALLMQI";
/// Every right to administer the object.
pub const ALL_ADMINISTRATION: &str = "ALLADM";
/// No right: the record says so for the names that it is the most particular of.
pub const NONE: &str = "NONE";

/// The words of AUTHADD and AUTHRMV.
pub const WORDS: &[&str] = &[
    "CONNECT",
    "ALTUSR",
    "INQ",
    "SET",
    "PUT",
    "GET",
    "BROWSE",
    "SETID",
    "DSP",
    "DLT",
    "CTRL",
    "PUB",
    "SUB",
    ALL,
    ALL_MQI,
    ALL_ADMINISTRATION,
    NONE,
];

const ADMINISTERED: &str = "objects are defined, changed and deleted over the admin socket, which is its owner's alone";
const NO_PASSING: &str = "an AMQP client can't hand on another message's context, only set its own: that is SETID";

/// MQ's other words, and why nothing here would honour them.
pub const NOT_OFFERED: &[(&str, &str)] = &[
    ("CHG", ADMINISTERED),
    ("CLR", ADMINISTERED),
    ("CRT", ADMINISTERED),
    ("CTRLX", ADMINISTERED),
    ("SYSTEM", ADMINISTERED),
    ("PASSALL", NO_PASSING),
    ("PASSID", NO_PASSING),
    ("SETALL", "of a message's context AMQP has the user alone: that is SETID"),
    ("RESUME", "the user who made a subscription goes on with it, and needs SUB for that"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_something_and_every_right_has_a_word() {
        for right in Right::EVERY {
            assert!(WORDS.contains(&right.word()));
            let on: Vec<_> = ObjectType::EVERY.into_iter().filter(|object| right.is_on(*object)).collect();
            assert_eq!(on.len(), 1, "{right}");
            assert_eq!(Rights::meant_by(right.word(), on[0]), Some(right.alone()));
        }
        for word in WORDS {
            let known = Right::EVERY.iter().any(|right| right.word() == *word);
            assert!(known || Rights::meant_by(word, ObjectType::Queue).is_some(), "{word}");
            assert!(NOT_OFFERED.iter().all(|(other, _)| other != word));
        }
    }

    #[test]
    fn the_words_for_many_rights_are_those_of_the_object() {
        let words = |word, object| Rights::meant_by(word, object).unwrap().words();
        assert_eq!(words(ALL, ObjectType::QueueManager), ["CONNECT", "ALTUSR"]);
        assert_eq!(words(ALL_MQI, ObjectType::Queue), ["INQ", "SET", "PUT", "GET", "BROWSE", "SETID"]);
        assert_eq!(words(ALL_ADMINISTRATION, ObjectType::Queue), ["DSP", "DLT"]);
        assert_eq!(words(ALL, ObjectType::Channel), ["CTRL"]);
        assert_eq!(words(ALL, ObjectType::Topic), ["PUB", "SUB"]);
        assert_eq!(words(NONE, ObjectType::Queue), ["NONE"]);
        assert_eq!(Rights::meant_by("PUT", ObjectType::QueueManager), None);
    }
}
