//! The highest values of the past, so that the highest one since any moment is known without keeping every value.

use std::fmt;

/// Records that are kept. One is there for each value that no later one has reached: of values that come in any order
/// their number grows as the logarithm of how many there were.
pub const PEAKS_MAX: usize = 64;

/// A value and when it was seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peak {
    /// Milliseconds since 1970, UTC.
    pub at_ms: u64,
    /// The value.
    pub value: u64,
}

/// Values, of which each is forgotten once a later one is as high: what is left falls with time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Peaks {
    records: Vec<Peak>,
}

impl Peaks {
    /// Notes a value. Zero is none; times never go back.
    pub fn note(&mut self, at_ms: u64, value: u64) {
        if value == 0 {
            return;
        }
        let at_ms = self.records.last().map_or(at_ms, |last| last.at_ms.max(at_ms));
        while self.records.pop_if(|last| last.value <= value).is_some() {}
        self.records.push(Peak { at_ms, value });
        if self.records.len() > PEAKS_MAX {
            // The highest of all stays; a query from just after it on gets the next one.
            self.records.remove(1);
        }
    }

    /// Notes what `later` did, all of it after what is here.
    pub fn extend(&mut self, later: &Peaks) {
        for peak in &later.records {
            self.note(peak.at_ms, peak.value);
        }
    }

    /// The highest value after that moment; none where none was seen.
    pub fn after(&self, at_ms: u64) -> Option<Peak> {
        self.records.iter().copied().find(|peak| peak.at_ms > at_ms)
    }

    /// What came after that moment.
    #[must_use]
    pub fn since(&self, at_ms: u64) -> Peaks {
        Peaks { records: self.records.iter().copied().filter(|peak| peak.at_ms > at_ms).collect() }
    }

    /// Out of what [`Display`](fmt::Display) wrote; none when it was written by something else.
    pub fn from_text(text: &str) -> Option<Peaks> {
        let mut peaks = Peaks::default();
        for record in text.split(',').filter(|record| !record.is_empty()) {
            let (at, value) = record.split_once(':')?;
            peaks.note(at.parse().ok()?, value.parse().ok()?);
        }
        Some(peaks)
    }
}

impl fmt::Display for Peaks {
    /// `AT:VALUE,AT:VALUE`, the highest first; nothing where there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, peak) in self.records.iter().enumerate() {
            write!(f, "{}{}:{}", if place > 0 { "," } else { "" }, peak.at_ms, peak.value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_value_after_any_moment_is_known() {
        let values = [3, 9, 1, 0, 7, 7, 2, 5, 4];
        let mut peaks = Peaks::default();
        for (at, value) in (1..).zip(values) {
            peaks.note(at, value);
        }
        for after in 0..=values.len() {
            let highest = values.iter().skip(after).copied().max().filter(|highest| *highest > 0);
            assert_eq!(peaks.after(after as u64).map(|peak| peak.value), highest, "after {after}");
        }
        assert_eq!(peaks.after(2), Some(Peak { at_ms: 6, value: 7 }), "of equals the later one");
        assert_eq!(Peaks::from_text(&peaks.to_string()), Some(peaks.clone()));
        assert_eq!(peaks.to_string(), "2:9,6:7,8:5,9:4");
        assert_eq!(peaks.since(6).to_string(), "8:5,9:4");
        for wrong in ["1", "1:", ":1", "a:1", "1:1;2:2"] {
            assert_eq!(Peaks::from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn of_too_many_the_highest_and_the_latest_stay() {
        let mut peaks = Peaks::default();
        let count = 3 * PEAKS_MAX as u64;
        for at in 0..count {
            peaks.note(at, count - at);
        }
        assert_eq!(peaks.records.len(), PEAKS_MAX);
        assert_eq!(peaks.since(0).records.len(), PEAKS_MAX - 1);
        assert_eq!(peaks.records.first(), Some(&Peak { at_ms: 0, value: count }));
        assert_eq!(peaks.after(count - 2), Some(Peak { at_ms: count - 1, value: 1 }));
    }

    #[test]
    fn a_clock_that_was_set_back_disorders_nothing() {
        let mut peaks = Peaks::default();
        peaks.note(100, 5);
        peaks.note(50, 3);
        assert_eq!(peaks.to_string(), "100:5,100:3");
    }
}
