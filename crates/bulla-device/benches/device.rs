//! What an operation costs: one thread of OpenSSL, the bare lanes, and the accelerator behind its seam.
//!
//! `cargo bench -p bulla-device --bench device` prints a line for each operation and size: microseconds an operation,
//! for OpenSSL alone (a signature without our check of it), for a loop around the lanes that does the same work as the
//! accelerator does (RSA: blind, private, unblind, public check; ECDSA: nonces, signature, verification), for the
//! accelerator through its seam with all eight lanes filled, and for the CPU device with its check. All take turns in
//! one run, and each figure is the median of many, because the machine has other work to do. Arguments: a word that the
//! operations' names must contain, `--rounds N`, and `--json` for one object with microseconds by operation. Goals,
//! where there are any, are at the end of a line, with what came out.

#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bulla_device::{
    Accelerator, BareEcdsa, BareRsa, CpuDevice, Curve, Device, Digest, Finished, Job, LIBRARY_FILE, Output, PrivateKey,
    RsaPadding, RsaScheme, Work,
};
use openssl::ec::{EcGroup, EcKey};
use openssl::pkey::{PKey, Private};
use openssl::pkey_ctx::PkeyCtx;
use openssl::rsa::{Padding, Rsa};

const LANES: usize = 8;
/// How long each operation is measured, all its contenders together.
const TIME: Duration = Duration::from_secs(3);
const ROUNDS_MIN: usize = 15;

fn main() {
    let arguments = Arguments::read();
    let library = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join(LIBRARY_FILE);
    let lanes = match Accelerator::open("lanes", &library) {
        Ok(accelerator) => Some(Lanes { accelerator, library }),
        Err(error) => {
            eprintln!("skipped: everything on the lanes: {error}");
            None
        }
    };
    if !arguments.json {
        println!("microseconds an operation, median; accelerator and bare loop with {LANES} lanes filled");
        println!(
            "{:<24} {:>9} {:>9} {:>9} {:>9}  {:>7} {:>7}",
            "", "OpenSSL", "CPU", "bare", "accel.", "x OSSL", "of bare"
        );
    }
    let mut rows = Vec::new();
    for bits in [1024, 2048, 3072, 4096] {
        rows.extend(measure_rsa(bits, lanes.as_ref(), &arguments));
    }
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        rows.extend(measure_curve(curve, lanes.as_ref(), &arguments));
    }
    if arguments.json {
        println!("{{\n{}\n}}", rows.iter().map(Row::json).collect::<Vec<_>>().join(",\n"));
    }
}

struct Lanes {
    accelerator: Accelerator,
    library: PathBuf,
}

struct Arguments {
    filter: String,
    rounds: Option<usize>,
    json: bool,
}

impl Arguments {
    fn read() -> Arguments {
        let mut arguments = Arguments { filter: String::new(), rounds: None, json: false };
        let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
        while let Some(word) = words.next() {
            match word.as_str() {
                "--json" => arguments.json = true,
                "--rounds" => arguments.rounds = Some(words.next().unwrap().parse().unwrap()),
                _ => arguments.filter = word.to_lowercase(),
            }
        }
        arguments
    }
}

/// Microseconds an operation.
struct Row {
    name: String,
    openssl: Option<f64>,
    cpu: Option<f64>,
    bare: Option<f64>,
    device: Option<f64>,
}

impl Row {
    fn print(&self, goal: Option<Goal>) {
        let shown = |micros: Option<f64>| micros.map_or_else(|| "-".to_owned(), |micros| format!("{micros:.2}"));
        let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        let times = ratio(self.openssl, self.device);
        let of_bare = ratio(self.bare, self.device);
        let percent = of_bare.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1}%", 100.0 * ratio));
        print!("{:<24} {:>9} {:>9} {:>9}", self.name, shown(self.openssl), shown(self.cpu), shown(self.bare));
        print!(" {:>9}  {:>7} {percent:>7}", shown(self.device), shown(times));
        if let (Some(goal), Some(times), Some(of_bare)) = (goal, times, of_bare) {
            let held = times >= goal.times && of_bare >= goal.of_bare;
            print!("  {}: {} x, {} %", if held { "held" } else { "NOT HELD" }, goal.times, 100.0 * goal.of_bare);
        }
        println!();
    }

    fn json(&self) -> String {
        let shown = |micros: Option<f64>| micros.map_or_else(|| "null".to_owned(), |micros| format!("{micros:.3}"));
        format!(
            "  \"{}\": {{\"openssl\": {}, \"cpu\": {}, \"bare\": {}, \"accelerator\": {}}}",
            self.name,
            shown(self.openssl),
            shown(self.cpu),
            shown(self.bare),
            shown(self.device)
        )
    }
}

struct Goal {
    times: f64,
    of_bare: f64,
}

fn goal(name: &str) -> Option<Goal> {
    let (times, of_bare) = match name {
        "RSA 1024 sign" => (4.5, 0.95),
        "RSA 2048 sign" => (2.4, 0.95),
        "RSA 4096 sign" => (1.45, 0.95),
        "P-521 sign" => (10.0, 0.0),
        _ => return None,
    };
    Some(Goal { times, of_bare })
}

/// Something that does a number of operations.
type Contender<'a> = Option<(usize, Box<dyn FnMut() + 'a>)>;

fn measure(
    name: String,
    arguments: &Arguments,
    openssl: Contender<'_>,
    cpu: Contender<'_>,
    bare: Contender<'_>,
    device: Contender<'_>,
) -> Row {
    let mut contenders = [openssl, cpu, bare, device];
    let mut samples: [Vec<f64>; 4] = Default::default();
    let start = Instant::now();
    let mut round = 0;
    while arguments.rounds.map_or(round < ROUNDS_MIN || start.elapsed() < TIME, |rounds| round < rounds) {
        // Every other round the other way round: what one leaves in the caches is not always the same one's gain.
        for turn in 0..contenders.len() {
            let place = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
            if let Some((operations, run)) = &mut contenders[place] {
                // A first, unmeasured run of those that are quick: the same caches for all.
                let warm = Instant::now();
                run();
                if warm.elapsed() > Duration::from_millis(2) && round > 0 {
                    samples[place].push(warm.elapsed().as_secs_f64() * 1e6 / *operations as f64);
                    continue;
                }
                let begin = Instant::now();
                run();
                samples[place].push(begin.elapsed().as_secs_f64() * 1e6 / *operations as f64);
            }
        }
        round += 1;
    }
    let [openssl, cpu, bare, device] = samples.map(median);
    let row = Row { name, openssl, cpu, bare, device };
    if !arguments.json {
        row.print(goal(&row.name));
    }
    row
}

fn median(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied()
}

/// Runs the job, eight times or once, and expects results.
fn through(mut device: Box<dyn Device>, job: Job, count: usize) -> (usize, Box<dyn FnMut()>) {
    let mut jobs: Vec<Job> = Vec::with_capacity(count);
    let mut done: Vec<Finished> = Vec::with_capacity(count);
    let run = move || {
        jobs.extend((0..count).map(|id| Job { id: id as u64, ..job.clone() }));
        assert_eq!(device.submit(&mut jobs).unwrap(), count);
        device.poll(&mut done).unwrap();
        assert!(done.len() == count && done.iter().all(|finished| finished.result.is_ok()));
        done.clear();
    };
    (count, Box::new(run))
}

fn on_lanes(lanes: Option<&Lanes>, job: &Job) -> Contender<'static> {
    lanes.map(|lanes| through(Box::new(lanes.accelerator.engine().unwrap()), job.clone(), LANES))
}

fn on_cpu(job: &Job) -> Contender<'static> {
    Some(through(Box::new(CpuDevice::new("cpu")), job.clone(), 1))
}

fn result_of(job: &Job) -> Output {
    let mut device = CpuDevice::new("cpu");
    let mut done = Vec::new();
    device.submit(&mut vec![job.clone()]).unwrap();
    device.poll(&mut done).unwrap();
    done.remove(0).result.unwrap()
}

const DIGEST: Digest = Digest::Sha256;

fn measure_rsa(bits: u32, lanes: Option<&Lanes>, arguments: &Arguments) -> Vec<Row> {
    let wanted = |operation: &str| format!("rsa {bits} {operation}").contains(&arguments.filter);
    let mut rows = Vec::new();
    if !["sign", "unwrap", "verify", "wrap", "sign pss", "me sign"].into_iter().any(wanted) {
        return rows;
    }
    let rsa = Rsa::generate(bits).unwrap();
    let pkey = PKey::from_rsa(rsa.clone()).unwrap();
    let key = PrivateKey::clear(pkey.clone()).unwrap();
    let hash = DIGEST.hash(b"content");
    let sign = |scheme| Work::RsaSign { scheme, digest: DIGEST, hash };
    if wanted("sign") {
        let bare = lanes.map(|lanes| {
            let mut bare = BareRsa::new(&lanes.library, &std::array::from_fn(|_| key.clone())).unwrap();
            let run: Box<dyn FnMut()> = Box::new(move || assert!(bare.run()));
            (LANES, run)
        });
        let job = Job::new(key.clone(), sign(RsaScheme::Pkcs1));
        let openssl = openssl_sign(&pkey, Some(Padding::PKCS1));
        rows.push(measure(format!("RSA {bits} sign"), arguments, openssl, on_cpu(&job), bare, on_lanes(lanes, &job)));
    }
    if wanted("sign pss") {
        let job = Job::new(key.clone(), sign(RsaScheme::Pss));
        let openssl = openssl_sign(&pkey, Some(Padding::PKCS1_PSS));
        rows.push(measure(
            format!("RSA {bits} sign PSS"),
            arguments,
            openssl,
            on_cpu(&job),
            None,
            on_lanes(lanes, &job),
        ));
    }
    if wanted("me sign") {
        let copy = |number: &openssl::bn::BigNumRef| number.to_owned().unwrap();
        let builder = openssl::rsa::RsaPrivateKeyBuilder::new(copy(rsa.n()), copy(rsa.e()), copy(rsa.d())).unwrap();
        let me = PKey::from_rsa(builder.build()).unwrap();
        let job = Job::new(PrivateKey::clear(me.clone()).unwrap(), sign(RsaScheme::Pkcs1));
        let openssl = openssl_sign(&me, Some(Padding::PKCS1));
        rows.push(measure(
            format!("RSA {bits} ME sign"),
            arguments,
            openssl,
            on_cpu(&job),
            None,
            on_lanes(lanes, &job),
        ));
    }
    let padding = RsaPadding::Oaep { digest: DIGEST };
    let wrap = Job::new(key.public_key().clone(), Work::RsaWrap { padding, content_key: Output::new(vec![7; 32]) });
    let wrapped = result_of(&wrap).to_vec();
    if wanted("unwrap") {
        let mut context = PkeyCtx::new(&pkey).unwrap();
        context.decrypt_init().unwrap();
        oaep(&mut context);
        let input = wrapped.clone();
        let mut out = vec![0; input.len()];
        let run: Box<dyn FnMut()> = Box::new(move || {
            black_box(context.decrypt(&input, Some(&mut out)).unwrap());
        });
        let job = Job::new(key.clone(), Work::RsaUnwrap { padding, wrapped: wrapped.clone(), expected_len: 32 });
        let openssl = Some((1, run));
        rows.push(measure(format!("RSA {bits} unwrap"), arguments, openssl, on_cpu(&job), None, on_lanes(lanes, &job)));
    }
    if wanted("verify") {
        let signature = result_of(&Job::new(key.clone(), sign(RsaScheme::Pkcs1))).to_vec();
        let openssl = openssl_verify(&pkey, Some(Padding::PKCS1), signature.clone());
        let work = Work::RsaVerify { scheme: RsaScheme::Pkcs1, digest: DIGEST, hash, signature };
        let job = Job::new(key.public_key().clone(), work);
        rows.push(measure(format!("RSA {bits} verify"), arguments, openssl, on_cpu(&job), None, on_lanes(lanes, &job)));
    }
    if wanted("wrap") {
        let mut context = PkeyCtx::new(&pkey).unwrap();
        context.encrypt_init().unwrap();
        oaep(&mut context);
        let mut out = vec![0; wrapped.len()];
        let run: Box<dyn FnMut()> = Box::new(move || {
            black_box(context.encrypt(&[7; 32], Some(&mut out)).unwrap());
        });
        let openssl = Some((1, run));
        rows.push(measure(format!("RSA {bits} wrap"), arguments, openssl, on_cpu(&wrap), None, on_lanes(lanes, &wrap)));
    }
    rows
}

fn measure_curve(curve: Curve, lanes: Option<&Lanes>, arguments: &Arguments) -> Vec<Row> {
    let group = EcGroup::from_curve_name(curve.nid()).unwrap();
    let pkey = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let key = PrivateKey::clear(pkey.clone()).unwrap();
    let wanted = |operation: &str| format!("{curve} {operation}").to_lowercase().contains(&arguments.filter);
    let hash = DIGEST.hash(b"content");
    let sign = Job::new(key.clone(), Work::EcdsaSign { hash });
    let mut rows = Vec::new();
    if wanted("sign") {
        let bare = lanes.map(|lanes| {
            let mut bare = BareEcdsa::new(&lanes.library, &std::array::from_fn(|_| key.clone())).unwrap();
            let run: Box<dyn FnMut()> = Box::new(move || assert!(bare.run()));
            (LANES, run)
        });
        let openssl = openssl_sign(&pkey, None);
        rows.push(measure(format!("{curve} sign"), arguments, openssl, on_cpu(&sign), bare, on_lanes(lanes, &sign)));
    }
    if wanted("verify") {
        let signature = result_of(&sign).to_vec();
        let openssl = openssl_verify(&pkey, None, signature.clone());
        let job = Job::new(key.public_key().clone(), Work::EcdsaVerify { hash, signature });
        rows.push(measure(format!("{curve} verify"), arguments, openssl, on_cpu(&job), None, on_lanes(lanes, &job)));
    }
    let other = PrivateKey::clear(PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()).unwrap();
    if wanted("ecdh") {
        let job = Job::new(key.clone(), Work::EcdhDerive { peer: Curve::point(other.public()).unwrap() });
        let mut context = PkeyCtx::new(&pkey).unwrap();
        context.derive_init().unwrap();
        context.derive_set_peer(other.public()).unwrap();
        let mut out = vec![0; curve.coordinate_len()];
        let run: Box<dyn FnMut()> = Box::new(move || {
            black_box(context.derive(Some(&mut out)).unwrap());
        });
        let openssl = Some((1, run));
        rows.push(measure(format!("{curve} ecdh"), arguments, openssl, on_cpu(&job), None, on_lanes(lanes, &job)));
    }
    if wanted("ephemeral") {
        let job = Job::new(key.public_key().clone(), Work::EcdhEphemeral);
        rows.push(measure(format!("{curve} ephemeral"), arguments, None, on_cpu(&job), None, on_lanes(lanes, &job)));
    }
    rows
}

fn oaep<T>(context: &mut openssl::pkey_ctx::PkeyCtxRef<T>) {
    context.set_rsa_padding(Padding::PKCS1_OAEP).unwrap();
    context.set_rsa_oaep_md(DIGEST.md()).unwrap();
    context.set_rsa_mgf1_md(DIGEST.md()).unwrap();
}

/// OpenSSL with a context that is set up once.
fn openssl_sign(key: &PKey<Private>, padding: Option<Padding>) -> Contender<'static> {
    let hash = DIGEST.hash(b"content");
    let mut context = PkeyCtx::new(key).unwrap();
    context.sign_init().unwrap();
    if let Some(padding) = padding {
        context.set_rsa_padding(padding).unwrap();
    }
    context.set_signature_md(DIGEST.md()).unwrap();
    let mut out = vec![0; key.size()];
    let run: Box<dyn FnMut()> = Box::new(move || {
        black_box(context.sign(&hash, Some(&mut out)).unwrap());
    });
    Some((1, run))
}

fn openssl_verify(key: &PKey<Private>, padding: Option<Padding>, signature: Vec<u8>) -> Contender<'static> {
    let hash = DIGEST.hash(b"content");
    let mut context = PkeyCtx::new(key).unwrap();
    context.verify_init().unwrap();
    if let Some(padding) = padding {
        context.set_rsa_padding(padding).unwrap();
    }
    context.set_signature_md(DIGEST.md()).unwrap();
    let run: Box<dyn FnMut()> = Box::new(move || assert!(context.verify(&hash, &signature).unwrap()));
    Some((1, run))
}
