use super::*;
use crate::policy::all_from_text;

fn read_policies(text: &str, raise: bool) -> Imported {
    policies(text, PolicyOptions { raise, certificates: None, definitions: Definitions::initial("QM1") })
}

/// One policy, and what becomes of it: the command, or the reason.
fn check(text: &str, wanted: &str) {
    let imported = read_policies(text, false);
    let [entry] = imported.entries.as_slice() else { panic!("{text}: {imported:?}") };
    match entry.commands.as_slice() {
        [command] => assert_eq!(command, wanted, "{text}"),
        _ => assert!(
            entry.notes.iter().any(|note| format!("{}: {}", note.about.join(", "), note.why).contains(wanted)),
            "{text}: {entry:?}"
        ),
    }
}

#[test]
fn each_form_of_setmqspl_becomes_a_policy_or_a_reason() {
    for (text, wanted) in [
        (
            "setmqspl -m QM1 -p A -s SHA256 -a \"CN=alice,O=IBM,C=GB\"",
            "SET POLICY('A') SIGNALG(SHA256) SIGNER('CN=alice,O=IBM,C=GB')",
        ),
        ("setmqspl -m QM1 -p A -s SHA512", "SET POLICY('A') SIGNALG(SHA512)"),
        (
            "setmqspl -m QMA -p ABC -s SHA384 -e AES256 -r \"CN=BBB,C=GB\" -c 0 -t 0",
            "SET POLICY('ABC') SIGNALG(SHA384) ENCALG(AES256) RECIP('CN=BBB,C=GB')",
        ),
        (
            "setmqspl -m QM1 -p C -e AES128 -r \"CN=a, O=ibm, C=US\" -r \"CN=b, O=ibm, C=US\" -c 32 -t 1",
            "SET POLICY('C') ENCALG(AES128) RECIP('CN=a,O=ibm,C=US', 'CN=b,O=ibm,C=US') KEYREUSE(32) TOLERATE",
        ),
        (
            "setmqspl -m QM1 -p C -e AES256 -r 'CN=a' -c '*'",
            "SET POLICY('C') ENCALG(AES256) RECIP('CN=a') KEYREUSE(UNLIMITED)",
        ),
        (
            "setmqspl -m QM1 -p C -e AES256 -r CN=a -c 9999999",
            "SET POLICY('C') ENCALG(AES256) RECIP('CN=a') KEYREUSE(9999999)",
        ),
        ("setmqspl -m QM1 -p C -e AES256 -r CN=a -c 10000000", "0 to 9999999"),
        ("setmqspl -m QM1 -p 'low.case' -s SHA256", "SET POLICY('low.case') SIGNALG(SHA256)"),
        ("/opt/mqm/bin/setmqspl -m QM1 -p A -s NONE -e NONE -t1", "SET POLICY('A') TOLERATE"),
        (
            "setmqspl -m QM1\n -p AMSQ\n -s SHA256\n -a \"CN=COLIN,O=SSS\"\n -e AES256\n -r \"CN=COLIN,O=SSS\"",
            "SET POLICY('AMSQ') SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=COLIN,O=SSS') RECIP('CN=COLIN,O=SSS')",
        ),
        ("setmqspl -m QM1 -p A \\\n  -s SHA256", "SET POLICY('A') SIGNALG(SHA256)"),
        ("setmqspl -m QM1 -p A -s MD5", "-s MD5: broken, and not offered; with --raise"),
        ("setmqspl -m QM1 -p A -s SHA1", "-s SHA1: broken"),
        ("setmqspl -m QM1 -p A -e RC2 -r CN=a", "-e RC2: broken"),
        ("setmqspl -m QM1 -p A -e DES -r CN=a", "-e DES: broken"),
        ("setmqspl -m QM1 -p A -e 3DES -r CN=a", "-e 3DES: broken"),
        ("setmqspl -m QM1 -p A -s SHA3", "SIGNALG has no such algorithm"),
        ("setmqspl -m QM1 -p A -e AES256", "ENCALG"),
        ("setmqspl -m QM1 -p A -r CN=a", "RECIP"),
        ("setmqspl -m QM1 -p A -a CN=a", "SIGNER"),
        ("setmqspl -m QM1 -p A -s SHA256 -a \"cn alice\"", "not a distinguished name here"),
        ("setmqspl -m QM1 -p A -s SHA256 -t 2", "toleration is 0 or 1"),
        ("setmqspl -m QM1 -p A -s SHA256 -x", "-x: not understood"),
        ("setmqspl -m QM1 -p A -s \"SHA256", "a quote that is not closed"),
        ("setmqspl -m QM1 -p A -remove", "there is none to take over"),
        ("setmqspl -m QM1 -p SYSTEM.ADMIN.COMMAND.QUEUE -s SHA256", "carry no policy"),
        ("setmqspl -m QM1 -s SHA256", ""),
        (
            "setmqspl -m QM1 -p A -s SHA256 -a \"E=a@b.example,CN=a\"",
            "SET POLICY('A') SIGNALG(SHA256) SIGNER('EMAILADDRESS=a@b.example,CN=a')",
        ),
        ("rm -rf /", "none that the tools for policies write"),
    ] {
        check(text, wanted);
    }
}

#[test]
fn broken_algorithms_are_raised_when_that_is_asked_for_and_said() {
    let imported = read_policies("setmqspl -m Q -p A -s SHA1 -e 3DES -r \"CN=b\" -a \"CN=a\"", true);
    assert_eq!(
        imported.commands().collect::<Vec<_>>(),
        ["SET POLICY('A') SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=a') RECIP('CN=b')"]
    );
    let text = imported.to_string();
    assert!(text.contains("-s SHA1: broken, raised to SIGNALG(SHA256)"), "{text}");
    assert!(text.contains("-e 3DES: broken, raised to ENCALG(AES256)"), "{text}");
}

#[test]
fn keys_that_are_reused_under_a_signature_are_noted_and_not_asked_for() {
    let imported = read_policies("setmqspl -m Q -p A -s SHA256 -e AES256 -r CN=b -c 5", false);
    assert_eq!(
        imported.commands().collect::<Vec<_>>(),
        ["SET POLICY('A') SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=b')"]
    );
    assert_eq!(imported.count(Fate::InPart), 1);
}

const LISTING: &str = "\
Policy Details:
Policy name: ORDERS
Quality of protection: PRIVACY
Signature algorithm: SHA256
Encryption algorithm: AES256
Signer DNs:
  CN=alice,O=IBM,C=GB
Recipient DNs:
  CN=bob,O=IBM,C=GB
  CN=carol,O=IBM,C=GB
Key reuse count: 0
Toleration: 0
- - - - - - - - - - - - - - - -
Policy name: FAST
Quality of protection: CONFIDENTIALITY
Signature algorithm: NONE
Encryption algorithm: AES128
Signer DNs: -
Recipient DNs:
  CN=bob,O=IBM,C=GB
Key reuse count: UNLIMITED
Toleration: 1
";

const DISPLAYED: &str = "\
5724-H72 (C) Copyright
Starting MQSC for queue manager QMA.

     1 : DISPLAY POLICY(*)
AMQ9086I: Display IBM MQ Advanced Message Security policy details.
   POLICY(ORDERS)                          SIGNALG(SHA256)
   ENCALG(AES256)
   SIGNER(CN=alice,O=IBM,C=GB)
   RECIP(CN=bob,O=IBM,C=GB)
   RECIP(CN=carol,O=IBM,C=GB)              KEYREUSE(DISABLED)
   ENFORCE
AMQ9086I: Display IBM MQ Advanced Message Security policy details.
   POLICY(FAST)                            SIGNALG(NONE)
   ENCALG(AES128)                          RECIP(CN=bob,O=IBM,C=GB)
   KEYREUSE(UNLIMITED)                     TOLERATE
One MQSC command read.
No commands have a syntax error.
All valid MQSC commands were processed.
";

#[test]
fn listings_and_answers_of_display_say_the_same_as_exported_lines() {
    let exported = "* Exported on Mon Mar 29 09:23:31 2021\n\
        dspmqspl -m QMA -export\n\
        setmqspl -m QMA -p ORDERS -s SHA256 -a \"CN=alice,O=IBM,C=GB\" -e AES256 -r \"CN=bob,O=IBM,C=GB\" \
        -r \"CN=carol,O=IBM,C=GB\" -c 0 -t 0\n\
        setmqspl -m QMA -p FAST -e AES128 -r \"CN=bob,O=IBM,C=GB\" -c * -t 1\n";
    let commands = |text| read_policies(text, false).commands().map(str::to_owned).collect::<Vec<_>>();
    let wanted = commands(exported);
    assert_eq!(wanted.len(), 2);
    assert_eq!(commands(LISTING), wanted);
    assert_eq!(commands(DISPLAYED), wanted);
}

#[test]
fn a_name_with_parentheses_ends_where_it_ends() {
    let imported = read_policies("   POLICY(A) SIGNALG(SHA256) SIGNER(CN=a (b),O=c) ENFORCE", false);
    assert_eq!(imported.commands().collect::<Vec<_>>(), ["SET POLICY('A') SIGNALG(SHA256) SIGNER('CN=a (b),O=c')"]);
}

#[test]
fn names_are_compared_with_the_certificates_that_are_there() {
    let known = [Certificate { dn: "C=GB,O=IBM,CN=alice".parse().unwrap(), place: "alice/own".into() }];
    let text =
        "setmqspl -m Q -p A -s SHA256 -e AES256 -a \"CN=alice,O=IBM,C=GB\" -r \"CN=bob\" -r \"C=GB,O=IBM,CN=alice\"";
    let definitions = Definitions::initial("QM1");
    let shown = policies(text, PolicyOptions { raise: false, certificates: Some(&known), definitions }).to_string();
    let shown = shown.replace("\n*    ", "");
    assert!(
        shown.contains("alice/own has the same in another order or case, so give 'C=GB,O=IBM,CN=alice'"),
        "{shown}"
    );
    assert!(shown.contains("CN=bob: no certificate in a key ring here has it"), "{shown}");
    assert_eq!(shown.matches("no certificate").count(), 2, "{shown}");
}

#[test]
fn what_comes_out_is_a_text_of_policies() {
    let text = read_policies(&format!("{LISTING}{DISPLAYED}setmqspl -p X -s MD5 -m Q-\n"), false).to_string();
    assert_eq!(all_from_text(&text).unwrap().len(), 4, "{text}");
}

const DUMP: &str = "\
*******************************************************************************
* Script generated on 2024-05-02   at 10.11.12
* Queue manager name: QMA
*******************************************************************************
ALTER QMGR +
   ACCTQ(OFF) +
*  ALTDATE(2024-05-02) +
   CCSID(1208) +
   CHLAUTH(ENABLED) +
   CONNAUTH('SYSTEM.DEFAULT.AUTHINFO.IDPWOS') +
   DEADQ('APP.DLQ') +
   DEFXMITQ(' ') +
   MAXMSGL(4194304) +
   SSLKEYR('/var/mqm/qmgrs/QMA/ssl/key') +
   FORCE
DEFINE QLOCAL('APP.DLQ') +
   REPLACE
DEFINE QLOCAL('APP.ORDERS') +
   ACCTQ(QMGR) +
   BOTHRESH(3) +
   CLUSTER(' ') +
   DEFPRTY(0) +
   DEFPSIST(YES) +
   DESCR('Orders that come from the +
   shop') +
   DISTL(NO) +
   MAXDEPTH(100000) +
   MAXMSGL(4194304) +
*  CRDATE(2020-01-01) +
   NPMCLASS(NORMAL) +
   QSVCINT(999999999) +
   TRIGTYPE(FIRST) +
   NOTRIGGER +
   REPLACE
DEFINE QALIAS('APP.IN') TARGET('APP.ORDERS') CLUSNL(' ') DEFBIND(OPEN) REPLACE
DEFINE QREMOTE('APP.OUT') RNAME('IN') RQMNAME('QMB') XMITQ('QMB') REPLACE
DEFINE QLOCAL('QMB') USAGE(XMITQ) REPLACE
DEFINE QMODEL('APP.MODEL') DEFTYPE(TEMPDYN) REPLACE
DEFINE CHANNEL('QMA.QMB') CHLTYPE(SDR) BATCHHB(0) CONNAME('mqb.example(1414)') XMITQ('QMB') TRPTYPE(TCP) +
   SSLCIPH('ANY_TLS12_OR_HIGHER') KAINT(AUTO) REPLACE
DEFINE CHANNEL('APP.SVRCONN') CHLTYPE(SVRCONN) MAXINST(999999999) REPLACE
DEFINE CHANNEL('SYSTEM.DEF.SENDER') CHLTYPE(SDR) REPLACE
DEFINE LISTENER('L1') TRPTYPE(TCP) PORT(1414) CONTROL(QMGR) REPLACE
DEFINE TOPIC('PRICES') TOPICSTR('prices') CLUSTER(' ') PUBSCOPE(ASPARENT) REPLACE
DEFINE SUB('AUDIT') TOPICSTR('prices/#') DEST('APP.ORDERS') WSCHEMA(TOPIC) SUBSCOPE(ALL) REPLACE
DEFINE SUB('OLD') TOPICSTR('prices*') DEST('APP.ORDERS') WSCHEMA(CHAR) REPLACE
DEFINE PROCESS('BILLING') APPLTYPE(UNIX) APPLICID('/usr/local/bin/billing') REPLACE
SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('*MQADMIN') WARN(NO) ACTION(ADD)
SET CHLAUTH('APP.SVRCONN') TYPE(ADDRESSMAP) ADDRESS('192.0.2.*') USERSRC(CHANNEL) ACTION(ADD)
SET CHLAUTH('QMB.QMA') TYPE(ADDRESSMAP) ADDRESS('192.0.2.7') USERSRC(MAP) MCAUSER('border') WARN(NO) ACTION(ADD)
SET CHLAUTH('QMB.QMA') TYPE(QMGRMAP) QMNAME('QMB') USERSRC(CHANNEL) ACTION(ADD)
SET AUTHREC PROFILE('APP.ORDERS') PRINCIPAL('app') OBJTYPE(QUEUE) AUTHADD(BROWSE,GET,INQ,PUT,SETALL)
SET AUTHREC PROFILE('APP.**') GROUP('clerks') OBJTYPE(QUEUE) AUTHADD(PUT)
SET AUTHREC PROFILE('self') GROUP('mqm') OBJTYPE(QMGR) AUTHADD(ALTUSR,CONNECT)
SET AUTHREC PROFILE('@class') GROUP('clerks') OBJTYPE(NAMELIST) AUTHADD(CRT)
REFRESH SECURITY TYPE(CONNAUTH)
";

fn of<'a>(imported: &'a Imported, was: &str) -> &'a Entry {
    imported.entries.iter().find(|entry| entry.was.starts_with(was)).unwrap_or_else(|| panic!("{was}: {imported}"))
}

#[test]
fn a_dump_becomes_definitions_and_reasons_and_loses_nothing_silently() {
    let imported = definitions(DUMP, false);
    let queue = of(&imported, "DEFINE QLOCAL('APP.ORDERS')");
    assert_eq!(
        queue.commands,
        ["DEFINE QLOCAL('APP.ORDERS') BOTHRESH(3) DEFPRTY(0) DEFPSIST(YES) DESCR('Orders that come from the shop') \
         MAXDEPTH(100000) MAXMSGL(4194304) TRIGTYPE(FIRST) NOTRIGGER REPLACE"]
    );
    let gone: Vec<&str> = queue.notes.iter().flat_map(|note| &note.about).map(String::as_str).collect();
    assert_eq!(gone, ["ACCTQ(QMGR)", "CLUSTER", "DISTL(NO)", "NPMCLASS(NORMAL)", "QSVCINT(999999999)"]);
    let manager = of(&imported, "ALTER QMGR");
    assert_eq!(manager.commands, ["ALTER QMGR CHLAUTH(ENABLED) DEADQ('APP.DLQ') DEFXMITQ(' ') MAXMSGL(4194304)"]);
    assert_eq!(
        of(&imported, "DEFINE CHANNEL('QMA.QMB')").commands,
        ["DEFINE CHANNEL('QMA.QMB') CHLTYPE(SDR) CONNAME('mqb.example(1414)') XMITQ('QMB') \
         SSLCIPH('ANY_TLS12_OR_HIGHER') REPLACE"]
    );
    for (was, fate) in [
        ("DEFINE CHANNEL('APP.SVRCONN')", Fate::LeftOut),
        ("DEFINE CHANNEL('SYSTEM.DEF.SENDER')", Fate::LeftOut),
        ("DEFINE LISTENER('L1')", Fate::LeftOut),
        ("DEFINE SUB('AUDIT')", Fate::InPart),
        ("DEFINE SUB('OLD')", Fate::LeftOut),
        ("DEFINE QALIAS('APP.IN')", Fate::InPart),
        ("DEFINE QREMOTE('APP.OUT')", Fate::Whole),
        ("SET CHLAUTH('*')", Fate::LeftOut),
        ("SET CHLAUTH('APP.SVRCONN')", Fate::LeftOut),
        ("SET AUTHREC PROFILE('self')", Fate::LeftOut),
        ("SET AUTHREC PROFILE('@class')", Fate::LeftOut),
        ("REFRESH SECURITY", Fate::LeftOut),
    ] {
        assert_eq!(of(&imported, was).fate(), fate, "{was}: {imported}");
    }
    assert!(imported.commands().any(|command| command.starts_with("SET CHLAUTH('QMB.QMA') TYPE(ADDRESSMAP)")));
    assert!(!imported.commands().any(|command| command.contains("QMGRMAP")), "{imported}");
    assert_eq!(
        of(&imported, "SET AUTHREC PROFILE('APP.ORDERS')").commands,
        ["SET AUTHREC PROFILE('APP.ORDERS') PRINCIPAL('app') OBJTYPE(QUEUE) AUTHADD(BROWSE, GET, INQ, PUT)"]
    );
    assert_eq!(of(&imported, "SET AUTHREC PROFILE('APP.**')").commands.len(), 2);
}

#[test]
fn what_comes_of_a_dump_is_applied_as_it_stands() {
    use crate::objects::AsText;
    let text = definitions(DUMP, false).to_string();
    let made = Definitions::from_commands(&text, std::path::Path::new("dump"), Definitions::initial("QM1")).unwrap();
    assert!(made.queues.contains_key("APP.ORDERS") && made.channels.contains_key("QMA.QMB"));
}

#[test]
fn a_channel_whose_tls_is_unknown_is_left_out_and_never_made_clear() {
    let text = "DEFINE CHANNEL('A.B') CHLTYPE(SDR) CONNAME('b(1414)') XMITQ('B') SSLCIPH('NULL_MD5') REPLACE";
    let imported = definitions(text, false);
    assert_eq!(imported.count(Fate::LeftOut), 1, "{imported}");
    let text = "DEFINE CHANNEL('A.B') CHLTYPE(RCVR) SSLPEER('CN=') REPLACE";
    let imported = definitions(text, false);
    assert!(!imported.commands().any(|command| !command.contains("SSLPEER")), "{imported}");
}

#[test]
fn policies_of_a_dump_are_read_by_the_same_rules() {
    let imported = definitions(
        "SET POLICY('A') SIGNALG(SHA256) SIGNER('CN=a') ENCALG(NONE) ENFORCE ACTION(REPLACE)\n\
         SET POLICY(B) SIGNALG(MD5)",
        false,
    );
    assert_eq!(imported.commands().collect::<Vec<_>>(), ["SET POLICY('A') SIGNALG(SHA256) SIGNER('CN=a')"]);
}

#[test]
fn a_text_that_is_no_dump_is_refused_word_by_word() {
    for text in
        ["DEFINE QLOCAL('A", "(((", "''", "DEFINE", "DEFINE QLOCAL", "DEFINE QLOCAL(A) (", "SET AUTHREC", "+", "\u{1}"]
    {
        let imported = definitions(text, false);
        assert_eq!(imported.commands().count(), 0, "{text}: {imported}");
    }
}

#[test]
fn a_text_beyond_the_limits_is_cut_and_says_so() {
    let many = "A\n".repeat(ENTRIES_MAX + 5);
    for imported in [definitions(&many, false), read_policies(&many, false)] {
        assert_eq!(imported.entries.len(), ENTRIES_MAX + 1);
        assert_eq!(imported.entries.last().unwrap().was, "the rest");
    }
}

#[test]
fn texts_with_damage_become_commands_that_are_taken() {
    use crate::objects::AsText;
    const SIGNS: [char; 15] = ['(', ')', '\'', ',', ';', '+', '-', '*', '"', '\\', '\n', ' ', '=', '\u{e9}', '\u{1}'];
    let mut random = fastrand::Rng::with_seed(17);
    let exported = "setmqspl -m Q -p A -s SHA1 -e AES256 -r \"CN=b\" -a 'CN=a, O=\"x\"' -c * -t 1\n";
    for round in 0..600 {
        let mut text: Vec<char> = [DUMP, LISTING, DISPLAYED, exported].concat().chars().collect();
        let (from, to) = (random.usize(..text.len()), random.usize(..text.len()));
        text.drain(from.min(to)..from.max(to));
        for _ in 0..random.usize(1..8) {
            let at = random.usize(..=text.len());
            text.insert(at, *random.choice(&SIGNS).unwrap());
        }
        let text: String = text.into_iter().collect();
        let read = read_policies(&text, round % 2 == 0);
        let set = all_from_text(&read.to_string()).unwrap_or_else(|error| panic!("{round}: {error}\n{text}\n{read}"));
        assert_eq!(set.len(), read.commands().count(), "{round}: {text}");
        let read = definitions(&text, round % 2 == 0);
        let initial = Definitions::initial("QM1");
        if let Err(error) = Definitions::from_commands(&read.to_string(), std::path::Path::new("import"), initial) {
            panic!("{round}: {error}\n{text}\n{read}");
        }
    }
}
