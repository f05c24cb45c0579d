//! Tables of results within documents that are written by hand: what stands between two markers is made anew, the rest
//! is left alone.
//!
//! `<!-- measured: key-size/results -->` begins such a part and `<!-- /measured -->` ends it, each on a line of its
//! own.

use super::markdown::tabled;
use super::table::Table;

const BEGIN: &str = "<!-- measured: ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- /measured -->";

/// A document with its measured parts made anew.
#[derive(Debug, PartialEq)]
pub struct Renewed {
    /// The document.
    pub text: String,
    /// How many parts were made anew.
    pub parts: usize,
    /// Names for which these results have nothing; what stood there stands there still.
    pub unknown: Vec<String>,
}

/// Makes the measured parts of a document anew. A part gets all tables of its name, and those that continue it
/// (`NAME-2`).
///
/// # Errors
/// In words with the line: a marker without its end, or within another.
pub fn renew(text: &str, tables: &[(String, Table)]) -> Result<Renewed, (usize, String)> {
    let mut renewed = Renewed { text: String::with_capacity(text.len()), parts: 0, unknown: Vec::new() };
    let mut open: Option<(usize, &str, String)> = None;
    for (at, line) in text.split_inclusive('\n').enumerate() {
        let (number, bare) = (at + 1, line.trim());
        let begins = bare.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(BEGIN_END));
        match (open.as_mut(), begins) {
            (Some((since, name, _)), Some(other)) => {
                return Err((number, format!("{other} begins within {name}, which began in line {since}")));
            }
            (None, Some(name)) => {
                renewed.text += line;
                open = Some((number, name, String::new()));
            }
            (Some((_, name, before)), None) if bare == END => {
                let found: Vec<String> =
                    tables.iter().filter(|(known, _)| continues(known, name)).map(|(_, table)| tabled(table)).collect();
                if found.is_empty() {
                    renewed.text += before;
                    renewed.unknown.push((*name).to_owned());
                } else {
                    renewed.text += &found.concat();
                    renewed.text.push('\n');
                    renewed.parts += 1;
                }
                renewed.text += line;
                open = None;
            }
            (Some((_, _, before)), None) => before.push_str(line),
            (None, None) if bare == END => return Err((number, "a measured part ends that did not begin".to_owned())),
            (None, None) => renewed.text += line,
        }
    }
    match open {
        Some((since, name, _)) => Err((since, format!("{name} begins and does not end"))),
        None => Ok(renewed),
    }
}

/// Whether a table belongs under a name: it has it, or it with a number.
fn continues(known: &str, name: &str) -> bool {
    match known.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit())),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::Cell;

    fn tables() -> Vec<(String, Table)> {
        let table =
            |cell: &str| Table { caption: "c".into(), columns: vec!["a".into()], rows: vec![vec![Cell::text(cell)]] };
        vec![
            ("x/rate".into(), table("one")),
            ("x/rate-2".into(), table("two")),
            ("x/rate-by-key".into(), table("other")),
        ]
    }

    #[test]
    fn what_stands_between_markers_is_made_anew_and_the_rest_stays() {
        let text = "words\n<!-- measured: x/rate -->\nold\n<!-- /measured -->\nmore words";
        let renewed = renew(text, &tables()).unwrap();
        assert!(
            renewed.text.starts_with("words\n<!-- measured: x/rate -->\n")
                && renewed.text.ends_with("<!-- /measured -->\nmore words")
        );
        assert!(renewed.text.contains("| one |") && renewed.text.contains("| two |"), "{}", renewed.text);
        assert!(!renewed.text.contains("old") && !renewed.text.contains("other"), "{}", renewed.text);
        assert_eq!(renew(&renewed.text, &tables()).unwrap().text, renewed.text);
    }

    #[test]
    fn what_was_not_measured_again_stays() {
        let text = "<!-- measured: y/rate -->\nold\n<!-- /measured -->\n";
        let renewed = renew(text, &tables()).unwrap();
        assert_eq!((renewed.text.as_str(), renewed.parts, renewed.unknown), (text, 0, vec!["y/rate".to_owned()]));
    }

    #[test]
    fn markers_that_do_not_pair_are_refused_with_their_line() {
        for (text, line) in [
            ("\n<!-- measured: a -->\n", 2),
            ("<!-- /measured -->", 1),
            ("<!-- measured: a -->\n<!-- measured: b -->\n<!-- /measured -->", 2),
        ] {
            assert_eq!(renew(text, &[]).unwrap_err().0, line, "{text}");
        }
    }
}
