//! The trading workload over HTTPS (`bulla perf trade`): what its parts take, and what they come to together.
//!
//! [`costs`] is what a profile says of it, [`calibrate`] measures that, [`acts`] makes of it what a customer does, and
//! [`simulation`] lets customers do it on threads that share cores and devices.

mod acts;
pub(super) mod calibrate;
pub mod costs;
mod devices;
mod predict;
mod simulation;

pub use predict::{Customers, Setup, predict};

#[cfg(test)]
mod tests;
