//! A generator of random numbers whose seed is an argument: a simulation runs again as it ran.

/// Numbers that a seed gives again.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// From a seed; any will do.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Evenly from above 0 to 1.
    pub fn part(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.part().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_their_mean_is_right() {
        let mut random = Random::new(7);
        let first: Vec<u64> = (0..4).map(|_| random.bits()).collect();
        let mut again = Random::new(7);
        assert_eq!(first, (0..4).map(|_| again.bits()).collect::<Vec<_>>());
        let mean = (0..100_000).map(|_| random.exponential()).sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
