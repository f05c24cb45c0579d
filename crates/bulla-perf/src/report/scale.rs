//! From values to pixels, and the round values between.

use super::number::with_decimals;

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Spacing {
    /// Equal differences, equal distances.
    #[default]
    Linear,
    /// Equal ratios, equal distances; only values above zero can be shown.
    Logarithmic,
}

/// From a range of values to a range of pixels.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    spacing: Spacing,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

/// A round value with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The value.
    pub value: f64,
    /// As it is written.
    pub text: String,
}

impl Scale {
    /// A scale for those values, from `start` to `end` in pixels. A linear one contains zero and ends at a round value.
    #[must_use]
    pub fn new(spacing: Spacing, values: impl IntoIterator<Item = f64>, start: f64, end: f64) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|value| super::number::is_plausible(*value)) {
            if spacing == Spacing::Linear || value > 0.0 {
                least = least.min(value);
                most = most.max(value);
            }
        }
        let (from, to) = match spacing {
            Spacing::Linear => {
                let (least, most) = (least.min(0.0), most.max(0.0));
                let most = if least == most { least + 1.0 } else { most };
                let step = step(most - least, 5.0);
                ((least / step).floor() * step, (most / step).ceil() * step)
            }
            Spacing::Logarithmic if least > most => (1.0, 10.0),
            Spacing::Logarithmic => {
                let (low, high) = (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
                (low, if high > low { high } else { low * 10.0 })
            }
        };
        Self { spacing, from, to, start, end }
    }

    /// A linear scale from one value to another, just as they are.
    #[must_use]
    pub fn between(from: f64, to: f64, start: f64, end: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { spacing: Spacing::Linear, from, to, start, end }
    }

    /// The same values between other pixels.
    #[must_use]
    pub fn spread(self, start: f64, end: f64) -> Self {
        Self { start, end, ..self }
    }

    /// Where a value lies, in pixels; what lies beyond an end is at the end.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.spacing {
            Spacing::Linear => (value - self.from) / (self.to - self.from),
            Spacing::Logarithmic => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Round values, at most about so many.
    #[must_use]
    pub fn ticks(&self, about: f64) -> Vec<Tick> {
        match self.spacing {
            Spacing::Linear => {
                let step = step(self.to - self.from, about.max(1.0));
                let decimals = decimals(step);
                let (first, last) = ((self.from / step).ceil() as i64, (self.to / step * (1.0 + 1e-9)).floor() as i64);
                let values = (first..=last).map(|nth| nth as f64 * step);
                values.map(|value| Tick { value, text: with_decimals(value, decimals) }).collect()
            }
            Spacing::Logarithmic => {
                let (first, last) = (self.from.log10().round() as i32, self.to.log10().round() as i32);
                let every = ((f64::from(last - first) / about.max(1.0)).ceil() as usize).max(1);
                let values = (first..=last).step_by(every).map(|power| (power, 10_f64.powi(power)));
                let decimals = |power: i32| usize::try_from(-power).unwrap_or(0);
                values.map(|(power, value)| Tick { value, text: with_decimals(value, decimals(power)) }).collect()
            }
        }
    }
}

/// A round step that cuts a range in at most so many parts, or one more.
fn step(range: f64, parts: f64) -> f64 {
    let rough = (range / parts).max(1e-12);
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|round| round * power)
        .find(|step| *step >= rough * 0.999_999)
        .unwrap_or(rough)
}

/// Digits that a multiple of a round step needs after the point.
fn decimals(step: f64) -> usize {
    (0..12).find(|digits| (step * 10_f64.powi(*digits)).fract().abs() < 1e-6).unwrap_or(12) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale, about: f64) -> Vec<String> {
        scale.ticks(about).into_iter().map(|tick| tick.text).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let scale = Scale::new(Spacing::Linear, [12_965.0, 39_221.0], 0.0, 100.0);
        assert_eq!(texts(&scale, 5.0), ["0", "10,000", "20,000", "30,000", "40,000"]);
        assert_eq!(scale.at(40_000.0), 100.0);
        let scale = Scale::new(Spacing::Linear, [-0.12, 0.2], 0.0, 100.0);
        assert_eq!(texts(&scale, 5.0), ["−0.2", "−0.1", "0.0", "0.1", "0.2"]);
        assert_eq!(
            texts(&Scale::new(Spacing::Logarithmic, [0.0, 0.5, 800.0], 0.0, 1.0), 9.0),
            ["0.1", "1", "10", "100", "1,000"]
        );
    }

    #[test]
    fn whatever_the_values_are_there_is_a_scale() {
        for values in [vec![], vec![0.0], vec![f64::NAN], vec![f64::INFINITY, 1e300], vec![-1e15, 1e15], vec![1e-300]] {
            for spacing in [Spacing::Linear, Spacing::Logarithmic] {
                let scale = Scale::new(spacing, values.clone(), 0.0, 100.0);
                assert!(scale.ticks(5.0).len() < 40, "{values:?} {spacing:?}: {scale:?}");
                assert!(scale.at(1.0).is_finite(), "{values:?} {spacing:?}: {scale:?}");
            }
        }
    }
}
