//! Who asks for something: what rights are looked up by, and who owns a dynamic queue.

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The user in force; none for a client that has not signed in.
    pub user: Option<&'a str>,
    /// The connection: its dispatcher, and which one it is there. None for a channel.
    connection: Option<(usize, u64)>,
}

/// Who made a dynamic queue and may do everything with it: a user, or the one connection of a client that has not
/// signed in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Owner {
    /// A user, by name.
    User(String),
    /// A connection: its dispatcher, and which one of that it is.
    Connection(usize, u64),
}

impl<'a> Who<'a> {
    /// A client.
    pub fn client(user: Option<&'a str>, dispatcher: usize, generation: u64) -> Self {
        Self { user, connection: Some((dispatcher, generation)) }
    }

    /// A channel, which puts in the name of a user.
    pub fn channel(user: &'a str) -> Self {
        Self { user: Some(user), connection: None }
    }

    /// The maker of a message: the user in its record, and for one who has not signed in the connection, while that is
    /// known.
    pub fn of_message(user: Option<&'a str>, connection: Option<(usize, u64)>) -> Self {
        Self { user, connection }
    }

    pub(crate) fn owns(self, owner: &Owner) -> bool {
        match owner {
            Owner::User(user) => self.user == Some(user),
            Owner::Connection(dispatcher, generation) => {
                self.user.is_none() && self.connection == Some((*dispatcher, *generation))
            }
        }
    }

    pub(crate) fn owner(self) -> Option<Owner> {
        match (self.user, self.connection) {
            (Some(user), _) => Some(Owner::User(user.to_owned())),
            (None, Some((dispatcher, generation))) => Some(Owner::Connection(dispatcher, generation)),
            (None, None) => None,
        }
    }
}
