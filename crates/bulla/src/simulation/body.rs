//! Bodies of messages: a number, and bytes that follow from it.

use super::checker::Number;

/// What stands in each body on a queue that is protected wherever it goes, and nowhere else.
pub(super) const SECRET: &[u8] = b"this is not for the disk";
/// The same, of messages that are protected only before they come to another queue manager.
pub(super) const SECRET_HERE: &[u8] = b"this is not for the near disk";
/// The same, of messages that are protected only once they have come there.
pub(super) const SECRET_THERE: &[u8] = b"this is not for the far disk";

/// A byte behind the number.
pub(super) fn filler_at(number: Number, at: usize) -> u8 {
    (number as usize ^ at) as u8
}

/// The number in a body, all of which must be what was put.
pub(super) fn shown_body(body: &[u8]) -> Result<Number, String> {
    let (number, rest) = body.split_first_chunk().ok_or("a short body")?;
    let number = Number::from_be_bytes(*number);
    let secret = [SECRET, SECRET_HERE, SECRET_THERE].into_iter().find(|secret| rest.starts_with(secret));
    let filler = &rest[secret.map_or(0, <[u8]>::len)..];
    if !filler.iter().enumerate().all(|(at, byte)| *byte == filler_at(number, at)) {
        return Err(format!("the body of {number} is not what was put"));
    }
    Ok(number)
}
