//! How wide a text is, before anything draws it.
//!
//! A page is read with whatever sans-serif its reader has. The table is that of DejaVu Sans, which is wider than Arial,
//! Helvetica, Roboto, Segoe UI and San Francisco, so that what fits here fits there.

/// The height of text in charts, in pixels of the drawing.
pub const TEXT_HEIGHT: f64 = 12.0;

/// Thousandths of the text's height, from the space to the tilde.
#[rustfmt::skip]
const ASCII: [u16; 95] = [
    // space ! " # $ % & ' ( ) * + , - . /
    318, 401, 460, 838, 636, 951, 780, 275, 391, 391, 500, 838, 318, 361, 318, 337,
    // 0 to 9, : ; < = > ?
    637, 637, 637, 637, 637, 637, 637, 637, 637, 637, 337, 337, 838, 838, 838, 531,
    // @, A to O
    1000, 685, 687, 699, 771, 632, 576, 775, 752, 295, 295, 656, 558, 863, 749, 788,
    // P to Z, [ \ ] ^ _
    604, 788, 695, 635, 611, 732, 685, 989, 686, 611, 686, 391, 337, 391, 838, 500,
    // `, a to o
    500, 613, 635, 550, 635, 616, 353, 635, 634, 278, 278, 580, 278, 975, 634, 612,
    // p to z, { | } ~
    635, 635, 412, 521, 393, 634, 592, 818, 592, 592, 525, 637, 337, 637, 838,
];
/// Letters beyond ASCII, Latin, Greek and Cyrillic.
const LETTER: u16 = 840;
/// Signs of other scripts.
const SIGN: u16 = 1100;

/// The width of a text in pixels of the drawing; rather more than less.
#[must_use]
pub fn width(text: &str) -> f64 {
    let thousandths: f64 = text.chars().map(|character| f64::from(of(character))).sum();
    thousandths / 1000.0 * TEXT_HEIGHT
}

fn of(character: char) -> u16 {
    match u32::from(character) {
        code @ 0x20..=0x7e => ASCII[(code - 0x20) as usize],
        0..0x500 => LETTER,
        0x2013 | 0x2026 | 0x2212 => 1000,
        _ => SIGN,
    }
}

/// The text, or as much of it as fits with an ellipsis.
#[must_use]
pub fn fitted(text: &str, room: f64) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = width("…");
    for character in text.chars() {
        used += f64::from(of(character)) / 1000.0 * TEXT_HEIGHT;
        if used > room {
            break;
        }
        out.push(character);
    }
    out.truncate(out.trim_end().len());
    out + "…"
}

/// The text in lines that fit, broken between words; a word that does not fit has an ellipsis.
#[must_use]
pub fn lines(text: &str, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line) + width(" ") + width(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(fitted(word, room)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_fits_and_says_so() {
        let long = "a name that goes on and on and does not end before the page does";
        let cut = fitted(long, 100.0);
        assert!(cut.ends_with('…') && width(&cut) <= 100.0, "{cut}");
        assert_eq!(fitted("short", 100.0), "short");
        assert!(lines(long, 100.0).iter().all(|line| width(line) <= 100.0));
        assert_eq!(lines(long, 1000.0), [long]);
    }
}
