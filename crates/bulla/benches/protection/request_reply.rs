//! One outstanding request and its reply: the time of a transaction, protected and not, in turns.
//!
//! A transaction is two messages, so two signatures are made and two verified, one after the other. The bound is the
//! unprotected time and these four as a device does them when they are alone.

use crate::cases::{Case, Quality};
use crate::client::Messages;
use crate::common::median;
use crate::components::{engines, lonely};
use crate::manager::{Manager, load_ring};
use crate::pair::{Pair, Seat};
use crate::table::Report;
use crate::{Options, Result};
use bulla_device::{Digest, Job, KeyKind, PublicKey, RsaScheme, Work};
use serde_json::json;
use std::time::SystemTime;

/// Rounds of each kind, in turns.
const ROUNDS: usize = 15;

/// Every protected case beside the unprotected one.
pub(crate) fn all(options: &Options, manager: &Manager, cases: &[Case], mut report: Report) -> Result<()> {
    let protected: Vec<&Case> = cases.iter().filter(|case| case.quality == Quality::Integrity).collect();
    if protected.is_empty() {
        return Err("rr compares integrity with no protection: --quality integrity".into());
    }
    println!(
        "\n| case | unprotected µs | protected µs | sign µs | verify µs | bound µs | ratio |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for case in protected {
        one(options, manager, case, &mut report)?;
    }
    Ok(())
}

/// A requester and its server at work under one policy.
fn start(manager: &Manager, case: &Case) -> Result<Pair> {
    let (putter, getter) = case.users();
    let (asked, answered) = (format!("{}.ASK", case.queue()), format!("{}.ANSWER", case.queue()));
    manager.define_queue(case, &asked, &putter, &getter)?;
    manager.define_queue(case, &answered, &getter, &putter)?;
    let address = manager.address.as_str();
    let requester = Seat { address, user: &putter, puts: &asked, gets: &answered };
    let server = Seat { address, user: &getter, puts: &answered, gets: &asked };
    Pair::start(requester, server, &Messages::new())
}

fn one(options: &Options, manager: &Manager, case: &Case, report: &mut Report) -> Result<()> {
    let mut bare = start(manager, &Case::unprotected())?;
    let mut sealed = start(manager, case)?;
    bare.round(options.warm_up())?;
    sealed.round(options.warm_up())?;
    let round = options.round() / u32::try_from(ROUNDS)?;
    let (mut bare_us, mut sealed_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare_us.push(bare.round(round)?);
        sealed_us.push(sealed.round(round)?);
    }
    bare.stop()?;
    sealed.stop()?;
    let (unprotected, protected) = (median(&mut bare_us), median(&mut sealed_us));
    let (sign, verify) = primitives(manager, case)?;
    let bound = unprotected + 2.0 * (sign.0 + verify.0);
    println!(
        "| {case} | {unprotected:.1} | {protected:.1} | {:.1} ({}) | {:.1} ({}) | {bound:.1} | {:.3} |",
        sign.0,
        sign.1,
        verify.0,
        verify.1,
        protected / bound
    );
    report.json(&json!({
        "mode": "rr", "case": case.to_string(), "devices": manager.devices.to_string(), "unprotected_us": unprotected,
        "protected_us": protected, "sign_us": sign.0, "sign_device": sign.1, "verify_us": verify.0, "verify_device": verify.1,
        "bound_us": bound, "ratio": protected / bound, "unprotected_rounds_us": bare_us, "protected_rounds_us": sealed_us,
    }))
}

/// A signature and its check with the putter's key, each alone on the device that is quickest: microseconds and device.
fn primitives(manager: &Manager, case: &Case) -> Result<((f64, String), (f64, String))> {
    let ring = load_ring(&manager.ring(&case.users().0))?;
    let own = ring.signing(SystemTime::now())?;
    let mut engines = engines(manager)?;
    let (hash, digest, scheme) = (Digest::Sha256.hash(b"attributes"), Digest::Sha256, RsaScheme::Pkcs1);
    let rsa = own.key.kind() == KeyKind::Rsa;
    let sign = if rsa { Work::RsaSign { scheme, digest, hash } } else { Work::EcdsaSign { hash } };
    let (sign_us, signer, output) = lonely(&mut engines, &Job::new(own.key.clone(), sign))?;
    let signature = output.to_vec();
    let verify =
        if rsa { Work::RsaVerify { scheme, digest, hash, signature } } else { Work::EcdsaVerify { hash, signature } };
    let public = PublicKey::new(own.key.public())?;
    let (verify_us, verifier, _) = lonely(&mut engines, &Job::new(public, verify))?;
    Ok(((sign_us, signer), (verify_us, verifier)))
}
