//! Policies of IBM MQ Advanced Message Security as SET POLICY.

use super::setmqspl::{self, ForeignPolicy, Found};
use super::{Entry, IMPORT_BYTES_MAX, Imported, Paper, quoted};
use bulla_catalog::Definitions;
use bulla_seal::Dn;
use bulla_seal::policy::{KEY_REUSE_COUNT_MAX, RECIPIENTS_MAX, SIGNERS_MAX};

/// How policies are taken over.
#[derive(Debug)]
pub struct PolicyOptions<'a> {
    /// MD5 and SHA1 become SHA256, and RC2, DES and 3DES become AES256; otherwise such a policy is left out.
    pub raise: bool,
    /// The certificates of the key rings, with which the names of the policies are compared; none where no ring is
    /// known.
    pub certificates: Option<&'a [Certificate]>,
    /// What is defined where the policies are to be set.
    pub definitions: Definitions,
}

/// A certificate in a key ring.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// Its subject.
    pub dn: Dn,
    /// Where it lies: `orders/own`.
    pub place: String,
}

/// Reads what `dspmqspl`, `dspmqspl -export` and DISPLAY POLICY of IBM MQ write.
pub fn policies(text: &str, options: PolicyOptions<'_>) -> Imported {
    let mut imported = Imported::default();
    if text.len() > IMPORT_BYTES_MAX {
        let why = format!("{} bytes of text are more than {IMPORT_BYTES_MAX}", text.len());
        imported.push(Entry::left_out(1, "everything", why));
        return imported;
    }
    let PolicyOptions { raise, certificates, definitions } = options;
    let mut paper = Paper(definitions);
    for found in setmqspl::read(text) {
        let entry = match found {
            Found::Policy(policy) => imported_policy(&policy, raise, certificates, &mut paper),
            Found::Line { line, text } => {
                Entry::left_out(line, shown(text.trim()), "the line is none that the tools for policies write")
            }
        };
        if !imported.push(entry) {
            break;
        }
    }
    imported
}

/// Most characters of the text that are shown again.
const SHOWN_CHARS_MAX: usize = 100;

fn shown(text: &str) -> String {
    let plain: String = text.chars().take(SHOWN_CHARS_MAX).filter(|c| !c.is_control()).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() { format!("{plain}…") } else { plain }
}

pub(super) fn imported_policy(
    policy: &ForeignPolicy,
    raise: bool,
    certificates: Option<&[Certificate]>,
    paper: &mut Paper,
) -> Entry {
    let mut entry = Entry {
        line: policy.line,
        was: format!("{} of {}", policy.from, quoted(&shown(&policy.name))),
        ..Entry::default()
    };
    if policy.removes {
        entry.lose(None, "-remove takes a policy away: there is none to take over");
        return entry;
    }
    // A policy of which a part is not known might protect less than it did.
    for word in &policy.unknown {
        entry.lose(Some(shown(word)), "not understood, so the policy is left out");
    }
    let Some(command) = command(policy, raise, &mut entry) else { return entry };
    if !policy.unknown.is_empty() {
        return entry;
    }
    if paper.0.policies.contains_key(&policy.name) {
        entry.tell(None, "it takes the place of a policy that is set");
    }
    match paper.carry_out(&command) {
        Ok(warnings) => {
            entry.commands.push(command);
            warnings.into_iter().for_each(|warning| entry.tell(None, warning));
            let names = policy.signers.iter().chain(&policy.recipients);
            let names: Vec<Dn> = names.filter_map(|name| name_of(name).ok()).map(|(dn, _)| dn).collect();
            certificates.into_iter().for_each(|known| names.iter().for_each(|dn| compare(&mut entry, dn, known)));
        }
        Err(why) => entry.lose(None, why),
    }
    entry
}

/// Algorithms that are taken over, and those that are raised and to what.
struct Algorithms {
    keyword: &'static str,
    flag: &'static str,
    same: &'static [&'static str],
    weak: &'static [&'static str],
    raised: &'static str,
}

const DIGESTS: Algorithms = Algorithms {
    keyword: "SIGNALG",
    flag: "-s",
    same: &["SHA256", "SHA384", "SHA512"],
    weak: &["MD5", "SHA1"],
    raised: "SHA256",
};

const CIPHERS: Algorithms = Algorithms {
    keyword: "ENCALG",
    flag: "-e",
    same: &["AES128", "AES256"],
    weak: &["RC2", "DES", "3DES"],
    raised: "AES256",
};

/// The command that the policy becomes; none where it can't be taken over, for reasons that are noted.
fn command(policy: &ForeignPolicy, raise: bool, entry: &mut Entry) -> Option<String> {
    let sign = algorithm(&DIGESTS, policy.sign.as_deref(), raise, entry);
    let encrypt = algorithm(&CIPHERS, policy.encrypt.as_deref(), raise, entry);
    let signers = names("SIGNER", &policy.signers, entry);
    let recipients = names("RECIP", &policy.recipients, entry);
    let toleration = match policy.toleration.as_deref() {
        None | Some("0") => Some(""),
        Some("1") => Some(" TOLERATE"),
        Some(other) => {
            entry.lose(Some(format!("-t {}", shown(other))), "toleration is 0 or 1");
            None
        }
    };
    let reuse = reuse(policy, entry);
    let (sign, encrypt) = (sign?, encrypt?);
    if (sign, encrypt) == ("NONE", "NONE") {
        entry.tell(None, "it neither signs nor encrypts: here such a policy refuses messages that are sealed");
    }
    let mut command = format!("SET POLICY({})", quoted(&policy.name));
    for (keyword, value) in [(DIGESTS.keyword, sign), (CIPHERS.keyword, encrypt)] {
        if value != "NONE" {
            command.push_str(&format!(" {keyword}({value})"));
        }
    }
    command.push_str(&signers?);
    command.push_str(&recipients?);
    command.push_str(&reuse?);
    command.push_str(toleration?);
    Some(command)
}

fn algorithm(
    Algorithms { keyword, flag, same, weak, raised }: &Algorithms,
    given: Option<&str>,
    raise: bool,
    entry: &mut Entry,
) -> Option<&'static str> {
    let given = given.unwrap_or("NONE").to_ascii_uppercase();
    if given == "NONE" {
        return Some("NONE");
    }
    if let Some(same) = same.iter().find(|same| **same == given) {
        return Some(same);
    }
    let about = Some(format!("{flag} {}", shown(&given)));
    if !weak.contains(&given.as_str()) {
        entry.lose(about, format!("{keyword} has no such algorithm"));
        return None;
    }
    if raise {
        entry.tell(about, format!("broken, raised to {keyword}({raised})"));
        return Some(raised);
    }
    entry.lose(about, format!("broken, and not offered; with --raise the policy gets {keyword}({raised})"));
    None
}

/// `-c`: there, too, a key is used for so many more messages.
fn reuse(policy: &ForeignPolicy, entry: &mut Entry) -> Option<String> {
    let given = policy.reuse.as_deref().unwrap_or("0").to_ascii_uppercase();
    let word = match given.as_str() {
        "0" | "DISABLED" => return Some(String::new()),
        "*" | "UNLIMITED" | "-1" => "UNLIMITED".to_owned(),
        count => match count.parse::<u32>() {
            Ok(count) if count <= KEY_REUSE_COUNT_MAX => count.to_string(),
            _ => {
                entry.lose(Some(format!("-c {}", shown(count))), "a count of reuses is 0 to 9999999, or *");
                return None;
            }
        },
    };
    let is_signed = policy.sign.as_deref().is_some_and(|sign| !sign.eq_ignore_ascii_case("NONE"));
    let is_clear = policy.encrypt.as_deref().is_none_or(|encrypt| encrypt.eq_ignore_ascii_case("NONE"));
    if is_signed || is_clear {
        entry.lose(Some(format!("-c {word}")), "keys are used again only where ENCALG is set and SIGNALG is not");
        return Some(String::new());
    }
    Some(format!(" KEYREUSE({word})"))
}

/// `SIGNER('…', '…')`, or nothing where there are no names.
fn names(keyword: &str, given: &[String], entry: &mut Entry) -> Option<String> {
    if given.len() > RECIPIENTS_MAX.max(SIGNERS_MAX) {
        entry.lose(Some(keyword.to_owned()), format!("{} names are too many", given.len()));
        return None;
    }
    let mut taken: Vec<Dn> = Vec::new();
    let mut is_whole = true;
    for name in given {
        match name_of(name) {
            Ok((dn, _)) if taken.contains(&dn) => entry.tell(Some(shown(name)), "named twice"),
            Ok((dn, renamed)) => {
                for (old, new) in renamed {
                    entry.tell(Some(shown(name)), format!("the attribute {old} is written {new} here"));
                }
                taken.push(dn);
            }
            Err(why) => {
                entry
                    .lose(Some(format!("{keyword}({})", shown(name))), format!("not a distinguished name here: {why}"));
                is_whole = false;
            }
        }
    }
    let list: Vec<String> = taken.iter().map(|dn| quoted(dn.as_str())).collect();
    let text = if list.is_empty() { String::new() } else { format!(" {keyword}({})", list.join(", ")) };
    is_whole.then_some(text)
}

/// Attribute types that IBM MQ writes otherwise.
const OTHER_TYPES: [(&str, &str); 8] = [
    ("E", "EMAILADDRESS"),
    ("MAIL", "EMAILADDRESS"),
    ("EMAIL", "EMAILADDRESS"),
    ("USERID", "UID"),
    ("T", "TITLE"),
    ("S", "ST"),
    ("SP", "ST"),
    ("PC", "POSTALCODE"),
];

type Renamed = Vec<(&'static str, &'static str)>;

/// The name, and which of its types were written otherwise.
fn name_of(text: &str) -> Result<(Dn, Renamed), String> {
    if text.chars().any(char::is_control) {
        return Err("it holds control characters".into());
    }
    let mut renamed = Vec::new();
    let mut rewritten = String::with_capacity(text.len());
    let (mut is_escaped, mut is_begin) = (false, true);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if is_begin {
            let blanks = rest.len() - rest.trim_start().len();
            rewritten.push_str(rest.get(..blanks).unwrap_or_default());
            rest = rest.get(blanks..).unwrap_or_default();
            is_begin = false;
            let word: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
            let after = rest.get(word.len()..).unwrap_or_default();
            let other = OTHER_TYPES.iter().find(|(other, _)| other.eq_ignore_ascii_case(&word));
            if let (Some((old, new)), true) = (other, after.trim_start().starts_with('=')) {
                rewritten.push_str(new);
                renamed.push((*old, *new));
                rest = after;
            }
            continue;
        }
        is_begin = matches!(next, ',' | ';' | '+') && !is_escaped;
        is_escaped = next == '\\' && !is_escaped;
        rewritten.push(next);
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
    }
    // DNs of IBM MQ may have blanks around an equals sign; those behind a comma are the parser's business.
    let dn = rewritten.parse::<Dn>().map_err(|error| error.to_string())?;
    Ok((dn, renamed))
}

/// Compares a name with the certificates: it must be the subject of one, in its order and spelling.
fn compare(entry: &mut Entry, dn: &Dn, known: &[Certificate]) {
    if known.iter().any(|certificate| certificate.dn == *dn) {
        return;
    }
    let alike = sorted(dn);
    let about = Some(dn.to_string());
    match known.iter().find(|certificate| sorted(&certificate.dn) == alike) {
        Some(Certificate { dn, place }) => {
            let why =
                format!("no certificate in a key ring here has it; {place} has the same in another order or case");
            entry.tell(about, format!("{why}, so give {}", quoted(dn.as_str())));
        }
        None => entry.tell(about, "no certificate in a key ring here has it"),
    }
}

fn sorted(dn: &Dn) -> Vec<(String, String)> {
    let attributes = dn.attributes().into_iter();
    let mut attributes: Vec<_> =
        attributes.map(|(kind, value)| (kind.to_ascii_lowercase(), value.to_lowercase())).collect();
    attributes.sort();
    attributes
}
