//! Who is measured when.

/// One sample to take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Turn {
    /// Which configuration, from 0.
    pub configuration: usize,
    /// Which repeat, from 1.
    pub repeat: u32,
}

/// Round by round, every other round in reverse: what drifts on the machine while the run goes on meets all
/// configurations alike, and none is always measured after the same other one.
#[must_use]
pub fn turns(configurations: usize, repeats: u32) -> Vec<Turn> {
    (1..=repeats)
        .flat_map(|repeat| {
            let forth = repeat % 2 == 1;
            (0..configurations)
                .map(move |at| Turn { configuration: if forth { at } else { configurations - 1 - at }, repeat })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_and_every_configuration_is_in_each() {
        let order: Vec<(usize, u32)> = turns(3, 3).iter().map(|turn| (turn.configuration, turn.repeat)).collect();
        assert_eq!(order, [(0, 1), (1, 1), (2, 1), (2, 2), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3)]);
        assert!(turns(0, 3).is_empty() && turns(3, 0).is_empty());
    }
}
