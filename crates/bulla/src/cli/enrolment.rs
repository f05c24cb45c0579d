//! What `bulla key enrol` and `bulla cert renew` share.

use super::{CliError, EXIT_FAILED, EXIT_REFUSED, EXIT_USAGE};
use crate::enrolment::ring_certificate::Site;
use crate::enrolment::{Configuration, EnrolError};
use bulla_seal::certificate::Passphrase;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long another process may have its turn.
const TURN_WITHIN: Duration = Duration::from_secs(15);

/// Does something with what `enrolment.toml` says.
pub(super) fn enrolling<T>(
    data: &Path,
    passphrase: Option<&Passphrase>,
    act: impl FnOnce(&Site<'_>) -> Result<T, EnrolError>,
) -> Result<T, CliError> {
    let failed = |error: EnrolError| {
        let code = match &error {
            EnrolError::Refused { .. } | EnrolError::Answer { .. } | EnrolError::NotYet { .. } => EXIT_REFUSED,
            EnrolError::Rotation(_) | EnrolError::NoIdentity { .. } => EXIT_REFUSED,
            EnrolError::NotConfigured { .. } | EnrolError::Configuration { .. } | EnrolError::ShortLived { .. } => {
                EXIT_USAGE
            }
            _ => EXIT_FAILED,
        };
        CliError { hint: error.hint(), ..CliError::new(code, error.to_string()) }
    };
    let configuration = Configuration::read(data).map_err(failed)?.unwrap_or_default();
    let site = Site {
        data,
        passphrase,
        configuration: &configuration,
        by_hand: true,
        patience: TURN_WITHIN,
        clock: &SystemTime::now,
        is_stopping: &|| false,
    };
    act(&site).map_err(failed)
}
