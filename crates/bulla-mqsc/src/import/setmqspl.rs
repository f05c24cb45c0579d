//! What `dspmqspl`, `dspmqspl -export` and DISPLAY POLICY write, to policies as they were there. Nothing is decided
//! here.
//!
//! The syntax is that of the pages on `setmqspl`, `dspmqspl` and SET POLICY in IBM MQ's documentation. DISPLAY POLICY
//! writes names without quotes, so that parentheses are counted to find where one ends.

/// A policy as the text has it.
#[derive(Debug, Default)]
pub(super) struct ForeignPolicy {
    pub(super) line: usize,
    /// `setmqspl`, `dspmqspl` or DISPLAY POLICY, for messages.
    pub(super) from: &'static str,
    pub(super) name: String,
    pub(super) sign: Option<String>,
    pub(super) encrypt: Option<String>,
    pub(super) signers: Vec<String>,
    pub(super) recipients: Vec<String>,
    pub(super) reuse: Option<String>,
    pub(super) toleration: Option<String>,
    /// `-remove`: it takes a policy away.
    pub(super) removes: bool,
    /// What of it is not understood.
    pub(super) unknown: Vec<String>,
}

/// A thing of the text.
#[derive(Debug)]
pub(super) enum Found {
    Policy(ForeignPolicy),
    /// A line that is neither of a policy nor among those which the tools write around them.
    Line {
        line: usize,
        text: String,
    },
}

/// What the tools write around policies, as it begins.
const AROUND: [&str; 15] = [
    "*",
    "#",
    "__",
    "dspmqspl",
    "Exported on",
    "Policy Details",
    "Quality of protection",
    "- - -",
    "---",
    "AMQ",
    "5724-",
    "Starting MQSC",
    "One MQSC command",
    "No commands have",
    "All valid MQSC",
];

pub(super) fn read(text: &str) -> impl Iterator<Item = Found> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line)).peekable();
    std::iter::from_fn(move || {
        loop {
            let (line, text) = lines.next()?;
            let body = text.trim();
            if let Some(arguments) = arguments_of_setmqspl(body) {
                let mut whole = without_continuation(arguments).to_owned();
                let mut continues = continues_line(arguments);
                while let Some((_, next)) =
                    lines.next_if(|(_, next)| continues || next.trim_start().starts_with('-') && !is_rule(next))
                {
                    whole.push(' ');
                    whole.push_str(without_continuation(next.trim()));
                    continues = continues_line(next.trim());
                }
                return Some(Found::Policy(of_arguments(line, &whole)));
            }
            if body.starts_with("POLICY(") {
                let mut whole = body.to_owned();
                while let Some((_, next)) = lines.next_if(|(_, next)| is_attributes(next.trim())) {
                    whole.push(' ');
                    whole.push_str(next.trim());
                }
                return Some(Found::Policy(of_attributes(line, &whole)));
            }
            if let Some(name) = value_after(body, "Policy name") {
                let mut policy =
                    ForeignPolicy { line, from: "dspmqspl", name: name.into(), ..ForeignPolicy::default() };
                let mut names_of = None;
                while let Some((_, next)) = lines.next_if(|(_, next)| !begins_anew(next.trim())) {
                    take_listed(&mut policy, next.trim(), &mut names_of);
                    if is_rule(next) {
                        break;
                    }
                }
                return Some(Found::Policy(policy));
            }
            let is_around = body.is_empty() || is_echo(body) || AROUND.iter().any(|begin| body.starts_with(begin));
            if !is_around {
                return Some(Found::Line { line, text: text.to_owned() });
            }
        }
    })
}

/// What follows `setmqspl`, with or without its folder.
fn arguments_of_setmqspl(line: &str) -> Option<&str> {
    let (program, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let file = program.trim_matches('"').rsplit(['/', '\\']).next()?;
    matches!(file, "setmqspl" | "setmqspl.exe").then_some(rest)
}

/// How shells and batch files continue a line.
fn continues_line(line: &str) -> bool {
    line.ends_with(['\\', '^', '+'])
}

fn without_continuation(line: &str) -> &str {
    if continues_line(line) { line.strip_suffix(['\\', '^', '+']).unwrap_or(line).trim_end() } else { line }
}

/// What ends a policy of a listing: another one, in whatever form, or another tool's output.
fn begins_anew(line: &str) -> bool {
    value_after(line, "Policy name").is_some()
        || line.starts_with("POLICY(")
        || arguments_of_setmqspl(line).is_some()
        || ["AMQ", "5724-", "Starting MQSC", "dspmqspl"].iter().any(|begin| line.starts_with(begin))
}

/// `- - - - -`: what stands between two policies.
fn is_rule(line: &str) -> bool {
    line.bytes().filter(|byte| *byte == b'-').count() >= RULE_DASHES_MIN
        && line.bytes().all(|byte| matches!(byte, b'-' | b' ' | b'\t'))
}

/// Dashes of a line that is nothing else.
const RULE_DASHES_MIN: usize = 3;

/// `     1 : display policy(*)`: the command that is answered.
fn is_echo(line: &str) -> bool {
    line.split_once(" : ").is_some_and(|(number, _)| number.trim().bytes().all(|byte| byte.is_ascii_digit()))
}

/// A line of DISPLAY's answer: it begins with a keyword.
fn is_attributes(line: &str) -> bool {
    let word: String = line.chars().take_while(char::is_ascii_alphabetic).collect();
    let is_keyword = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase()) && word != "POLICY";
    is_keyword && (matches!(line.as_bytes().get(word.len()), Some(b'(')) || SWITCHES.contains(&line))
}

const SWITCHES: [&str; 2] = ["ENFORCE", "TOLERATE"];

fn of_arguments(line: usize, text: &str) -> ForeignPolicy {
    let mut policy = ForeignPolicy { line, from: "setmqspl", ..ForeignPolicy::default() };
    let words = match shell_words(text) {
        Some(words) => words,
        None => {
            policy.unknown.push("a quote that is not closed".into());
            return policy;
        }
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "-remove" {
            policy.removes = true;
            continue;
        }
        // `-t0` and `-t 0` are both written.
        let (flag, joined) = word.split_at_checked(2).unwrap_or((&word, ""));
        let known = matches!(flag, "-m" | "-p" | "-s" | "-e" | "-a" | "-r" | "-t" | "-c");
        let value = if joined.is_empty() && known { words.next() } else { Some(joined.to_owned()) };
        let (true, Some(value)) = (known, value) else {
            policy.unknown.push(word);
            continue;
        };
        match flag {
            "-p" => policy.name = value,
            "-s" => policy.sign = Some(value),
            "-e" => policy.encrypt = Some(value),
            "-a" => policy.signers.push(value),
            "-r" => policy.recipients.push(value),
            "-t" => policy.toleration = Some(value),
            "-c" => policy.reuse = Some(value),
            _ => {} // -m: the queue manager it is of
        }
    }
    policy
}

/// Words as a shell parts them; none where a quote is open.
fn shell_words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match (next, quote) {
            (next, Some(open)) if next == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(next);
                word.get_or_insert_with(String::new);
            }
            ('\\', Some('"')) if matches!(rest.peek(), Some('"' | '\\')) => {
                word.get_or_insert_with(String::new).extend(rest.next());
            }
            (next, None) if next.is_whitespace() => words.extend(word.take()),
            (next, _) => word.get_or_insert_with(String::new).push(next),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

fn of_attributes(line: usize, text: &str) -> ForeignPolicy {
    let mut policy = ForeignPolicy { line, from: "DISPLAY POLICY", ..ForeignPolicy::default() };
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '(' || c.is_whitespace()).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let (value, after) = match after.strip_prefix('(') {
            Some(inside) => match closing(inside) {
                Some(end) => (Some(inside.get(..end).unwrap_or_default()), inside.get(end + 1..).unwrap_or_default()),
                None => {
                    policy.unknown.push(format!("{word} without its closing parenthesis"));
                    return policy;
                }
            },
            None => (None, after),
        };
        rest = after.trim_start();
        take_attribute(&mut policy, word, value.map(unquoted));
    }
    policy
}

/// Where the parenthesis closes that was opened before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// A value without MQSC's quotes.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    match value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')) {
        Some(inside) => inside.replace("''", "'"),
        None => value.into(),
    }
}

pub(super) fn take_attribute(policy: &mut ForeignPolicy, word: &str, value: Option<String>) {
    match (word, value) {
        ("POLICY", Some(value)) => policy.name = value,
        ("SIGNALG", Some(value)) => policy.sign = Some(value),
        ("ENCALG", Some(value)) => policy.encrypt = Some(value),
        ("SIGNER", Some(value)) if value.is_empty() => {}
        ("RECIP", Some(value)) if value.is_empty() => {}
        ("SIGNER", Some(value)) => policy.signers.push(value),
        ("RECIP", Some(value)) => policy.recipients.push(value),
        ("KEYREUSE", Some(value)) => policy.reuse = Some(value),
        ("ENFORCE", None) => policy.toleration = Some("0".into()),
        ("TOLERATE", None) => policy.toleration = Some("1".into()),
        (word, _) => policy.unknown.push(word.into()),
    }
}

/// What follows `KEY:`.
fn value_after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.trim_start().strip_prefix(':').map(str::trim)
}

/// One line of a listing; `names_of` says whose names the lines without a key are.
fn take_listed(policy: &mut ForeignPolicy, line: &str, names_of: &mut Option<Names>) {
    let Some((key, value)) = line.split_once(':').map(|(key, value)| (key.trim(), value.trim())) else {
        let is_none = matches!(line, "" | "-") || is_rule(line);
        match names_of {
            _ if is_none => {}
            Some(Names::Signers) => policy.signers.push(line.into()),
            Some(Names::Recipients) => policy.recipients.push(line.into()),
            None => policy.unknown.push(line.into()),
        }
        return;
    };
    let some = (!matches!(value, "" | "-")).then(|| value.to_owned());
    *names_of = None;
    match key {
        "Quality of protection" => {}
        "Signature algorithm" => policy.sign = some,
        "Encryption algorithm" => policy.encrypt = some,
        "Signer DNs" | "Signer DN" => {
            policy.signers.extend(some);
            *names_of = Some(Names::Signers);
        }
        "Recipient DNs" | "Recipient DN" => {
            policy.recipients.extend(some);
            *names_of = Some(Names::Recipients);
        }
        "Key reuse count" => policy.reuse = some,
        "Toleration" => policy.toleration = some,
        _ => policy.unknown.push(line.into()),
    }
}

/// A list of a listing.
#[derive(Clone, Copy)]
enum Names {
    Signers,
    Recipients,
}
