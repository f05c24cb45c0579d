//! Where private keys are, in a process of its own: the memory for them is set aside once.

#![allow(missing_docs, clippy::unwrap_used)]

use bulla_device::PrivateKey;
use bulla_device::key_memory::{self, KeyBytes, KeyMemory};
use openssl::ec::{EcGroup, EcKey};
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;

/// The flags of the mapping that is as long.
fn flags_of(bytes: usize) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let size = format!("Size: {} kB", bytes >> 10);
    let mut lines = maps.lines().skip_while(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") != size);
    let flags =
        lines.find_map(|line| line.strip_prefix("VmFlags:")).expect("the memory for keys is a mapping of its own");
    flags.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn private_keys_are_in_memory_that_is_locked_left_out_of_core_files_and_given_back() {
    let pem = |key: PKey<_>| key.private_key_to_pem_pkcs8().unwrap();
    let rsa = pem(PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap());
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let ec = pem(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap());
    assert_eq!(key_memory::used(), 0);

    let reserved = key_memory::reserve();
    assert_eq!(key_memory::reserve(), reserved);
    let (KeyMemory::Locked { bytes } | KeyMemory::Unlocked { bytes, .. }) = reserved else { panic!("{reserved}") };
    let flags = flags_of(bytes);
    assert!(flags.iter().any(|flag| flag == "dd"), "{flags:?}");
    let is_locked = matches!(reserved, KeyMemory::Locked { .. });
    assert_eq!(flags.iter().any(|flag| flag == "lo"), is_locked, "{reserved}: {flags:?}");

    // d and the primes of RSA 2048 are 512 bytes, what is derived from the primes 384; the scalar of P-256 is 32.
    for (pem, least) in [(rsa, 896), (ec, 32)] {
        let before = key_memory::used();
        let key = PrivateKey::clear(PKey::private_key_from_pem(&pem).unwrap()).unwrap();
        let taken = key_memory::used() - before;
        assert!(taken >= least, "{key:?} takes {taken}");
        println!("{key:?} takes {taken} bytes");
        drop(key);
        assert!(key_memory::used() - before < least, "{} are left", key_memory::used() - before);
    }

    // Content keys, and more of them than there is room for.
    let before = key_memory::used();
    let mut keys = KeyBytes::zeroed(16 << 10);
    assert_eq!((key_memory::used() - before, keys.iter().any(|byte| *byte != 0)), (16 << 10, false));
    keys.fill(7);
    assert_eq!(format!("{keys:?}"), "KeyBytes(16384)");
    let mut elsewhere = KeyBytes::zeroed(bytes);
    assert_eq!((key_memory::used() - before, elsewhere.len(), elsewhere[bytes - 1]), (16 << 10, bytes, 0));
    elsewhere[0] = 1;
    drop((keys, elsewhere));
    assert_eq!(key_memory::used(), before);
}
