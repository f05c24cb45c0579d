//! DEVICE: what does the arithmetic of cryptography.
//!
//! What an attribute means depends on the TYPE: a token has a module, a modelled device has service times, the
//! processor has neither. An attribute that does not fit is refused, so that it is not believed to be honoured.

use super::noun::{Running, commands, verb};
use super::{Field, ObjectNoun, Rules, Said, attributes, joined};
use crate::attributes::{clamped, unless_blank};
use crate::parse::{Setting, Statement};
use crate::reply::{Cell, Failure, FailureKind, Outcome};
use crate::rows::wanted;
use crate::run::{AdminError, Administered, failure, invalid, unknown};
use crate::table::{
    Act, Attribute, Command, DESCR, DEVICE_STATE, DEVICE_TEXT_CHARS_MAX, DEVICE_TYPE, Doing, ENGINES, ERRORS, INSERV,
    JOBS, Key, Kind, NameUse, PENDING, REASON, TIMEOUT_MS_MAX, TIMEOUT_MS_MIN, UTIL, WAITING, words,
};
use bulla_catalog::objects::device::{ACCELERATOR, CPU, MOUNT_DEFAULT, TIMEOUT_DEFAULT};
use bulla_catalog::status::{DeviceState, DeviceStatus};
use bulla_catalog::system_queues::SYSTEM_PREFIX;
use bulla_catalog::{
    BaseProfile, DEVICES_MAX, Definitions, DeviceDefinition, ModelSetup, Setup, Sort, TokenSetup, TransitSetup,
};
use bulla_device::coprocessor::{Uri, UriError};
use bulla_device::transit::{Address, AddressError, is_path};
use bulla_device::{Form, Kind as DeviceKind, Operations, Profile, ProfileError};
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;

const WORD: &str = "DEVICE";
const OBJECT: &str = "device";

pub(crate) static DEVICE: ObjectNoun<DeviceDefinition> = ObjectNoun {
    word: WORD,
    short: &["DEV"],
    many: "devices",
    place: 10,
    fields: &[FIELDS, SHOWN],
    commands: &COMMANDS,
};

static FIELDS: &[Field<DeviceDefinition>] = &[
    // Taken over before the others, which depend on it.
    Field::shared(&DEVICE_TYPE, |of| Cell::Text(of.kind().to_string()), |_, _| {}),
    Field::shared(&DESCR, |of| Cell::word(&of.description), |of, value| of.description = value.text()),
    Field::shared(
        &ENGINES,
        |of| Cell::Number(of.engines().unwrap_or_default().into()),
        |of, value| match &mut of.setup {
            Setup::Coprocessor(TokenSetup { engines, .. })
            | Setup::Transit(TransitSetup { engines, .. })
            | Setup::Modelled(ModelSetup { engines, .. }) => *engines = clamped(value.number()),
            _ => {}
        },
    ),
    Field::shared(
        &PENDING,
        |of| Cell::Number(of.pending().unwrap_or_default().into()),
        |of, value| of.pending = Some(clamped(value.number())).filter(|number| *number > 0),
    ),
    Field::new(
        "MODULE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "",
        "The PKCS#11 library of a COPROCESSOR, by its absolute path. Needed. It runs with the rights of the queue \
         manager's account, so it must be in a library directory of the system or be named by `bulla start --modules`, \
         and only its owner may write it.",
        |of| token(of).map_or(Cell::word(""), |token| path(&token.module)),
        |of, value| with_token(of, |token| token.module = PathBuf::from(value.text())),
    ),
    Field::new(
        "TOKEN",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "",
        "Which token of the library, as a PKCS#11 URI (RFC 7512) without a PIN. Needed for a COPROCESSOR.",
        |of| Cell::word(token(of).map_or("", |token| token.token.as_str())),
        |of, value| with_token(of, |token| token.token = value.text()),
    ),
    Field::new(
        "PINFILE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "' '",
        "A file whose first line is the token's user PIN, by its absolute path; blank for a token that asks by itself.",
        |of| token(of).and_then(|token| token.pin_file.as_deref()).map_or(Cell::word(""), path),
        |of, value| with_token(of, |token| token.pin_file = unless_blank(&value.text()).map(PathBuf::from)),
    ),
    Field::new(
        "TIMEOUT",
        Kind::Number { min: TIMEOUT_MS_MIN, max: TIMEOUT_MS_MAX },
        "5000",
        "How long a job on a COPROCESSOR, or a request to the server of a TRANSIT device, may take, in milliseconds. The \
         device has then failed it.",
        |of| {
            let timeout = token(of).map(|token| token.timeout).or(transit(of).map(|transit| transit.timeout));
            Cell::Number(timeout.map_or(0, |timeout| timeout.as_millis().try_into().unwrap_or(u64::MAX)))
        },
        |of, value| {
            let timeout = Duration::from_millis(value.number());
            with_token(of, |token| token.timeout = timeout);
            with_transit(of, |transit| transit.timeout = timeout);
        },
    ),
    Field::new(
        "ADDRESS",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "",
        "Where the server of a TRANSIT device is, as https://HOST:PORT. Needed. Redirects are not followed.",
        |of| Cell::Text(transit(of).and_then(|of| of.address.as_ref()).map_or_else(String::new, Address::to_string)),
        |of, value| with_transit(of, |transit| transit.address = value.text().parse().ok()),
    ),
    Field::new(
        "CAFILE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "",
        "The certificates (PEM) of the authorities of which one must have issued the certificate of a TRANSIT device's \
         server, by the file's absolute path. Needed: the system's authorities are not asked.",
        |of| transit(of).map_or(Cell::word(""), |transit| path(&transit.authorities)),
        |of, value| with_transit(of, |transit| transit.authorities = PathBuf::from(value.text())),
    ),
    Field::new(
        "CERTFILE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "' '",
        "A certificate with its private key (PEM) for a TRANSIT device's server that asks its clients for one, by the \
         absolute path of a file that only its owner can read; blank for none.",
        |of| transit(of).and_then(|of| of.client_certificate.as_deref()).map_or(Cell::word(""), path),
        |of, value| with_transit(of, |of| of.client_certificate = unless_blank(&value.text()).map(PathBuf::from)),
    ),
    Field::new(
        "TOKENFILE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "",
        "A file whose first line is the token that a TRANSIT device shows its server, by its absolute path. Needed. Only \
         its owner may read it. It is read at the start, and again when the server refuses the token.",
        |of| transit(of).map_or(Cell::word(""), |transit| path(&transit.token_file)),
        |of, value| with_transit(of, |transit| transit.token_file = PathBuf::from(value.text())),
    ),
    Field::new(
        "MOUNT",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        MOUNT_DEFAULT,
        "Where the transit engine is mounted on the server of a TRANSIT device.",
        |of| Cell::word(transit(of).map_or("", |transit| transit.mount.as_str())),
        |of, value| with_transit(of, |transit| transit.mount = value.text()),
    ),
    Field::new(
        "NAMESPACE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "' '",
        "The namespace of the transit engine, where the server of a TRANSIT device has several; blank for none.",
        |of| Cell::word(transit(of).and_then(|transit| transit.namespace.as_deref()).unwrap_or_default()),
        |of, value| with_transit(of, |transit| transit.namespace = unless_blank(&value.text())),
    ),
    Field::new(
        "PROFILE",
        words(&["COPROCESSOR", "ACCELERATOR"]),
        "COPROCESSOR",
        "Service times of a MODELLED device. COPROCESSOR: 0.596 ms for RSA 2048, and for curves and other lengths what \
         follows from published rates. ACCELERATOR: with 2048 bits 0.046 ms for RSA ME and 0.507 ms for RSA CRT.",
        |of| Cell::word(model(of).map_or("", |model| model.base.as_str())),
        |of, value| {
            let is_accelerator = value.word() == BaseProfile::Accelerator.as_str();
            with_model(of, |model| {
                model.base = if is_accelerator { BaseProfile::Accelerator } else { BaseProfile::Coprocessor };
            });
        },
    ),
    Field::new(
        "SERVICE",
        Kind::Text { chars_max: DEVICE_TEXT_CHARS_MAX },
        "' '",
        "Service times of a MODELLED device in microseconds, instead of the profile's: FORM-BITS=TIME, comma \
         separated. Forms: RSA-CRT, RSA-ME, RSA-MEPRIV, ECDSA-SIGN, ECDSA-VERIFY, ECDH, ECDH-EPHEMERAL.",
        |of| Cell::word(model(of).map_or("", |model| model.service.as_str())),
        |of, value| with_model(of, |model| model.service = value.text()),
    ),
    Field::new(
        "OPERATIONS",
        Kind::Words { choices: &Operations::WORDS, refused: &[] },
        "ALL",
        "What the device may do, of what it can. SIGN, VERIFY, WRAP and UNWRAP are for keys of both kinds: WRAP makes a \
         content key's recipient able to open, UNWRAP opens. With RSA or EC before, for that kind alone. NONE: nothing. \
         It holds at once. Where no other device may, the processor does a job, unless OPERATIONS of the device CPU leave \
         it out; a job that no device may do is refused. What a device says against a message the processor computes \
         again, whatever this says.",
        |of| Cell::List(of.operations.words().into_iter().map(str::to_owned).collect()),
        |of, value| of.operations = Operations::of_words(value.list()),
    ),
    Field::new(
        "AUTOSTART",
        words(&["YES", "NO"]),
        "YES",
        "Whether the device starts with the queue manager.",
        |of| Cell::word(if of.autostart { "YES" } else { "NO" }),
        |of, value| of.autostart = value.word() == "YES",
    ),
];

/// What DISPLAY shows beside that.
static SHOWN: &[Field<DeviceDefinition>] = &[Field::shown(
    TIMES,
    "Service times of a MODELLED device, those of SERVICE included: microseconds, and whether each is published, derived \
     from what was published, or given by SERVICE. Shown with ALL or when asked for.",
    |of| {
        let times = model(of).and_then(|model| model.profile().ok());
        let times = times.iter().flat_map(Profile::times).map(|time| time.to_string());
        Cell::Text(times.collect::<Vec<_>>().join(", "))
    },
)];
const TIMES: &str = "TIMES";

static ATTRIBUTES: &[&Attribute] = attributes!(FIELDS);
/// DISPLAY: what a generic name shows.
static NAMES: [&Attribute; 2] = [&DEVICE_TYPE, &DEVICE_STATE];
static DISPLAYED: &[&Attribute] = joined![
    &NAMES,
    &[&REASON],
    ATTRIBUTES.split_at(1).1,
    attributes!(SHOWN),
    &[&WAITING, &INSERV, &UTIL, &JOBS, &ERRORS]
];

static COMMANDS: [Command; 6] = {
    let [define, alter, delete, display] = commands(
        Sort::Device,
        OBJECT,
        WORD,
        ATTRIBUTES,
        DISPLAYED,
        [
            Said {
                summary: "Create a crypto device. It works once it is started, or at the next start of the queue \
                 manager.",
                examples: &[
                    "DEFINE DEVICE(ACCEL2) TYPE(ACCELERATOR)",
                    "DEFINE DEVICE(HSM) TYPE(COPROCESSOR) MODULE('/usr/lib/softhsm/libsofthsm2.so') \
                     TOKEN('pkcs11:token=bulla') PINFILE('/etc/bulla/hsm.pin') ENGINES(4)",
                    "DEFINE DEVICE(VAULT) TYPE(TRANSIT) ADDRESS('https://vault.example:8200') \
                     CAFILE('/etc/bulla/vault-ca.pem') TOKENFILE('/run/bulla/vault-token') ENGINES(4)",
                    "DEF DEV(CARD) TYPE(MODELLED) PROFILE(ACCELERATOR) SERVICE('RSA-CRT-4096=3100') ENGINES(2) \
                     AUTOSTART(NO)",
                ],
            },
            Said {
                summary: "Change attributes of a crypto device; the others stay. A running device takes most of them \
                 at its next start.",
                examples: &[
                    "ALTER DEVICE(HSM) ENGINES(8)",
                    "ALTER DEVICE(CPU) TYPE(SOFTWARE)",
                    "ALTER DEVICE(CARD) OPERATIONS(RSAVERIFY, WRAP, UNWRAP)",
                ],
            },
            Said {
                summary: "Delete a crypto device that is stopped. The device CPU stays.",
                examples: &["DELETE DEVICE(ACCEL2)"],
            },
            Said {
                summary: "Show crypto devices and what goes on at them now. A generic name shows names, types and \
                 states only, unless attributes or ALL are asked for.",
                examples: &["DISPLAY DEVICE(*)", "DIS DEV(ACCEL1)", "DIS DEV(*) REASON WHERE(STATUS NE RUNNING)"],
            },
        ],
    );
    [define, alter, delete, START, STOP, display]
};

const START: Command = verb(
    ("START", WORD, OBJECT),
    Act::Does(Doing::StartDevice),
    NameUse::One,
    &[],
    &[],
    Said {
        summary: "Start a crypto device, as it is defined now. One that can't work is OFFLINE and is tried again until \
         it is stopped.",
        examples: &["START DEVICE(ACCEL2)"],
    },
);
const STOP: Command = verb(
    ("STOP", WORD, OBJECT),
    Act::Does(Doing::StopDevice),
    NameUse::One,
    &[],
    &[],
    Said {
        summary: "Stop a crypto device: jobs in service end, waiting ones go to other devices where their keys allow \
         it. It stays stopped until it is started, or until the next start of the queue manager with AUTOSTART(YES).",
        examples: &["STOP DEVICE(ACCEL2)"],
    },
);

/// Every TYPE as it is written.
const TYPES: [(&str, DeviceKind); 6] = [
    ("CPU", DeviceKind::Cpu),
    ("SOFTWARE", DeviceKind::Software),
    ("ACCELERATOR", DeviceKind::Accelerator),
    ("COPROCESSOR", DeviceKind::Coprocessor),
    ("TRANSIT", DeviceKind::Transit),
    ("MODELLED", DeviceKind::Modelled),
];

/// The kind of device of that TYPE, as it is written.
pub(crate) fn kind_of(word: &str) -> Option<DeviceKind> {
    TYPES.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
}

/// Why a device cannot be defined so. The turn is with the author of the command.
#[derive(Debug)]
enum Refused {
    /// DEFINE without TYPE.
    NoType,
    /// The attribute means nothing for a device of that TYPE.
    DoesNotFit { keyword: &'static str, kind: DeviceKind },
    /// The attribute must be given for a device of that TYPE.
    Missing { keyword: &'static str, kind: DeviceKind },
    /// ALTER from one TYPE to another.
    OtherType { from: DeviceKind, to: DeviceKind },
    /// LIKE a device of another TYPE.
    LikeOtherType { like: DeviceKind, kind: DeviceKind },
    /// There is one processor, and the device CPU is it.
    SecondCpu,
    /// Not an absolute path.
    NotAbsolute { keyword: &'static str },
    /// Not a PKCS#11 URI, or one with a PIN in it.
    Token(UriError),
    /// Not an address of a server.
    Address(AddressError),
    /// Not a path on a server.
    NotAPath { keyword: &'static str },
    /// SERVICE holds something else than service times.
    Service(ProfileError),
}

impl Refused {
    fn hint(&self) -> Option<String> {
        match self {
            Refused::NoType => {
                Some("a device that can be defined is an ACCELERATOR, a COPROCESSOR, TRANSIT or MODELLED".to_owned())
            }
            Refused::OtherType { from: DeviceKind::Cpu | DeviceKind::Software, .. } => {
                Some("the device CPU is CPU or SOFTWARE".to_owned())
            }
            Refused::OtherType { .. } => Some("DEFINE with REPLACE defines it anew".to_owned()),
            Refused::SecondCpu => Some("ALTER DEVICE(CPU) changes it".to_owned()),
            Refused::Token(UriError::PinValue) => {
                Some("write it into a file that only its owner may read, and name that with PINFILE".to_owned())
            }
            Refused::Token(_) => Some("write TOKEN('pkcs11:token=NAME')".to_owned()),
            Refused::Address(_) => Some("write ADDRESS('https://vault.example:8200')".to_owned()),
            Refused::NotAPath { .. } => Some("letters, digits, _, - and ., in parts joined by /".to_owned()),
            Refused::Service(_) => Some("write SERVICE('RSA-CRT-2048=507,RSA-ME-2048=46'), in microseconds".to_owned()),
            _ => None,
        }
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoType => f.write_str("DEFINE DEVICE needs TYPE or LIKE"),
            Refused::DoesNotFit { keyword, kind } => write!(f, "a device of TYPE({kind}) has no {keyword}"),
            Refused::Missing { keyword, kind } => write!(f, "a device of TYPE({kind}) needs {keyword}"),
            Refused::OtherType { from, to } => write!(f, "a device of TYPE({from}) cannot become one of TYPE({to})"),
            Refused::LikeOtherType { like, kind } => {
                write!(f, "a device of TYPE({kind}) cannot be LIKE one of TYPE({like})")
            }
            Refused::SecondCpu => f.write_str("the processor is the device CPU, and no other one"),
            Refused::NotAbsolute { keyword } => write!(f, "{keyword} takes an absolute path"),
            Refused::Token(error) => write!(f, "TOKEN cannot be read: {error}"),
            Refused::Address(error) => write!(f, "ADDRESS cannot be read: {error}"),
            Refused::NotAPath { keyword } => write!(f, "{keyword} is no path on a server"),
            Refused::Service(error) => write!(f, "SERVICE cannot be read: {error}"),
        }
    }
}

fn refused(refused: &Refused) -> Failure {
    invalid(refused, refused.hint().as_deref())
}

impl Rules for DeviceDefinition {
    /// The processor is there before the file is read, like the queue manager itself.
    const ALWAYS_THERE: Option<&str> = Some(CPU);
    const MAX: usize = DEVICES_MAX;

    fn begin(statement: &Statement, like: Option<&Self>) -> Result<Self, Failure> {
        let kind = kind_given(statement);
        let device = match (like, kind) {
            _ if statement.name.stem == CPU => return Err(refused(&Refused::SecondCpu)),
            (Some(like), None) => like.clone(),
            (Some(like), Some(kind)) if like.kind() == kind => like.clone(),
            (Some(like), Some(kind)) => return Err(refused(&Refused::LikeOtherType { like: like.kind(), kind })),
            (None, Some(DeviceKind::Accelerator)) => DeviceDefinition::new(Setup::Accelerator),
            (None, Some(DeviceKind::Coprocessor)) => DeviceDefinition::new(Setup::Coprocessor(TokenSetup {
                module: PathBuf::new(),
                token: String::new(),
                pin_file: None,
                engines: 1,
                timeout: TIMEOUT_DEFAULT,
            })),
            (None, Some(DeviceKind::Transit)) => DeviceDefinition::new(Setup::Transit(TransitSetup::default())),
            (None, Some(DeviceKind::Modelled)) => {
                let setup = ModelSetup { base: BaseProfile::Coprocessor, service: String::new(), engines: 1 };
                DeviceDefinition::new(Setup::Modelled(setup))
            }
            (None, Some(_)) => return Err(refused(&Refused::SecondCpu)),
            (None, None) => return Err(refused(&Refused::NoType)),
        };
        match device.setup {
            Setup::Cpu | Setup::Software => Err(refused(&Refused::SecondCpu)),
            _ => Ok(device),
        }
    }

    fn has(&self, key: Key) -> bool {
        match key {
            Key::Engines => self.engines().is_some(),
            Key::Pending => self.pending().is_some(),
            Key::Own("MODULE" | "TOKEN" | "PINFILE") => token(self).is_some(),
            Key::Own("TIMEOUT") => token(self).is_some() || transit(self).is_some(),
            Key::Own("ADDRESS" | "CAFILE" | "CERTFILE" | "TOKENFILE" | "MOUNT" | "NAMESPACE") => {
                transit(self).is_some()
            }
            Key::Own("PROFILE" | "SERVICE" | TIMES) => model(self).is_some(),
            _ => true,
        }
    }

    /// PENDING of itself depends on other attributes.
    fn follows(&self, key: Key) -> bool {
        key == Key::Pending && self.pending.is_none()
    }

    /// TYPE, on which the other attributes depend.
    fn take_over(&mut self, statement: &Statement) -> Result<bool, Failure> {
        match (self.kind(), kind_given(statement)) {
            (_, None) => {}
            (from, Some(to)) if from == to => {}
            (DeviceKind::Cpu, Some(DeviceKind::Software)) => self.setup = Setup::Software,
            (DeviceKind::Software, Some(DeviceKind::Cpu)) => self.setup = Setup::Cpu,
            (from, Some(to)) => return Err(refused(&Refused::OtherType { from, to })),
        }
        Ok(false)
    }

    fn check_setting(&self, setting: &Setting) -> Result<(), Failure> {
        let keyword = setting.attribute.keyword;
        if !self.has(setting.attribute.key) {
            return Err(refused(&Refused::DoesNotFit { keyword, kind: self.kind() }));
        }
        let text = setting.value.text();
        let wrong = match keyword {
            "MODULE" | "CAFILE" | "TOKENFILE" => absolute(keyword, &text).err(),
            "PINFILE" | "CERTFILE" if !text.trim().is_empty() => absolute(keyword, &text).err(),
            "ADDRESS" => text.parse::<Address>().err().map(Refused::Address),
            "MOUNT" => (!is_path(&text)).then_some(Refused::NotAPath { keyword }),
            "NAMESPACE" if !text.trim().is_empty() => (!is_path(&text)).then_some(Refused::NotAPath { keyword }),
            "TOKEN" => token_uri(&text).err(),
            "SERVICE" => model(self).and_then(|model| {
                let model = ModelSetup { service: text, ..model.clone() };
                model.profile().map_err(Refused::Service).err()
            }),
            _ => None,
        };
        wrong.map_or(Ok(()), |wrong| Err(refused(&wrong)))
    }

    fn check(&self, _name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        let is_empty = |path: &Path| path.as_os_str().is_empty();
        let needed = match &self.setup {
            Setup::Coprocessor(token) => vec![("MODULE", is_empty(&token.module)), ("TOKEN", token.token.is_empty())],
            Setup::Transit(transit) => vec![
                ("ADDRESS", transit.address.is_none()),
                ("CAFILE", is_empty(&transit.authorities)),
                ("TOKENFILE", is_empty(&transit.token_file)),
            ],
            _ => Vec::new(),
        };
        match needed.into_iter().find(|(_, is_missing)| *is_missing) {
            Some((keyword, _)) => Err(refused(&Refused::Missing { keyword, kind: self.kind() })),
            None => Ok(()),
        }
    }

    /// The devices that a new queue manager has.
    fn stays(&self, name: &str) -> bool {
        [CPU, ACCELERATOR].contains(&name) || name.starts_with(SYSTEM_PREFIX)
    }

    fn check_delete(name: &str, _definitions: &Definitions) -> Result<(), Failure> {
        if name != CPU {
            return Ok(());
        }
        let message = "the device CPU is always there".to_owned();
        let hint = Some("STOP DEVICE(CPU) takes its work away".to_owned());
        Err(Failure { kind: FailureKind::Refused, reason: Some(2042), message, hint })
    }

    fn running(name: &str, change: Running<'_, Self>, target: &dyn Administered) -> Result<Option<String>, Failure> {
        let Some(before) = target.definitions().devices.get(name) else { return Ok(None) };
        let runs = |status: &DeviceStatus| status.state != DeviceState::Stopped;
        let state = target.device_status(name).filter(runs).map(|status| status.state);
        Ok(match (change, state) {
            (Running::Altered(device), _) if device.kind() != before.kind() => {
                Some(format!("TYPE({}) takes effect at the next start of the queue manager", device.kind()))
            }
            (Running::Altered(device), Some(state)) if device.runs_unlike(before) => {
                Some(format!("device {name} is {state}: STOP and START it for the change to take effect"))
            }
            (Running::Defined(_) | Running::Deleted, Some(state)) => {
                return Err(failure(&AdminError::Running { name: name.to_owned(), state }));
            }
            _ => None,
        })
    }

    fn wanted(statement: &Statement) -> Vec<&'static Attribute> {
        let mut wanted = wanted(statement, true);
        if statement.requested.is_empty() && !statement.says(Key::All, "ALL") {
            wanted.retain(|attribute| attribute.keyword != TIMES);
        }
        if statement.requested.is_empty() && statement.name.generic && !statement.says(Key::All, "ALL") {
            wanted.retain(|attribute| NAMES.iter().all(|name| name.key != attribute.key));
            wanted.splice(0..0, NAMES);
        }
        wanted
    }

    fn status<'a>(name: &'a str, target: &'a dyn Administered) -> Box<dyn Fn(Key) -> Option<Cell> + 'a> {
        // Asked once for the row; numbers that belong together come from one moment.
        let status = std::cell::OnceCell::new();
        Box::new(move |key| {
            let status = status.get_or_init(|| target.device_status(name)).as_ref();
            status.and_then(|status| device_status_cell(status, key))
        })
    }
}

/// The TYPE that the command gives.
fn kind_given(statement: &Statement) -> Option<DeviceKind> {
    statement.value(Key::DeviceType).and_then(|value| kind_of(value.word()))
}

fn token(device: &DeviceDefinition) -> Option<&TokenSetup> {
    match &device.setup {
        Setup::Coprocessor(token) => Some(token),
        _ => None,
    }
}

fn with_token(device: &mut DeviceDefinition, set: impl FnOnce(&mut TokenSetup)) {
    if let Setup::Coprocessor(token) = &mut device.setup {
        set(token);
    }
}

fn transit(device: &DeviceDefinition) -> Option<&TransitSetup> {
    match &device.setup {
        Setup::Transit(transit) => Some(transit),
        _ => None,
    }
}

fn with_transit(device: &mut DeviceDefinition, set: impl FnOnce(&mut TransitSetup)) {
    if let Setup::Transit(transit) = &mut device.setup {
        set(transit);
    }
}

fn model(device: &DeviceDefinition) -> Option<&ModelSetup> {
    match &device.setup {
        Setup::Modelled(model) => Some(model),
        _ => None,
    }
}

fn with_model(device: &mut DeviceDefinition, set: impl FnOnce(&mut ModelSetup)) {
    if let Setup::Modelled(model) = &mut device.setup {
        set(model);
    }
}

fn path(path: &Path) -> Cell {
    Cell::Text(path.to_string_lossy().into_owned())
}

fn device_status_cell(status: &DeviceStatus, key: Key) -> Option<Cell> {
    Some(match key {
        Key::DeviceState => Cell::word(status.state.as_str()),
        Key::Reason => Cell::Text(status.reason.clone().unwrap_or_default()),
        Key::Waiting => Cell::Number(status.waiting),
        Key::InService => Cell::Number(status.in_service),
        Key::Utilisation => Cell::Number(status.utilisation_percent),
        Key::Jobs => Cell::Number(status.jobs),
        Key::Errors => Cell::Number(status.errors),
        _ => return None,
    })
}

/// START and STOP.
///
/// # Errors
/// There is no such device, or the target refuses.
pub(crate) fn start_or_stop(
    statement: &Statement,
    is_start: bool,
    target: &mut dyn Administered,
) -> Result<Outcome, Failure> {
    let name = &statement.name.stem;
    if !target.definitions().devices.contains_key(name) {
        return Err(unknown(OBJECT, name));
    }
    let was = target.device_status(name).map(|status| status.state);
    let is_done = match was {
        Some(DeviceState::Running | DeviceState::Starting) => is_start,
        Some(DeviceState::Stopped) => !is_start,
        _ => false,
    };
    if let Some(state) = was.filter(|_| is_done) {
        return Ok(Outcome::Done { message: format!("device {name} is {state} already"), warnings: Vec::new() });
    }
    if is_start {
        target.start_device(name).map_err(|error| failure(&error))?;
    } else {
        target.stop_device(name).map_err(|error| failure(&error))?;
    }
    let warnings = match target.device_status(name) {
        Some(DeviceStatus { state: state @ (DeviceState::Offline | DeviceState::Failed), reason, .. }) if is_start => {
            vec![format!("device {name} is {state}: {}", reason.as_deref().unwrap_or("it gives no reason"))]
        }
        _ => Vec::new(),
    };
    let done = if is_start { "started" } else { "stopped" };
    Ok(Outcome::Done { message: format!("device {name} {done}"), warnings })
}

fn absolute(keyword: &'static str, text: &str) -> Result<PathBuf, Refused> {
    // The token's module runs in a process of its own, which need not have our working directory.
    if Path::new(text).is_absolute() { Ok(PathBuf::from(text)) } else { Err(Refused::NotAbsolute { keyword }) }
}

fn token_uri(text: &str) -> Result<String, Refused> {
    // It is kept as it was typed: what the token's module makes of it is that one's business.
    text.parse::<Uri>().map(|_| text.to_owned()).map_err(Refused::Token)
}

/// Every form of arithmetic.
pub(crate) const FORMS: [Form; 11] = [
    Form::RsaCrt,
    Form::RsaMePrivate,
    Form::RsaMe,
    Form::EcdsaSign,
    Form::EcdsaVerify,
    Form::Ecdh,
    Form::EcdhEphemeral,
    Form::MlDsaSign,
    Form::MlDsaVerify,
    Form::MlKemEncapsulate,
    Form::MlKemDecapsulate,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_named_by_a_uri_without_a_pin() {
        assert!(token_uri("pkcs11:token=bulla;manufacturer=SoftHSM").is_ok());
        for uri in ["token=bulla", "pkcs11:token", "pkcs11:token=a;token=b"] {
            assert!(matches!(token_uri(uri), Err(Refused::Token(_))), "{uri}");
        }
        for uri in ["pkcs11:token=b?pin-value=s3cr3t", "pkcs11:pin-value=s3cr3t"] {
            let refused = token_uri(uri).unwrap_err();
            assert!(matches!(refused, Refused::Token(UriError::PinValue)), "{uri}");
            assert!(!format!("{refused}{refused:?}{:?}", refused.hint()).contains("s3cr3t"));
        }
    }

    #[test]
    fn an_address_with_a_password_is_refused_and_not_shown() {
        let error = "https://u:s3cr3t@vault.example".parse::<Address>().unwrap_err();
        let refused = Refused::Address(error);
        assert_eq!(refused.to_string(), "ADDRESS cannot be read: it has a user in it");
        assert!(!format!("{refused:?}{:?}", refused.hint()).contains("s3cr3t"));
    }

    #[test]
    fn every_type_is_known_by_the_name_that_is_shown() {
        for (word, kind) in TYPES {
            assert_eq!(kind.to_string(), word);
        }
    }
}
