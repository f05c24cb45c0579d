//! What the commands define is kept as text, and read back.

use super::*;
use crate::attributes::Cells;
use crate::execute;
use crate::policy;
use crate::reply::{EXIT_DONE, show};
use crate::run::Administered;
use crate::transcripts::Paper;
use bulla_catalog::{
    AliasQueue, DEVICES_MAX, Destination, Full, LocalQueue, OBJECTS_MAX, QueueManager, RemoteQueue, ResolveError,
    Usage, objects,
};
use bulla_seal::Policy;
use std::sync::Arc;

fn built(commands: &str) -> Definitions {
    let mut paper = Paper::new();
    let shown = show(&execute(commands, &mut paper), false, None);
    assert_eq!(shown.exit_code, EXIT_DONE, "{}", shown.stderr);
    paper.definitions().clone()
}

fn reread(text: &str) -> Result<Definitions, String> {
    Definitions::from_text(text, Path::new("objects.mqsc")).map_err(|error| error.to_string())
}

#[test]
fn what_is_not_given_is_the_table_s_default() {
    fn check(verb: &str, noun: &str, cell: impl Fn(Key) -> Option<Cell>) {
        for attribute in table::command(verb, noun).unwrap().attributes {
            let cell = cell(attribute.key).unwrap_or_else(|| panic!("{noun} forgets {}", attribute.keyword));
            let shown = match cell {
                Cell::Text(text) if text.is_empty() && !["TARGET", "SERVERS"].contains(&attribute.keyword) => {
                    "' '".into()
                }
                Cell::Text(text) => text,
                Cell::Number(number) => number.to_string(),
                // A word says what an empty list means.
                Cell::List(list) if list.is_empty() && noun == "POLICY" => continue,
                Cell::List(list) if list.is_empty() => "' '".into(),
                other => panic!("{noun} {}: {other:?}", attribute.keyword),
            };
            assert_eq!(shown, attribute.default, "{noun} {}", attribute.keyword);
        }
    }
    // A channel's and a device's are its type's, and an address map has none.
    let others = [Sort::Channel, Sort::Device, Sort::AddressMap];
    for noun in nouns::all().filter(|noun| !others.contains(&noun.sort())) {
        check(noun.commands()[0].verb, noun.word(), |key| noun.default_cell(key));
    }
    check("ALTER", "QMGR", |key| Definitions::initial("Q").queue_manager.cell(key));
    const TRANSIT: &str = "TRANSIT) ADDRESS('https://v') CAFILE('/c') TOKENFILE('/t'";
    for setup in ["COPROCESSOR) MODULE('/m') TOKEN('pkcs11:token=t'", TRANSIT, "MODELLED", "ACCELERATOR"] {
        let device = &built(&format!("DEF DEV(D) TYPE({setup})")).devices["D"];
        for attribute in table::command("DEFINE", "DEVICE").unwrap().attributes {
            let shown = match nouns::device::DEVICE.kept(device, attribute.key) {
                Some(Cell::Text(text)) if text.is_empty() => "' '".into(),
                Some(Cell::Text(text)) => text,
                Some(Cell::Number(number)) => number.to_string(),
                _ => continue,
            };
            if !attribute.default.is_empty() {
                assert_eq!(shown, attribute.default, "{setup} {}", attribute.keyword);
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    for kind in ["SDR) XMITQ(X) CONNAME('h'", "RCVR", "SVR) XMITQ(X", "RQSTR) CONNAME('h'"] {
        let mut paper = Paper::new();
        execute(&format!("DEF CHL(C) CHLTYPE({kind})"), &mut paper);
        let channel = nouns::noun(Sort::Channel)
            .candidates(&parse::statements("DIS CHL(C)")[0].as_ref().unwrap().name, &paper)
            .remove(0)
            .2;
        for attribute in table::command("DEFINE", "CHANNEL").unwrap().attributes {
            let shown = match channel(attribute.key) {
                Some(Cell::Text(text)) if text.is_empty() => "' '".into(),
                Some(Cell::Text(text)) => text,
                Some(Cell::Number(number)) => number.to_string(),
                None => continue,
                other => panic!("{}: {other:?}", attribute.keyword),
            };
            seen.insert(attribute.keyword);
            if !["CHLTYPE", "XMITQ", "CONNAME"].contains(&attribute.keyword) {
                assert_eq!(shown, attribute.default, "{kind} {}", attribute.keyword);
            }
        }
    }
    assert_eq!(seen.len(), table::command("DEFINE", "CHANNEL").unwrap().attributes.len(), "each is some type's");
}

#[test]
fn an_opened_name_has_the_policy_of_that_name() {
    let definitions = built(
        "DEF QL(ORDERS) PUT(DISABLED)\nDEF QA(RAW) TARGET(ORDERS)\nDEF QA(LOST) TARGET(NOWHERE)\nDEF QA(CHAIN) \
         TARGET(RAW)\n\
         SET POLICY(ORDERS) SIGNALG(SHA256)",
    );
    let resolved = definitions.resolve("ORDERS").unwrap();
    assert!(resolved.queue == "ORDERS" && resolved.policy.is_some() && !resolved.put_enabled);
    let resolved = definitions.resolve("RAW").unwrap();
    assert!(resolved.queue == "ORDERS" && resolved.policy.is_none() && resolved.get_enabled && !resolved.put_enabled);
    for (name, reason) in [("NONE", 2085), ("LOST", 2082), ("CHAIN", 2001), ("orders", 2085)] {
        assert_eq!(definitions.resolve(name).unwrap_err().reason(), reason, "{name}");
    }
}

/// A queue manager HOME with something of every sort that a name can come to.
fn crossroads() -> Definitions {
    let mut home = Definitions::initial("HOME");
    let alias = |target: &str| AliasQueue { target: target.into(), ..AliasQueue::default() };
    let remote = |name: &str, manager: &str, queue: &str| {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        RemoteQueue {
            remote_name: given(name),
            remote_manager: given(manager),
            transmission_queue: given(queue),
            ..RemoteQueue::default()
        }
    };
    for name in ["ORDERS", "NORMAL"] {
        home.queues.insert(name.into(), LocalQueue::default());
    }
    for name in ["AWAY", "SIDEWAYS"] {
        let local = LocalQueue { usage: Usage::Transmission, default_priority: 7, ..LocalQueue::default() };
        home.queues.insert(name.into(), local);
    }
    for (name, target) in [("A.ORDERS", "ORDERS"), ("A.FAR", "FAR"), ("A.LOST", "NOWHERE"), ("A.A", "A.ORDERS")] {
        home.aliases.insert(name.into(), alias(target));
    }
    for (name, of) in [
        ("FAR", remote("THERE", "AWAY", "")),
        ("FAR.SIDE", remote("THERE", "AWAY", "SIDEWAYS")),
        ("FAR.UNKNOWN", remote("THERE", "MOON", "")),
        ("FAR.HOME", remote("THERE", "HOME", "AWAY")),
        ("FAR.NO.MANAGER", remote("THERE", "", "AWAY")),
        ("FAR.NO.XMITQ", remote("THERE", "AWAY", "NONE")),
        ("FAR.NORMAL", remote("THERE", "AWAY", "NORMAL")),
        ("FAR.ALIAS", remote("THERE", "AWAY", "A.ORDERS")),
        ("FAR.LIKE.NORMAL", remote("THERE", "NORMAL", "")),
        ("FAR.LIKE.ALIAS", remote("THERE", "A.ORDERS", "")),
        ("OTHER", remote("", "AWAY", "SIDEWAYS")),
        ("MYSELF", remote("", "HOME", "")),
        ("NOBODY", remote("", "", "AWAY")),
        ("BAD.OTHER", remote("", "AWAY", "NONE")),
    ] {
        home.remotes.insert(name.into(), of);
    }
    for name in ["ORDERS", "FAR", "A.FAR"] {
        home.policies.insert(name.into(), Arc::new(Policy::new(name)));
    }
    home
}

/// `ORDERS`, or `AWAY: THERE@AWAY`, with a `!` where the opened name has a policy; or the reason code.
fn way(definitions: &Definitions, object: &str) -> String {
    match definitions.resolve_put(object) {
        Ok(Destination::Local(found)) => {
            format!("{}{}", found.queue, if found.policy.is_some() { "!" } else { "" })
        }
        Ok(Destination::Remote(found)) => {
            let policy = if found.policy.is_some() { "!" } else { "" };
            format!("{}: {}@{}{policy}", found.queue, found.remote_name, found.remote_manager)
        }
        Err(error) => error.reason().to_string(),
    }
}

#[test]
fn every_name_that_is_opened_to_put_leads_where_mq_says() {
    let mut home = crossroads();
    for (object, expected) in [
        ("ORDERS", "ORDERS!"),
        ("ORDERS@HOME", "ORDERS!"),
        ("A.ORDERS", "ORDERS"),
        ("A.ORDERS@HOME", "ORDERS"),
        ("AWAY", "AWAY"),
        ("FAR", "AWAY: THERE@AWAY!"),
        ("FAR@HOME", "AWAY: THERE@AWAY!"),
        ("A.FAR", "AWAY: THERE@AWAY!"),
        ("FAR.SIDE", "SIDEWAYS: THERE@AWAY"),
        ("ORDERS@AWAY", "AWAY: ORDERS@AWAY"),
        ("FAR@AWAY", "AWAY: FAR@AWAY"),
        ("ORDERS@OTHER", "SIDEWAYS: ORDERS@AWAY"),
        ("ORDERS@MYSELF", "ORDERS!"),
        ("FAR@MYSELF", "AWAY: THERE@AWAY!"),
        // What can't be opened.
        ("A.A", "2001"),
        ("A.LOST", "2082"),
        ("NONE", "2085"),
        ("NONE@HOME", "2085"),
        ("NONE@MYSELF", "2085"),
        ("@HOME", "2085"),
        ("@AWAY", "2085"),
        ("ORDERS@", "2085"),
        ("ORDERS@A B", "2085"),
        ("A@B@AWAY", "2085"),
        ("FAR.UNKNOWN", "2087"),
        ("FAR.HOME", "2087"),
        ("FAR.NO.MANAGER", "2087"),
        ("ORDERS@MOON", "2087"),
        ("ORDERS@FAR", "2087"),
        ("ORDERS@NOBODY", "2087"),
        ("FAR.ALIAS", "2091"),
        ("FAR.LIKE.ALIAS", "2091"),
        ("FAR.NORMAL", "2092"),
        ("FAR.LIKE.NORMAL", "2092"),
        ("ORDERS@NORMAL", "2092"),
        ("OTHER", "2184"),
        ("FAR.NO.XMITQ", "2196"),
        ("ORDERS@BAD.OTHER", "2196"),
    ] {
        assert_eq!(way(&home, object), expected, "{object}");
    }
    for (default, expected) in [
        ("SIDEWAYS", "SIDEWAYS: ORDERS@MOON"),
        ("NONE", "2197"),
        ("A.ORDERS", "2198"),
        ("FAR", "2198"),
        ("NORMAL", "2199"),
    ] {
        home.queue_manager.default_transmission_queue = Some(default.into());
        assert_eq!(way(&home, "ORDERS@MOON"), expected, "{default}");
        assert_eq!(way(&home, "FAR.UNKNOWN"), expected.replace("ORDERS", "THERE"), "{default}");
        assert_eq!(way(&home, "FAR"), "AWAY: THERE@AWAY!", "the nearer way is taken");
    }
}

#[test]
fn gets_are_from_local_queues() {
    let home = crossroads();
    for (object, expected) in [
        ("ORDERS@HOME", Ok("ORDERS")),
        ("A.ORDERS@HOME", Ok("ORDERS")),
        ("AWAY", Ok("AWAY")),
        ("FAR", Err(2045)),
        ("A.FAR", Err(2045)),
        ("OTHER", Err(2045)),
        ("ORDERS@AWAY", Err(2045)),
        ("ORDERS@MYSELF", Err(2045)),
        ("NONE", Err(2085)),
    ] {
        let found = home.resolve(object).map(|found| found.queue).map_err(ResolveError::reason);
        assert_eq!(found, expected, "{object}");
    }
}

#[test]
fn every_definition_on_the_way_can_forbid_puts_and_the_first_gives_the_defaults() {
    let facts = |home: &Definitions, object: &str| match home.resolve_put(object).unwrap() {
        Destination::Local(found) => (found.put_enabled, found.local.default_priority),
        Destination::Remote(found) => (found.put_enabled, found.default_priority),
    };
    let home = crossroads();
    for (object, priority) in [("FAR", 4), ("A.FAR", 4), ("ORDERS@AWAY", 7), ("ORDERS@OTHER", 4), ("ORDERS@MYSELF", 4)]
    {
        assert_eq!(facts(&home, object), (true, priority), "{object}");
    }
    let mut closed = home.clone();
    closed.queues.get_mut("AWAY").unwrap().put_enabled = false;
    for (object, open) in [("FAR", false), ("A.FAR", false), ("ORDERS@AWAY", false), ("FAR.SIDE", true)] {
        assert_eq!(facts(&closed, object).0, open, "{object}");
    }
    let mut closed = home.clone();
    closed.aliases.get_mut("A.FAR").unwrap().put_enabled = false;
    assert!(!facts(&closed, "A.FAR").0 && facts(&closed, "FAR").0);
    let mut closed = home.clone();
    for name in ["FAR", "OTHER", "MYSELF"] {
        closed.remotes.get_mut(name).unwrap().put_enabled = false;
    }
    for object in ["FAR", "A.FAR", "ORDERS@OTHER", "ORDERS@MYSELF"] {
        assert!(!facts(&closed, object).0, "{object}");
    }
}

#[test]
fn whatever_a_name_can_fail_by_has_a_reason_of_its_own() {
    let all = [
        ResolveError::BaseIsAlias,
        ResolveError::NotForInput,
        ResolveError::UnknownBase,
        ResolveError::IsModel,
        ResolveError::Unknown,
        ResolveError::UnknownManager,
        ResolveError::TransmissionQueueType,
        ResolveError::TransmissionQueueUsage,
        ResolveError::NoRemoteName,
        ResolveError::UnknownTransmissionQueue,
        ResolveError::UnknownDefaultTransmissionQueue,
        ResolveError::DefaultTransmissionQueueType,
        ResolveError::DefaultTransmissionQueueUsage,
    ];
    for error in all {
        let code = u16::try_from(error.reason()).unwrap();
        assert_eq!(bulla_catalog::reason::of(code).code, code, "{error}");
    }
}

#[test]
fn definitions_are_read_back_as_they_were_written() {
    let words: [(&str, &[&str]); 21] = [
        ("GET", &["ENABLED", "DISABLED"]),
        ("PUT", &["ENABLED", "DISABLED"]),
        ("DEFPSIST", &["YES", "NO"]),
        ("MSGDLVSQ", &["FIFO", "PRIORITY"]),
        ("FULL", &["WAIT", "REJECT"]),
        ("USAGE", &["NORMAL", "XMITQ"]),
        ("TRIGDATA", &["' '", "QM1.QM2", "'qm1/qm2'"]),
        ("TRIGTYPE", &["FIRST", "EVERY", "DEPTH", "NONE"]),
        ("INITQ", &["' '", "I"]),
        ("CAPEXPRY", &["NOLIMIT", "7"]),
        ("PROCESS", &["P", "'p'"]),
        ("QDEPTHHI", &["100", "60"]),
        ("QDEPTHLO", &["0", "59"]),
        ("QDPHIEV", &["ENABLED", "DISABLED"]),
        ("QDPMAXEV", &["ENABLED", "DISABLED"]),
        ("DEFSOPT", &["EXCL", "SHARED"]),
        ("GROUPS", &["YES", "NO"]),
        ("MAXHANDS", &["0", "7"]),
        ("UNACKED", &["0", "65536"]),
        ("MSGRATE", &["0", "1000"]),
        ("DESCR", &["'it''s; + - * \"x\" é'", "' '", "'a+'", "' (lead'", "X"]),
    ];
    let policies = [
        "ENCALG(AES256) KEYREUSE(7) RECIP('CN=a,O=O''Neill', 'CN=b') TOLERATE",
        "ENCALG(AES128) KEYREUSE(*) RECIP('CN=a') ONDEFECT(DETACH) SEALEDAT(CLIENT)",
        "SIGNALG(SHA384) SIGNER('CN=a') SIGNER('CN=b') BINDNAME(A@B, 'c'@'d')",
        "SIGNALG(SHA512) ENCALG(AES256CBC) SIGNER('CN=a') RECIP('CN=x') BIND(NONE) SIGNPAD(PSS) KEYWRAP(PKCS1)",
        "ENCALG(AES128CBC) RECIP('CN=weak') WEAK(YES) KEYWRAP(OAEP)",
        "",
    ]
    .map(|policy| policy.replace("'c'@'d'", "'c@d'"));
    let devices = [
        "TYPE(ACCELERATOR) PENDING(1024) DESCR('second')",
        "TYPE(ACCELERATOR) AUTOSTART(NO)",
        "TYPE(COPROCESSOR) MODULE('/a b''c/é.so') TOKEN('pkcs11:token=a%20b;serial=1') ENGINES(16) TIMEOUT(600000)",
        "TYPE(COPROCESSOR) MODULE('/x.so') TOKEN('pkcs11:token=t') PINFILE('/run/pin') PENDING(3)",
        "TYPE(TRANSIT) ADDRESS('https://vault.example:8200') CAFILE('/ca.pem') TOKENFILE('/token')",
        "TYPE(TRANSIT) ADDRESS('https://[::1]') CAFILE('/a b''c.pem') TOKENFILE('/t') CERTFILE('/c') MOUNT('a/b') \
         NAMESPACE('team/x') ENGINES(4) TIMEOUT(900) PENDING(7)",
        "TYPE(MODELLED)",
        "TYPE(MODELLED) PROFILE(ACCELERATOR) SERVICE('RSA-ME-1024=7, ECDH-521=0.25') ENGINES(5)",
    ];
    let remotes =
        ["RNAME(T) RQMNAME(QM2)", "RQMNAME('qm2') XMITQ(X) PUT(DISABLED) DEFPRTY(9) DEFPSIST(YES) DESCR('it''s')", ""];
    let channels = [
        "CHLTYPE(SDR) CONNAME('h(1),fe80::1') XMITQ(X) BATCHSZ(9999) BATCHINT(7) BATCHLIM(0) NPMSPEED(NORMAL)",
        "CHLTYPE(SDR) CONNAME('h') XMITQ(X) SSLCIPH(ANY_TLS12_OR_HIGHER) SSLPEER('CN=a*, O=\"x\"') SSLRKEYC(0) \
         SPLPROT(REMOVE)",
        "CHLTYPE(SVR) XMITQ('x') DISCINT(0) SHORTRTY(1) SHORTTMR(2) LONGRTY(3) LONGTMR(4) SEQWRAP(100) \
         SSLCAUTH(OPTIONAL)",
        "CHLTYPE(RCVR) MRRTY(0) MRTMR(0) USEDLQ(NO) MCAUSER('a.b-c@d') SPLPROT(ASPOLICY) HBINT(1) MAXMSGL(0) \
         CERTLABL('my-label')",
        "CHLTYPE(RQSTR) CONNAME('h') SOURCE('a/b?c=d') TARGET('t') USERID('u v') PASSFILE('/p q')",
    ];
    let topics = [
        "",
        "PUB(DISABLED) SUB(ENABLED) DURSUB(NO) DEFPRTY(0) DEFPSIST(YES) PMSGDLV(ALL) NPMSGDLV(ALLDUR) MDURMDL(M)",
        "PUB(ENABLED) SUB(DISABLED) DURSUB(YES) DEFPSIST(NO) PMSGDLV(ALLAVAIL) MNDURMDL(M) DESCR('d')",
    ];
    let groups = ["MEMBERS('u', 'a.b-c@d') DESCR('it''s')", "MEMBERS(' ')", ""];
    let administrators = ["OSUSER('u', '1001') DESCR('it''s')", "OSGROUP('g') ROLE(ALL)", "ROLE(OPERATE)"];
    let records = [
        "OBJTYPE(QMGR) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(ALL)",
        "PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('*') AUTHADD(ALLMQI)",
        "PROFILE('a.?/%*') OBJTYPE(QUEUE) PRINCIPAL('u') AUTHADD(NONE)",
        "PROFILE(C.*) OBJTYPE(CHANNEL) PRINCIPAL(U) AUTHADD(CTRL)",
        "PROFILE(X) OBJTYPE(QUEUE) PRINCIPAL(U, 'u') AUTHRMV(GET)",
    ];
    let mut random = fastrand::Rng::with_seed(42);
    let mut next = |below: usize| random.usize(..below);
    for round in 0..300 {
        let mut commands = String::new();
        for number in 0..next(6) {
            commands += &format!("DEF QL('q/{number}%') MAXDEPTH({}) DEFPRTY({})", next(999_999_999), next(10));
            commands += [" TRIGGER", " NOTRIGGER", ""][next(3)];
            commands += [" SHARE", " NOSHARE", ""][next(3)];
            for (keyword, values) in words {
                commands += &format!(" {keyword}({})", values[next(values.len())]);
            }
            commands += "\n";
            commands += &format!("DEF QA(A.{number}) TARGET(T) GET(DISABLED) DESCR('{}')\n", "x".repeat(next(65)));
            commands += &format!("SET POLICY('p_{number}') {}\n", policies[next(policies.len())]);
            commands += &format!("DEF QR('r_{number}') {}\n", remotes[next(remotes.len())]);
            commands += &format!("DEF QM('m_{number}') {}\n", ["", "DEFTYPE(PERMDYN) NOSHARE", "MAXDEPTH(7)"][next(3)]);
            commands += &format!("DEF PRO('p_{number}') {}\n", ["", "APPLICID('/a b') USERDATA('it''s')"][next(2)]);
            commands += &format!("DEF TOPIC('t_{number}') TOPICSTR('it''s/{number}') {}\n", topics[next(topics.len())]);
            commands += &format!(
                "DEF SUB('s_{number}') TOPICSTR('{}') DEST(Q) SELECTOR('{}')\n",
                ["a/+/#", "é b", "+"][next(3)],
                ["a = ''x''", "", "b > 1 AND JMSPriority < 3"][next(3)],
            );
            commands += &format!(
                "DEF SUB('ID:a{number}|é (b)') TOPICOBJ('t_{number}') DESTCLAS(MANAGED) \
                 DEST(SYSTEM.MANAGED.DURABLE.{number}) SUBUSER('u')\n"
            );
            commands += &format!("DEF CHL('c_{number}') {}\n", channels[next(channels.len())]);
            commands += &format!("DEF GROUP('g_{number}') {}\n", groups[next(groups.len())]);
            commands += &format!("DEF ADMIN('a_{number}') {}\n", administrators[next(administrators.len())]);
            commands += &format!("SET AUTHREC {}\n", records[next(records.len())]);
            commands += &format!("SET AUTHREC PROFILE(Q.{number}.*) OBJTYPE(QUEUE) GROUP('g_{number}') AUTHADD(ALL)\n");
        }
        for number in 0..next(4) {
            commands += &format!("DEF DEV('d_{number}') {}\n", devices[next(devices.len())]);
        }
        commands +=
            ["ALTER DEV(CPU) TYPE(SOFTWARE) AUTOSTART(NO)\n", "STOP DEV(ACCEL1); DELETE DEV(ACCEL1)\n", ""][next(3)];
        commands += [
            "ALTER QMGR AUTHOREV(ENABLED) CHLEV(ENABLED) DEADQ(' ') DEFXMITQ(X) SSLRKEYC(999999999) CERTLABL('a.b')",
            "ALTER QMGR DESCR('me') MAXMSGL(32768) CHIADAPS(8) CHIDISPS(64) MAXCHL(9999) ACTCHL(1)",
            "",
        ][next(3)];
        let definitions = built(&commands);
        let text = definitions.text();
        assert_eq!(reread(&text).as_ref(), Ok(&definitions), "round {round}: {text}");
        assert_eq!(reread(&text).unwrap().text(), text);
        for policy in definitions.policies.values() {
            assert_eq!(policy::from_text(&policy::text(policy)), Ok(Policy::clone(policy)));
        }
    }
}

#[test]
fn whatever_is_carried_out_is_read_back_however_it_was_typed() {
    // Examples with characters changed, left out, doubled and swapped: more of them are commands than of random
    // text.
    let examples: Vec<&str> = table::commands().flat_map(|command| command.examples).copied().collect();
    let other = ['\'', '(', ')', ',', ' ', '*', '0', '9', 'A', 'é', '.', '@', '/', ':', '\u{2003}', ';'];
    let mut random = fastrand::Rng::with_seed(7);
    let mut next = |below: usize| random.usize(..below);
    let mut done = 0;
    for _ in 0..300 {
        let mut paper = Paper::new();
        for _ in 0..40 {
            let mut text: Vec<char> = examples[next(examples.len())].chars().collect();
            for _ in 0..next(4) {
                let at = next(text.len());
                match next(4) {
                    0 => drop(text.remove(at)),
                    1 => text.insert(at, text[at]),
                    2 => text[at] = other[next(other.len())],
                    _ => {
                        let with = next(text.len());
                        text.swap(at, with);
                    }
                }
                if text.is_empty() {
                    text.push(' ');
                }
            }
            let text: String = text.into_iter().collect();
            done += execute(&text, &mut paper).iter().filter(|reply| reply.exit_code() == EXIT_DONE).count();
        }
        let definitions = paper.definitions();
        let text = definitions.text();
        assert_eq!(reread(&text).as_ref(), Ok(definitions), "{text}");
    }
    assert!(done > 2_000, "{done} commands of 12,000 were carried out");
}

#[test]
fn a_file_from_before_there_were_devices_has_those_of_a_new_queue_manager() {
    let of = |text: &str| reread(text).unwrap().devices;
    let initial = Definitions::initial("Q1").devices;
    assert_eq!(initial.keys().collect::<Vec<_>>(), [objects::device::ACCELERATOR, objects::device::CPU]);
    assert_eq!(of("* bulla objects, format 1, queue manager Q1\nDEFINE QLOCAL(A)\n"), initial);
    // From then on the file says which there are, and the processor is always one of them.
    let later = of("* bulla objects, format 2, queue manager Q1\n");
    assert_eq!(later.keys().collect::<Vec<_>>(), [objects::device::CPU]);
    assert_eq!(later[objects::device::CPU], initial[objects::device::CPU]);
}

#[test]
fn a_file_from_before_there_were_channels_has_none() {
    for format in [1, 2] {
        let header = format!("* bulla objects, format {format}, queue manager Q1\n");
        let commands =
            "ALTER QMGR DESCR('old') DEADQ('D') MAXMSGL(32768)\nDEFINE QLOCAL('A') MAXDEPTH(7) FULL(REJECT)\n";
        let read = reread(&(header + commands)).unwrap();
        assert!(read.channels.is_empty() && read.remotes.is_empty());
        let manager = QueueManager {
            description: "old".into(),
            dead_letter_queue: Some("D".into()),
            max_message_bytes: 32_768,
            ..Definitions::empty("Q1").queue_manager
        };
        assert_eq!(read.queue_manager, manager);
        let queue = LocalQueue { max_depth: 7, full: Full::Reject, ..LocalQueue::default() };
        assert_eq!(read.queues["A"], queue);
        assert!(read.text().starts_with("* bulla objects, format 4, queue manager Q1\n"));
    }
}

#[test]
fn there_are_so_many_devices_and_no_more() {
    let mut paper = Paper::new();
    let commands: String = (0..40).map(|number| format!("DEF DEV(D{number}) TYPE(MODELLED)\n")).collect();
    let replies = execute(&commands, &mut paper);
    assert_eq!(paper.definitions().devices.len(), DEVICES_MAX);
    let refused = replies.last().unwrap().diagnostics(None);
    assert_eq!(refused, ["bulla: error: 2102 MQRC_RESOURCE_PROBLEM there are 32 devices, which is the limit"]);
    let again = execute("DEF DEV(D0) TYPE(ACCELERATOR) REPLACE", &mut paper);
    assert_eq!(again[0].exit_code(), EXIT_DONE);
}

#[test]
fn a_policy_s_text_is_one_command_and_other_commands_are_refused() {
    let text = policy::text(&Arc::new(Policy::new("orders")));
    assert!(
        text.starts_with("SET POLICY('orders') SIGNALG(NONE) ENCALG(NONE) KEYREUSE(DISABLED) SIGNBATCH(1) ENFORCE "),
        "{text}"
    );
    let refused = |text| policy::from_text(text).unwrap_err();
    assert_eq!(refused("* none\n"), "0 policies where one was expected");
    assert_eq!(policy::all_from_text("* none\n"), Ok(Vec::new()));
    let two = policy::all_from_text("SET POLICY(A)\nSET POLICY(B)").unwrap();
    assert_eq!(two, [Policy::new("A"), Policy::new("B")]);
    assert_eq!(refused("SET POLICY(A); DIS QMGR"), "1:16: DISPLAY QMGR where SET POLICY was expected");
    assert_eq!(refused("SET POLICY(A) ACTION(ADD)"), "1:1: policy A does not exist");
    // What an older version wrote is loaded; a client that is told of it refuses.
    let unnamed = "SET POLICY(A) SIGNALG(SHA256) ENCALG(AES256CBC) RECIP('CN=a')";
    Definitions::from_commands(unnamed, Path::new("objects.mqsc"), Definitions::initial("QM1")).unwrap();
    assert!(refused(unnamed).contains("SIGNALG with a CBC cipher needs SIGNER"), "{}", refused(unnamed));
    assert_eq!(refused("SET POLICY(A) ENCALG(ROT13)"), "1:22: ENCALG cannot be ROT13");
}

#[test]
fn a_distinguished_name_is_read_back_however_it_was_typed() {
    let names =
        [r"CN=a\0Ab", r"CN=O''Neill\, Bo", r"CN=a\27b\5C+", r"CN=\20x\20,O=\C3\A9", "CN=<>;\"#x", "CN=é, O= two "];
    for name in names {
        let mut paper = Paper::new();
        execute(&format!("SET POLICY(A) SIGNALG(SHA256) SIGNER('{name}')"), &mut paper);
        let definitions = paper.definitions();
        assert_eq!(reread(&definitions.text()).as_ref(), Ok(definitions), "{name}");
    }
}

#[test]
fn many_lines_of_one_command_count_together() {
    let line = format!("{}+\n", "x".repeat(1000));
    assert!(readable(&line.repeat(1100)).is_err());
    assert_eq!(readable(&line.replace('+', "").repeat(1100)), Ok(()));
}

#[test]
fn a_file_that_is_not_ours_or_from_a_later_program_is_refused() {
    let header = "* bulla objects, format 1, queue manager Q1\n";
    let refused = |text: &str| reread(text).unwrap_err();
    for text in
        ["", "DEFINE QLOCAL(A)", "* bulla objects, format x, queue manager Q1", "* bulla objects, format 1, channel Q1"]
    {
        assert!(refused(text).starts_with("objects.mqsc:1: expected"), "{text}");
    }
    for name in ["a b", "", "a@b"] {
        let said = refused(&format!("* bulla objects, format 1, queue manager {name}"));
        assert_eq!(said, format!("objects.mqsc:1: '{name}' is not a name for a queue manager"));
    }
    let newer = refused("* bulla objects, format 5, and something new");
    assert_eq!(newer, "objects.mqsc:1: format 5 is newer than this program, which knows 4");
    let wrong = refused(&format!("{header}DEFINE QLOCAL(A) +\n       MAXDEPHT(3)"));
    assert_eq!(wrong, "objects.mqsc:3:8: DEFINE QLOCAL has no attribute MAXDEPHT");
    let twice = refused(&format!("{header}DEFINE QLOCAL(A)\nDEFINE QALIAS(A) TARGET(B)"));
    assert_eq!(twice, "objects.mqsc:3:1: A is a local queue");
    assert_eq!(refused(&format!("{header}CLEAR QLOCAL(A)")), "objects.mqsc:2:1: CLEAR QLOCAL does not belong here");
    assert_eq!(reread(header).unwrap().queue_manager.name, "Q1");
}

#[test]
fn queues_of_all_sorts_are_counted_together_as_when_they_are_read() {
    let mut definitions = Definitions::empty("QM1");
    assert!(definitions.has_room_for_a_queue());
    for number in definitions.models.len()..OBJECTS_MAX {
        definitions.aliases.insert(format!("A{number}"), AliasQueue::default());
    }
    assert!(!definitions.has_room_for_a_queue());
}

#[test]
fn a_topic_object_does_not_grow_over_the_subscriptions_below_it() {
    let deep = vec!["a"; 127].join("/");
    let text = format!("DEF QLOCAL(D); DEF TOPIC(T) TOPICSTR('x'); DEF SUB(S) TOPICOBJ(T) TOPICSTR('{deep}') DEST(D)");
    let base = Definitions::bare(&Definitions::initial("QM1"));
    let made = Definitions::from_commands(&text, Path::new("x"), base).unwrap();
    for (command, may) in [
        ("ALTER TOPIC(T) TOPICSTR('x/y')", false),
        ("DEF TOPIC(T) TOPICSTR('x/y') REPLACE", false),
        ("ALTER TOPIC(T) TOPICSTR('y')", true),
    ] {
        let after = Definitions::from_commands(command, Path::new("x"), made.clone());
        assert_eq!(after.is_ok(), may, "{command}: {after:?}");
    }
}
