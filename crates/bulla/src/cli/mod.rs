//! The command line: each subcommand is a file.
