//! Handshakes between two ends in this process, with certificates of each kind that must be refused.

use super::*;
use crate::catalog::{ChannelDefinition, ChannelKind, Definitions};
use crate::reason;
use bulla_seal::certificate::authority::{Authority, Request};
use bulla_seal::certificate::create::AlternativeName;
use bulla_seal::certificate::{Certificate, Curve, KeySpec, KeyUse};
use openssl::ssl::{ErrorCode, SslContext, SslMethod, SslStream};
use openssl::x509::X509;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(86_400);
/// How long before now the certificates begin that are good at once. OpenSSL asks `time(2)`, which lags behind the
/// clock of [`SystemTime`] by up to a tick: one that begins now is at times one of the future.
const GOOD_SINCE: Duration = Duration::from_secs(60);
const CHANNEL: &str = "QM1.TO.QM2";

/// Two queue managers' `tls/` folders, `caller` and `called`, under one authority that both believe.
pub(crate) struct Pair {
    folder: TempDir,
    authority: Authority,
    called: Definitions,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = found(&folder.path().join("authority"), "CN=Root,O=Example");
        let pair = Self { folder, authority, called: Definitions::initial("QM2") };
        for (end, name) in [("caller", "CN=QM1,OU=Payments,O=Example"), ("called", "CN=QM2,OU=Payments,O=Example")] {
            fs::create_dir_all(pair.dir(end)).unwrap();
            pair.install(end, "server", name, SystemTime::now() - GOOD_SINCE, 10);
            fs::write(pair.dir(end).join("clients.pem"), pair.authority.root().to_pem()).unwrap();
        }
        pair
    }

    fn dir(&self, end: &str) -> PathBuf {
        self.folder.path().join(end)
    }

    fn install(&self, end: &str, label: &str, name: &str, from: SystemTime, days: u32) -> Certificate {
        issue(&self.authority, &self.dir(end), label, name, from, days)
    }

    fn revoke(&self, certificate: &Certificate, end: &str, list_days: u32, from: SystemTime) {
        self.authority.revoke_all(&[certificate.serial_hex()], list_days, from).unwrap();
        fs::create_dir_all(self.dir(end).join("crls")).unwrap();
        fs::write(self.dir(end).join("crls").join("root.pem"), self.authority.crl().unwrap()).unwrap();
    }

    /// The sessions of the two ends of a channel with that CipherSpec.
    pub(crate) fn sessions(&self, spec: &str) -> [(Tls, Ssl); 2] {
        let (caller, called) = (Tls::new(self.dir("caller")), Tls::new(self.dir("called")));
        let mut definitions = self.called.clone();
        definitions.channels.insert(CHANNEL.into(), receiver(spec));
        called.follow(&definitions);
        let near = channel_client(&caller, &sender(spec), CHANNEL, "localhost").unwrap();
        let far = called.session().unwrap();
        [(caller, near), (called, far)]
    }

    /// The handshake of a channel with these definitions of its two ends, and what each end makes of it.
    fn start(&self, caller: &ChannelDefinition, called: &ChannelDefinition) -> [Result<Shaken, TlsRefusal>; 2] {
        let (caller_tls, called_tls) = (Tls::new(self.dir("caller")), Tls::new(self.dir("called")));
        let mut definitions = self.called.clone();
        definitions.channels.insert(CHANNEL.into(), called.clone());
        called_tls.follow(&definitions);
        let ssl = match channel_client(&caller_tls, caller, CHANNEL, "localhost") {
            Ok(ssl) => ssl,
            Err(refusal) => return [Err(refusal.clone()), Err(refusal)],
        };
        let [caller_end, called_end] = shake(ssl, called_tls.session().unwrap());
        [caller_end.and_then(|ssl| judged(ssl, caller)), called_end.and_then(|ssl| judged(ssl, called))]
    }
}

/// What a good handshake came to.
#[derive(Debug)]
struct Shaken {
    protocol: &'static str,
    spec: String,
    group: Option<String>,
    peer: Option<PeerCertificate>,
}

fn judged(stream: SslStream<UnixStream>, definition: &ChannelDefinition) -> Result<Shaken, TlsRefusal> {
    let peer = check_channel(Some(stream.ssl()), definition)?;
    let (protocol, spec) = agreed(Some(stream.ssl()));
    let group = key_group(stream.ssl()).map(str::to_owned);
    Ok(Shaken { protocol, spec, group, peer })
}

/// Both sides in turns until each is done; a byte each way shows what the other end refused behind a handshake that
/// looked good, as TLS 1.3 has it.
fn shake(client: Ssl, server: Ssl) -> [Result<SslStream<UnixStream>, TlsRefusal>; 2] {
    let (near, far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    let mut ends = [SslStream::new(client, near).unwrap(), SslStream::new(server, far).unwrap()];
    let mut refused: [Option<TlsRefusal>; 2] = [None, None];
    let mut heard = [false, false];
    let deadline = Instant::now() + Duration::from_secs(20);
    while !(0..2).all(|end| heard[end] || refused[end].is_some()) {
        assert!(Instant::now() < deadline, "the handshake does not end: {refused:?}");
        for end in 0..2 {
            if heard[end] || refused[end].is_some() {
                continue;
            }
            let stream = &mut ends[end];
            let step = stream.do_handshake().and_then(|()| {
                stream.ssl_write(b"!")?;
                stream.ssl_read(&mut [0; 1]).map(drop)
            });
            match step {
                Ok(()) => heard[end] = true,
                Err(error) if [ErrorCode::WANT_READ, ErrorCode::WANT_WRITE].contains(&error.code()) => {}
                Err(error) => {
                    refused[end] = Some(of_failure(stream.ssl(), &error));
                    stream.get_ref().shutdown(std::net::Shutdown::Write).ok();
                }
            }
        }
    }
    let [near, far] = ends;
    let [near_refused, far_refused] = refused;
    [near_refused.map_or(Ok(near), Err), far_refused.map_or(Ok(far), Err)]
}

fn found(folder: &Path, name: &str) -> Authority {
    let long_ago = SystemTime::now() - 100 * DAY;
    Authority::create(folder, &name.parse().unwrap(), KeySpec::Ec(Curve::P256), 3650, long_ago).unwrap()
}

fn issue(authority: &Authority, dir: &Path, label: &str, name: &str, from: SystemTime, days: u32) -> Certificate {
    let request = Request {
        dn: name.parse().unwrap(),
        key: if label == "rsa" { KeySpec::Rsa(2048) } else { KeySpec::Ec(Curve::P256) },
        uses: vec![KeyUse::Handshake],
        days,
        alternative_names: vec![AlternativeName::Dns("localhost".into())],
        passphrase: None,
    };
    let (certificate, key) = authority.issue(&request, from).unwrap();
    fs::write(dir.join(format!("{label}.key")), key.as_bytes()).unwrap();
    fs::write(dir.join(format!("{label}.pem")), certificate.to_pem()).unwrap();
    certificate
}

fn channel(kind: ChannelKind, spec: &str) -> ChannelDefinition {
    ChannelDefinition { cipher_spec: Some(spec.into()), ..ChannelDefinition::new(kind) }
}

fn sender(spec: &str) -> ChannelDefinition {
    channel(ChannelKind::Sender, spec)
}

fn receiver(spec: &str) -> ChannelDefinition {
    channel(ChannelKind::Receiver, spec)
}

#[test]
fn each_cipher_spec_is_agreed_on_by_its_name_and_by_nothing_else() {
    let pair = Pair::new();
    pair.install("called", "rsa", "CN=QM2,O=Example", SystemTime::now() - GOOD_SINCE, 10);
    for spec in ALL {
        let needs_rsa = spec.weak || spec.ibm.starts_with("ECDHE_RSA");
        let label = needs_rsa.then(|| "rsa".to_owned());
        let called = ChannelDefinition { certificate_label: label, ..receiver(spec.ibm) };
        let [near, far] = pair.start(&sender(spec.ibm), &called).map(Result::unwrap);
        assert_eq!((near.protocol, &near.spec), (far.protocol, &far.spec));
        if spec.iana.is_some() {
            assert_eq!(near.spec, spec.ibm);
        }
        assert_eq!(near.protocol == "TLSV13", spec.protocols != Protocols::Tls12, "{}", spec.ibm);
        assert_eq!(near.peer.unwrap().issuer, "CN=Root,O=Example");
        assert!(far.peer.unwrap().subject.starts_with("CN=QM1"));

        let other = if spec.protocols == Protocols::Tls12 { "TLS_AES_128_GCM_SHA256" } else { "ANY_TLS12" };
        if spec.protocols != Protocols::Both {
            for refused in pair.start(&sender(other), &called) {
                let refusal = refused.unwrap_err();
                assert_eq!(refusal.reason(), reason::UNSUPPORTED_CIPHER_SUITE, "{}: {refusal:?}", spec.ibm);
            }
        }
    }
}

#[test]
fn a_caller_that_names_no_channel_gets_what_the_listener_offers_and_is_refused_by_the_channel() {
    let pair = Pair::new();
    let weak = "TLS_RSA_WITH_AES_128_CBC_SHA256";
    let tls = Tls::new(pair.dir("called"));
    let other = Tls::new(pair.dir("caller"));
    // It asks for another channel, which the called end does not know.
    let [near, far] =
        shake(channel_client(&other, &sender(weak), "OTHER", "localhost").unwrap(), tls.session().unwrap());
    assert_eq!(far.unwrap_err().cause(), "cipher-mismatch");
    assert_eq!(near.unwrap_err().reason(), reason::UNSUPPORTED_CIPHER_SUITE);
    let strong = sender("ECDHE_ECDSA_AES_128_GCM_SHA256");
    let [_, far] = shake(channel_client(&other, &strong, "OTHER", "localhost").unwrap(), tls.session().unwrap());
    let refused = check_channel(Some(far.unwrap().ssl()), &receiver("TLS_AES_256_GCM_SHA384")).unwrap_err();
    assert_eq!(
        refused.refusal().to_string(),
        "2400 MQRC_UNSUPPORTED_CIPHER_SUITE cause=cipher-mismatch cipher mismatch: \
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 was agreed on, wanted is TLS_AES_256_GCM_SHA384"
    );
    assert_eq!(check_channel(None, &strong).unwrap_err().cause(), "cipher-mismatch");
    assert_eq!(check_channel(None, &ChannelDefinition::new(ChannelKind::Sender)), Ok(None));
}

fn with_groups(definition: ChannelDefinition, groups: &str) -> ChannelDefinition {
    ChannelDefinition { key_groups: tls_group::parse(groups).unwrap(), ..definition }
}

#[test]
fn each_group_is_agreed_on_by_its_name_and_without_a_word_one_with_ml_kem() {
    let pair = Pair::new();
    let agreed = |spec: &str, near: &str, far: &str| {
        let ends = pair.start(&with_groups(sender(spec), near), &with_groups(receiver(spec), far));
        ends.map(|end| end.map(|shaken| shaken.group))
    };
    let both = |group: &str| [Ok(Some(group.to_owned())), Ok(Some(group.to_owned()))];
    assert_eq!(agreed("ANY_TLS13", "", ""), both("X25519MLKEM768"));
    for group in tls_group::ALL {
        assert_eq!(agreed("ANY_TLS13", group.name, group.name), both(group.name));
        assert_eq!(agreed("ANY_TLS13", "", group.name), both(group.name), "a caller that offers all of them");
        assert_eq!(agreed("ANY_TLS13", group.name, ""), both(group.name));
    }
    // What the end that is called prefers, whatever the caller does.
    assert_eq!(agreed("ANY_TLS13", "x25519,secp256r1", "secp256r1,x25519"), both("secp256r1"));
    assert_eq!(agreed("ECDHE_ECDSA_AES_256_GCM_SHA384", "", "secp256r1"), both("secp256r1"), "by TLS 1.2");
}

#[test]
fn a_channel_that_requires_ml_kem_is_not_run_without_it() {
    let pair = Pair::new();
    let hybrids = "X25519MLKEM768,SecP256r1MLKEM768";
    let causes = |near: ChannelDefinition, far: ChannelDefinition| {
        pair.start(&near, &far).map(|end| end.map_or_else(|refusal| refusal.cause(), |_| "good"))
    };
    let any = "ANY_TLS12_OR_HIGHER";
    // Whichever end asks for it.
    let said = causes(with_groups(sender(any), "x25519"), with_groups(receiver(any), hybrids));
    assert_eq!(said, ["refused-by-partner", "group-mismatch"]);
    let said = causes(with_groups(sender(any), hybrids), with_groups(receiver(any), "x25519"));
    assert_eq!(said, ["refused-by-partner", "group-mismatch"]);
    // A suite of TLS 1.2, which has no ML-KEM, or no group at all.
    let ecdhe = "ECDHE_ECDSA_AES_256_GCM_SHA384";
    let said = causes(sender(ecdhe), with_groups(receiver(ecdhe), hybrids));
    assert!(said.iter().all(|cause| *cause != "good"), "{said:?}");
    let (caller, called) = (Tls::new(pair.dir("caller")), Tls::new(pair.dir("called")));
    called.follow(&pair.called);
    // A caller that names no channel gets what the listener offers, and is refused afterwards.
    let client = channel_client(&caller, &with_groups(sender(any), "x25519"), "ANOTHER", "localhost").unwrap();
    let [_, far] = shake(client, called.session().unwrap());
    let refusal = far.and_then(|far| judged(far, &with_groups(receiver(any), hybrids))).unwrap_err();
    assert_eq!(
        refusal.refusal().to_string(),
        "2400 MQRC_UNSUPPORTED_CIPHER_SUITE cause=group-mismatch group mismatch: x25519 was agreed on, wanted is \
         X25519MLKEM768,SecP256r1MLKEM768"
    );
    // What the queue manager says is of clients, and of channels that say nothing.
    let mut definitions = pair.called.clone();
    definitions.queue_manager.key_groups = tls_group::parse("SecP256r1MLKEM768").unwrap();
    definitions.channels.insert(CHANNEL.into(), receiver(any));
    called.follow(&definitions);
    for channel in [CHANNEL, "ANOTHER"] {
        let client = channel_client(&caller, &sender(any), channel, "localhost").unwrap();
        let [_, far] = shake(client, called.session().unwrap());
        assert_eq!(judged(far.unwrap(), &receiver(any)).unwrap().group.as_deref(), Some("SecP256r1MLKEM768"));
    }
}

#[test]
fn an_rsa_cipher_spec_with_an_ec_certificate_is_said_at_both_ends() {
    let pair = Pair::new();
    let rsa = "ECDHE_RSA_AES_128_GCM_SHA256";
    let [near, far] = pair.start(&sender(rsa), &receiver(rsa));
    let (near, far) = (near.err().map(|error| error.to_string()), far.err().map(|error| error.to_string()));
    let (near, far) = (near.unwrap_or_default(), far.unwrap_or_default());
    assert!(near.contains("an RSA CipherSpec with an EC certificate there"), "{near}");
    assert!(far.contains("needs an RSA certificate at the end that is called"), "{far}");
}

/// Has `openssl` make the OCSP answer about the called end's certificate, `V` for good or `R` for revoked, signed by
/// that authority, and staples it.
fn staple(pair: &Pair, status: char, signer: &str) {
    let dir = pair.dir("called");
    let at = |name: &str| dir.join(name).display().to_string();
    let leaf = X509::from_pem(&fs::read(at("server.pem")).unwrap()).unwrap();
    let serial = leaf.serial_number().to_bn().unwrap().to_hex_str().unwrap().to_string();
    let revoked = if status == 'R' { "250101000000Z" } else { "" };
    fs::write(at("index.txt"), format!("{status}\t401231235959Z\t{revoked}\t{serial}\tunknown\t/CN=QM2\n")).unwrap();
    let root = pair.folder.path().join("authority/ca.pem").display().to_string();
    fs::write(at("server.pem"), [leaf.to_pem().unwrap(), fs::read(&root).unwrap()].concat()).unwrap();
    let signer = |ending: &str| pair.folder.path().join(signer).join(ending).display().to_string();
    let run = |arguments: &[&str]| {
        let done = Command::new("openssl").arg("ocsp").args(arguments).output().expect("the openssl command");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["-issuer", &root, "-cert", &at("server.pem"), "-no_nonce", "-reqout", &at("request.der")]);
    let (certificate, key) = (signer("ca.pem"), signer("key.pem"));
    let made = ["-CA", &root, "-rsigner", &certificate, "-rkey", &key, "-index", &at("index.txt"), "-ndays", "1"];
    run(&[&made[..], &["-reqin", &at("request.der"), "-respout", &at("server.ocsp")]].concat());
}

#[test]
fn a_stapled_answer_is_believed_where_the_authority_signed_it() {
    for (status, signer, verdict) in [
        ('V', "authority", None),
        ('R', "authority", Some("certificate-revoked")),
        ('V', "strange", Some("revocation-unknown")),
    ] {
        let pair = Pair::new();
        found(&pair.folder.path().join("strange"), "CN=Root,O=Example");
        staple(&pair, status, signer);
        for spec in ["ANY_TLS12", "ANY_TLS13"] {
            let [near, _] = pair.start(&sender(spec), &receiver(spec));
            assert_eq!(near.err().map(|refusal| refusal.cause()), verdict, "{status} {signer} {spec}");
        }
    }
}

/// What the end whose partner is in the wrong says, for each protocol, and what the partner hears.
fn refused(pair: &Pair, by_caller: bool, cause: &str) {
    for spec in ["ANY_TLS12", "ANY_TLS13"] {
        let [near, far] = pair.start(&sender(spec), &receiver(spec)).map(Result::unwrap_err);
        let (judge, judged) = if by_caller { (near, far) } else { (far, near) };
        assert_eq!(judge.cause(), cause, "{judge}");
        assert_eq!(judged.cause(), "refused-by-partner", "{judged}");
    }
}

#[test]
fn a_certificate_past_its_end_is_refused_on_either_side() {
    let pair = Pair::new();
    pair.install("called", "server", "CN=QM2", SystemTime::now() - 3 * DAY, 1);
    refused(&pair, true, "certificate-expired");
    let pair = Pair::new();
    pair.install("caller", "server", "CN=QM1", SystemTime::now() - 3 * DAY, 1);
    refused(&pair, false, "certificate-expired");
}

#[test]
fn a_certificate_of_the_future_is_refused() {
    let pair = Pair::new();
    pair.install("called", "server", "CN=QM2", SystemTime::now() + 3 * DAY, 10);
    refused(&pair, true, "certificate-not-yet-valid");
}

#[test]
fn a_revoked_certificate_is_refused_where_the_list_is() {
    let pair = Pair::new();
    let certificate = pair.install("caller", "server", "CN=QM1", SystemTime::now() - DAY, 10);
    assert!(pair.start(&sender("ANY_TLS13"), &receiver("ANY_TLS13")).iter().all(Result::is_ok));
    pair.revoke(&certificate, "called", 10, SystemTime::now() - DAY);
    refused(&pair, false, "certificate-revoked");
    let [_, far] = pair.start(&sender("ANY_TLS13"), &receiver("ANY_TLS13"));
    assert_eq!(far.unwrap_err().reason(), reason::SSL_CERTIFICATE_REVOKED);
}

#[test]
fn an_old_list_refuses_everybody_it_could_name_and_nobody_else() {
    let pair = Pair::new();
    let other = pair.install("caller", "other", "CN=Other", SystemTime::now() - 4 * DAY, 10);
    pair.revoke(&other, "called", 1, SystemTime::now() - 3 * DAY);
    refused(&pair, false, "revocation-unknown");
    // An authority without a list is not asked for one.
    let free = found(&pair.folder.path().join("free"), "CN=Free");
    issue(&free, &pair.dir("caller"), "server", "CN=QM1", SystemTime::now() - GOOD_SINCE, 10);
    let both = [pair.authority.root().to_pem(), free.root().to_pem()].concat();
    fs::write(pair.dir("called").join("clients.pem"), both).unwrap();
    assert!(pair.start(&sender("ANY_TLS13"), &receiver("ANY_TLS13")).iter().all(Result::is_ok));
}

#[test]
fn a_certificate_of_a_strange_authority_is_refused_on_either_side() {
    for end in ["caller", "called"] {
        let pair = Pair::new();
        let strange = found(&pair.folder.path().join("strange"), "CN=Root,O=Example");
        issue(&strange, &pair.dir(end), "server", "CN=QM2", SystemTime::now() - GOOD_SINCE, 10);
        refused(&pair, end == "called", "certificate-untrusted");
    }
}

#[test]
fn a_refusal_for_an_unknown_authority_names_the_file_to_put_it_into() {
    for (end, file) in [("caller", "tls/clients.pem"), ("called", "tls/partners.pem")] {
        let pair = Pair::new();
        let unknown = found(&pair.folder.path().join("unknown"), "CN=Unknown");
        issue(&unknown, &pair.dir(end), "server", "CN=localhost", SystemTime::now() - GOOD_SINCE, 10);
        let [near, far] = pair.start(&sender("ANY_TLS13"), &receiver("ANY_TLS13"));
        let refusal = if end == "called" { near } else { far }.unwrap_err().to_string();
        assert!(refusal.starts_with("the certificate of CN=localhost is not trusted: "), "{refusal}");
        assert!(refusal.contains(file), "{refusal}");
    }
}

#[test]
fn partners_have_authorities_of_their_own_where_there_is_a_file_for_them() {
    let pair = Pair::new();
    let strange = found(&pair.folder.path().join("strange"), "CN=Strange");
    fs::write(pair.dir("caller").join("partners.pem"), strange.root().to_pem()).unwrap();
    refused(&pair, true, "certificate-untrusted");
}

#[test]
fn a_caller_without_a_certificate_is_refused_where_sslcauth_asks_for_one() {
    let pair = Pair::new();
    fs::remove_file(pair.dir("caller").join("server.pem")).unwrap();
    refused(&pair, false, "no-certificate");
    let optional = ChannelDefinition { client_certificate_required: false, ..receiver("ANY_TLS13") };
    let [near, far] = pair.start(&sender("ANY_TLS13"), &optional).map(Result::unwrap);
    assert!(near.peer.is_some() && far.peer.is_none());
    let pattern = ChannelDefinition { peer_pattern: Some("CN=QM1".into()), ..optional };
    let [_, far] = pair.start(&sender("ANY_TLS13"), &pattern);
    assert_eq!(far.unwrap_err(), TlsRefusal::NoCertificate);
}

#[test]
fn the_partner_is_whom_sslpeer_or_conname_says() {
    let pair = Pair::new();
    let pattern = |text: &str| ChannelDefinition { peer_pattern: Some(text.into()), ..sender("ANY_TLS13") };
    assert!(pair.start(&pattern("CN=QM2,OU=Pay*"), &receiver("ANY_TLS13")).iter().all(Result::is_ok));
    let [near, _] = pair.start(&pattern("CN=QM3"), &receiver("ANY_TLS13"));
    let refusal = near.unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "wrong peer name: the certificate is that of CN=QM2,OU=Payments,O=Example, not of CN=QM3"
    );
    assert_eq!(refusal.reason(), reason::SSL_PEER_NAME_MISMATCH);
    let [near, _] = pair.start(&pattern("CN=Q*3"), &receiver("ANY_TLS13"));
    assert_eq!(near.unwrap_err().reason(), reason::SSL_PEER_NAME_ERROR);

    // Without a pattern the certificate must be one of the host, which a pattern makes good for.
    let tls = Tls::new(pair.dir("caller"));
    for (host, definition, good) in [
        ("localhost", sender("ANY_TLS13"), true),
        ("elsewhere", sender("ANY_TLS13"), false),
        ("127.0.0.1", sender("ANY_TLS13"), false),
        ("elsewhere", pattern("CN=QM2"), true),
    ] {
        let called = Tls::new(pair.dir("called"));
        let ssl = channel_client(&tls, &definition, CHANNEL, host).unwrap();
        let [near, _] = shake(ssl, called.session().unwrap());
        match near {
            Ok(_) => assert!(good, "{host}"),
            Err(refusal) => {
                assert!(!good);
                assert!(refusal.to_string().ends_with(&format!("not of {host}")), "{refusal}");
            }
        }
    }
}

#[test]
fn a_channel_shows_the_certificate_of_its_label() {
    let pair = Pair::new();
    pair.install("caller", "cards", "CN=Cards", SystemTime::now() - GOOD_SINCE, 10);
    pair.install("called", "harness", "CN=Harness", SystemTime::now() - GOOD_SINCE, 10);
    let label = |label: &str| Some(label.to_owned());
    let near = ChannelDefinition { certificate_label: label("cards"), ..sender("ANY_TLS13") };
    let far = ChannelDefinition { certificate_label: label("harness"), ..receiver("ANY_TLS13") };
    let peers = pair.start(&near, &far).map(|end| end.unwrap().peer.unwrap().subject);
    assert_eq!(peers, ["CN=Harness", "CN=Cards"]);
    for wrong in ["missing", "../caller/server", ".hidden"] {
        let near = ChannelDefinition { certificate_label: label(wrong), ..sender("ANY_TLS13") };
        let [refused, _] = pair.start(&near, &far);
        assert_eq!(refused.unwrap_err().reason(), reason::SSL_CERT_STORE_ERROR, "{wrong}");
    }
}

#[test]
fn the_next_handshake_sees_a_certificate_that_was_exchanged_and_not_one_that_is_half_written() {
    let pair = Pair::new();
    let (caller, called) = (Tls::new(pair.dir("caller")), Tls::new(pair.dir("called")));
    let subject = || {
        let ssl = channel_client(&caller, &sender("ANY_TLS13"), CHANNEL, "localhost").unwrap();
        let [near, _] = shake(ssl, called.session().unwrap());
        check_channel(Some(near.unwrap().ssl()), &sender("ANY_TLS13")).unwrap().unwrap().subject
    };
    assert_eq!(subject(), "CN=QM2,OU=Payments,O=Example");
    pair.install("called", "server", "CN=New", SystemTime::now() - GOOD_SINCE, 10);
    called.shared.look_again();
    assert_eq!(subject(), "CN=New");
    fs::write(pair.dir("called").join("server.pem"), "-----BEGIN CERT").unwrap();
    called.shared.look_again();
    assert_eq!(subject(), "CN=New");
}

#[test]
fn openssl_knows_each_suite() {
    for spec in ALL.iter().filter(|spec| spec.iana.is_some()) {
        let mut builder = SslContext::builder(SslMethod::tls()).unwrap();
        match spec.protocols {
            Protocols::Tls13 => builder.set_ciphersuites(&spec.tls13_list()).unwrap(),
            _ => builder.set_cipher_list(&spec.tls12_list()).unwrap(),
        }
    }
}
