//! Percent-encoding, of paths, queries and texts in headers (RFC 3986, section 2.1).

use bulla_http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What does not stand in a header as it is. Surrounding white space would be taken off, so spaces are among it.
const NOT_IN_HEADERS: &AsciiSet = &CONTROLS.add(b'%').add(b' ');

/// The text, with its percent-encodings taken off. None where that is no UTF-8.
pub(super) fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

/// A header's value that says the text, whatever is in it.
pub(super) fn header(text: &str) -> HeaderValue {
    let encoded = utf8_percent_encode(text, NOT_IN_HEADERS).to_string();
    // Nothing but visible ASCII is left.
    HeaderValue::new(encoded).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_begins_another_header() {
        for text in ["a\r\nb: c", " lead", "50%", "gr\u{fc}n", "\0\u{7f}", "plain"] {
            let value = header(text);
            let value = std::str::from_utf8(value.as_bytes()).unwrap();
            assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value}");
            assert_eq!(decoded(value).as_deref(), Some(text));
        }
    }
}
