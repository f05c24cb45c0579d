//! On whose behalf a message was sealed anew: who had signed it before, and what was found of that signature.
//! `docs/formats/sealed-message.md` has the attribute.

use std::time::SystemTime;

use crate::cms::attributes::{read_time, time_element};
use crate::cms::reader::{Malformed, Reader};
use crate::cms::writer::{ENUMERATED, GENERALIZED_TIME, INTEGER, OCTET_STRING, SEQUENCE, UTC_TIME, element};
use crate::dn::Dn;
use crate::message::SealInfo;
use crate::spiffe_id::URI;

/// Former signers of one message. Those that one and the same signer sealed anew in a row count once.
pub const FORMER_SIGNERS_MAX: usize = 4;
/// Bytes of all that is said of former signers.
pub const ON_BEHALF_BYTES_MAX: usize = 8 << 10;
const VERSION: u8 = 1;
const VERIFIED: u8 = 1;
const UNSIGNED: u8 = 2;

/// What the attribute says. Who seals a message anew says it, by its own signature; without one it proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnBehalfOf {
    /// When it was sealed anew, in whole seconds.
    pub resealed_at: SystemTime,
    /// Who had signed it, the last one first: each was found good by the one before it. None for a message that was
    /// not signed.
    pub signers: Vec<FormerSigner>,
}

/// A signer of the seal before, or of one before that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerSigner {
    /// The subject of its certificate.
    pub dn: Dn,
    /// SHA-256 of its certificate.
    pub certificate: [u8; 32],
    /// When it said that it signed.
    pub signing_time: Option<SystemTime>,
}

impl OnBehalfOf {
    /// What is to be said of a message that was opened with that seal, and is now sealed anew by `own`. None where
    /// there are more former signers, or longer names, than the attribute holds.
    pub fn after(seal: &SealInfo, own: Option<&Dn>, now: SystemTime) -> Option<OnBehalfOf> {
        let mut signers = Vec::new();
        if let (Some(dn), Some(certificate)) = (&seal.signer, seal.signer_certificate) {
            let before = seal.on_behalf_of.as_deref();
            // Its own word of before is good enough for itself.
            if own != Some(dn) || before.is_none() {
                signers.push(FormerSigner { dn: dn.clone(), certificate, signing_time: seal.signing_time });
            }
            signers.extend(before.iter().flat_map(|before| before.signers.iter().cloned()));
        }
        let all = OnBehalfOf { resealed_at: now, signers };
        (all.signers.len() <= FORMER_SIGNERS_MAX && all.to_der().len() <= ON_BEHALF_BYTES_MAX).then_some(all)
    }

    /// What was found of the signature before: `verified` or `unsigned`.
    pub fn verdict(&self) -> &'static str {
        if self.signers.is_empty() { "unsigned" } else { "verified" }
    }

    /// The value of the attribute.
    pub(crate) fn to_der(&self) -> Vec<u8> {
        let signers: Vec<u8> = self.signers.iter().flat_map(FormerSigner::to_der).collect();
        let verdict = if self.signers.is_empty() { UNSIGNED } else { VERIFIED };
        let parts: [&[u8]; 4] = [
            &element(INTEGER, &[&[VERSION]]),
            &time_element(self.resealed_at),
            &element(ENUMERATED, &[&[verdict]]),
            &element(SEQUENCE, &[&signers]),
        ];
        element(SEQUENCE, &parts)
    }

    /// Reads the value of the attribute.
    pub(crate) fn read(value: &[u8]) -> Result<OnBehalfOf, Malformed> {
        const WHAT: &str = "the attribute of former signers is unreadable";
        if value.len() > ON_BEHALF_BYTES_MAX {
            return Err(Malformed("more than 8 KiB of former signers"));
        }
        let mut fields = Reader::only(value, SEQUENCE, WHAT)?;
        if fields.small_integer(WHAT)? != VERSION {
            return Err(Malformed("the attribute of former signers is of another version"));
        }
        let resealed_at = time(&mut fields)?.ok_or(Malformed(WHAT))?;
        let verdict = fields.value(ENUMERATED, WHAT)?;
        let mut each = fields.enter(SEQUENCE, WHAT)?;
        fields.end(WHAT)?;
        let mut signers = Vec::new();
        while !each.is_empty() {
            if signers.len() == FORMER_SIGNERS_MAX {
                return Err(Malformed("more than 4 former signers"));
            }
            signers.push(FormerSigner::read(each.enter(SEQUENCE, WHAT)?)?);
        }
        match (verdict, signers.is_empty()) {
            ([VERIFIED], false) | ([UNSIGNED], true) => Ok(OnBehalfOf { resealed_at, signers }),
            _ => Err(Malformed(WHAT)),
        }
    }
}

impl FormerSigner {
    fn to_der(&self) -> Vec<u8> {
        let signed = self.signing_time.map(time_element).unwrap_or_default();
        // A SPIFFE ID stands as a URI does in a certificate, and not as a Name.
        let name = match self.dn.is_spiffe_id() {
            true => element(URI, &[self.dn.as_str().as_bytes()]),
            false => self.dn.to_der(),
        };
        element(SEQUENCE, &[&name, &element(OCTET_STRING, &[&self.certificate]), &signed])
    }

    fn read(mut fields: Reader<'_>) -> Result<FormerSigner, Malformed> {
        const WHAT: &str = "a former signer is unreadable";
        let dn = if fields.peek() == Some(URI) {
            let id = std::str::from_utf8(fields.value(URI, WHAT)?).map_err(|_| Malformed(WHAT))?;
            Dn::of_signer(id).ok().filter(|dn| dn.is_spiffe_id() && dn.as_str() == id).ok_or(Malformed(WHAT))?
        } else {
            let name = fields.whole(SEQUENCE, WHAT)?;
            Dn::from_der(name).ok().filter(|dn| dn.to_der() == name).ok_or(Malformed(WHAT))?
        };
        let certificate = fields.value(OCTET_STRING, WHAT)?.try_into().map_err(|_| Malformed(WHAT))?;
        let signing_time = time(&mut fields)?;
        fields.end(WHAT)?;
        Ok(FormerSigner { dn, certificate, signing_time })
    }
}

/// The time that comes next, in the one form that it has; none where something else comes or nothing.
fn time(fields: &mut Reader<'_>) -> Result<Option<SystemTime>, Malformed> {
    const WHAT: &str = "a time of a former signer is unreadable";
    let Some(tag @ (UTC_TIME | GENERALIZED_TIME)) = fields.peek() else { return Ok(None) };
    let whole = fields.whole(tag, WHAT)?;
    let time = read_time(whole)?;
    if time_element(time) == whole { Ok(Some(time)) } else { Err(Malformed(WHAT)) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::policy::Quality;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn signer(name: &str) -> FormerSigner {
        let dn = format!("CN={name},O=Demo").parse().unwrap();
        FormerSigner { dn, certificate: [7; 32], signing_time: Some(at(1_795_296_885)) }
    }

    fn seal(signer: Option<&FormerSigner>, before: Option<OnBehalfOf>) -> SealInfo {
        SealInfo {
            quality: Quality::Privacy,
            signer: signer.map(|signer| signer.dn.clone()),
            signer_certificate: signer.map(|signer| signer.certificate),
            signing_time: signer.and_then(|signer| signer.signing_time),
            recipients: Vec::new(),
            sealed_by: None,
            on_behalf_of: before.map(Box::new),
            bound: true,
            proved: true,
            binding: None,
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let without_time = FormerSigner { signing_time: None, ..signer("billing") };
        let dn = Dn::of_signer("spiffe://example.org/orders").unwrap();
        let process = FormerSigner { dn, ..signer("orders") };
        for signers in [vec![], vec![signer("orders")], vec![process], vec![signer("QM1"), without_time]] {
            let said = OnBehalfOf { resealed_at: at(2_600_000_000), signers };
            assert_eq!(OnBehalfOf::read(&said.to_der()), Ok(said));
        }
    }

    #[test]
    fn what_has_a_second_form_or_contradicts_itself_is_refused() {
        let good = OnBehalfOf { resealed_at: at(1_795_296_885), signers: vec![signer("orders")] };
        let der = good.to_der();
        for cut in 0..der.len() {
            assert!(OnBehalfOf::read(&der[..cut]).is_err(), "{cut}");
        }
        let changed = |from: &[u8], to: &[u8]| {
            let place = der.windows(from.len()).position(|window| window == from).unwrap();
            let mut changed = der.clone();
            changed[place..place + to.len()].copy_from_slice(to);
            changed
        };
        for bad in [
            changed(&[INTEGER, 1, VERSION], &[INTEGER, 1, 2]),
            changed(&[ENUMERATED, 1, VERIFIED], &[ENUMERATED, 1, UNSIGNED]),
            changed(&[ENUMERATED, 1, VERIFIED], &[ENUMERATED, 1, 3]),
            OnBehalfOf { signers: vec![signer("x"); FORMER_SIGNERS_MAX + 1], ..good.clone() }.to_der(),
            vec![SEQUENCE; ON_BEHALF_BYTES_MAX + 1],
            [&der[..], &[5, 0]].concat(),
        ] {
            assert!(OnBehalfOf::read(&bad).is_err(), "{bad:x?}");
        }
        // Sealed for nobody, and yet verified.
        let unsigned = OnBehalfOf { signers: vec![], ..good }.to_der();
        let place = unsigned.len() - 3;
        assert_eq!(unsigned[place..], [UNSIGNED, SEQUENCE, 0]);
        let mut bad = unsigned;
        bad[place] = VERIFIED;
        assert!(OnBehalfOf::read(&bad).is_err());
    }

    #[test]
    fn each_signer_vouches_for_those_before_it_and_none_for_a_message_without_a_signature() {
        let (orders, first, second) = (signer("orders"), signer("QM1"), signer("QM2"));
        let names = |said: &OnBehalfOf| said.signers.iter().map(|one| one.dn.to_string()).collect::<Vec<_>>();
        let once = OnBehalfOf::after(&seal(Some(&orders), None), Some(&first.dn), at(5)).unwrap();
        assert_eq!((names(&once), once.verdict()), (vec![orders.dn.to_string()], "verified"));
        // The same queue manager again: it has verified that signature before.
        let twice = OnBehalfOf::after(&seal(Some(&first), Some(once.clone())), Some(&first.dn), at(6)).unwrap();
        assert_eq!((names(&twice), twice.resealed_at), (names(&once), at(6)));
        // Another one has only the first one's word.
        let other = OnBehalfOf::after(&seal(Some(&first), Some(once.clone())), Some(&second.dn), at(7)).unwrap();
        assert_eq!(names(&other), [first.dn.to_string(), orders.dn.to_string()]);
        // Whatever stands in a message that nothing signs is nobody's word.
        let unsigned = OnBehalfOf::after(&seal(None, Some(once.clone())), Some(&first.dn), at(8)).unwrap();
        assert_eq!((names(&unsigned), unsigned.verdict()), (vec![], "unsigned"));
        let many = OnBehalfOf { signers: vec![orders.clone(); FORMER_SIGNERS_MAX], ..once };
        assert!(OnBehalfOf::after(&seal(Some(&first), Some(many)), Some(&second.dn), at(9)).is_none());
    }
}
