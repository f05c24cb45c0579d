//! `bulla cert` with keys that are made on a token and stay there.

#[path = "../../bulla-device/tests/coprocessor_common/mod.rs"]
mod coprocessor_common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use bulla_device::coprocessor::{Coprocessor, HelperCommand};
use bulla_device::{CpuDevice, Digest, Driver, Output, PrivateKey, RsaPadding, Work};
use bulla_seal::ring::Ring;
use coprocessor_common::{Token, run};

const BULLA: &str = env!("CARGO_BIN_EXE_bulla");

/// A SoftHSM2 and a data directory beside it.
struct Harness(Token);

impl Harness {
    fn path(&self, name: &str) -> PathBuf {
        self.0.dir.path().join(name)
    }

    /// What the command says, and whether it succeeded. Words are split at spaces; `~` in them is a space, `@` the
    /// directory.
    fn cert(&self, line: &str) -> (bool, String) {
        self.run("cert", line)
    }

    /// As [`Self::cert`], with any command.
    fn run(&self, command: &str, line: &str) -> (bool, String) {
        let here = self.0.dir.path().to_str().expect("a path");
        let output = Command::new(BULLA)
            .arg(command)
            .args(line.split(' ').map(|word| word.replace('~', " ").replace('@', here)))
            .args(["--data", &format!("{here}/data")])
            .env(self.0.variable, self.0.configuration())
            .output()
            .expect("the program");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    #[track_caller]
    fn done(&self, line: &str) -> String {
        let (good, text) = self.cert(line);
        assert!(good, "{line}: {text}");
        text
    }

    #[track_caller]
    fn refused(&self, line: &str, says: &str) {
        let (good, text) = self.cert(line);
        assert!(!good && text.contains(says), "{line}: {text}");
        assert!(!text.contains("s3cr3t"), "{text}");
    }

    fn token(&self) -> String {
        format!("--module {} --token pkcs11:token=Bulla%20test --pin-file @/pin", self.0.module.display())
    }

    /// A device with `bulla token-helper` as its helper process.
    fn coprocessor(&self) -> Coprocessor {
        let command = HelperCommand {
            program: BULLA.into(),
            arguments: vec!["token-helper".into()],
            variables: vec![(self.0.variable.into(), self.0.configuration().into())],
        };
        Coprocessor::new(self.0.settings(), command)
    }

    fn only_key_of(&self, user: &str) -> PrivateKey {
        let ring = Ring::load(&self.path("data/rings").join(user), None).expect("a ring");
        assert_eq!(ring.own().len(), 1);
        ring.own()[0].key.clone()
    }
}

fn harness() -> Option<Harness> {
    let harness = Harness(Token::softhsm()?);
    harness.done("create --ca demo --dn CN=Demo~CA,O=Demo --key p256");
    Some(harness)
}

#[test]
fn a_certificate_for_a_key_made_on_the_token_is_in_the_ring_with_its_uri() {
    let Some(harness) = harness() else { return };
    let token = harness.token();
    let said = harness
        .done(&format!("create --ring alice --dn CN=alice,O=Demo --key rsa2048 --label one --signer demo {token}"));
    assert!(said.starts_with("created one: "), "{said}");
    let file = fs::read_to_string(harness.path("data/rings/alice/own/one.pem")).expect("a file");
    assert!(file.contains("\npkcs11:token=Bulla%20test;id=%") && !file.contains("PRIVATE KEY"), "{file}");
    let key = harness.only_key_of("alice");
    let device = harness.coprocessor();
    let mut engine = device.start_engine().expect("an engine");
    let judge = |work| run(&mut CpuDevice::new("CPU"), &key, work);
    let padding = RsaPadding::Oaep { digest: Digest::Sha256 };
    let wrapped = judge(Work::RsaWrap { padding, content_key: Output::new(vec![7; 32]) }).expect("one").to_vec();
    let unwrap = Work::RsaUnwrap { padding, wrapped, expected_len: 32 };
    assert_eq!(&*run(&mut *engine, &key, unwrap).expect("a key"), &[7; 32]);

    harness.refused(
        "export one --ring alice --private --format p12 --to-passphrase-file @/pin",
        "the private key is on a token and does not leave it: pkcs11:token=Bulla%20test;",
    );
    let listed = harness.done("list --ring alice");
    assert!(listed.contains("one") && listed.contains("CN=alice,O=Demo"), "{listed}");
}

#[test]
fn a_request_for_another_authority_is_signed_on_the_token() {
    let Some(harness) = harness() else { return };
    let token = harness.token();
    for (key, label) in [("rsa3072", "r"), ("p256", "a"), ("p384", "b"), ("p521", "c")] {
        let files = format!("--request @/{label}.csr --key-out @/{label}.uri");
        harness.done(&format!("create {files} --dn CN={label},O=Demo --key {key} --san dns:{label}.example {token}"));
        harness.done(&format!("sign @/{label}.csr --signer demo --out @/{label}.pem"));
        let import = format!("import @/{label}.pem --key-file @/{label}.uri --ring {label}");
        harness.refused(&format!("{import} --as person"), "a private key goes into own");
        harness.done(&import);
        let (key, hash) = (harness.only_key_of(label), Digest::Sha256.hash(b"content"));
        if label == "c" {
            let device = harness.coprocessor();
            let mut engine = device.start_engine().expect("an engine");
            let signature = run(&mut *engine, &key, Work::EcdsaSign { hash }).expect("a signature").to_vec();
            run(&mut CpuDevice::new("CPU"), &key, Work::EcdsaVerify { hash, signature }).expect("a good one");
        }
        let text = Command::new("openssl")
            .args(["req", "-verify", "-noout", "-text", "-in"])
            .arg(harness.path(&format!("{label}.csr")))
            .output();
        let text = text.expect("the openssl command");
        assert!(
            text.status.success() && String::from_utf8_lossy(&text.stdout).contains(&format!("DNS:{label}.example"))
        );
    }
}

#[test]
fn a_device_of_the_data_directory_names_its_token() {
    let Some(harness) = harness() else { return };
    let objects = format!(
        "* bulla objects, format 2, queue manager QM1\n\
         DEFINE DEVICE(HSM) TYPE(COPROCESSOR) MODULE('{}') TOKEN('pkcs11:token=Bulla%20test') PINFILE('{}')\n\
         DEFINE DEVICE(FAST) TYPE(ACCELERATOR)\n",
        harness.0.module.display(),
        harness.0.pin_file().display()
    );
    fs::write(harness.path("data/objects.mqsc"), objects).expect("a file");
    harness.done("create --ring bob --dn CN=bob,O=Demo --key p256 --signer demo --device hsm");
    assert!(harness.only_key_of("bob").token_uri().is_some());
    let create = "create --ring carol --dn CN=carol,O=Demo --key p256 --signer demo --device";
    harness.refused(&format!("{create} none"), "no device NONE is defined");
    harness.refused(&format!("{create} fast"), "device FAST is a ACCELERATOR, and keeps no keys");
}

#[test]
fn what_a_token_can_not_do_here_is_said_and_leaves_nothing() {
    let Some(harness) = harness() else { return };
    let token = harness.token();
    let create = "create --ring dora --dn CN=dora,O=Demo --signer demo";
    let other = format!("create --ca other --dn CN=Other --passphrase-file @/pin {token}");
    harness.refused(&other, "a PIN, not a passphrase");
    harness.refused(&format!("{create} --passphrase-file @/pin {token}"), "a PIN, not a passphrase");
    harness.refused(
        &format!("{create} --module /nowhere.so --token pkcs11:token=a"),
        "module /nowhere.so can't be loaded",
    );
    let module = harness.0.module.display();
    harness.refused(&format!("{create} --module {module} --token pkcs11:token=a"), "no token fits pkcs11:token=a");
    harness.refused(&format!("{create} --module {module} --token pkcs11:token=a?pin-value=s3cr3t"), "pin-value");
    harness.0.write_pin("s3cr3t-wrong");
    harness.refused(&format!("{create} {token}"), "refused the PIN");
    assert!(!harness.path("data/rings/dora/own").exists());
}

/// What `openssl` says to these words, `@` the directory; they must succeed.
#[track_caller]
fn openssl(harness: &Harness, line: &str) -> String {
    let here = harness.0.dir.path().to_str().expect("a path");
    let output = Command::new("openssl").args(line.split(' ').map(|word| word.replace('@', here))).output();
    let output = output.expect("the openssl command");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{line}: {text}");
    text
}

#[test]
fn an_authority_signs_with_a_key_that_stays_on_its_token() {
    let Some(harness) = harness() else { return };
    let token = harness.token();
    let reach = format!("--signer-module {} --signer-pin-file @/pin", harness.0.module.display());
    for key in ["rsa2048", "p256", "p384", "p521"] {
        let said = harness.done(&format!("create --ca {key} --dn CN=CA~{key},O=Demo --key {key} {token}"));
        assert!(said.contains(", key pkcs11:token=Bulla%20test;id=%"), "{said}");
        let file = fs::read_to_string(harness.path(&format!("data/authorities/{key}/key.pem"))).expect("a file");
        assert!(file.starts_with("pkcs11:token=") && !file.contains("PRIVATE KEY"), "{file}");
        let create = format!("create --ring {key} --dn CN={key},O=Demo --key p256 --label one --signer {key}");
        harness.refused(&create, "no device defined in");
        harness.done(&format!("{create} {reach}"));
        let ca = format!("@/data/authorities/{key}");
        let own = format!("@/data/rings/{key}/own/one.pem");
        let checked = format!("verify -x509_strict -crl_check -CAfile {ca}/ca.pem -CRLfile {ca}/crl.pem {own}");
        openssl(&harness, &checked);
        let ring = Ring::load(&harness.path("data/rings").join(key), None).expect("a ring");
        harness.done(&format!("revoke {} --signer {key} {reach}", ring.own()[0].certificate.serial_hex()));
        let list = openssl(&harness, &format!("crl -in {ca}/crl.pem -noout -text -CAfile {ca}/ca.pem"));
        assert!(list.contains("verify OK") && list.contains("Revoked Certificates:"), "{list}");
    }
    // One below it, whose key is in a file, and one below that of a file, whose key is on the token.
    harness.done(&format!("create --ca below --dn CN=Below,O=Demo --key p256 --days 30 --signer rsa2048 {reach}"));
    harness.done(&format!("create --ca above --dn CN=Above,O=Demo --key p256 --days 30 --signer demo {token}"));
    let path = "verify -x509_strict -CAfile @/data/authorities/rsa2048/ca.pem @/data/authorities/below/ca.pem";
    openssl(&harness, path);
    openssl(&harness, "verify -x509_strict -CAfile @/data/authorities/demo/ca.pem @/data/authorities/above/ca.pem");
    // A user's new key is signed by it.
    harness.done(&format!("create --ring eve --dn CN=eve,O=Demo --key p256 --label one --signer p256 {reach}"));
    let (good, said) = harness.run("key", "rotate eve");
    assert!(!good && said.contains("no device defined in") && said.contains("--signer-module"), "{said}");
    let (good, said) = harness.run("key", &format!("rotate eve {reach}"));
    assert!(good && said.contains("eve has the key"), "{said}");
    openssl(&harness, "verify -x509_strict -CAfile @/data/authorities/p256/ca.pem @/data/rings/eve/own/one.pem");
}

#[test]
fn the_device_of_an_authority_is_found_by_its_key() {
    let Some(harness) = harness() else { return };
    let device = |name: &str| {
        format!(
            "DEFINE DEVICE({name}) TYPE(COPROCESSOR) MODULE('{}') TOKEN('pkcs11:token=Bulla%20test') PINFILE('{}')\n",
            harness.0.module.display(),
            harness.0.pin_file().display()
        )
    };
    let head = "* bulla objects, format 2, queue manager QM1\n";
    let write = |lines: String| fs::write(harness.path("data/objects.mqsc"), lines).expect("a file");
    write(format!("{head}{}", device("HSM")));
    harness.done("create --ca hsm --dn CN=HSM,O=Demo --key p256 --device hsm");
    harness.refused("create --ca hsm --dn CN=HSM,O=Demo --key p256 --device hsm", "there is an authority");
    harness.done("create --ring frank --dn CN=frank,O=Demo --key p256 --signer hsm");
    write(format!("{head}{}{}", device("HSM"), device("OTHER")));
    let create = "create --ring grace --dn CN=grace,O=Demo --key p256 --signer hsm";
    harness.refused(create, "HSM and OTHER could keep pkcs11:token=");
    harness.refused(&format!("{create} --signer-device none"), "no device NONE is defined");
    harness.done(&format!("{create} --signer-device other"));
}

#[test]
fn an_authority_whose_token_signs_with_another_key_hands_out_nothing() {
    let Some(harness) = harness() else { return };
    let token = harness.token();
    let reach = format!("--signer-module {} --signer-pin-file @/pin", harness.0.module.display());
    harness.done(&format!("create --ca one --dn CN=One,O=Demo --key p256 {token}"));
    harness.done(&format!("create --ca two --dn CN=Two,O=Demo --key p256 {token}"));
    let key_file = |name: &str| harness.path(&format!("data/authorities/{name}/key.pem"));
    let ledger = || fs::read_to_string(harness.path("data/authorities/one/ledger.txt")).expect("a file");
    let (before, own) = (ledger(), fs::read(key_file("one")).expect("a file"));
    fs::copy(key_file("two"), key_file("one")).expect("a copy");
    let create = format!("create --ring hal --dn CN=hal,O=Demo --key p256 --signer one {reach}");
    let (good, said) = harness.cert(&create);
    assert!(!good && !harness.path("data/rings/hal/own").exists(), "{said}");
    assert_eq!(ledger(), before, "{said}");
    fs::write(key_file("one"), own).expect("a file");
    harness.0.write_pin("s3cr3t-wrong");
    harness.refused(&create, "refused the PIN");
    assert_eq!(ledger(), before);
}

#[test]
fn a_queue_manager_is_made_below_an_authority_on_a_token() {
    let Some(harness) = harness() else { return };
    harness.done(&format!("create --ca hsm --dn CN=HSM,O=Demo --key rsa2048 {}", harness.token()));
    let folder = harness.path("data/authorities/hsm");
    fs::copy(folder.join("ca.pem"), harness.path("ca.pem")).expect("a copy");
    fs::copy(folder.join("key.pem"), harness.path("ca.uri")).expect("a copy");
    let site = |more: &str| {
        let text = format!(
            "name = \"HSMQM\"\n[authority]\nimport = \"ca.pem\"\nkey_file = \"ca.uri\"\n{more}\n\
             [users]\nann = {{}}\nbob = {{}}\n[queues.Q]\nput = [\"ann\"]\nget = [\"bob\"]\n"
        );
        fs::write(harness.path("site.toml"), text).expect("a file");
    };
    let init = || {
        let output = Command::new(BULLA)
            .args(["init", "--file"])
            .arg(harness.path("site.toml"))
            .arg(harness.path("made"))
            .env(harness.0.variable, harness.0.configuration())
            .output()
            .expect("the program");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), text)
    };
    let refused = |says: &str| {
        let (good, text) = init();
        assert!(!good && text.contains(says) && !text.contains("s3cr3t"), "{text}");
        assert!(!harness.path("made").exists(), "{text}");
    };
    site("");
    refused("authority.module and authority.pin_file name");
    let reach = format!("module = \"{}\"\npin_file = \"pin\"", harness.0.module.display());
    site(&reach);
    let pin = fs::read_to_string(harness.0.pin_file()).expect("a file");
    harness.0.write_pin("s3cr3t-wrong");
    refused("refused the PIN");
    harness.0.write_pin(pin.trim_end());
    let (good, text) = init();
    assert!(good, "{text}");
    let kept = fs::read_to_string(harness.path("made/authorities/local/key.pem")).expect("a file");
    assert!(kept.starts_with("pkcs11:token=") && !kept.contains("PRIVATE KEY"), "{kept}");
    openssl(&harness, "verify -x509_strict -CAfile @/ca.pem @/made/rings/ann/own/ann.pem");
    openssl(&harness, "verify -x509_strict -CAfile @/ca.pem @/made/tls/server.pem");
    // A second run says the same, and needs no token.
    harness.0.write_pin("s3cr3t-wrong");
    assert_eq!(init(), (true, text));
}
