//! What signing in knows beside passwords: whose check comes next, how often a user was wrong, and the tokens of
//! others.

pub mod checks;
pub mod key_set;
pub mod lockout;
#[cfg(test)]
mod lockout_commands;
pub mod remembered;
pub mod sessions;
#[cfg(test)]
pub(crate) mod test_tokens;
pub mod tickets;
pub mod token;
pub mod tokens;
pub mod verdict;
