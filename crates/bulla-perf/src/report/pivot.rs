//! Groups laid out along one part of their configuration.

use super::field::{Field, differing, words};
use super::group::Group;

/// Most rows that a chart shows.
const ROWS_MAX: usize = 6;

/// Groups that differ in what lies along an axis and in what names their rows, and in nothing else.
#[derive(Debug)]
pub(super) struct Pivot<'a> {
    /// What they have in common and other charts of the kind have not; empty where there is no other.
    pub(super) facet: String,
    /// What lies along the axis.
    pub(super) names: Vec<String>,
    /// The rows with their names: a group for each name, or none.
    pub(super) rows: Vec<(String, Vec<Option<&'a Group>>)>,
    /// The numbers of messages in flight, where they differ and follow from the rest of the configuration.
    pub(super) windows: Vec<u32>,
}

impl<'a> Pivot<'a> {
    /// All groups in it.
    pub(super) fn groups(&self) -> impl Iterator<Item = &'a Group> {
        self.rows.iter().flat_map(|(_, groups)| groups.iter().flatten().copied())
    }
}

/// Lays groups out along `x`, a row for each combination of `series`; other differences make layouts of their own. A
/// layout with one place along its axis is left out.
pub(super) fn pivot<'a>(groups: &[&'a Group], x: Field, series: &[Field]) -> Vec<Pivot<'a>> {
    let mut facets: Vec<Field> =
        differing(groups).into_iter().filter(|field| *field != x && !series.contains(field)).collect();
    if window_follows(groups, x, series, &facets) {
        facets.retain(|field| *field != Field::InFlight);
    }
    let mut found: Vec<(String, Vec<&'a Group>)> = Vec::new();
    for group in groups {
        let facet = words(&facets, group);
        match found.iter_mut().find(|(name, _)| *name == facet) {
            Some((_, groups)) => groups.push(group),
            None => found.push((facet, vec![group])),
        }
    }
    found.into_iter().flat_map(|(facet, groups)| laid_out(&facet, &groups, x, series)).collect()
}

/// Whether the rest of a configuration decides how many messages are in flight. Such a window is part of what a row
/// or a name along the axis is, and makes no layout of its own.
fn window_follows(groups: &[&Group], x: Field, series: &[Field], facets: &[Field]) -> bool {
    let others: Vec<Field> = facets.iter().copied().filter(|field| *field != Field::InFlight).collect();
    let mut places: Vec<(String, String, String)> =
        groups.iter().map(|group| (x.short(group), words(series, group), words(&others, group))).collect();
    places.sort();
    places.windows(2).all(|pair| pair[0] != pair[1])
}

fn laid_out<'a>(facet: &str, groups: &[&'a Group], x: Field, series: &[Field]) -> Vec<Pivot<'a>> {
    let mut along: Vec<(f64, String)> = Vec::new();
    for group in groups {
        let name = x.short(group);
        if !along.iter().any(|(_, known)| *known == name) {
            along.push((x.rank(group), name));
        }
    }
    if along.len() < 2 {
        return Vec::new();
    }
    along.sort_by(|one, other| one.0.total_cmp(&other.0));
    let names: Vec<String> = along.into_iter().map(|(_, name)| name).collect();
    let mut sorted = groups.to_vec();
    for field in series.iter().rev() {
        sorted.sort_by(|one, other| field.rank(one).total_cmp(&field.rank(other)));
    }
    let mut rows: Vec<(String, Vec<Option<&Group>>)> = Vec::new();
    for group in sorted {
        let short = x.short(group);
        let Some(at) = names.iter().position(|name| *name == short) else { continue };
        let name = words(series, group);
        // What the words don't tell apart has a row of its own: nothing is hidden behind another.
        let free = rows.iter_mut().find(|(known, cells)| *known == name && cells[at].is_none());
        match free {
            Some((_, cells)) => cells[at] = Some(group),
            None => {
                let mut cells = vec![None; names.len()];
                cells[at] = Some(group);
                rows.push((name, cells));
            }
        }
    }
    let parts = rows.len().div_ceil(ROWS_MAX).max(1);
    let each = rows.len().div_ceil(parts).max(1);
    let part = |rows: &[(String, Vec<Option<&'a Group>>)]| {
        let (facet, names, rows) = (facet.to_owned(), names.clone(), rows.to_vec());
        let mut pivot = Pivot { facet, names, rows, windows: Vec::new() };
        let mut windows: Vec<u32> = pivot.groups().map(|group| group.configuration.in_flight).collect();
        windows.sort_unstable();
        windows.dedup();
        if windows.len() > 1 && x != Field::InFlight && !series.contains(&Field::InFlight) {
            pivot.windows = windows;
        }
        pivot
    };
    rows.chunks(each).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Configuration, Quality};

    #[test]
    fn groups_lie_along_one_field_and_nothing_is_lost() {
        let mut groups = Vec::new();
        for (quality, key, bytes) in [
            (Quality::Privacy, "rsa4096", 2048),
            (Quality::Integrity, "rsa1024", 2048),
            (Quality::Integrity, "rsa4096", 2048),
            (Quality::Integrity, "rsa1024", 65536),
            (Quality::Integrity, "p256", 65536),
        ] {
            let configuration = Configuration { quality, key: key.into(), bytes, ..Configuration::default() };
            groups.push(Group { configuration, ..Group::default() });
        }
        let groups: Vec<&Group> = groups.iter().collect();
        let pivots = pivot(&groups, Field::Key, &[Field::Quality]);
        let [small, large] = pivots.as_slice() else { panic!("{pivots:?}") };
        assert_eq!((small.facet.as_str(), large.facet.as_str()), ("2\u{a0}KB", "64\u{a0}KB"));
        assert_eq!(small.names, ["RSA 1024", "RSA 4096"]);
        assert_eq!(small.rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["integrity", "privacy"]);
        assert_eq!(large.names, ["RSA 1024", "P-256"]);
        assert_eq!(small.groups().count() + large.groups().count(), groups.len());
    }

    fn keyed(key: &str, in_flight: u32) -> Group {
        let configuration =
            Configuration { quality: Quality::Integrity, key: key.into(), in_flight, ..Configuration::default() };
        Group { configuration, ..Group::default() }
    }

    #[test]
    fn keys_whose_windows_differ_are_compared_in_one_chart() {
        let groups = [keyed("rsa2048", 128), keyed("rsa4096", 64), keyed("p256", 128)];
        let groups: Vec<&Group> = groups.iter().collect();
        let pivots = pivot(&groups, Field::Key, &[Field::Quality]);
        let [one] = pivots.as_slice() else { panic!("{pivots:?}") };
        assert_eq!(one.names, ["RSA 2048", "RSA 4096", "P-256"]);
        assert_eq!((one.facet.as_str(), one.windows.as_slice()), ("", [64, 128].as_slice()));
    }

    #[test]
    fn a_window_that_was_asked_for_makes_a_chart_of_its_own() {
        let groups = [keyed("rsa2048", 1), keyed("rsa4096", 1), keyed("rsa2048", 4), keyed("rsa4096", 4)];
        let pivots = pivot(&groups.iter().collect::<Vec<_>>(), Field::Key, &[Field::Quality]);
        assert_eq!(
            pivots.iter().map(|pivot| pivot.facet.as_str()).collect::<Vec<_>>(),
            ["1\u{a0}in\u{a0}flight", "4\u{a0}in\u{a0}flight"]
        );
    }
}
