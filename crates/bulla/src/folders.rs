//! Folders of the data directory.

/// The journal's folder in the data directory.
pub const JOURNAL: &str = "journal";

/// Key rings, a folder a user.
pub const RINGS: &str = "rings";

/// Certificate and key of the TLS listener.
pub const TLS: &str = "tls";

/// Authorities of the data directory's own, a folder each.
pub const AUTHORITIES: &str = "authorities";

/// How far changes of keys are, a file each.
pub const ROTATIONS: &str = "rotations";

/// Keys of TLS that wait for a certificate, and certificates on their way into [`TLS`].
pub const ENROLMENT: &str = "enrolment";
