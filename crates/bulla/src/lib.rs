//! The queue manager as a library: the program is a thin `main` over it, and tests start it in-process.

pub mod cli;
