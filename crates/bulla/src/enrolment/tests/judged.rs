//! Certificates that came, and what is wrong with each.

use super::*;
use crate::enrolment::answer::{Trust, Wanted, judge};
use bulla_seal::certificate::authority::Founding;
use bulla_seal::certificate::create::Profile;
use openssl::pkey::{PKey, Private};

struct Case {
    site: Site,
    key: PKey<Private>,
    profile: Profile,
}

impl Case {
    fn new() -> Case {
        let names = vec![AlternativeName::Dns("mq.example".into())];
        let profile = Profile { dn: dn("mq"), uses: vec![KeyUse::Handshake], days: 30, alternative_names: names };
        Case { site: Site::new(""), key: P256.generate().unwrap(), profile }
    }

    /// What the authority makes of a request with these changes.
    fn signed(&self, change: impl FnOnce(&mut Profile), now: SystemTime) -> Certificate {
        let mut profile = self.profile.clone();
        change(&mut profile);
        let request = bulla_seal::certificate::create::request(&profile, &self.key, P256.kind()).unwrap();
        let Profile { uses, days, alternative_names, .. } = profile;
        self.site.authority().sign_request(&request, &uses, days, &alternative_names, now).unwrap()
    }

    fn judged(&self, came: Vec<Certificate>) -> Result<Certificate, String> {
        let trust = self.site.dir.path().join("away.pem");
        let now = self.site.now.get();
        let wanted =
            Wanted { key: &self.key, profile: &self.profile, any_subject: false, trust: Trust::File(&trust), now };
        judge(came, &wanted).map(|good| good.certificate).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn refused(&self, came: Vec<Certificate>, says: &str) {
        let why = self.judged(came).unwrap_err();
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn only_what_was_asked_for_is_good() {
    let case = Case::new();
    let now = case.site.now.get();
    let good = case.signed(|_| {}, now);
    let root = case.site.authority().root().clone();
    assert_eq!(case.judged(vec![root.clone(), good.clone()]).unwrap(), good);
    let upper = case.signed(|profile| profile.alternative_names = vec!["dns:MQ.Example".parse().unwrap()], now);
    assert_eq!(case.judged(vec![upper.clone()]).unwrap(), upper, "hosts are the same in upper case");
    case.refused(vec![root], "none of its 1 certificates is for the key");
    case.refused(vec![case.signed(|profile| profile.dn = dn("mq2"), now)], "it is for CN=mq2, and not for CN=mq");
    case.refused(vec![case.signed(|profile| profile.alternative_names.clear(), now)], "it is not for dns:mq.example");
    case.refused(vec![case.signed(|profile| profile.uses = vec![KeyUse::KeyAgree], now)], "digitalSignature");
    case.refused(vec![case.signed(|profile| profile.uses = vec![KeyUse::DocSign], now)], "serverAuth");
    case.refused(vec![case.signed(|profile| profile.uses.push(KeyUse::CertSign), now)], "an authority's");
    case.refused(vec![case.signed(|_| {}, now + DAY)], "it is valid only from");
    case.refused(vec![case.signed(|_| {}, now - DAY * 31)], "expired");
    assert!(case.judged(vec![case.signed(|_| {}, now + Duration::from_secs(200))]).is_ok(), "clocks differ a little");
}

#[test]
fn the_path_must_end_at_the_authority_that_is_trusted() {
    let case = Case::new();
    let now = case.site.now.get();
    let folder = case.site.dir.path().join(AUTHORITIES);
    let request = bulla_seal::certificate::create::request(&case.profile, &case.key, P256.kind()).unwrap();
    let Profile { uses, days, alternative_names, .. } = &case.profile;
    let sign = |authority: &Authority| authority.sign_request(&request, uses, *days, alternative_names, now).unwrap();
    let other = Authority::create(&folder.join("other"), &dn("Away"), P256, 900, now).unwrap();
    case.refused(vec![sign(&other), other.root().clone()], "not the certificate that was asked for");
    let away = case.site.authority();
    let (below_dn, away) = (dn("Below"), &away);
    let founding = Founding { dn: &below_dn, key: P256, days: 900, passphrase: None, parent: Some(away) };
    let below = Authority::found(&folder.join("below"), &founding, now).unwrap();
    case.refused(vec![sign(&below)], "not the certificate that was asked for");
    let trust = case.site.dir.path().join("away.pem");
    let wanted = Wanted { key: &case.key, profile: &case.profile, any_subject: false, trust: Trust::File(&trust), now };
    let good = judge(vec![other.root().clone(), below.certificate().clone(), sign(&below)], &wanted).unwrap();
    assert_eq!((good.chain, good.root), (vec![below.certificate().clone()], away.root().clone()));
}
