//! Whether to believe a certificate: OpenSSL builds and checks the path, the rules on use and revocation are ours.

use std::time::SystemTime;

use bulla_device::process_policies;
use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::X509StoreContext;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::X509VerifyParam;

use super::Ring;
use crate::certificate::{Certificate, CertificateError, Usage, time};
use crate::policy::Revocation;

/// The longest path from a certificate to its authority, both included.
pub const CHAIN_CERTIFICATES_MAX: usize = 8;
/// The most certificates that a question may offer to build a path from.
const INTERMEDIATES_MAX: usize = 32;
/// The most certificates that a ring adds to them, those nearest to the certificate in question.
const RING_INTERMEDIATES_MAX: usize = 32;
/// The most authorities of a trust domain that are tried one by one: they are those that are valid at that moment.
const ANCHORS_ALONE_MAX: usize = 8;
/// OpenSSL's level 1: 80 bits. RSA 1024 and P-192 pass; signatures with MD5 or SHA-1 do not.
pub(super) const SECURITY_LEVEL: i32 = 1;

/// That a certificate was found good, and for how long the finding holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// All certificates of the path are valid from here on …
    pub valid_from: SystemTime,
    /// … until just before this. These two bound the time at which expiry is judged.
    pub valid_until: SystemTime,
    /// The revocation lists that were asked are current from here on …
    pub fresh_from: Option<SystemTime>,
    /// … until just before this. These two bound the time at which revocation is judged; without a list there is no
    /// bound.
    pub fresh_until: Option<SystemTime>,
    /// What was asked of the revocation lists.
    pub revocation: Revocation,
}

/// A certificate that was found good, and the path that shows it.
#[derive(Clone, Debug)]
pub struct ProvenPath {
    /// From the certificate to its root, both included.
    pub path: Vec<Certificate>,
    /// Places in the path of the certificates that no revocation list of the ring is about. The root is not asked
    /// about.
    pub unknown: Vec<usize>,
    /// For how long that holds.
    pub verdict: Verdict,
}

/// What a certificate is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathQuestion {
    /// What its key shall do; without it only the path is looked at.
    pub usage: Option<Usage>,
    /// What the policy asks of revocation lists; the ring's own demand counts where it is stricter.
    pub revocation: Revocation,
    /// When expiry is judged.
    pub at: SystemTime,
    /// When revocation is judged.
    pub now: SystemTime,
}

impl Verdict {
    /// Whether the same question has the same answer with this demand of the policy and these times, in the same
    /// [`Ring::generation`].
    pub fn holds(&self, asked: Revocation, at: SystemTime, now: SystemTime) -> bool {
        asked <= self.revocation
            && self.valid_from <= at
            && at < self.valid_until
            && self.fresh_from.is_none_or(|from| from <= now)
            && self.fresh_until.is_none_or(|until| now < until)
    }
}

impl Ring {
    /// Whether `leaf` may be used for `usage`, with the ring's own demand of revocation lists. Expiry is judged at
    /// `at`, revocation at `now`. As [`Ring::prove`] otherwise.
    ///
    /// # Errors
    /// [`CertificateError`], the first that was found.
    pub fn verify(
        &self,
        leaf: &Certificate,
        intermediates: &[Certificate],
        usage: Usage,
        at: SystemTime,
        now: SystemTime,
    ) -> Result<Verdict, CertificateError> {
        let question = PathQuestion { usage: Some(usage), revocation: Revocation::None, at, now };
        self.prove(leaf, intermediates, &question).map(|proof| proof.verdict)
    }

    /// Whether `leaf` may be used as the question asks, and over which path.
    ///
    /// Checked are: kind and size of the key; keyUsage and extended key usage; a path to a certificate
    /// in `trust`, of a SPIFFE ID to one of its trust domain, over the authorities in `people` and `own` and over
    /// `intermediates` (hints, believed only as far as the path proves them; where the ring's own lead nowhere, they
    /// are tried alone); along the path signatures, dates, basicConstraints, keyUsage of authorities, name
    /// constraints, certificate policies and critical extensions. Then the ring's revocation lists are asked about
    /// each certificate below the root, as the stricter of the question and the ring demands ([`Revocation`]).
    ///
    /// Costs a public-key operation for each certificate on the path: keep the [`Verdict`].
    ///
    /// # Errors
    /// [`CertificateError`], the first that was found.
    pub fn prove(
        &self,
        leaf: &Certificate,
        intermediates: &[Certificate],
        question: &PathQuestion,
    ) -> Result<ProvenPath, CertificateError> {
        if let Some(usage) = question.usage {
            leaf.check_usage(usage)?;
        }
        if leaf.dn().is_spiffe_id() {
            // Which of its trust domain's authorities are asked follows from that moment: a path may be missing for
            // that.
            leaf.check_dates(question.at)?;
        }
        let anchors = self.anchors_of(leaf, question.at);
        let path = self.any_path(leaf, intermediates, question.at, &anchors)?;
        let (mut valid_from, mut valid_until) = (leaf.not_before(), leaf.not_after());
        for certificate in &path {
            certificate.check_dates(question.at)?;
            valid_from = valid_from.max(certificate.not_before());
            valid_until = valid_until.min(certificate.not_after());
        }
        for (certificate, issuer) in path.iter().zip(path.iter().skip(1)) {
            // OpenSSL lets an old certificate without basicConstraints issue others.
            let anchor = anchors.contains(&issuer);
            if !issuer.is_authority() && !anchor {
                return Err(CertificateError::Untrusted {
                    dn: certificate.dn().clone(),
                    why: format!("issuer dn={:?} is no authority", issuer.dn().as_str()),
                });
            }
        }
        let revocation = self.revocation.max(question.revocation);
        let unrevoked = self.check_revocation(&path, intermediates, revocation, question.now)?;
        let verdict =
            Verdict { valid_from, valid_until, fresh_from: unrevoked.from, fresh_until: unrevoked.until, revocation };
        Ok(ProvenPath { path, unknown: unrevoked.unknown, verdict })
    }

    /// The path from `leaf` to one of these roots, over what the ring knows and what is offered. The authorities of a
    /// trust domain may all have one name, and OpenSSL takes the first of a name: then each is tried alone.
    fn any_path(
        &self,
        leaf: &Certificate,
        intermediates: &[Certificate],
        at: SystemTime,
        anchors: &[&Certificate],
    ) -> Result<Vec<Certificate>, CertificateError> {
        let result = self.path_over_all(leaf, intermediates, at, anchors);
        if !matches!(result, Err(CertificateError::Untrusted { .. })) || !leaf.dn().is_spiffe_id() || anchors.len() < 2
        {
            return result;
        }
        let alone = anchors.iter().take(ANCHORS_ALONE_MAX);
        let mut alone = alone.map(|anchor| self.path_over_all(leaf, intermediates, at, &[*anchor]));
        alone.find(Result::is_ok).unwrap_or(result)
    }

    fn path_over_all(
        &self,
        leaf: &Certificate,
        intermediates: &[Certificate],
        at: SystemTime,
        anchors: &[&Certificate],
    ) -> Result<Vec<Certificate>, CertificateError> {
        if intermediates.len() > INTERMEDIATES_MAX {
            let why = "too many certificates offered".to_owned();
            return Err(CertificateError::Untrusted { dn: leaf.dn().clone(), why });
        }
        let known = self.authorities_above(leaf, intermediates);
        if known.is_empty() {
            return self.path(leaf, intermediates, at, anchors);
        }
        let all = [known.as_slice(), intermediates].concat();
        match self.path(leaf, &all, at, anchors) {
            // OpenSSL follows one certificate of a name and does not turn back.
            Err(CertificateError::Untrusted { .. }) if !intermediates.is_empty() => {
                self.path(leaf, intermediates, at, anchors)
            }
            result => result,
        }
    }

    /// The ring's authorities by whose names a path from `leaf` or from one of the certificates offered can go on.
    fn authorities_above(&self, leaf: &Certificate, offered: &[Certificate]) -> Vec<Certificate> {
        let named = |certificate: &Certificate| {
            let named = self.authorities.get(&certificate.x509().issuer_name_hash()).into_iter().flatten();
            named.filter(|authority| authority.is_authority())
        };
        let mut found: Vec<Certificate> = Vec::new();
        let mut next: Vec<&Certificate> = std::iter::once(leaf).chain(offered).flat_map(named).collect();
        while !next.is_empty() {
            let mut new = Vec::new();
            for certificate in next {
                let is_there = found.contains(certificate) || offered.contains(certificate);
                if !is_there && found.len() < RING_INTERMEDIATES_MAX {
                    found.push(certificate.clone());
                    new.push(certificate);
                }
            }
            next = new.into_iter().flat_map(named).collect();
        }
        found
    }

    /// The path from `leaf` to its root, both included, as OpenSSL built and checked it.
    fn path(
        &self,
        leaf: &Certificate,
        intermediates: &[Certificate],
        at: SystemTime,
        anchors: &[&Certificate],
    ) -> Result<Vec<Certificate>, CertificateError> {
        let untrusted = |why: &str| CertificateError::Untrusted { dn: leaf.dn().clone(), why: why.to_owned() };
        let failed = |stack: ErrorStack| CertificateError::Library { why: stack.to_string() };

        // The time is a property of the store, so each question gets its own; adding counts references only.
        let mut store = X509StoreBuilder::new().map_err(failed)?;
        for authority in anchors {
            store.add_cert(authority.x509().clone()).map_err(failed)?;
        }
        let mut parameters = X509VerifyParam::new().map_err(failed)?;
        parameters.set_time(time::unix(at));
        parameters.set_auth_level(SECURITY_LEVEL);
        process_policies(&mut parameters).map_err(failed)?;
        let between = CHAIN_CERTIFICATES_MAX - 2; // OpenSSL counts what lies between leaf and root
        parameters.set_depth(i32::try_from(between).unwrap_or(i32::MAX));
        store.set_param(&parameters).map_err(failed)?;
        let store = store.build();

        let mut offered = Stack::new().map_err(failed)?;
        for certificate in intermediates {
            offered.push(certificate.x509().clone()).map_err(failed)?;
        }
        let mut context = X509StoreContext::new().map_err(failed)?;
        let result = context
            .init(&store, leaf.x509(), &offered, |context| {
                if !context.verify_cert()? {
                    let culprit = context.current_cert().map(Certificate::from_x509);
                    return Ok(Err((context.error(), culprit)));
                }
                let chain = context.chain().into_iter().flatten();
                Ok(Ok(chain.map(Certificate::from_x509).collect::<Result<Vec<_>, _>>()))
            })
            .map_err(failed)?;
        match result {
            Ok(Ok(path)) if path.first() == Some(leaf) => Ok(path),
            Ok(Ok(_)) => Err(untrusted("no path was built")),
            Ok(Err(error)) => Err(untrusted(&error.to_string())),
            Err((error, culprit)) => {
                let culprit = culprit.and_then(Result::ok);
                let culprit = culprit.as_ref().unwrap_or(leaf);
                Err(explain(error.as_raw(), error.error_string(), culprit))
            }
        }
    }
}

/// OpenSSL's verdict (numbers of x509_vfy.h) as ours.
fn explain(code: i32, text: &str, culprit: &Certificate) -> CertificateError {
    const CERT_NOT_YET_VALID: i32 = 9;
    const CERT_HAS_EXPIRED: i32 = 10;
    const EE_KEY_TOO_SMALL: i32 = 66;
    const CA_KEY_TOO_SMALL: i32 = 67;
    const CA_MD_TOO_WEAK: i32 = 68;
    const OUT_OF_MEM: i32 = 17;
    let dn = culprit.dn().clone();
    match code {
        CERT_NOT_YET_VALID => CertificateError::NotYetValid { dn, not_before: culprit.not_before() },
        CERT_HAS_EXPIRED => CertificateError::Expired { dn, not_after: culprit.not_after() },
        EE_KEY_TOO_SMALL | CA_KEY_TOO_SMALL | CA_MD_TOO_WEAK => {
            CertificateError::WeakKey { dn, bits: culprit.key_bits() }
        }
        OUT_OF_MEM => CertificateError::Library { why: text.to_owned() },
        _ => CertificateError::Untrusted { dn, why: text.to_owned() },
    }
}
