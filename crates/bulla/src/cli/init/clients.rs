//! How clients connect: programs that put a message and get it, to be pasted as they stand.

use super::build;
use super::plan::Outline;
use clap::ValueEnum;
use std::fmt::Write;
use std::path::Path;

/// A client with an example.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Client {
    /// This program
    Bulla,
    /// python-qpid-proton
    Proton,
    /// Qpid JMS
    Jms,
    /// AMQPNetLite
    Dotnet,
    /// rhea, for Node.js
    Rhea,
    /// go-amqp
    Go,
}

/// Name, what it needs, and the example.
const EXAMPLES: [(Client, &str, &str); 6] = [
    (Client::Bulla, "bulla", include_str!("clients/bulla.sh")),
    (Client::Proton, "Python: python-qpid-proton", include_str!("clients/proton.sh")),
    (Client::Jms, "Java: Qpid JMS", include_str!("clients/jms.sh")),
    (Client::Dotnet, ".NET: AMQPNetLite (not run by the tests)", include_str!("clients/dotnet.sh")),
    (Client::Rhea, "Node.js: rhea", include_str!("clients/rhea.sh")),
    (Client::Go, "Go: go-amqp", include_str!("clients/go.sh")),
];

/// The examples of these clients, or of all.
pub(super) fn examples(data: &Path, outline: &Outline, only: &[Client]) -> String {
    let Some([queue, putter, getter]) = &outline.shown else {
        return "\nNo queue has a user who puts and one who gets: there is no example to show.\n".to_owned();
    };
    let password = |user: &String| {
        let given = outline.passwords.get(user).cloned().flatten();
        given.unwrap_or_else(|| build::password_file(data, user)).display().to_string()
    };
    let host = &outline.host;
    let in_url = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let port = outline.listen.amqps.port();
    let trust_store = build::trust_store(data).display().to_string();
    let values = [
        ("queue", queue.clone()),
        ("putter", putter.clone()),
        ("getter", getter.clone()),
        ("putter's password", password(putter)),
        ("getter's password", password(getter)),
        ("host", host.clone()),
        ("port", port.to_string()),
        ("address", format!("{in_url}:{port}")),
        ("ca", build::authority_file(data).display().to_string()),
        (
            "trust store in a URI",
            percent_encoding::utf8_percent_encode(&trust_store, percent_encoding::NON_ALPHANUMERIC).to_string(),
        ),
    ];
    let mut text = String::new();
    for (client, name, example) in EXAMPLES {
        if only.is_empty() || only.contains(&client) {
            // What stands in a program is a literal there; in a command, a word.
            let written = if client == Client::Bulla { shell_word } else { literal };
            // Into a string: cannot fail.
            let _ = write!(text, "\n## {name}\n\n```sh\n{}```\n", filled(example, &values, written));
        }
    }
    text
}

/// Puts values where their names stand between « and ».
fn filled(template: &str, values: &[(&str, String)], written: fn(&str) -> String) -> String {
    let mut text = String::new();
    for (at, part) in template.split(['«', '»']).enumerate() {
        let value = values.iter().find(|(name, _)| at % 2 == 1 && *name == part);
        text.push_str(&value.map_or_else(|| part.to_owned(), |(_, value)| written(value)));
    }
    text
}

/// A string literal, in double quotes, of Python, Java, C#, JavaScript and Go.
fn literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A word of a shell's command.
pub(super) fn shell_word(text: &str) -> String {
    match !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-@:,+=".contains(&b)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
