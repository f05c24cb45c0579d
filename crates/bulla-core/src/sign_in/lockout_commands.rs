//! DISPLAY LOCKOUT and RESET LOCKOUT over lockouts as they come about.

use super::lockout::{Lockouts, PAIR_FAILURES_MAX};
use crate::catalog::lockouts::InForce;
use crate::catalog::status::QueueStatus;
use crate::catalog::{Change, Definitions};
use crate::mqsc::reply::{Outcome, Reply, Row};
use crate::mqsc::run::{AdminError, Administered, Applied, Replay, Replayed, execute};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

/// What is administered here has lockouts, and nothing else.
struct World {
    definitions: Definitions,
    lockouts: Lockouts,
}

impl World {
    /// The rows that a command shows, as they come out of the socket.
    fn rows(&mut self, command: &str) -> Vec<Row> {
        let replies = execute(command, self);
        let carried = replies.first().and_then(|reply| Reply::from_json(&reply.to_json()));
        match carried.map(|reply| reply.outcome) {
            Some(Outcome::Rows(rows)) => rows,
            other => panic!("{command}: {other:?}"),
        }
    }
}

impl Administered for World {
    fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    fn apply(&mut self, _: Change) -> Result<Applied, AdminError> {
        unreachable!("nothing is changed")
    }

    fn replay(&mut self, _: &Replay) -> Result<Replayed, AdminError> {
        unreachable!("nothing is replayed")
    }

    fn queue_status(&self, _: &str) -> Option<QueueStatus> {
        None
    }

    fn lockouts(&self) -> Vec<InForce> {
        self.lockouts.in_force(Instant::now())
    }

    fn end_lockouts(&mut self, ends: &dyn Fn(&InForce) -> bool) -> usize {
        self.lockouts.end(Instant::now(), ends)
    }
}

const DESK: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

fn world(locked: &[(&str, IpAddr)]) -> World {
    let (mut lockouts, now) = (Lockouts::default(), Instant::now());
    for (user, address) in locked {
        for _ in 0..PAIR_FAILURES_MAX {
            lockouts.failed(user, *address, now);
        }
    }
    World { definitions: Definitions::initial("Q"), lockouts }
}

fn answer(world: &mut World, command: &str) -> String {
    execute(command, world).iter().map(Reply::text).collect()
}

#[test]
fn who_is_locked_out_is_shown_and_let_in_again() {
    let mut world = world(&[("orders", DESK), ("orders", HOME), ("cards", HOME)]);
    let rows = world.rows("DISPLAY LOCKOUT('orders')");
    assert_eq!(rows.len(), 2, "{rows:?}");
    let shown = answer(&mut world, "DIS LOCKOUT('*') WHERE(ADDRESS EQ '192.0.2.1')");
    for part in ["LOCKOUT(orders)", "TYPE(USER)", "ADDRESS(192.0.2.1)", "SECONDS(10)", "COUNT(1)"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let done = answer(&mut world, "RESET LOCKOUT('orders') ADDRESS('192.0.2.1')");
    assert!(done.contains("1 lockout ended"), "{done}");
    assert!(!world.lockouts.is_locked("orders", DESK, Instant::now()));
    assert!(world.lockouts.is_locked("orders", HOME, Instant::now()));
    assert!(answer(&mut world, "RESET LOCKOUT('*')").contains("2 lockouts ended"));
    assert!(world.rows("DISPLAY LOCKOUT('*')").is_empty());
    assert!(answer(&mut world, "RESET LOCKOUT('*')").contains("0 lockouts ended"));
}

#[test]
fn what_is_about_an_address_is_for_everybody() {
    let users: Vec<String> = (0..5).map(|number| format!("u{number}")).collect();
    let mut world = world(&users.iter().map(|user| (user.as_str(), DESK)).collect::<Vec<_>>());
    let shown = answer(&mut world, "DISPLAY LOCKOUT('*') WHERE(TYPE EQ ADDRESS)");
    assert!(shown.contains("LOCKOUT(*)"), "{shown}");
    let refused = execute("RESET LOCKOUT('*') ADDRESS('harness')", &mut world);
    let [Reply { outcome: Outcome::Failed(failure), .. }] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(failure.message, "harness is not an address");
    assert!(world.lockouts.is_locked("new", DESK, Instant::now()));
    answer(&mut world, "RESET LOCKOUT('*') ADDRESS('192.0.2.1')");
    assert!(!world.lockouts.is_locked("new", DESK, Instant::now()));
}

#[test]
fn what_can_be_no_name_may_be_a_password_and_is_not_shown() {
    let mut world = world(&[("my secret/1", DESK)]);
    let shown = answer(&mut world, "DISPLAY LOCKOUT('*')");
    assert!(shown.contains("TYPE(USER)") && !shown.contains("secret"), "{shown}");
}
