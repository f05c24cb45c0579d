//! What signing in knows beside passwords: how often somebody was wrong.

pub mod lockout;
