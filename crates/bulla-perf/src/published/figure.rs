//! A figure of a published study.

use crate::report::number::number;

/// Where a figure has its value from; shown with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mark {
    /// It was published.
    Published,
    /// It follows from what was published.
    Derived,
}

impl Mark {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Mark::Published => "published",
            Mark::Derived => "derived",
        }
    }
}

/// What a figure says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Told {
    /// A number, in the unit of its column.
    Number(f64),
    /// What was published in words: `more than 5 ×`.
    Words(&'static str),
}

/// A figure of a study. Where the study has none, or none is known to us, there is no figure: no cell is guessed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// What it says.
    pub told: Told,
    /// Where it has it from.
    pub mark: Mark,
}

impl Figure {
    /// A published number.
    #[must_use]
    pub const fn published(number: f64) -> Figure {
        Figure { told: Told::Number(number), mark: Mark::Published }
    }

    /// A number that follows from published ones.
    #[must_use]
    pub const fn derived(number: f64) -> Figure {
        Figure { told: Told::Number(number), mark: Mark::Derived }
    }

    /// Published words; no figure where there are none.
    #[must_use]
    pub fn words(words: &'static str) -> Option<Figure> {
        (!words.is_empty()).then_some(Figure { told: Told::Words(words), mark: Mark::Published })
    }

    /// Its number, where it is one.
    #[must_use]
    pub const fn number(&self) -> Option<f64> {
        match self.told {
            Told::Number(number) => Some(number),
            Told::Words(_) => None,
        }
    }

    /// With its mark: `1,342 (published)`.
    #[must_use]
    pub fn shown(&self) -> String {
        let told = match self.told {
            Told::Number(value) => number(value),
            Told::Words(words) => words.to_owned(),
        };
        format!("{told} ({})", self.mark.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_never_shown_without_its_mark() {
        assert_eq!(Figure::published(1342.0).shown(), "1,342 (published)");
        assert_eq!(Figure::derived(0.596).shown(), "0.596 (derived)");
        assert_eq!(Figure::words("6 ×").map(|figure| figure.shown()).as_deref(), Some("6 × (published)"));
        assert_eq!(Figure::words(""), None);
    }
}
