//! Crypto devices as they are defined.
//!
//! What an attribute means depends on the TYPE: a token has a module, a modelled device has service times, the
//! processor has neither. An attribute that does not fit is refused, so that it is not believed to be honoured.

use super::parse::{Statement, Value};
use super::reply::Cell;
use super::table::Key;
use crate::attributes::Cells;
use bulla_catalog::objects::device::TIMEOUT_DEFAULT;
use bulla_catalog::{BaseProfile, DeviceDefinition, ModelSetup, Setup, TokenSetup};
use bulla_device::coprocessor::{Uri, UriError};
use bulla_device::{Form, Kind, ProfileError};
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every TYPE as it is written.
const TYPES: [(&str, Kind); 5] = [
    ("CPU", Kind::Cpu),
    ("SOFTWARE", Kind::Software),
    ("ACCELERATOR", Kind::Accelerator),
    ("COPROCESSOR", Kind::Coprocessor),
    ("MODELLED", Kind::Modelled),
];

/// The kind of device of that TYPE, as it is written.
pub(super) fn kind_of(word: &str) -> Option<Kind> {
    TYPES.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
}

/// Why a device cannot be defined so. The turn is with the author of the command.
#[derive(Debug)]
pub(super) enum Refused {
    /// DEFINE without TYPE.
    NoType,
    /// The attribute means nothing for a device of that TYPE.
    DoesNotFit { keyword: &'static str, kind: Kind },
    /// The attribute must be given for a device of that TYPE.
    Missing { keyword: &'static str, kind: Kind },
    /// ALTER from one TYPE to another.
    OtherType { from: Kind, to: Kind },
    /// LIKE a device of another TYPE.
    LikeOtherType { like: Kind, kind: Kind },
    /// There is one processor, and the device CPU is it.
    SecondCpu,
    /// Not an absolute path.
    NotAbsolute { keyword: &'static str },
    /// Not a PKCS#11 URI, or one with a PIN in it.
    Token(UriError),
    /// SERVICE holds something else than service times.
    Service(ProfileError),
}

impl Refused {
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Refused::NoType => {
                Some("a device that can be defined is an ACCELERATOR, a COPROCESSOR or MODELLED".to_owned())
            }
            Refused::OtherType { from: Kind::Cpu | Kind::Software, .. } => {
                Some("the device CPU is CPU or SOFTWARE".to_owned())
            }
            Refused::OtherType { .. } => Some("DEFINE with REPLACE defines it anew".to_owned()),
            Refused::SecondCpu => Some("ALTER DEVICE(CPU) changes it".to_owned()),
            Refused::Token(UriError::PinValue) => {
                Some("write it into a file that only its owner may read, and name that with PINFILE".to_owned())
            }
            Refused::Token(_) => Some("write TOKEN('pkcs11:token=NAME')".to_owned()),
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
            Refused::Service(error) => write!(f, "SERVICE cannot be read: {error}"),
        }
    }
}

impl Cells for DeviceDefinition {
    fn cell(&self, key: Key) -> Option<Cell> {
        let number = |number: Option<u32>| number.map(|number| Cell::Number(number.into()));
        let token = match &self.setup {
            Setup::Coprocessor(token) => Some(token),
            _ => None,
        };
        let model = match &self.setup {
            Setup::Modelled(model) => Some(model),
            _ => None,
        };
        let path = |path: &Path| Cell::Text(path.to_string_lossy().into_owned());
        match key {
            Key::DeviceType => Some(Cell::Text(self.kind().to_string())),
            Key::Description => Some(Cell::Text(self.description.clone())),
            Key::AutoStart => Some(Cell::word(if self.autostart { "YES" } else { "NO" })),
            Key::Engines => number(self.engines()),
            Key::Pending => number(self.pending()),
            Key::Module => token.map(|token| path(&token.module)),
            Key::Token => token.map(|token| Cell::Text(token.token.clone())),
            Key::PinFile => token.map(|token| token.pin_file.as_deref().map_or(Cell::word(""), path)),
            Key::Timeout => token.map(|token| Cell::Number(token.timeout.as_millis().try_into().unwrap_or(u64::MAX))),
            Key::Profile => model.map(|model| Cell::word(model.base.as_str())),
            Key::Service => model.map(|model| Cell::Text(model.service.clone())),
            _ => None,
        }
    }
}

/// What DEFINE comes to: `model` is LIKE's device.
pub(super) fn defined(statement: &Statement, model: Option<&DeviceDefinition>) -> Result<DeviceDefinition, Refused> {
    let word = match statement.value(Key::DeviceType) {
        Some(Value::Word(word)) => kind_of(word),
        _ => None,
    };
    let mut device = match (model, word) {
        (Some(model), None) => model.clone(),
        (Some(model), Some(kind)) if model.kind() == kind => model.clone(),
        (Some(model), Some(kind)) => return Err(Refused::LikeOtherType { like: model.kind(), kind }),
        (None, Some(kind)) => DeviceDefinition::new(match kind {
            Kind::Accelerator => Setup::Accelerator,
            Kind::Coprocessor => Setup::Coprocessor(TokenSetup {
                module: PathBuf::new(),
                token: String::new(),
                pin_file: None,
                engines: 1,
                timeout: TIMEOUT_DEFAULT,
            }),
            Kind::Modelled => {
                Setup::Modelled(ModelSetup { base: BaseProfile::Coprocessor, service: String::new(), engines: 1 })
            }
            _ => return Err(Refused::SecondCpu),
        }),
        (None, None) => return Err(Refused::NoType),
    };
    if matches!(device.setup, Setup::Cpu | Setup::Software) {
        return Err(Refused::SecondCpu);
    }
    set(&mut device, statement)?;
    if let Setup::Coprocessor(token) = &device.setup {
        let kind = Kind::Coprocessor;
        if token.module.as_os_str().is_empty() {
            return Err(Refused::Missing { keyword: "MODULE", kind });
        }
        if token.token.is_empty() {
            return Err(Refused::Missing { keyword: "TOKEN", kind });
        }
    }
    Ok(device)
}

/// What ALTER comes to.
pub(super) fn altered(mut device: DeviceDefinition, statement: &Statement) -> Result<DeviceDefinition, Refused> {
    let from = device.kind();
    if let Some(Value::Word(word)) = statement.value(Key::DeviceType) {
        match (from, kind_of(word)) {
            (from, Some(to)) if from == to => {}
            (Kind::Cpu, Some(Kind::Software)) => device.setup = Setup::Software,
            (Kind::Software, Some(Kind::Cpu)) => device.setup = Setup::Cpu,
            (from, to) => return Err(Refused::OtherType { from, to: to.unwrap_or(from) }),
        }
    }
    set(&mut device, statement)?;
    Ok(device)
}

/// Everything but TYPE.
fn set(device: &mut DeviceDefinition, statement: &Statement) -> Result<(), Refused> {
    let kind = device.kind();
    for setting in &statement.settings {
        let keyword = setting.attribute.keyword;
        match (setting.attribute.key, &setting.value, &mut device.setup) {
            (Key::DeviceType | Key::Replace | Key::Like, ..) => {}
            (Key::Description, Value::Text(text), _) => device.description.clone_from(text),
            (Key::AutoStart, Value::Word(word), _) => device.autostart = *word == "YES",
            (Key::Pending, Value::Number(number), Setup::Accelerator | Setup::Coprocessor(_) | Setup::Modelled(_)) => {
                device.pending = (*number > 0).then_some(small(*number))
            }
            (
                Key::Engines,
                Value::Number(number),
                Setup::Coprocessor(TokenSetup { engines, .. }) | Setup::Modelled(ModelSetup { engines, .. }),
            ) => *engines = small(*number),
            (Key::Module, Value::Text(text), Setup::Coprocessor(token)) => {
                token.module = absolute(keyword, text)?;
            }
            (Key::Token, Value::Text(text), Setup::Coprocessor(token)) => {
                token.token = token_uri(text)?;
            }
            (Key::PinFile, Value::Text(text), Setup::Coprocessor(token)) => {
                token.pin_file = if text.is_empty() { None } else { Some(absolute(keyword, text)?) };
            }
            (Key::Timeout, Value::Number(number), Setup::Coprocessor(token)) => {
                token.timeout = Duration::from_millis(*number);
            }
            (Key::Profile, Value::Word(word), Setup::Modelled(model)) => {
                let is_accelerator = *word == BaseProfile::Accelerator.as_str();
                model.base = if is_accelerator { BaseProfile::Accelerator } else { BaseProfile::Coprocessor };
            }
            (Key::Service, Value::Text(text), Setup::Modelled(model)) => {
                model.service.clone_from(text);
                model.profile().map_err(Refused::Service)?;
            }
            _ => return Err(Refused::DoesNotFit { keyword, kind }),
        }
    }
    Ok(())
}

/// What the definitions file says: a default that depends on other attributes is left out.
pub(super) fn kept_cell(device: &DeviceDefinition, key: Key) -> Option<Cell> {
    if key == Key::Pending { device.pending.map(|number| Cell::Number(number.into())) } else { device.cell(key) }
}

/// The table's bounds are below `u32::MAX`.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
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
pub(super) const FORMS: [Form; 7] = [
    Form::RsaCrt,
    Form::RsaMePrivate,
    Form::RsaMe,
    Form::EcdsaSign,
    Form::EcdsaVerify,
    Form::Ecdh,
    Form::EcdhEphemeral,
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
    fn every_type_is_known_by_the_name_that_is_shown() {
        for (word, kind) in TYPES {
            assert_eq!(kind.to_string(), word);
        }
    }
}
