//! `bulla plan`: what a system would do, computed from what its parts take.
//!
//! A [`profile`] says what the parts take, a [`Configuration`](crate::configuration::Configuration) what is planned;
//! [`operations`] makes of both what a message needs. Closed systems that have an exact solution are solved by [`mva`],
//! open ones by [`queueing`]'s formulas, threads that share cores and devices with lanes by [`simulation`].
//! [`predict()`] chooses.

pub mod calibrate;
pub mod check;
pub mod command;
mod fit;
pub mod hardware;
pub mod https;
pub mod mva;
mod observed;
pub mod operations;
mod pace;
pub mod page;
pub mod predict;
pub mod profile;
pub mod queueing;
pub mod random;
mod service_times;
pub mod simulation;
pub mod target;
mod teller;
pub mod text;
mod trial;
pub mod trust;
pub mod what_if;

pub use command::{PlanArgs, run};
pub use predict::{Prediction, Workload, predict, predict_workload};
pub use profile::Profile;
