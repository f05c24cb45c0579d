//! Text from a file, made harmless for the place where it is shown.

/// For HTML and SVG, in elements and in quoted attributes. What no page may hold (controls) and what would turn the
/// direction of reading round becomes U+FFFD.
#[must_use]
pub fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(shown(other)),
        }
    }
    out
}

/// For a cell of a Markdown table, or a line: one line, and nothing in it is markup.
#[must_use]
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' | '\u{a0}' => out.push(' '),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(character);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            other => out.push(shown(other)),
        }
    }
    out
}

/// For a CSV cell (RFC 4180): quoted where it must be, and with an apostrophe before what a spreadsheet would take for
/// a formula.
#[must_use]
pub fn csv(text: &str) -> String {
    let formula = text.trim_start().starts_with(['=', '+', '-', '@', '|', '%']) || text.starts_with(['\t', '\r', '\n']);
    let text: String = formula
        .then_some('\'')
        .into_iter()
        .chain(text.chars().map(|letter| if letter == '\u{a0}' { ' ' } else { shown(letter) }))
        .collect();
    if text.contains(['"', ',', '\n', '\'']) || text.trim() != text {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

/// A name for the anchor of a page or for a file: lower-case letters, digits and dashes.
#[must_use]
pub fn name(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => out.push(letter),
            _ if !out.ends_with('-') && !out.is_empty() => out.push('-'),
            _ => {}
        }
    }
    out.truncate(out.trim_end_matches('-').len());
    if out.is_empty() { "unnamed".to_owned() } else { out }
}

/// The character, or U+FFFD for one that no page may hold or that changes how its neighbours are read.
fn shown(character: char) -> char {
    match character {
        '\n' | '\t' => character,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}' => '\u{fffd}',
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        character if character.is_control() => '\u{fffd}',
        character => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        assert_eq!(
            html("</title><script>'\"&\u{0}\u{202e}"),
            "&lt;/title&gt;&lt;script&gt;&#39;&quot;&amp;\u{fffd}\u{fffd}"
        );
        assert_eq!(markdown("a|b\n<i>*x*"), "a\\|b &lt;i&gt;\\*x\\*");
    }

    #[test]
    fn a_formula_is_text_to_a_spreadsheet() {
        for formula in ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r=1"] {
            assert!(csv(formula).starts_with("\"'"), "{formula:?}: {}", csv(formula));
        }
        assert_eq!(csv("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv("plain"), "plain");
    }

    #[test]
    fn a_name_is_one_everywhere() {
        assert_eq!(name("Rate by key size: 2 KB"), "rate-by-key-size-2-kb");
        assert_eq!(name("../../etc/passwd"), "etc-passwd");
        assert_eq!(name("„“"), "unnamed");
    }
}
