//! Randomness as an argument: the system's generator, or a test's sequence.

/// A source of random bytes.
pub struct Random(Source);

enum Source {
    System,
    #[cfg(any(test, feature = "simulation"))]
    Counting(u8),
    #[cfg(any(test, feature = "simulation"))]
    Seeded(fastrand::Rng),
}

impl Random {
    /// The system's generator, through OpenSSL.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Bytes that count up, for tests.
    #[cfg(any(test, feature = "simulation"))]
    pub fn counting() -> Self {
        Self(Source::Counting(0))
    }

    /// Bytes that follow from `seed`, for simulations.
    #[cfg(any(test, feature = "simulation"))]
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(fastrand::Rng::with_seed(seed)))
    }

    /// `N` random bytes. A system without randomness can't go on: the process ends.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        match &mut self.0 {
            Source::System => {
                if let Err(error) = openssl::rand::rand_bytes(&mut bytes) {
                    crate::alarm!("no randomness: {error}");
                    crate::log::exit(crate::catalog::exit_codes::EXIT_INTERNAL);
                }
            }
            #[cfg(any(test, feature = "simulation"))]
            Source::Seeded(random) => random.fill(&mut bytes),
            #[cfg(any(test, feature = "simulation"))]
            Source::Counting(next) => {
                for byte in &mut bytes {
                    *byte = *next;
                    *next = next.wrapping_add(1);
                }
            }
        }
        bytes
    }

    /// A name made of `N` random bytes in hexadecimal.
    pub fn name<const N: usize>(&mut self) -> String {
        base16ct::lower::encode_string(&self.bytes::<N>())
    }
}
