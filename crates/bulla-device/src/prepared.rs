//! OpenSSL contexts of one public key, set up and ready: setting one up costs two to four microseconds,
//! where an RSA verification takes twenty.

use std::sync::{Mutex, MutexGuard, PoisonError};

use openssl::error::ErrorStack;
use openssl::pkey::{PKeyRef, Public};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::Padding;
use openssl::sign::RsaPssSaltlen;

use crate::digest::Digest;
use crate::work::{RsaPadding, RsaScheme};

/// Contexts that one key keeps; there are more only where a key is used in many ways or by many threads.
const CONTEXTS_MAX: usize = 4;

/// What a context is set up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To verify RSA signatures.
    RsaVerify(RsaScheme, Digest),
    /// To verify ECDSA signatures.
    EcdsaVerify,
    /// To wrap content keys.
    RsaWrap(RsaPadding),
}

/// The contexts that are not in use at the moment.
#[derive(Default)]
pub(crate) struct Prepared(Mutex<Vec<(Purpose, PkeyCtx<Public>)>>);

impl Prepared {
    /// Works with a context for this purpose, which is set up if there is none. The lock is held to take
    /// it and to give it back, never for an operation.
    pub(crate) fn with<T>(
        &self,
        key: &PKeyRef<Public>,
        purpose: Purpose,
        work: impl FnOnce(&mut PkeyCtx<Public>) -> T,
    ) -> Result<T, ErrorStack> {
        let ready = {
            let mut idle = self.lock();
            let at = idle.iter().position(|(found, _)| *found == purpose);
            at.map(|at| idle.swap_remove(at).1)
        };
        let mut context = match ready {
            Some(context) => context,
            None => set_up(key, purpose)?,
        };
        let result = work(&mut context);
        let mut idle = self.lock();
        if idle.len() == CONTEXTS_MAX {
            idle.remove(0);
        }
        idle.push((purpose, context));
        Ok(result)
    }

    /// A thread that panicked held the lock to move contexts only: what it guards is still whole.
    fn lock(&self) -> MutexGuard<'_, Vec<(Purpose, PkeyCtx<Public>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set_up(key: &PKeyRef<Public>, purpose: Purpose) -> Result<PkeyCtx<Public>, ErrorStack> {
    let mut context = PkeyCtx::new(key)?;
    match purpose {
        Purpose::RsaVerify(scheme, digest) => {
            context.verify_init()?;
            set_rsa_scheme(&mut context, scheme, digest)?;
        }
        Purpose::EcdsaVerify => context.verify_init()?,
        Purpose::RsaWrap(padding) => {
            context.encrypt_init()?;
            match padding {
                RsaPadding::Oaep { digest } => {
                    context.set_rsa_padding(Padding::PKCS1_OAEP)?;
                    context.set_rsa_oaep_md(digest.md())?;
                    context.set_rsa_mgf1_md(digest.md())?;
                }
                RsaPadding::Pkcs1 => context.set_rsa_padding(Padding::PKCS1)?,
            }
        }
    }
    Ok(context)
}

/// Padding and digest of RSA signatures, the same for signing and verifying.
pub(crate) fn set_rsa_scheme<T>(context: &mut PkeyCtx<T>, scheme: RsaScheme, digest: Digest) -> Result<(), ErrorStack> {
    match scheme {
        RsaScheme::Pkcs1 => context.set_rsa_padding(Padding::PKCS1)?,
        RsaScheme::Pss => {
            context.set_rsa_padding(Padding::PKCS1_PSS)?;
            context.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH)?;
        }
    }
    context.set_signature_md(digest.md())
}

#[cfg(test)]
mod tests {
    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;

    use super::*;

    #[test]
    fn a_key_used_in_every_way_keeps_few_contexts_and_never_mixes_them_up() {
        let rsa = Rsa::generate(1024).unwrap();
        let public = PKey::public_key_from_der(&rsa.public_key_to_der().unwrap()).unwrap();
        let private = PKey::from_rsa(rsa).unwrap();
        let prepared = Prepared::default();
        for _ in 0..2 {
            for scheme in [RsaScheme::Pkcs1, RsaScheme::Pss] {
                for digest in [Digest::Sha256, Digest::Sha384] {
                    let hash = digest.hash(b"content");
                    let mut signer = PkeyCtx::new(&private).unwrap();
                    signer.sign_init().unwrap();
                    set_rsa_scheme(&mut signer, scheme, digest).unwrap();
                    let mut signature = Vec::new();
                    signer.sign_to_vec(&hash, &mut signature).unwrap();
                    let purpose = Purpose::RsaVerify(scheme, digest);
                    let verify = |signature: &[u8]| {
                        prepared.with(&public, purpose, |context| matches!(context.verify(&hash, signature), Ok(true)))
                    };
                    assert!(verify(&signature).unwrap());
                    assert!(!verify(&[1; 128]).unwrap());
                    assert!(verify(&signature).unwrap(), "a bad one leaves nothing behind");
                }
            }
            for padding in [RsaPadding::Pkcs1, RsaPadding::Oaep { digest: Digest::Sha256 }] {
                let mut wrapped = Vec::new();
                prepared
                    .with(&public, Purpose::RsaWrap(padding), |context| context.encrypt_to_vec(&[7; 32], &mut wrapped))
                    .unwrap()
                    .unwrap();
                assert_eq!(wrapped.len(), 128);
            }
            assert_eq!(prepared.lock().len(), CONTEXTS_MAX);
        }
    }
}
