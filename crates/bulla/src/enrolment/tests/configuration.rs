//! What may stand in the file.

use super::*;

#[track_caller]
fn refused(text: &str, says: &str) {
    let error = Configuration::parse(text, Path::new("/data/enrolment.toml")).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn a_file_is_understood_whole_or_refused_with_the_place() {
    let text = "[authorities.away]\ncommand = [\"/usr/bin/sign\", \"a b\"]\ntrust = \"root.pem\"\nseconds = 5\n\
                [rings.billing]\nauthority = \"away\"\nkey = \"rsa3072\"\noverlap = \"2d\"\nusage = [\"docsign\"]\n\
                [certificates.'server']\nauthority = \"away\"\nnames = [\"dns:mq.example\", \"ip:192.0.2.7\"]\n";
    let read = Configuration::parse(text, Path::new("/data/enrolment.toml")).unwrap();
    assert_eq!(read.authorities["away"].trust, Path::new("/data/root.pem"));
    assert_eq!(read.rings["billing"].overlap, Some(2 * DAY));
    assert_eq!(read.rings["billing"].key, Some(KeySpec::Rsa(3072)));
    assert_eq!(read.certificates["server"].names.len(), 2);
    refused(&text.replace("/usr/bin/sign", "sign"), "authorities.away: \"sign\" is no absolute path");
    refused(&text.replace("[\"/usr/bin/sign\", \"a b\"]", "[]"), "command has no program");
    refused(&text.replace("seconds = 5", "seconds = 0"), "seconds is 0");
    refused(&text.replace("authority = \"away\"\nkey", "authority = \"home\"\nkey"), "there is no authorities.home");
    refused(&text.replace("rsa3072", "rsa3000"), "line 7");
    refused(&text.replace("dns:mq.example", "mq.example"), "mq.example");
    refused(&text.replace("overlap = \"2d\"", "overlap = \"2w\""), "expected a time");
    refused(&text.replace("usage", "uses"), "unknown field");
    refused(&text.replace("'server'", "'../server'"), "not a label");
    refused(&text.replace("trust = \"root.pem\"\n", ""), "missing field `trust`");
    refused(&text.replace("seconds = 5", "cmp = \"http://ca.example/\""), "it has both command and cmp");
    refused(&text.replace("seconds = 5", "reference = \"1\""), "reference is of cmp");
    let cmp = text.replace("command = [\"/usr/bin/sign\", \"a b\"]", "cmp = \"http://ca.example/\"");
    assert_eq!(Configuration::parse(&cmp, Path::new("/x")).unwrap().authorities["away"].method(), "CMP");
    refused(&cmp.replace("http:", "ftp:"), "no URL as https://ca.example/directory");
    refused(&cmp.replace("seconds = 5", "reference = \"1\""), "reference and secret_file go together");
    refused(&cmp.replace("cmp = \"http://ca.example/\"\n", ""), "neither command nor cmp nor acme nor spiffe");
    assert_eq!(Configuration::read(tempfile::tempdir().unwrap().path()).unwrap(), None);
}

#[test]
fn an_authority_of_acme_is_asked_for_certificates_of_tls_over_https() {
    let text = "[authorities.away]\nacme = \"https://ca.example:14000/directory\"\ntrust = \"root.pem\"\n\
                contact = [\"mailto:mq@ca.example\"]\nterms_agreed = true\nhttp01_listen = \"127.0.0.1:5002\"\n\
                [certificates.server]\nauthority = \"away\"\nnames = [\"dns:mq.example\", \"ip:192.0.2.7\"]\n";
    let read = Configuration::parse(text, Path::new("/data/enrolment.toml")).unwrap();
    let away = &read.authorities["away"];
    assert_eq!((away.method(), away.place.0.as_str()), ("ACME", "away"));
    assert!(away.source().unwrap().chooses_subject());
    refused(&text.replace("https:", "http:"), "acme is spoken over https alone");
    refused(&text.replace("dns:mq.example", "dns:*.example"), "acme can't prove dns:*.example");
    refused(&text.replace("dns:mq.example", "uri:urn:x"), "acme can't prove uri:urn:x");
    refused(&text.replace("mailto:", ""), "contact has URIs");
    refused(&text.replace("terms_agreed = true", "binding_id = \"1\""), "binding_id and binding_key_file go together");
    refused(&text.replace("terms_agreed = true", "challenge = \"dns-01\""), "dns-01");
    refused(&text.replace("terms_agreed = true", "challenge = \"tls-alpn-01\""), "http01_listen is of the challenge");
    refused(&text.replace("terms_agreed = true", "cmp = \"https://ca.example/\""), "it has both cmp and acme");
    refused(&text.replace("terms_agreed = true", "reference = \"1\""), "reference is of cmp");
    refused(&text.replace("acme = ", "cmp = "), "contact is of acme");
    let ring = format!("{text}[rings.billing]\nauthority = \"away\"\n");
    refused(&ring, "rings.billing: acme has certificates of TLS alone");
    let names = format!("names = [{}]\n", "\"dns:a\", ".repeat(101));
    let many = text.lines().filter(|line| !line.starts_with("names")).collect::<Vec<_>>().join("\n");
    refused(&format!("{many}\n{names}"), "more than 100 names");
}

#[test]
fn an_agent_of_spiffe_gives_certificates_of_tls_with_their_keys() {
    let text = "[authorities.spire]\nspiffe = \"unix:///run/spire/agent.sock\"\nbelieve = [\"partners\"]\n\
                [certificates.server]\nauthority = \"spire\"\nspiffe_id = \"spiffe://a.example/mq\"\n";
    let read = Configuration::parse(text, Path::new("/data/enrolment.toml")).unwrap();
    let spire = &read.authorities["spire"];
    assert_eq!((spire.method(), spire.trust.as_os_str().is_empty()), ("SPIFFE", true));
    assert_eq!(spire.believe[0].file(), "partners.pem");
    assert!(spire.source().is_ok());
    let given = text.replace("believe", "trust = \"root.pem\"\nbelieve");
    let given = Configuration::parse(&given, Path::new("/data/enrolment.toml")).unwrap();
    assert_eq!(given.authorities["spire"].trust, Path::new("/data/root.pem"));
    refused(&text.replace("unix://", "tcp://"), "is no address as unix:/run/spire/agent.sock");
    refused(&text.replace("unix:///", "unix:"), "is no address as unix:/run/spire/agent.sock");
    refused(&text.replace("spiffe://a", "https://a"), "\"https://a.example/mq\" is no SPIFFE ID");
    refused(&format!("{text}dn = \"CN=mq\"\n"), "no dn, no key");
    refused(&format!("{text}key = \"p256\"\n"), "no dn, no key");
    refused(&text.replace("believe", "cmp = \"http://ca.example/\"\nbelieve"), "it has both cmp and spiffe");
    refused(&text.replace("believe", "https_trust = \"a.pem\"\nbelieve"), "https_trust is of cmp and acme");
    refused(&text.replace("partners", "everyone"), "unknown variant");
    let other = "[authorities.other]\nspiffe = \"unix:/b\"\nbelieve = [\"clients\", \"partners\"]\n";
    refused(&format!("{text}{other}"), "one of them alone may say partners.pem");
    let of_cmp = text.replace("spiffe = \"unix:///run/spire/agent.sock\"", "cmp = \"http://ca.example/\"");
    refused(&of_cmp, "believe is of spiffe");
    let of_cmp = of_cmp.replace("believe = [\"partners\"]", "trust = \"root.pem\"");
    refused(&of_cmp, "spiffe_id is of spiffe");
    let ring = format!("{text}[rings.billing]\nauthority = \"spire\"\n");
    let error = Configuration::parse(&ring, Path::new("/data/enrolment.toml")).unwrap_err();
    assert!(matches!(&error, EnrolError::ShortLived { user, .. } if user == "billing"), "{error}");
    assert!(error.hint().is_some());
    let signer = |id: &str| format!("{text}[signers.billing]\nauthority = \"spire\"\nspiffe_id = \"{id}\"\n");
    let read = Configuration::parse(&signer("spiffe://a.example/billing"), Path::new("/data/enrolment.toml")).unwrap();
    assert_eq!(read.signer("billing").unwrap().spiffe_id.as_deref(), Some("spiffe://a.example/billing"));
    refused(&signer("spiffe://a.example"), "is not the SPIFFE ID of a process");
    refused(&format!("{}dn = \"CN=b\"\n", signer("spiffe://a.example/b")), "unknown field `dn`");
    refused(&format!("{text}[signers.billing]\nauthority = \"none\"\n"), "there is no authorities.none");
    let company = "[authorities.company]\ncmp = \"http://ca.example/\"\ntrust = \"root.pem\"\n";
    let other = format!("{text}{company}[signers.billing]\nauthority = \"company\"\n");
    refused(&other, "it needs an authority with spiffe");
}
