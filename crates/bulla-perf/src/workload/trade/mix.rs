//! What customers do, and how often: the mix of the published workload's shape, in percent.

use fastrand::Rng;

/// Something that a customer does: a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Act {
    /// Looks at the price of a share.
    Quote,
    /// Looks at the summary of the market.
    Home,
    /// Lists what the customer holds.
    Portfolio,
    /// Looks at the customer's account.
    Account,
    /// Orders to buy, and waits for the confirmation.
    Buy,
    /// Orders to sell, and waits for the confirmation.
    Sell,
    /// Changes the customer's profile.
    Update,
    /// Says goodbye.
    SignOut,
    /// Signs a new customer up.
    Register,
}

impl Act {
    /// All of them with their share, in percent.
    pub(crate) const MIX: [(Act, u32); 9] = [
        (Act::Quote, 40),
        (Act::Home, 20),
        (Act::Portfolio, 12),
        (Act::Account, 10),
        (Act::Buy, 4),
        (Act::Sell, 4),
        (Act::Update, 4),
        (Act::SignOut, 4),
        (Act::Register, 2),
    ];

    /// Its word in results.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Act::Quote => "quote",
            Act::Home => "home",
            Act::Portfolio => "portfolio",
            Act::Account => "account",
            Act::Buy => "buy",
            Act::Sell => "sell",
            Act::Update => "update",
            Act::SignOut => "sign-out",
            Act::Register => "register",
        }
    }

    /// One by chance, each with its share.
    pub(super) fn drawn(random: &mut Rng) -> Act {
        let mut left = random.u32(0..100);
        for (act, share) in Act::MIX {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return act,
            }
        }
        Act::Quote
    }

    /// Where it stands in [`MIX`](Act::MIX).
    pub(super) fn number(self) -> usize {
        Act::MIX.iter().position(|(act, _)| *act == self).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_act_comes_as_often_as_its_share_says() {
        assert_eq!(Act::MIX.iter().map(|(_, share)| share).sum::<u32>(), 100);
        let (mut random, mut counts) = (Rng::with_seed(7), [0u32; Act::MIX.len()]);
        for _ in 0..100_000 {
            counts[Act::drawn(&mut random).number()] += 1;
        }
        for ((act, share), count) in Act::MIX.iter().zip(counts) {
            let expected = f64::from(*share) * 1000.0;
            // Five standard deviations.
            assert!((f64::from(count) - expected).abs() < 5.0 * expected.sqrt(), "{act:?}: {count} of {expected}");
        }
    }
}
