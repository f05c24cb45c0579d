//! OpenSSL 4, built from source, for `openssl-sys`. See `Cargo.toml` for why this crate stands here.

pub use openssl_src_4::*;
