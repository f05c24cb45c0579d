//! What objects, users and certificate labels may be called.

/// Longest object name in characters, as MQ has it.
pub const NAME_CHARS_MAX: usize = 48;

/// True when MQ would take `name` for an object.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_CHARS_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'%'))
}

/// What [`is_name`] takes, for messages.
pub const NAME_RULE: &str = "1 to 48 of the characters A-Z a-z 0-9 . _ / %";

const _: () = assert!(NAME_CHARS_MAX == 48, "the rule says so");

/// Longest name of a user in bytes.
pub const USER_NAME_BYTES_MAX: usize = 64;

/// True when a user may have this name: 1 to [`USER_NAME_BYTES_MAX`] letters, digits and `.`, `_`, `-`, `@`, a letter
/// or digit first. It names the user's key ring's directory too.
pub fn is_user_name(name: &str) -> bool {
    name.len() <= USER_NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte))
}

/// Longest label in characters, as MQ has it.
const LABEL_CHARS_MAX: usize = 64;

/// Whether a CERTLABL can be a file name under `tls/`.
pub fn is_label(label: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LABEL_CHARS_MAX).contains(&label.len()) && label.bytes().all(fits) && !label.starts_with('.')
}
