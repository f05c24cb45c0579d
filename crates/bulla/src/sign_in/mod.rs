//! What signing in knows beside passwords: how often somebody was wrong, and the tokens of others.

pub mod key_set;
pub mod lockout;
#[cfg(test)]
pub(crate) mod test_tokens;
pub mod token;
pub mod tokens;
