//! How long links wait that could go on.

use std::collections::BTreeMap;

/// A link that waits although it could go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Its name.
    pub(super) link: u64,
    /// Turns in a row that it may take until it goes on.
    pub(super) turns_max: u32,
    /// What it could do.
    pub(super) what: String,
}

/// For each such link, the turns in a row in which it could go on and did not.
#[derive(Default)]
pub(super) struct Patience {
    turns: BTreeMap<u64, u32>,
}

impl Patience {
    /// A turn is over, after which these links wait. Fails with the first whose time is over.
    pub(super) fn turn(&mut self, waiting: &[Waiting]) -> Result<(), String> {
        self.turns.retain(|link, _| waiting.iter().any(|one| one.link == *link));
        for Waiting { link, turns_max, what } in waiting {
            let turns = self.turns.entry(*link).or_default();
            *turns += 1;
            if *turns > *turns_max {
                return Err(format!("link {link} {what}, for {turns} turns"));
            }
        }
        Ok(())
    }

    /// No link could go on and waits.
    pub(super) fn is_over(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(link: u64) -> Waiting {
        Waiting { link, turns_max: 3, what: "waits".into() }
    }

    #[test]
    fn only_turns_in_a_row_in_which_a_link_could_go_on_count() {
        let mut patience = Patience::default();
        for _ in 0..3 {
            patience.turn(&[waiting(1)]).unwrap();
        }
        patience.turn(&[waiting(2)]).unwrap();
        assert!(!patience.is_over());
        for _ in 0..3 {
            patience.turn(&[waiting(1)]).unwrap();
        }
        assert_eq!(patience.turn(&[waiting(1)]).unwrap_err(), "link 1 waits, for 4 turns");
        patience.turn(&[]).unwrap();
        assert!(patience.is_over());
    }
}
