//! When a certificate is renewed, and when to ask again after a failure. Both follow from the certificate alone, so
//! that a restart changes nothing and what DISPLAY shows is what happens.

use bulla_seal::certificate::Certificate;
use std::time::{Duration, SystemTime};

/// The first wait after a failure; it doubles with each further one.
pub const RETRY_FIRST: Duration = Duration::from_secs(60);
/// The longest wait after a failure.
pub const RETRY_MAX: Duration = Duration::from_secs(6 * 3_600);

/// The shortest wait until an agent on this machine is asked again.
const AGENT_FIRST: Duration = Duration::from_secs(1);
/// The longest wait until then.
const AGENT_MAX: Duration = Duration::from_secs(60);

/// When a certificate is to be renewed: at two thirds of its lifetime, or up to a 32nd of the lifetime before.
/// Certificates that were made at one moment are spread over that time.
pub fn due(certificate: &Certificate) -> SystemTime {
    let lifetime = lifetime(certificate);
    let spread = lifetime / 32 * u32::from(byte(certificate, 0)) / 256;
    certificate.not_before() + lifetime / 3 * 2 - spread
}

/// How long to wait after so many failures in a row: twice as long each time, and up to a quarter longer than that.
/// While the certificate is still valid, at most a quarter of the time that is left to it.
pub fn retry_after(failures: u32, certificate: Option<&Certificate>, now: SystemTime) -> Duration {
    let doubled = RETRY_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(RETRY_MAX);
    let left = certificate.and_then(|certificate| certificate.not_after().duration_since(now).ok());
    let wait = left.map_or(doubled, |left| doubled.min((left / 4).max(RETRY_FIRST)));
    let place = usize::try_from(failures).unwrap_or(0);
    wait + wait / 4 * certificate.map_or(0, |certificate| u32::from(byte(certificate, place))) / 256
}

/// How long to wait until an agent on this machine is asked again that shows what is in force: what it has anew is
/// taken within a minute, and that of a short lifetime sooner.
pub fn look_after(certificate: &Certificate) -> Duration {
    (lifetime(certificate) / 32).clamp(AGENT_FIRST, AGENT_MAX)
}

/// How long to wait after so many failures in a row with such an agent, which costs it and this process little.
pub fn agent_retry_after(failures: u32) -> Duration {
    AGENT_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(AGENT_MAX)
}

/// Whether less than a tenth of the lifetime is left.
pub fn is_nearly_over(certificate: &Certificate, now: SystemTime) -> bool {
    now + lifetime(certificate) / 10 >= certificate.not_after()
}

fn lifetime(certificate: &Certificate) -> Duration {
    certificate.not_after().duration_since(certificate.not_before()).unwrap_or_default()
}

fn byte(certificate: &Certificate, place: usize) -> u8 {
    let fingerprint = certificate.fingerprint();
    fingerprint[place % fingerprint.len()]
}
