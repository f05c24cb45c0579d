//! `bulla init` without a queue manager: what it makes, what it refuses, and that it goes on where it stopped.

use super::build::{STEPS, authority_file, password_file, steps};
use super::file::{EXAMPLE, Protection, SiteFile};
use super::plan::{Outline, Plan};
use super::record::{Found, Record};
use super::*;
use crate::catalog::Definitions;
use crate::objects_file::DefinitionsFile;
use crate::users::{ITERATIONS_MIN, Users};
use bulla_seal::certificate::authority::{Authority, Founding};
use bulla_seal::certificate::bundle::to_pkcs12;
use bulla_seal::certificate::{Certificate, Curve, KeySpec, Passphrase, Usage, read_private_key};
use bulla_seal::policy::Revocation;
use bulla_seal::ring::Ring;
use clap::Parser;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    init: InitArgs,
}

/// A folder with a file and a data directory.
struct Site {
    folder: tempfile::TempDir,
    now: SystemTime,
}

impl Site {
    fn new(text: &str) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), now: SystemTime::now() };
        site.write("site.toml", text.as_bytes());
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("qm")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn file(&self) -> Result<SiteFile, CliError> {
        SiteFile::read(&self.path("site.toml"))
    }

    /// The first `count` steps, of those that are not done.
    fn make(&self, count: usize) -> Result<(), CliError> {
        let file = self.file()?;
        let record = match Found::at(&self.data())? {
            Found::Nothing => Record::new(file),
            Found::Begun(record) | Found::Made(record) => record,
        };
        let plan = Plan::of(Outline::of(&record)?, &record.file, self.now)?;
        steps(&self.data(), &record, &plan, ITERATIONS_MIN, count, self.now)
    }

    /// What the program prints, where all is made already.
    fn say(&self, options: &[&str]) -> Result<String, CliError> {
        let data = self.data();
        let line = [&["init", data.to_str().unwrap()], options].concat();
        let args = Line::try_parse_from(line).unwrap().init;
        let mut out = Vec::new();
        perform(&args, Found::at(&data)?, self.file()?, self.now, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn refuse(&self, said: &str) -> CliError {
        let error = self.make(STEPS).expect_err(said);
        assert!(error.message.contains(said), "{said}: {}", error.message);
        assert!(!self.data().exists(), "{said}: something was written");
        error
    }

    /// Every file below the data directory.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut files, mut folders) = (BTreeMap::new(), vec![self.data()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => drop(files.insert(path.clone(), fs::read(&path).unwrap())),
                }
            }
        }
        files
    }
}

#[test]
fn the_example_is_a_queue_manager_whose_users_can_seal_and_open() {
    let site = Site::new(EXAMPLE);
    site.make(STEPS).unwrap();
    let data = site.data();
    let definitions = Definitions::load(&data).unwrap().unwrap();
    let policy = &definitions.policies["ORDERS"];
    assert_eq!(policy.signers[0].to_string(), "CN=orders,O=Demo");
    let orders = Ring::load(&data.join("rings/orders"), None).unwrap();
    orders.signing(Revocation::IfPresent, site.now).unwrap();
    orders.recipient(&policy.recipients[0], Usage::KeyTransport, Revocation::IfPresent, site.now).unwrap();
    // A user who does not put needs no certificates of others.
    assert!(Ring::load(&data.join("rings/billing"), None).unwrap().people().is_empty());
    let users = Users::open(&data).unwrap();
    for user in ["admin", "billing", "orders"] {
        let password = fs::read_to_string(password_file(&data, user)).unwrap();
        assert!(password.len() == 25 && users.is_password(user, password.trim_end()), "{user}");
    }
    for (path, _) in site.files() {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
    let said = site.say(&[]).unwrap();
    for client in ["python-qpid-proton", "Qpid JMS", "AMQPNetLite", "rhea", "go-amqp"] {
        assert!(said.contains(client), "{said}");
    }
    assert!(!said.contains('«') && said.contains("| admin (administrator) | "), "{said}");
    let password = fs::read_to_string(password_file(&data, "orders")).unwrap();
    assert!(!said.contains(password.trim_end()));
    let said = site.say(&["--show-passwords", "--client", "rhea"]).unwrap();
    assert!(said.contains(password.trim_end()) && !said.contains("JMS"), "{said}");
}

#[test]
fn one_that_stopped_after_any_step_goes_on_and_makes_nothing_twice() {
    for count in 0..=STEPS {
        let site = Site::new(EXAMPLE);
        site.make(count).unwrap();
        assert_eq!(refuse_unfinished(&site.data()).is_err(), count < STEPS);
        let before = site.files();
        site.make(STEPS).unwrap();
        let after = site.files();
        for (path, bytes) in before {
            // A ledger is only ever added to.
            let same = match path.ends_with("ledger.txt") {
                true => after[&path].starts_with(&bytes),
                false => after[&path] == bytes,
            };
            assert!(same, "after {count} steps {} was made again", path.display());
        }
        refuse_unfinished(&site.data()).unwrap();
        let issued = Authority::ledger(&site.data().join("authorities/local")).unwrap();
        assert_eq!(issued.len(), 3, "two users and the listener");
        let before = site.files();
        site.say(&[]).unwrap();
        assert!(before == site.files(), "what is made is left alone");
    }
}

#[test]
fn another_file_and_another_queue_manager_are_refused() {
    let site = Site::new(EXAMPLE);
    site.make(2).unwrap();
    site.write("site.toml", EXAMPLE.replace("Demo", "Other").as_bytes());
    let error = site.say(&[]).unwrap_err();
    assert!(error.message.contains("from a file that said something else"), "{error}");
    let site = Site::new(EXAMPLE);
    fs::create_dir_all(site.data().join("journal")).unwrap();
    let error = site.make(STEPS).unwrap_err();
    assert!(error.message.contains("did not make: journal is there"), "{error}");
}

#[test]
fn mistakes_are_refused_with_their_place_and_leave_nothing() {
    let refuse = |text: &str, said: &str| Site::new(text).refuse(said);
    let hint = |text: &str, said: &str, hint: &str| {
        let found = refuse(text, said).hint.unwrap_or_default();
        assert!(found.contains(hint), "{said}: {found}");
    };
    let queue = |keys: &str| format!("[users]\na = {{}}\nb = {{}}\n[queues.Q]\n{keys}\n");
    hint("[users.a]\npasword_file = \"x\"", "site.toml:2: unknown key `pasword_file`", "`password_file`");
    hint(&queue("protection = \"secrecy\""), "unknown variant `secrecy`", "`confidentiality`");
    hint(&queue("put = [\"a\"]\nget = [\"c\"]"), "queues.Q.get: there is no user 'c'", "c = {}");
    hint("name = \"QM 1\"", "'QM 1' is not a name for a queue manager", "48");
    hint("[users.'../a']", "'../a' is not a name for a user", "letters");
    hint("[listen]\namqps = \"5671\"", "listen.amqps: '5671' is no address", "127.0.0.1:5671");
    refuse("[listen]\namqps = \"none\"", "can't be none");
    refuse("[queues.'A B']", "'A B' is not a name for a queue");
    refuse(&queue("put = [\"a\"]"), "queues.Q.get names no user");
    refuse(&queue("get = [\"a\"]"), "queues.Q.put names no user");
    refuse(&queue("put = [\"a\"]\nget = [\"a\"]\nbrowse = [\"b\"]"), "'b' can't read what is encrypted");
    refuse(&queue("put = [\"admin\"]\nget = [\"a\"]"), "there is no user 'admin' with a key ring");
    refuse("hosts = [\"mq,dns:other\"]", "neither a host's name nor an address");
    refuse("[users]\na = { dn = \"CN=b\" }\nb = {}", "users a and b have the same dn");
    refuse("[users.a]\nkey = \"rsa512\"", "users.a.key");
    refuse("[users.a]\ndays = 0", "users.a.days: 0 is not between");
    refuse("[users.a]\npassword_file = \"/nowhere/x\"", "/nowhere/x: ");
    refuse("mqsc = \"/nowhere/x\"", "/nowhere/x: ");
    refuse("[authority]\nkey_file = \"x\"", "authority.import");
    refuse("name = 3", "site.toml:1: invalid type");
    refuse("[[[", "site.toml:1: ");
}

#[test]
fn further_definitions_follow_the_language_and_its_rules() {
    let site = Site::new(&format!("mqsc = \"more.mqsc\"\n{EXAMPLE}"));
    site.write("more.mqsc", b"CLEAR QLOCAL(ORDERS)");
    site.refuse("more.mqsc:1:1");
    site.write("more.mqsc", b"ALTER QLOCAL(ORDERS) MAXDEHPT(7)");
    site.refuse("more.mqsc:1:");
    site.write("more.mqsc", b"ALTER QLOCAL(ORDERS) MAXDEPTH(7)\nDEFINE QALIAS(RAW) TARGET(ORDERS)");
    site.make(STEPS).unwrap();
    let definitions = Definitions::load(&site.data()).unwrap().unwrap();
    assert_eq!(definitions.queues["ORDERS"].max_depth, 7);
}

#[test]
fn the_listener_s_certificate_has_the_machine_s_names_and_those_of_the_file() {
    let site = Site::new(&format!("hosts = [\"mq.example.org\", \"192.0.2.9\"]\n{EXAMPLE}"));
    site.make(STEPS).unwrap();
    let pem = fs::read(site.data().join("tls/server.pem")).unwrap();
    let certificate = Certificate::all_from_pem(&pem, 9).unwrap().remove(0);
    let names = certificate.x509().subject_alt_names().unwrap();
    let hosts: Vec<_> = names.iter().filter_map(|name| name.dnsname()).collect();
    assert_eq!(hosts[..2], ["mq.example.org", "localhost"]);
    let addresses: Vec<_> = names.iter().filter_map(|name| name.ipaddress()).collect();
    assert_eq!(addresses[..2], [&[192, 0, 2, 9][..], &[127, 0, 0, 1]]);
    assert_eq!(certificate.dn().to_string(), "CN=mq.example.org");
}

#[test]
fn an_authority_is_imported_with_its_path_and_others_are_refused() {
    let site = Site::new(&format!("{EXAMPLE}\n").replace("# import = \"authority.p12\"", "import = \"ca.p12\""));
    let founding = |dn, parent| Founding { dn, key: KeySpec::Ec(Curve::P256), days: 100, passphrase: None, parent };
    let [root, below] = ["CN=Root", "CN=Below"].map(|dn| dn.parse().unwrap());
    let root = Authority::found(&site.path("root"), &founding(&root, None), site.now).unwrap();
    let below = Authority::found(&site.path("below"), &founding(&below, Some(&root)), site.now).unwrap();
    let key = read_private_key(&fs::read(site.path("below/key.pem")).unwrap(), None).unwrap();
    let secret = Passphrase::new("correct horse".into());
    let store = |chain: &[Certificate]| to_pkcs12("ca", below.certificate(), chain, Some(&key), &secret).unwrap();
    site.write("ca.p12", &store(&[root.certificate().clone()]));
    site.write("pass", b"correct horse\n");
    site.refuse("ca.p12: ");
    let text = fs::read_to_string(site.path("site.toml")).unwrap();
    let text = text.replace("# passphrase_file = \"authority.passphrase\"", "passphrase_file = \"pass\"");
    site.write("site.toml", text.as_bytes());
    site.write("ca.p12", &store(&[]));
    site.refuse("the certificate of CN=Root, which signed that of CN=Below, is not in the file");
    site.write("ca.p12", b"pkcs11:token=a;object=b\n");
    site.refuse("the key of the authority is elsewhere: pkcs11:token=a;object=b");
    site.write("ca.p12", &store(&[root.certificate().clone()]));
    site.make(STEPS).unwrap();
    assert!(site.say(&[]).is_ok());
    let kept = fs::read_to_string(site.data().join("authorities/local/key.pem")).unwrap();
    assert!(kept.contains("ENCRYPTED"));
    let ring = Ring::load(&site.data().join("rings/orders"), None).unwrap();
    ring.signing(Revocation::IfPresent, site.now).unwrap();
    assert_eq!(ring.trust(), [root.certificate().clone()]);
    assert_eq!(fs::read(authority_file(&site.data())).unwrap(), root.certificate().to_pem());
    // Nothing outlives the authority that signed it.
    assert!(ring.own()[0].certificate.not_after() <= below.certificate().not_after());
    let user = fs::read(site.data().join("rings/orders/own/orders.pem")).unwrap();
    let plain = text.replace("passphrase_file = \"pass\"", "");
    let leaf = Site::new(&plain);
    leaf.write("ca.p12", &user);
    leaf.refuse("the certificate of CN=orders,O=Demo is no authority's");
}

#[test]
fn answers_become_what_a_file_would_say() {
    let ask = |answers: &str| questions::ask(&mut answers.as_bytes(), &mut Vec::new());
    let file = ask("\n\n\n\n\n\n\n\n").unwrap();
    assert_eq!(file, SiteFile::parse(EXAMPLE, Path::new("x"), Path::new("/")).unwrap());
    let file = ask("Acme\nperhaps\nyes\nmq.acme.example\nu, v\nA\nintegrity\nu\nu v\n\n").unwrap();
    assert_eq!(file.hosts, ["mq.acme.example"]);
    assert_eq!(file.listen.amqps.as_deref(), Some("0.0.0.0:5671"));
    assert_eq!((file.queues["A"].protection, file.queues["A"].get.len()), (Protection::Integrity, 2));
    assert!(ask("\n\n").unwrap_err().message.contains("answers end"));
}
