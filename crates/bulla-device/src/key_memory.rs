//! Memory for keys that is not written to swap.
//!
//! OpenSSL takes the secret numbers of private keys from a heap of its own where one was set up: of RSA keys d, the
//! primes and what is derived from them, of keys on curves the scalar, keys made for one agreement, nonces, and the
//! state of its random generators. The heap is locked in memory, left out of core files, fenced by pages that can't be
//! touched, and overwritten when it is given back. [`KeyBytes`] are of the same heap, for content keys that are
//! remembered. What OpenSSL computes with meanwhile, its cipher contexts with content keys, and all else that is not
//! OpenSSL's is in ordinary memory: [`lock_all`] keeps that out of swap, too.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use zeroize::Zeroizing;

/// Least memory for private keys. Linux lets a process lock as much since 5.16, unless told otherwise.
pub const KEY_MEMORY_BYTES_MIN: usize = 8 << 20;
/// Most memory for private keys.
pub const KEY_MEMORY_BYTES_MAX: usize = 64 << 20;
/// The smallest block of it: a scalar of P-256.
const BLOCK_BYTES_MIN: usize = 32;

/// What became of the memory for private keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMemory {
    /// It stays in memory and is in no core file.
    Locked {
        /// How much there is.
        bytes: usize,
    },
    /// The owner's turn: the system does not let this process lock so much, so that keys may be written to swap.
    Unlocked {
        /// How much there is.
        bytes: usize,
        /// What may be locked, RLIMIT_MEMLOCK in bytes; none where that is unlimited.
        limit: Option<u64>,
    },
    /// There is none: keys are in ordinary memory.
    Ordinary,
}

impl fmt::Display for KeyMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyMemory::Locked { bytes } => write!(out, "{} KiB for private keys are locked in memory", bytes >> 10),
            KeyMemory::Unlocked { bytes, limit: Some(limit) } => write!(
                out,
                "private keys may be written to swap: RLIMIT_MEMLOCK is {} KiB, and {} are needed",
                limit >> 10,
                bytes >> 10
            ),
            KeyMemory::Unlocked { .. } => {
                out.write_str("private keys may be written to swap: the system locks no memory")
            }
            KeyMemory::Ordinary => out.write_str("private keys may be written to swap: no memory could be set aside"),
        }
    }
}

/// Sets memory for private keys aside, once a process: before the first key, and before there is another thread.
/// There is as much as may be locked, within [`KEY_MEMORY_BYTES_MIN`] and [`KEY_MEMORY_BYTES_MAX`].
pub fn reserve() -> KeyMemory {
    static RESERVED: OnceLock<KeyMemory> = OnceLock::new();
    *RESERVED.get_or_init(|| {
        let limit = getrlimit(Resource::Memlock).current;
        let allowed = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let bytes = power_of_two_within(allowed.clamp(KEY_MEMORY_BYTES_MIN, KEY_MEMORY_BYTES_MAX));
        // SAFETY: both are powers of two, the first by far the greater; nothing else in this process calls it.
        match unsafe { CRYPTO_secure_malloc_init(bytes, BLOCK_BYTES_MIN) } {
            1 => KeyMemory::Locked { bytes },
            2 => KeyMemory::Unlocked { bytes, limit },
            _ => KeyMemory::Ordinary,
        }
    })
}

/// The greatest power of two that is not above `bytes`, which is not 0.
fn power_of_two_within(bytes: usize) -> usize {
    1 << bytes.ilog2()
}

/// How much of the memory for private keys is in use, bytes.
pub fn used() -> usize {
    // SAFETY: it reads a counter, under a lock of its own.
    unsafe { CRYPTO_secure_used() }
}

/// Bytes of the memory for keys, overwritten when they are given back. Where [`reserve`] was not called or all of that
/// memory is in use they are in ordinary memory, and overwritten all the same.
pub struct KeyBytes(Place);

enum Place {
    /// In the heap for keys.
    Kept {
        start: NonNull<u8>,
        len: usize,
    },
    Ordinary(Zeroizing<Vec<u8>>),
}

// SAFETY: they have one owner, as a `Box<[u8]>` has; OpenSSL takes its lock where it hands them out and takes them
// back.
unsafe impl Send for KeyBytes {}
// SAFETY: as for `Send`; behind a shared reference they are only read.
unsafe impl Sync for KeyBytes {}

impl KeyBytes {
    /// So many zeros.
    pub fn zeroed(len: usize) -> KeyBytes {
        // SAFETY: it takes no pointer but that to a file name, which may be absent: then no error is recorded.
        let start = unsafe { CRYPTO_secure_zalloc(len, std::ptr::null(), 0) };
        KeyBytes(match NonNull::new(start.cast::<u8>()) {
            Some(start) => Place::Kept { start, len },
            None => Place::Ordinary(Zeroizing::new(vec![0; len])),
        })
    }
}

impl Deref for KeyBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: OpenSSL handed out `len` bytes there, all of them zeroed, which are this value's until it is
            // dropped.
            Place::Kept { start, len } => unsafe { std::slice::from_raw_parts(start.as_ptr(), *len) },
            Place::Ordinary(bytes) => bytes,
        }
    }
}

impl DerefMut for KeyBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            // SAFETY: as for `deref`, and this reference is the only one.
            Place::Kept { start, len } => unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), *len) },
            Place::Ordinary(bytes) => bytes,
        }
    }
}

impl Drop for KeyBytes {
    fn drop(&mut self) {
        if let Place::Kept { start, len } = self.0 {
            // SAFETY: OpenSSL handed them out, and nothing refers to them any more. It overwrites them first.
            unsafe { CRYPTO_secure_clear_free(start.as_ptr().cast(), len, std::ptr::null(), 0) };
        }
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KeyBytes({})", self.len())
    }
}

/// Keeps all memory of this process out of swap, what it takes later included: content keys and payloads, too.
///
/// # Errors
/// The owner's turn: RLIMIT_MEMLOCK is not unlimited (under a limit, memory that is asked for later would be refused)
/// and the process has no CAP_IPC_LOCK, which is above the limit; or the system's own reason.
pub fn lock_all() -> io::Result<()> {
    let above = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if let Some(limit) = getrlimit(Resource::Memlock).current.filter(|_| !above) {
        let why = format!("RLIMIT_MEMLOCK is {} KiB, and must be unlimited", limit >> 10);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    // Pages are locked when they are first used: stacks and reserves that nothing touches take no memory.
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

unsafe extern "C" {
    // Parts of libcrypto's public interface (<openssl/crypto.h>), absent from openssl-sys.
    fn CRYPTO_secure_malloc_init(bytes: usize, smallest: usize) -> c_int;
    fn CRYPTO_secure_used() -> usize;
    fn CRYPTO_secure_zalloc(bytes: usize, file: *const c_char, line: c_int) -> *mut c_void;
    fn CRYPTO_secure_clear_free(start: *mut c_void, bytes: usize, file: *const c_char, line: c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_as_much_as_may_be_locked_within_bounds() {
        for (allowed, bytes) in [(8 << 20, 8 << 20), ((16 << 20) - 1, 8 << 20), (64 << 20, 64 << 20)] {
            assert_eq!(power_of_two_within(allowed), bytes);
        }
    }

    #[test]
    fn what_is_not_locked_is_said_with_the_limit() {
        let told = KeyMemory::Unlocked { bytes: KEY_MEMORY_BYTES_MIN, limit: Some(64 << 10) }.to_string();
        assert_eq!(told, "private keys may be written to swap: RLIMIT_MEMLOCK is 64 KiB, and 8192 are needed");
    }
}
