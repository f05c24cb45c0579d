//! Random bytes, as an argument.

use std::fmt;

use zeroize::Zeroizing;

/// A source of unpredictable bytes. Tests pass their own; everyone else passes [`SystemRandom`].
pub trait Random {
    /// Fills the whole buffer.
    ///
    /// # Errors
    /// [`RandomError`] when the system has no randomness to give; nothing may be sealed then.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), RandomError>;
}

/// The operator's turn: the system gives no random bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RandomError;

impl std::error::Error for RandomError {}

impl fmt::Display for RandomError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the system gives no random bytes")
    }
}

/// The kernel's generator. It is asked each time and nothing is kept: the kernel reseeds when a
/// virtual machine is resumed from a snapshot, while a generator in this process would repeat
/// itself. One system call, a quarter of a microsecond.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), RandomError> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(0) => return Err(RandomError),
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(RandomError),
            }
        }
        Ok(())
    }
}

/// So many random bytes, overwritten when they are dropped.
///
/// # Errors
/// As [`Random::fill`].
pub(crate) fn random_bytes(len: usize) -> Result<Zeroizing<Vec<u8>>, RandomError> {
    let mut bytes = Zeroizing::new(vec![0; len]);
    SystemRandom.fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_buffer_is_filled_to_its_end() {
        let mut buffer = vec![0; 4096];
        SystemRandom.fill(&mut buffer).unwrap();
        assert!(buffer[4064..].iter().any(|byte| *byte != 0));
    }
}
