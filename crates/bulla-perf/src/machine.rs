//! The machine that measures, as a reader of the results needs to know it.

use crate::result::Machine;
use std::fs;
use std::thread::available_parallelism;

/// Instructions without which cryptography is much slower, as the kernel calls them.
const INSTRUCTIONS: [&str; 10] =
    ["aes", "vaes", "pclmulqdq", "vpclmulqdq", "sha_ni", "bmi2", "adx", "avx2", "avx512f", "avx512ifma"];

impl Machine {
    /// The one that this runs on. What the system does not say stays empty.
    #[must_use]
    pub fn this_one() -> Machine {
        let (processors, memory) = (text("/proc/cpuinfo"), text("/proc/meminfo"));
        let flags: Vec<&str> = field(&processors, "flags").unwrap_or_default().split_ascii_whitespace().collect();
        let kilobytes = field(&memory, "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
        Machine {
            processor: field(&processors, "model name").unwrap_or_default().to_owned(),
            cores: available_parallelism().map_or(0, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            memory_bytes: kilobytes.unwrap_or(0).saturating_mul(1024),
            system: text("/proc/version").split_ascii_whitespace().take(3).collect::<Vec<_>>().join(" "),
            is_virtual: flags.contains(&"hypervisor"),
            instructions: INSTRUCTIONS.iter().filter(|name| flags.contains(*name)).map(ToString::to_string).collect(),
            openssl: openssl::version::version().to_owned(),
        }
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first line's value of that name.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::this_one();
        assert!(machine.cores > 0 && machine.memory_bytes > 0, "{machine:?}");
        assert!(machine.openssl.starts_with("OpenSSL 4"), "{machine:?}");
    }
}
