//! `bulla demo`: a queue manager with an authority, two users and a queue for each quality of protection.

use super::start::serve_until_signalled;
use super::{CliError, EXIT_START};
use crate::admin;
use crate::folders::RINGS;
use crate::random::Random;
use crate::serve::{self, Settings, StartError};
use crate::users::{ITERATIONS, Users};
use bulla_device::{CpuDevice, SystemRandom};
use bulla_seal::certificate::authority::{Authority, CRL_DAYS, Request};
use bulla_seal::certificate::{KeySpec, KeyUse};
use bulla_seal::dn::Dn;
use bulla_seal::ring::Ring;
use bulla_seal::{Bound, Content, Packing, Sealer, drive, ring};
use bytes::Bytes;
use clap::Args;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

/// The oldest OpenSSL whose program opens a private message.
const OPENSSL_NEEDED: &str = "3.0";
/// Days for which the demonstration's certificates are good.
const DAYS: u32 = 365;
/// The users: one puts, one gets.
const USERS: [&str; 2] = ["orders", "billing"];
/// The queues, an alias of each that shows what lies on the queue as it lies there, and who may use them: `orders`
/// puts, `billing` gets, and any user may look at what is sealed.
const OBJECTS: &str = "\
DEFINE QLOCAL(ORDERS.CLEAR) DESCR('No protection') REPLACE
DEFINE QLOCAL(ORDERS.SIGNED) DESCR('Integrity') REPLACE
DEFINE QLOCAL(ORDERS.PRIVATE) DESCR('Privacy') REPLACE
DEFINE QLOCAL(ORDERS.CONFIDENTIAL) DESCR('Confidentiality') REPLACE
DEFINE QALIAS(RAW.SIGNED) TARGET(ORDERS.SIGNED) REPLACE
DEFINE QALIAS(RAW.PRIVATE) TARGET(ORDERS.PRIVATE) REPLACE
DEFINE QALIAS(RAW.CONFIDENTIAL) TARGET(ORDERS.CONFIDENTIAL) REPLACE
SET POLICY(ORDERS.SIGNED) SIGNALG(SHA256) SIGNER('CN=orders,O=Bulla Demo') ACTION(REPLACE)
SET POLICY(ORDERS.PRIVATE) SIGNALG(SHA256) ENCALG(AES256) SIGNER('CN=orders,O=Bulla Demo') RECIP('CN=billing,O=Bulla Demo') ACTION(REPLACE)
SET POLICY(ORDERS.CONFIDENTIAL) ENCALG(AES256) RECIP('CN=billing,O=Bulla Demo') KEYREUSE(32) ACTION(REPLACE)
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('orders', 'billing', '*ANONYMOUS') AUTHADD(CONNECT)
SET AUTHREC PROFILE(ORDERS.*) OBJTYPE(QUEUE) PRINCIPAL('orders') AUTHADD(PUT, INQ)
SET AUTHREC PROFILE(ORDERS.*) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET, BROWSE, INQ)
SET AUTHREC PROFILE(RAW.*) OBJTYPE(QUEUE) PRINCIPAL('*', '*ANONYMOUS') AUTHADD(BROWSE)
SET AUTHREC PROFILE(SYSTEM.PROTECTION.ERROR.QUEUE) OBJTYPE(QUEUE) PRINCIPAL('billing') AUTHADD(GET, BROWSE)
";

/// Start a queue manager to try: an authority, two users, a queue for each quality of protection
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// The data directory; set up at the first start, used again later
    #[arg(long, value_name = "DIR", default_value = "bulla-demo")]
    pub data: PathBuf,
    /// Where AMQP is spoken in clear
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5672")]
    pub amqp: SocketAddr,
    /// Where AMQP is spoken over TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5671")]
    pub amqps: SocketAddr,
}

/// Sets up where that is still to be done, and runs until SIGTERM or SIGINT.
///
/// # Errors
/// It could not be set up, or did not start.
pub fn run(args: &DemoArgs) -> Result<(), CliError> {
    let mut settings = Settings::new(args.data.clone());
    settings.name = Some("DEMO".to_owned());
    settings.listen.amqp = Some(args.amqp);
    settings.listen.amqps = Some(args.amqps);
    set_up(&args.data)?;
    serve_until_signalled(&settings, |running| {
        let replies = admin::request(&args.data, OBJECTS).map_err(|error| CliError::failed(error.to_string()))?;
        for reply in &replies {
            if reply.exit_code() != 0 {
                return Err(CliError::failed(reply.diagnostics(None).join("; ")));
            }
        }
        println!("{}", welcome(&args.data, running, advice(&args.data)?));
        Ok(())
    })
}

/// The authority, the users and their rings.
fn set_up(data: &Path) -> Result<(), CliError> {
    let folder = data.join("authorities").join("demo");
    if folder.exists() {
        return renew_revocation_list(data, &folder);
    }
    let start = |error: StartError| CliError { code: EXIT_START, message: error.to_string(), hint: error.hint() };
    serve::make_directories(data).map_err(start)?;
    let now = SystemTime::now();
    let authority =
        Authority::create(&folder, &dn("Demo authority")?, KeySpec::Rsa(2048), DAYS, now).map_err(failed)?;
    let issued: Vec<_> = USERS
        .iter()
        .map(|user| {
            let request = Request {
                dn: dn(user)?,
                key: KeySpec::Rsa(2048),
                uses: vec![KeyUse::DocSign, KeyUse::DataEncrypt, KeyUse::Handshake],
                days: DAYS,
                alternative_names: Vec::new(),
                passphrase: None,
            };
            authority.issue(&request, now).map_err(failed)
        })
        .collect::<Result<_, CliError>>()?;
    let crl = authority.crl().map_err(failed)?;
    let users = Users::open(data).map_err(failed)?;
    for (user, (certificate, key)) in USERS.iter().zip(&issued) {
        let ring = data.join(RINGS).join(user);
        ring::create(&ring).map_err(failed)?;
        ring::install_own(&ring, user, certificate, &authority.chain(), key).map_err(failed)?;
        ring::install_trust(&ring, "demo", authority.root()).map_err(failed)?;
        ring::install_crl(&ring, "demo", &crl).map_err(failed)?;
        for (other, (certificate, _)) in USERS.iter().zip(&issued).filter(|(other, _)| *other != user) {
            ring::install_person(&ring, other, certificate, &authority.chain()).map_err(failed)?;
        }
        let password = Random::system().name::<12>();
        users.add(user, &password, ITERATIONS).map_err(failed)?;
        serve::write_private(&data.join(format!("{user}.password")), format!("{password}\n").as_bytes())
            .map_err(start)?;
    }
    serve::install_server_certificate(data, &authority, serve::first_start::loopback_names(), DAYS - 1, now)
        .map_err(start)?;
    serve::write_private(&data.join("tls").join("clients.pem"), &authority.root().to_pem()).map_err(start)
}

/// A list that is past its next update would stop every get: each start writes a fresh one.
fn renew_revocation_list(data: &Path, folder: &Path) -> Result<(), CliError> {
    let authority = Authority::open(folder).map_err(failed)?;
    authority.write_crl(CRL_DAYS, SystemTime::now()).map_err(failed)?;
    let crl = authority.crl().map_err(failed)?;
    USERS
        .iter()
        .try_for_each(|user| ring::install_crl(&data.join(RINGS).join(user), "demo", &crl).map(drop).map_err(failed))
}

fn dn(name: &str) -> Result<Dn, CliError> {
    format!("CN={name},O=Bulla Demo").parse().map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::failed(error.to_string())
}

/// The arguments of `openssl` that open a private message for `billing`, and those that verify what is inside.
fn opening(data: &Path) -> [Vec<String>; 2] {
    let own = data.join(RINGS).join("billing/own/billing.pem").display().to_string();
    let ca = data.join("tls/ca.pem").display().to_string();
    let decrypt = ["cms", "-decrypt", "-inform", "DER", "-in", "sealed.der", "-recip", &own, "-inkey", &own];
    let verify = ["cms", "-verify", "-inform", "DER", "-CAfile", &ca];
    [decrypt.map(str::to_owned).to_vec(), verify.map(str::to_owned).to_vec()]
}

/// What to say where this machine's `openssl` can't open what the demonstration seals. It is tried, with a message that
/// is sealed here, because what a version can do depends on who built it.
fn advice(data: &Path) -> Result<Option<String>, CliError> {
    let mut sealed = private_message(data)?;
    for arguments in opening(data) {
        // The message comes on standard input.
        let arguments = arguments.iter().filter(|word| !["-in", "sealed.der"].contains(&word.as_str()));
        sealed = match through_openssl(arguments, &sealed) {
            Ok(output) => output,
            Err(error) => {
                let version =
                    through_openssl(&["version".to_owned()], &[]).ok().and_then(|said| String::from_utf8(said).ok());
                let found = match version {
                    Some(version) => format!("the one here is {}, and says: {error}", version.trim()),
                    None => format!("here: {error}"),
                };
                return Ok(Some(format!(
                    "Step 2 needs an `openssl` program of version {OPENSSL_NEEDED} or newer; {found}"
                )));
            }
        };
    }
    Ok(None)
}

/// A message as it lies on ORDERS.PRIVATE.
fn private_message(data: &Path) -> Result<Vec<u8>, CliError> {
    let now = SystemTime::now();
    let policy = OBJECTS.lines().find(|line| line.starts_with("SET POLICY(ORDERS.PRIVATE)")).unwrap_or_default();
    let policy = crate::mqsc::policy::from_text(policy).map_err(failed)?;
    let ring = Ring::load(&data.join(RINGS).join("orders"), None).map_err(failed)?;
    let content =
        Content { packing: Packing::Data, content_type: None, bytes: Bytes::from_static(b"two tons of barley") };
    let bound = Bound {
        destination: "ORDERS.PRIVATE@DEMO".to_owned(),
        message_id: Bytes::from_static(b"\xa1\x05probe"),
        properties: Bytes::new(),
        application_properties: Bytes::new(),
        annotations: Bytes::new(),
    };
    let mut sealer = Sealer::new(Arc::new(policy), Arc::new(ring), None, now).map_err(failed)?;
    let step = sealer.seal(content, &bound, now, &mut SystemRandom).map_err(failed)?;
    Ok(drive(step, &mut CpuDevice::new("cpu")).map_err(failed)?.der.to_vec())
}

/// The standard output of `openssl`, or the last line of what it says.
fn through_openssl<'a>(arguments: impl IntoIterator<Item = &'a String>, input: &[u8]) -> Result<Vec<u8>, String> {
    let spawn = || {
        let mut command = Command::new("openssl");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early says why by its exit code.
            let _ = stdin.write_all(input);
        }
        child.wait_with_output()
    };
    let done = spawn().map_err(|error| format!("openssl: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(said.lines().last().unwrap_or("nothing").trim().to_owned()),
    }
}

fn welcome(data: &Path, running: &serve::Running, advice: Option<String>) -> String {
    let [decrypt, verify] = opening(data).map(|arguments| arguments.join(" "));
    let advice = advice.map(|advice| format!("{advice}\n\n")).unwrap_or_default();
    let data = data.display();
    let port = running.amqp.map(|address| address.to_string()).unwrap_or_default();
    let at = if port == "127.0.0.1:5672" { String::new() } else { format!(" --amqp {port}") };
    let bulla = std::env::args().next().unwrap_or_else(|| "bulla".to_owned());
    format!(
        "\nqueue manager DEMO is ready. Try, in another terminal:\n\n\
         1. put a message that only `billing` can read, signed by `orders`:\n\n\
         \x20  echo 'two tons of barley' | {bulla} put ORDERS.PRIVATE{at} --user orders --password-file {data}/orders.password\n\n\
         2. see what lies on the queue, and open it with standard tools:\n\n\
         \x20  {bulla} get RAW.PRIVATE --browse --count 1{at} > sealed.der\n\
         \x20  openssl {decrypt} \\\n\
         \x20    | openssl {verify}\n\n\
         {advice}\
         3. get it as `billing`:\n\n\
         \x20  {bulla} get ORDERS.PRIVATE{at} --user billing --password-file {data}/billing.password\n"
    )
}
