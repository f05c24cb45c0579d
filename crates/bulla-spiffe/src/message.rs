//! The messages of the Workload API (`workload.proto`), as far as they are used.

/// `X509SVIDResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Response {
    /// SVIDs of this process.
    #[prost(message, repeated, tag = "1")]
    pub(crate) svids: Vec<Svid>,
}

/// `X509SVID`.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub(crate) struct Svid {
    /// Its name.
    #[prost(string, tag = "1")]
    pub(crate) spiffe_id: String,
    /// The certificate and those above it, DER.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) x509_svid: Vec<u8>,
    /// Its key, PKCS#8.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) x509_svid_key: Vec<u8>,
    /// The authorities of its trust domain, DER.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) bundle: Vec<u8>,
}

impl std::fmt::Debug for Svid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Svid").field("spiffe_id", &self.spiffe_id).finish_non_exhaustive()
    }
}
