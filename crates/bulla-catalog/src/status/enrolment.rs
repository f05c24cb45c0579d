//! Certificates that renew by themselves.

/// How a certificate stands that renews by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EnrolmentState {
    /// It is not due.
    Valid,
    /// It is due, and about to be asked for.
    Due,
    /// There is none yet.
    Missing,
    /// The last attempt failed.
    Failing,
    /// The authority has not decided.
    Undecided,
    /// It came, and is about to be shared with other rings.
    Sharing,
}

impl EnrolmentState {
    /// As DISPLAY shows it.
    pub fn word(self) -> &'static str {
        match self {
            EnrolmentState::Valid => "VALID",
            EnrolmentState::Due => "DUE",
            EnrolmentState::Missing => "MISSING",
            EnrolmentState::Failing => "FAILING",
            EnrolmentState::Undecided => "UNDECIDED",
            EnrolmentState::Sharing => "SHARING",
        }
    }
}

/// Where a certificate is that renews by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EnrolmentPlace {
    /// In the ring of a user.
    Ring,
    /// In the ring of a user, to sign alone.
    Signer,
    /// Under `tls/`.
    Tls,
}

impl EnrolmentPlace {
    /// As DISPLAY shows it; metrics have it in lower case.
    pub fn word(self) -> &'static str {
        match self {
            EnrolmentPlace::Ring => "RING",
            EnrolmentPlace::Signer => "SIGNER",
            EnrolmentPlace::Tls => "TLS",
        }
    }
}

/// A certificate that renews by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EnrolmentStatus {
    /// The user whose ring it is in, or its label under `tls/`.
    pub name: String,
    /// Where it is.
    pub place: EnrolmentPlace,
    /// Where it comes from.
    pub authority: String,
    /// How it is asked for: COMMAND, CMP, ACME, SPIFFE.
    pub method: &'static str,
    /// How it stands.
    pub state: EnrolmentState,
    /// Its subject; empty while there is none.
    pub subject: String,
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// Until when it is valid, milliseconds since 1970, UTC.
    pub until_ms: Option<u64>,
    /// When it is renewed, or tried again, milliseconds since 1970, UTC.
    pub next_ms: Option<u64>,
    /// When that was tried last since the start.
    pub tried_ms: Option<u64>,
    /// Attempts that failed since the last one that went well.
    pub failures: u32,
    /// Why the last one failed; empty where none did.
    pub why: String,
}
