//! `bulla`: the queue manager and its tools in one program.

fn main() {}
