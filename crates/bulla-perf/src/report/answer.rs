//! The sentence that answers a section's question before its first chart.

use super::field::{Field, differing};
use super::group::Group;
use super::number::{number, with_decimals};
use super::workload::Workload;
use crate::configuration::Quality;
use crate::plan::check::middle;
use crate::run::statistics::Spread;

/// The answer in a sentence; where several groups differ, between which rates they lie, too.
pub(super) fn answer(workload: &Workload, groups: &[&Group]) -> String {
    let first = match workload.0 {
        "key-size" => of_longer_keys(groups),
        "key-reuse" => of_reuse(groups),
        "stream" => of_goals(groups),
        "plan-check" => of_predictions(groups),
        "channel" => of_encryption(groups),
        "islands" => of_protection(groups, &[Field::Topology, Field::Cipher, Field::Certificates]),
        _ => of_protection(groups, &[]),
    };
    let said: Vec<String> = first.into_iter().chain(of_rates(workload, groups)).collect();
    said.join(" ")
}

/// From the least rate to the greatest.
fn of_rates(workload: &Workload, groups: &[&Group]) -> Option<String> {
    let fields = differing(groups);
    let mut rates: Vec<(f64, &&Group)> =
        groups.iter().filter_map(|group| Some((group.rate()?.middle, group))).collect();
    rates.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (least, most) = (rates.first()?, rates.last()?);
    let measure = workload.measure();
    if rates.len() == 1 {
        return Some(format!("{} {measure}.", number(least.0)));
    }
    Some(format!(
        "From {} {measure} ({}) to {} ({}).",
        number(least.0),
        least.1.label(&fields),
        number(most.0),
        most.1.label(&fields)
    ))
}

/// What is left of the rate of other groups: in percent, from the least to the most. Modelled devices are left out,
/// and so is a pair whose two groups differ in more than those fields.
fn left<'a>(
    groups: &[&'a Group],
    but: &[Field],
    before: impl Fn(&Group) -> bool,
    after: impl Fn(&Group) -> bool,
) -> Option<(f64, f64)> {
    let others: Vec<Field> = Field::ALL.into_iter().filter(|field| !but.contains(field)).collect();
    let alike = |one: &Group, other: &Group| others.iter().all(|field| field.short(one) == field.short(other));
    let measured: Vec<&'a Group> = groups.iter().copied().filter(|group| !group.is_modelled()).collect();
    let pairs = measured.iter().filter(|group| after(group)).filter_map(|group| {
        let counterpart = measured.iter().find(|other| before(other) && alike(group, other))?;
        Some(group.rate()?.middle / counterpart.rate()?.middle).filter(|part| part.is_finite())
    });
    let parts = Spread::of(pairs)?;
    Some((parts.least, parts.most))
}

/// `18 %`, or `18 % to 25 %`.
fn percents((least, most): (f64, f64)) -> String {
    let [least, most] = [least, most].map(|part| {
        let percent = 100.0 * part;
        with_decimals(percent, usize::from(percent < 10.0))
    });
    if least == most { format!("{least} %") } else { format!("{least} % to {most} %") }
}

fn of_longer_keys(groups: &[&Group]) -> Option<String> {
    let key = |name: &'static str| move |group: &Group| group.configuration.key == name;
    let parts = left(groups, &[Field::Key, Field::InFlight], key("rsa2048"), key("rsa4096"))?;
    Some(format!("With RSA 4096 the rate is {} of that with RSA 2048.", percents(parts)))
}

fn of_reuse(groups: &[&Group]) -> Option<String> {
    let most = groups.iter().max_by(|one, other| Field::Reuse.rank(one).total_cmp(&Field::Reuse.rank(other)))?;
    let reuse = most.configuration.reuse;
    let new_each_time = |group: &Group| Field::Reuse.rank(group) == 0.0;
    let again = |group: &Group| !new_each_time(group) && group.configuration.reuse == reuse;
    let (least, most) = left(groups, &[Field::Reuse, Field::InFlight], new_each_time, again)?;
    let [least, most] = [least, most].map(|times| with_decimals(times, 1));
    let times = if least == most { least } else { format!("{least} to {most}") };
    Some(format!(
        "KEYREUSE({}) gives {times} times the rate of a new key for each message.",
        reuse.to_string().to_uppercase()
    ))
}

fn of_goals(groups: &[&Group]) -> Option<String> {
    let aimed: Vec<&&Group> =
        groups.iter().filter(|group| group.samples.iter().any(|sample| sample.goal.is_some())).collect();
    let held = |group: &&&&Group| {
        let goals: Vec<bool> = group.samples.iter().filter_map(|sample| Some(sample.goal.as_ref()?.held)).collect();
        2 * goals.iter().filter(|held| **held).count() > goals.len()
    };
    let held = aimed.iter().filter(held).count();
    (!aimed.is_empty()).then(|| format!("{held} of {} configurations held the rate that was asked for.", aimed.len()))
}

fn of_encryption(groups: &[&Group]) -> Option<String> {
    let in_clear = |group: &Group| group.configuration.cipher.is_empty();
    let but = [Field::Cipher, Field::Certificates, Field::Reset, Field::Key];
    let parts = left(groups, &but, in_clear, |group| !in_clear(group))?;
    Some(format!("TLS leaves {} of the rate without it.", percents(parts)))
}

/// `more` is what differs beside the protection itself where messages are not protected.
fn of_protection(groups: &[&Group], more: &[Field]) -> Option<String> {
    let plain = |group: &Group| group.configuration.quality == Quality::None;
    let but = [&[Field::Quality, Field::Key, Field::Reuse, Field::InFlight, Field::Recipients], more].concat();
    let parts = left(groups, &but, plain, |group| !plain(group))?;
    Some(format!("Protection leaves {} of the unprotected rate.", percents(parts)))
}

fn of_predictions(groups: &[&Group]) -> Option<String> {
    let errors = groups.iter().filter_map(|group| {
        let sample = middle(&group.samples)?;
        Some((sample.predicted.as_ref()?.rate / sample.rate - 1.0).abs()).filter(|error| error.is_finite())
    });
    let errors = Spread::of(errors)?;
    let percent = |part: f64| with_decimals(100.0 * part, 1);
    Some(format!(
        "Half of the predicted rates were off by less than {} %, the worst by {} %.",
        percent(errors.median),
        percent(errors.most)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Configuration, Reuse};
    use crate::result::{Goal, Sample};

    /// Invented.
    fn group(workload: &str, rate: f64, configuration: Configuration) -> Group {
        let sample = Sample { rate, ..Sample::default() };
        Group { workload: workload.into(), configuration, setting: 0, samples: vec![sample] }
    }

    fn said(workload: &str, groups: &[Group]) -> String {
        answer(&Workload(workload), &groups.iter().collect::<Vec<_>>())
    }

    fn keyed(quality: Quality, key: &str, in_flight: u32) -> Configuration {
        Configuration { quality, key: key.into(), in_flight, ..Configuration::default() }
    }

    #[test]
    fn a_longer_key_is_compared_whatever_the_window() {
        let groups = [
            group("key-size", 4000.0, keyed(Quality::Integrity, "rsa2048", 128)),
            group("key-size", 800.0, keyed(Quality::Integrity, "rsa4096", 64)),
            group("key-size", 2000.0, keyed(Quality::Privacy, "rsa2048", 128)),
            group("key-size", 500.0, keyed(Quality::Privacy, "rsa4096", 64)),
        ];
        let said = said("key-size", &groups);
        assert!(said.starts_with("With RSA 4096 the rate is 20 % to 25 % of that with RSA 2048. From 500 "), "{said}");
    }

    #[test]
    fn protection_is_compared_with_messages_of_the_same_size() {
        let sized = |rate, quality, bytes| {
            group("request-reply", rate, Configuration { quality, bytes, ..Configuration::default() })
        };
        let groups = [
            sized(1000.0, Quality::None, 2048),
            sized(100.0, Quality::None, 65_536),
            sized(500.0, Quality::Privacy, 2048),
            sized(90.0, Quality::Privacy, 65_536),
        ];
        let said = said("request-reply", &groups);
        assert!(said.starts_with("Protection leaves 50 % to 90 % of the unprotected rate. From 90 "), "{said}");
    }

    #[test]
    fn reuse_is_said_in_times() {
        let reused = |rate, reuse| {
            let configuration =
                Configuration { quality: Quality::Confidentiality, reuse, pairs: 5, ..Configuration::default() };
            group("key-reuse", rate, configuration)
        };
        let groups = [reused(100.0, Reuse::Times(0)), reused(150.0, Reuse::Times(1)), reused(450.0, Reuse::Unlimited)];
        let said = said("key-reuse", &groups);
        assert!(said.starts_with("KEYREUSE(UNLIMITED) gives 4.5 times the rate"), "{said}");
    }

    #[test]
    fn a_stream_says_whether_its_rate_was_held() {
        let mut groups = [10.0, 9.0].map(|rate| group("stream", rate, Configuration::default()));
        for (group, held) in groups.iter_mut().zip([true, false]) {
            group.samples[0].goal = Some(Goal { held, ..Goal::default() });
        }
        let said = said("stream", &groups);
        assert!(said.starts_with("1 of 2 configurations held the rate that was asked for."), "{said}");
    }

    #[test]
    fn nothing_to_compare_leaves_the_rates() {
        let said = said("tasks", &[group("tasks", 12.0, Configuration::default())]);
        assert_eq!(said, "12 round trips a second.");
    }
}
