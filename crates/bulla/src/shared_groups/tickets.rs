//! Tickets for links that are forwarded: how a member asks the owner for one, over the group's engine, and what it
//! gets.
//!
//! A question is its version, whether the user's proof is good enough for a ring, and the user, if any. Who can ask can
//! write the group's log, too, and could give that user any right on the group's queues.

use crate::groups_elsewhere::AskOwner;
use crate::manager::Manager;
use crate::random::Random;
use crate::sign_in::tickets::{Holder, Ticket};
use crate::users;
use bulla_shared::Asker;

/// The version of questions.
const VERSION: u8 = 1;

/// How a member asks the group's owner.
pub(super) struct OwnerAsker(pub(super) Asker);

impl AskOwner for OwnerAsker {
    fn ask_for_ticket(&self, holder: &Holder, then: Box<dyn FnOnce(Option<Ticket>) + Send>) {
        let user = holder.user.as_deref().unwrap_or_default();
        let question = [&[VERSION, u8::from(holder.ring)], user.as_bytes()].concat();
        self.0.ask(question, Box::new(move |answer| then(answer.and_then(|ticket| ticket.try_into().ok()))));
    }
}

/// The owner's answer: a ticket. None to a question of another version, or about a name that no user can have.
pub(super) fn answer(manager: &Manager, group: &str, question: &[u8]) -> Option<Vec<u8>> {
    let holder = read(group, question)?;
    let ticket: Ticket = Random::system().bytes();
    manager.sign_ins.tickets.give(&ticket, holder, manager.clock.now()).then(|| ticket.to_vec())
}

fn read(group: &str, question: &[u8]) -> Option<Holder> {
    let [VERSION, ring @ (0 | 1), user @ ..] = question else { return None };
    let user = std::str::from_utf8(user).ok().filter(|user| user.is_empty() || users::is_valid_name(user))?;
    Some(Holder { group: group.to_owned(), user: (!user.is_empty()).then(|| user.to_owned()), ring: *ring == 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_a_user_that_can_be_one() {
        let holder = |ring| Some(Holder { group: "G".to_owned(), user: Some("orders".to_owned()), ring });
        assert_eq!(read("G", b"\x01\x00orders"), holder(false));
        assert_eq!(read("G", b"\x01\x01orders"), holder(true));
        for wrong in [&b""[..], b"\x01", b"\x02\x01orders", b"\x01\x02orders", b"\x01\x01\xff", b"\x01\x01a b"] {
            assert_eq!(read("G", wrong), None, "{wrong:?}");
        }
    }
}
