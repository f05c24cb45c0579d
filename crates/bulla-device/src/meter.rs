//! What a device did: how often, how long, and how long jobs waited for it.

use std::fmt;

/// The operations that are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// An RSA signature.
    RsaSign,
    /// An ECDSA signature.
    EcdsaSign,
    /// An RSA key unwrap.
    RsaUnwrap,
    /// An ECDH derivation.
    EcdhDerive,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Operation::RsaSign => "RSA-SIGN",
            Operation::EcdsaSign => "ECDSA-SIGN",
            Operation::RsaUnwrap => "RSA-UNWRAP",
            Operation::EcdhDerive => "ECDH-DERIVE",
        })
    }
}

/// The counters of one operation at one key size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    /// The operation.
    pub operation: Operation,
    /// Bits of the key.
    pub bits: u32,
    /// Jobs that were carried out, failures included.
    pub count: u64,
    /// Jobs that failed.
    pub failures: u64,
    /// Processor time of the jobs, nanoseconds; the check with the public key is part of it.
    pub cpu_ns: u64,
    /// Time between submission and start, nanoseconds.
    pub wait_ns: u64,
}

/// The meters of a device, one entry for each operation and key size seen so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meters {
    entries: Vec<Meter>,
}

impl Meters {
    /// The entries in the order in which they were first seen.
    pub fn entries(&self) -> &[Meter] {
        &self.entries
    }

    /// Counts one job. A handful of entries at most: a search from the front is quickest.
    pub fn record(&mut self, operation: Operation, bits: u32, cpu_ns: u64, wait_ns: u64, failed: bool) {
        let found = self.entries.iter().position(|e| e.operation == operation && e.bits == bits);
        let at = found.unwrap_or_else(|| {
            self.entries.push(Meter { operation, bits, count: 0, failures: 0, cpu_ns: 0, wait_ns: 0 });
            self.entries.len() - 1
        });
        if let Some(entry) = self.entries.get_mut(at) {
            entry.count = entry.count.saturating_add(1);
            entry.failures = entry.failures.saturating_add(u64::from(failed));
            entry.cpu_ns = entry.cpu_ns.saturating_add(cpu_ns);
            entry.wait_ns = entry.wait_ns.saturating_add(wait_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_and_key_size_has_its_own_entry() {
        let mut meters = Meters::default();
        meters.record(Operation::RsaSign, 2048, 10, 1, false);
        meters.record(Operation::RsaSign, 4096, 70, 2, false);
        meters.record(Operation::RsaSign, 2048, 12, 3, true);
        assert_eq!(meters.entries().len(), 2);
        let first = meters.entries()[0];
        assert_eq!((first.count, first.failures, first.cpu_ns, first.wait_ns), (2, 1, 22, 4));
    }
}
