//! Connections that are to be the only one of their container (AMQP Enforcing Connection Uniqueness, version 1.0).
//!
//! A container is known by the user who has signed in and the container-id that the client gave: a client can neither
//! end nor refuse a connection of another user. Connections that do not ask to be the only one are not looked at, which
//! the standard calls weak detection.

use crate::catalog::connections::ConnectionId;
use crate::front::client::{Introduction, SolePolicy as Policy};
use crate::front::outcome::Failure;
use crate::maps::HashMap;
use crate::reason::{self, Refusal};
use hashbrown::hash_map::Entry;

/// A client's container.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Container {
    user: String,
    id: String,
}

/// A client's wish to be the only connection of its container.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Wish {
    pub(crate) container: Container,
    pub(crate) policy: Policy,
}

impl Wish {
    /// What a client asks for that has signed in as `user`. None where it does not ask, and where it has not signed in:
    /// then it is not offered.
    ///
    /// # Errors
    /// What it asks for can't be read.
    pub fn of(said: &Introduction, user: Option<&str>) -> Result<Option<Self>, Failure> {
        let (Some(policy), Some(user)) = (&said.wants_to_be_sole, user) else { return Ok(None) };
        let container = Container { user: user.to_owned(), id: said.container.clone() };
        Ok(Some(Self { container, policy: policy.clone()? }))
    }
}

/// Why a connection is refused: there is one of the same container.
pub fn refused(container: &Container) -> Failure {
    let detail = format!("container-id {:?} of this user has a connection, which is to be the only one", container.id);
    Failure::ContainerInUse(Refusal::new(reason::OBJECT_IN_USE, detail))
}

/// Why a connection ends: the user's container has a new one.
pub fn displaced() -> Failure {
    let detail = "a new connection of this user and container-id is to be the only one";
    Failure::ContainerTaken(Refusal::new(reason::CONNECTION_BROKEN, detail))
}

/// What is done with a connection that is to be the only one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It is opened.
    Opens,
    /// It is refused.
    Refused,
    /// It is opened when the one that there is has gone; `closes` is to be closed.
    Waits {
        /// The connection that there is.
        closes: ConnectionId,
    },
}

/// The containers of which one connection is to be the only one. As many as there are such connections, no more.
#[derive(Debug, Default)]
pub struct SoleConnections(HashMap<Container, Held>);

#[derive(Debug)]
struct Held {
    holder: ConnectionId,
    policy: Policy,
    /// It is opened when the holder has gone.
    next: Option<(ConnectionId, Policy)>,
}

impl SoleConnections {
    /// A connection wishes to be the only one. What the connection that there is has asked for decides.
    pub fn claim(&mut self, wish: &Wish, id: ConnectionId) -> Answer {
        match self.0.entry(wish.container.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(Held { holder: id, policy: wish.policy, next: None });
                Answer::Opens
            }
            Entry::Occupied(entry) if entry.get().policy == Policy::RefuseConnection => Answer::Refused,
            Entry::Occupied(mut entry) => {
                let held = entry.get_mut();
                let displaced = held.next.replace((id, wish.policy));
                Answer::Waits { closes: displaced.map_or(held.holder, |(id, _)| id) }
            }
        }
    }

    /// A connection that had such a wish has gone. Returns the one that waits for that, which is opened now.
    pub fn leave(&mut self, container: &Container, id: ConnectionId) -> Option<ConnectionId> {
        let held = self.0.get_mut(container)?;
        if held.next.is_some_and(|(next, _)| next == id) {
            held.next = None;
        }
        if held.holder != id {
            return None;
        }
        match held.next.take() {
            Some((next, policy)) => {
                (held.holder, held.policy) = (next, policy);
                Some(next)
            }
            None => {
                self.0.remove(container);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(policy: Policy) -> Wish {
        Wish { container: Container { user: "u".into(), id: "c".into() }, policy }
    }

    fn id(generation: u64) -> ConnectionId {
        ConnectionId::new(0, generation)
    }

    #[test]
    fn the_policy_of_the_connection_that_there_is_decides() {
        let mut sole = SoleConnections::default();
        let (refuse, close) = (wish(Policy::RefuseConnection), wish(Policy::CloseExisting));
        assert_eq!(sole.claim(&refuse, id(1)), Answer::Opens);
        assert_eq!(sole.claim(&close, id(2)), Answer::Refused);
        assert_eq!(sole.leave(&refuse.container, id(2)), None);
        assert_eq!(sole.leave(&refuse.container, id(1)), None);
        assert_eq!(sole.claim(&close, id(3)), Answer::Opens);
        assert_eq!(sole.claim(&refuse, id(4)), Answer::Waits { closes: id(3) });
        assert_eq!(sole.leave(&close.container, id(3)), Some(id(4)));
        assert_eq!(sole.claim(&close, id(5)), Answer::Refused);
        assert_eq!(sole.leave(&close.container, id(4)), None);
        assert!(sole.0.is_empty());
    }

    #[test]
    fn a_connection_that_waits_is_displaced_or_goes_and_leaves_nothing() {
        let mut sole = SoleConnections::default();
        let close = wish(Policy::CloseExisting);
        assert_eq!(sole.claim(&close, id(1)), Answer::Opens);
        assert_eq!(sole.claim(&close, id(2)), Answer::Waits { closes: id(1) });
        assert_eq!(sole.claim(&close, id(3)), Answer::Waits { closes: id(2) });
        assert_eq!(sole.leave(&close.container, id(2)), None);
        assert_eq!(sole.leave(&close.container, id(3)), None);
        assert_eq!(sole.leave(&close.container, id(1)), None);
        assert!(sole.0.is_empty());
    }

    #[test]
    fn another_users_connection_of_the_same_container_id_is_left_alone() {
        let mut sole = SoleConnections::default();
        let mine = wish(Policy::CloseExisting);
        let theirs = Wish { container: Container { user: "v".into(), ..mine.container.clone() }, ..mine.clone() };
        assert_eq!(sole.claim(&mine, id(1)), Answer::Opens);
        assert_eq!(sole.claim(&theirs, id(2)), Answer::Opens);
    }
}
