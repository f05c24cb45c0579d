//! How long things took, counted: a histogram that is small, adds up, and can be subtracted.

use std::fmt;

/// Buckets of one power of two. A bucket is at most a sixteenth of its smallest value wide, so that a
/// quantile is at most 6.25 % too high.
const BUCKETS_PER_POWER: usize = 16;
const BUCKETS_PER_POWER_LOG2: u32 = BUCKETS_PER_POWER.trailing_zeros();
/// Values from this power of two up share the last bucket: 2^44 ns are 4.9 hours.
const POWER_MAX: u32 = 44;
/// Buckets in all: one for each value below 16, then 16 for each power of two, then the last one.
const BUCKETS: usize = BUCKETS_PER_POWER * (1 + (POWER_MAX - BUCKETS_PER_POWER_LOG2) as usize) + 1;

/// Nanoseconds, counted in log-linear buckets: each value below 16 has a bucket of its own, each power
/// of two above has 16. All numbers are cumulative, so that [`since`](Histogram::since) of two copies is
/// what happened between them.
///
/// It holds the buckets between the smallest and the largest value seen, and nothing while it is
/// empty. [`record`](Histogram::record) is a shift and an addition; it allocates only for a value outside
/// what was seen before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The bucket that `counts` begins with.
    first: usize,
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Histogram {
    /// An empty one.
    pub const fn new() -> Histogram {
        Histogram { first: 0, counts: Vec::new(), count: 0, sum: 0, max: 0 }
    }

    /// Counts one value, in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.add(bucket_of(ns), 1);
        self.sum = self.sum.saturating_add(ns);
        self.max = self.max.max(ns);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of the values in nanoseconds, exact up to 584 years.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest value in nanoseconds; 0 when there is none. Exact, but for a difference whose largest value
    /// is not the largest ever: then it is the upper end of its bucket.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean in nanoseconds; 0 when there is no value.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The value in nanoseconds that the share `q` of all values (0.99, say) does not exceed: the upper end of
    /// its bucket, never more than [`max`](Self::max). 0 when there is no value; `q` outside 0 to 1 is taken
    /// as the nearer end.
    pub fn quantile(&self, q: f64) -> u64 {
        // The saturating conversion takes care of NaN and of what is out of range.
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0_u64;
        for (upper, count) in self.buckets() {
            seen = seen.saturating_add(count);
            if seen >= rank {
                return upper.min(self.max);
            }
        }
        self.max
    }

    /// The buckets that hold something, in order: the largest value in nanoseconds that belongs into it, and
    /// how many are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(at, count)| (upper_end(self.first + at), *count))
    }

    /// What was counted after `earlier`, an older copy of this very histogram. Where `earlier` has more (it
    /// was counted anew in between), nothing is left over.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut between = Histogram::new();
        let mut top = None;
        for (at, count) in self.counts.iter().enumerate() {
            let bucket = self.first + at;
            let count = count.saturating_sub(earlier.in_bucket(bucket));
            if count > 0 {
                between.add(bucket, count);
                top = Some(bucket);
            }
        }
        between.sum = if between.count == 0 { 0 } else { self.sum.saturating_sub(earlier.sum) };
        between.max = match top {
            None => 0,
            Some(_) if self.max > earlier.max => self.max,
            Some(bucket) => upper_end(bucket).min(self.max),
        };
        between
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (at, count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(other.first + at, *count);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// As one word: `sum=NS,max=NS` and then `,BUCKET:COUNT` for each bucket that holds something. An empty one
    /// is `sum=0,max=0`.
    pub fn to_text(&self) -> String {
        let mut text = format!("sum={},max={}", self.sum, self.max);
        for (at, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            text.push_str(&format!(",{}:{count}", self.first + at));
        }
        text
    }

    /// Out of [`to_text`](Self::to_text).
    ///
    /// # Errors
    /// [`HistogramText`] when it was not written by it.
    pub fn from_text(text: &str) -> Result<Histogram, HistogramText> {
        let mut parts = text.split(',');
        let mut named = |name: &str| {
            let number = parts.next().and_then(|part| part.strip_prefix(name)?.strip_prefix('=')).and_then(number);
            number.ok_or(HistogramText)
        };
        let (sum, max) = (named("sum")?, named("max")?);
        let mut read = Histogram::new();
        let mut last = None;
        for part in parts {
            let (bucket, count) = part.split_once(':').ok_or(HistogramText)?;
            let bucket = number(bucket).and_then(|bucket| usize::try_from(bucket).ok()).ok_or(HistogramText)?;
            let count = number(count).filter(|count| *count > 0).ok_or(HistogramText)?;
            if bucket >= BUCKETS || last.is_some_and(|last| last >= bucket) || read.count.checked_add(count).is_none() {
                return Err(HistogramText);
            }
            read.add(bucket, count);
            last = Some(bucket);
        }
        // The largest value lies in the last bucket; of no values there is neither sum nor largest.
        let fits = match last {
            None => sum == 0 && max == 0,
            Some(last) => bucket_of(max) == last && sum >= lower_end(last),
        };
        (read.sum, read.max) = (sum, max);
        if fits { Ok(read) } else { Err(HistogramText) }
    }

    fn in_bucket(&self, bucket: usize) -> u64 {
        bucket.checked_sub(self.first).and_then(|at| self.counts.get(at)).copied().unwrap_or(0)
    }

    fn add(&mut self, bucket: usize, count: u64) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            self.counts.splice(0..0, std::iter::repeat_n(0, self.first - bucket));
            self.first = bucket;
        }
        let at = bucket - self.first;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] = self.counts[at].saturating_add(count);
        self.count = self.count.saturating_add(count);
    }
}

/// Which bucket counts this value.
fn bucket_of(ns: u64) -> usize {
    if ns < BUCKETS_PER_POWER as u64 {
        return ns as usize;
    }
    let power = ns.ilog2();
    if power >= POWER_MAX {
        return BUCKETS - 1;
    }
    // The four bits behind the leading one.
    let within = (ns >> (power - BUCKETS_PER_POWER_LOG2)) as usize - BUCKETS_PER_POWER;
    BUCKETS_PER_POWER * (1 + (power - BUCKETS_PER_POWER_LOG2) as usize) + within
}

/// The smallest value of a bucket.
fn lower_end(bucket: usize) -> u64 {
    if bucket < BUCKETS_PER_POWER {
        return bucket as u64;
    }
    let power = bucket / BUCKETS_PER_POWER - 1;
    ((BUCKETS_PER_POWER + bucket % BUCKETS_PER_POWER) as u64) << power
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    if bucket >= BUCKETS - 1 { u64::MAX } else { lower_end(bucket + 1) - 1 }
}

/// Digits alone, as [`Histogram::to_text`] writes them: no sign, no surplus zero.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    if digits { text.parse().ok() } else { None }
}

/// The writer's turn: this is not the text of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramText;

impl std::error::Error for HistogramText {}

impl fmt::Display for HistogramText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not the text of a histogram")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn buckets_touch_each_other_and_are_a_sixteenth_wide_at_most() {
        for bucket in 0..BUCKETS - 1 {
            let (lower, upper) = (lower_end(bucket), upper_end(bucket));
            assert_eq!((bucket_of(lower), bucket_of(upper)), (bucket, bucket));
            assert_eq!(lower_end(bucket + 1), upper + 1);
            assert!(upper - lower <= lower / 16, "{lower} to {upper}");
        }
        assert_eq!(lower_end(BUCKETS - 1), 1 << POWER_MAX);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_is_never_too_low_and_at_most_a_sixteenth_too_high() {
        let mut random = fastrand::Rng::with_seed(1);
        // From nanoseconds to minutes, as often in each power of two.
        let mut values: Vec<u64> = (0..5000).map(|_| random.u64(..1 << 44) >> random.u32(..40)).collect();
        let histogram = of(&values);
        values.sort_unstable();
        for q in [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = values[((q * 5000.0_f64).ceil() as usize).max(1) - 1];
            let told = histogram.quantile(q);
            assert!(exact <= told && told <= exact + exact / 16, "{q}: {exact} told as {told}");
        }
        assert_eq!(histogram.quantile(1.0), histogram.max());
        assert_eq!((histogram.count(), histogram.sum()), (5000, values.iter().sum()));
    }

    #[test]
    fn an_empty_histogram_answers_zero_everywhere() {
        let empty = Histogram::new();
        assert_eq!((empty.count(), empty.sum(), empty.max(), empty.quantile(0.99)), (0, 0, 0, 0));
        assert_eq!((empty.mean(), empty.quantile(f64::NAN)), (0.0, 0));
        assert_eq!(empty.buckets().count(), 0);
    }

    #[test]
    fn the_difference_of_two_copies_is_what_happened_between_them() {
        let mut histogram = of(&[3, 500, 1_000_000]);
        let earlier = histogram.clone();
        [7, 500, 520, 40_000].iter().for_each(|value| histogram.record(*value));
        let between = histogram.since(&earlier);
        assert_eq!((between.count(), between.sum()), (4, 41_027));
        // The largest of the four is known by its bucket alone.
        assert!((40_000..=42_500).contains(&between.max()), "{}", between.max());
        assert_eq!(between.quantile(0.25), 7);
        histogram.record(2_000_000);
        assert_eq!(histogram.since(&earlier).max(), 2_000_000);
        assert_eq!(histogram.since(&histogram), Histogram::new());
        assert_eq!(histogram.since(&Histogram::new()), histogram);
        // Counted anew in between: nothing negative.
        assert_eq!(of(&[500]).since(&histogram).count(), 0);
    }

    #[test]
    fn merging_counts_both_whichever_has_the_smaller_values() {
        let (small, large) = (of(&[1, 2, 3]), of(&[1_000, 90_000, u64::MAX]));
        let (mut one, mut other) = (small.clone(), large.clone());
        one.merge(&large);
        other.merge(&small);
        assert_eq!(one, other);
        assert_eq!((one.count(), one.max(), one.sum()), (6, u64::MAX, u64::MAX));
    }

    #[test]
    fn the_text_gives_the_same_histogram_back_and_nothing_else_is_read() {
        for histogram in [Histogram::new(), of(&[0]), of(&[15, 16, 17, 1 << 50]), of(&[5, 5, 1_000_000])] {
            assert_eq!(Histogram::from_text(&histogram.to_text()), Ok(histogram));
        }
        assert_eq!(of(&[5, 5, 20]).to_text(), "sum=30,max=20,5:2,20:1");
        for text in [
            "",
            "sum=1",
            "sum=0,max=0,",
            "sum=0,max=5",
            "sum=5,max=5",
            "sum=5,max=5,5:0",
            "sum=10,max=5,5:1,5:1",
            "sum=9,max=5,5:1,4:1",
            "sum=5,max=6,5:1",
            "sum=4,max=5,5:1",
            "sum=+5,max=5,5:1",
            "sum=5,max=5,05:1",
            "sum=5,max=5,99999:1",
            "sum=5,max=5,4:18446744073709551615,5:1",
            "sum=5,max=5,5",
        ] {
            assert_eq!(Histogram::from_text(text), Err(HistogramText), "{text}");
        }
    }
}
