//! Predictions as a page with curves.

use super::command::Answer;
use super::predict::{IN_FLIGHT_MAX, Prediction, Workload, predict_workload};
use super::profile::Profile;
use super::text;
use crate::configuration::Configuration;
use crate::error::Result;
use crate::report::axis::{Along, Axis};
use crate::report::bars::{Bars, Series};
use crate::report::chart::{Chart, Value};
use crate::report::document::{Document, Figure, Section};
use crate::report::lines::{Curve, Lines, Mark, Place, Point};
use crate::report::number::number;
use crate::report::panels::Panels;
use crate::report::scale::Spacing;
use crate::report::table::{Cell, Table};

/// Messages in flight of the first curve.
const IN_FLIGHT: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Parts of the greatest rate of the second curve, percent.
const LOADS: [u32; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];

/// The page.
///
/// # Errors
/// As [`predict_workload`].
pub fn document(
    profile: &Profile,
    configuration: &Configuration,
    workload: Workload,
    seed: u64,
    answer: &Answer,
) -> Result<Document> {
    let prediction = &answer.prediction;
    let mut sections = vec![Section {
        title: "What it would do".to_owned(),
        answer: format!(
            "{} transactions a second, held back by: {}. 99 % respond within {} µs.",
            number(prediction.rate),
            prediction.bottleneck,
            number(prediction.latency_us.p99)
        ),
        words: vec![text::configuration(configuration)],
        tables: vec![summary(prediction)],
        figures: vec![stations(prediction), roles(prediction, answer)],
    }];
    if !answer.what_if.is_empty() {
        sections.push(Section {
            title: "What would change".to_owned(),
            figures: vec![what_ifs(answer)],
            ..Section::default()
        });
    }
    sections.push(Section {
        title: "Curves".to_owned(),
        figures: vec![
            by_in_flight(profile, configuration, workload, seed)?,
            by_load(profile, configuration, workload, seed)?,
        ],
        ..Section::default()
    });
    Ok(Document {
        title: "Capacity plan".to_owned(),
        lead: vec![format!("Profile {}: {}", profile.name, profile.source)],
        sections,
        foot: vec!["All numbers are computed, none is measured here.".to_owned()],
    })
}

fn summary(prediction: &Prediction) -> Table {
    let latency = &prediction.latency_us;
    let mut rows = vec![
        ("transactions a second", number(prediction.rate)),
        ("mean response, µs", number(latency.mean)),
        ("99 % respond within, µs", number(latency.p99)),
        ("processor time a transaction, µs", number(prediction.process_cpu_us())),
        ("bottleneck", prediction.bottleneck.clone()),
        ("bound by the parts alone, a second", number(prediction.bound)),
        ("computed by", prediction.solver.as_str().to_owned()),
    ];
    if let Some(sharing) = &prediction.sharing {
        rows.push(("messages of a signature", number(sharing.together)));
    }
    if let Some(held) = prediction.held {
        rows.push(("target rate", if held { "held" } else { "not held" }.to_owned()));
    }
    Table {
        caption: "In short".to_owned(),
        columns: vec!["what".into(), "value".into()],
        rows: rows.into_iter().map(|(what, value)| vec![Cell::text(what), Cell::text(&value)]).collect(),
    }
}

fn stations(prediction: &Prediction) -> Figure {
    let names: Vec<String> = prediction.stations.iter().map(|station| station.name.clone()).collect();
    let percent = |at: usize| prediction.stations[at].utilisation * 100.0;
    Figure {
        name: "stations".to_owned(),
        title: "Utilisation by station".to_owned(),
        description: "Percent of the time that each station is busy; of threads with work of their own, the busiest."
            .to_owned(),
        chart: Chart::Bars(Bars {
            categories: names.clone(),
            series: vec![Series {
                name: "busy".to_owned(),
                values: (0..names.len()).map(|at| Some(Value::exactly(percent(at)))).collect(),
            }],
            measure: "percent busy".to_owned(),
            ..Bars::default()
        }),
        remarks: prediction.remarks.clone(),
        table: Table {
            caption: "Utilisation by station".to_owned(),
            columns: vec!["station".into(), "servers".into(), "percent busy".into()],
            rows: prediction
                .stations
                .iter()
                .map(|station| {
                    vec![
                        Cell::text(&station.name),
                        Cell::Number(station.servers),
                        Cell::Number(station.utilisation * 100.0),
                    ]
                })
                .collect(),
        },
    }
}

/// Processor time by role, of the configuration and of each change.
fn roles(prediction: &Prediction, answer: &Answer) -> Figure {
    let all: Vec<(&str, &Prediction)> = std::iter::once(("as planned", prediction))
        .chain(answer.what_if.iter().map(|change| (change.change.as_str(), &change.prediction)))
        .collect();
    let needed = |role: &&str| all.iter().any(|(_, one)| one.cpu_us.get(*role).is_some_and(|us| *us >= 0.005));
    let roles: Vec<&str> = crate::result::ROLES.iter().copied().filter(needed).collect();
    let us = |one: &Prediction, role: &str| one.cpu_us.get(role).copied().unwrap_or(0.0);
    Figure {
        name: "processor-time".to_owned(),
        title: "Processor time of a transaction by role".to_owned(),
        description: "Microseconds of all cores together.".to_owned(),
        chart: Chart::Panels(Panels {
            categories: all.iter().map(|(name, _)| (*name).to_owned()).collect(),
            series: roles
                .iter()
                .map(|role| Series {
                    name: (*role).to_owned(),
                    values: all.iter().map(|(_, one)| Some(Value::exactly(us(one, role)))).collect(),
                })
                .collect(),
            measure: "µs a transaction".to_owned(),
        }),
        remarks: Vec::new(),
        table: Table {
            caption: "Processor time of a transaction by role, µs".to_owned(),
            columns: std::iter::once("setup".to_owned()).chain(roles.iter().map(|role| (*role).to_owned())).collect(),
            rows: all
                .iter()
                .map(|(name, one)| {
                    let values = roles.iter().map(|role| Cell::Number(us(one, role)));
                    std::iter::once(Cell::text(*name)).chain(values).collect()
                })
                .collect(),
        },
    }
}

fn what_ifs(answer: &Answer) -> Figure {
    let all: Vec<(&str, &Prediction)> = std::iter::once(("as planned", &answer.prediction))
        .chain(answer.what_if.iter().map(|change| (change.change.as_str(), &change.prediction)))
        .collect();
    Figure {
        name: "what-if".to_owned(),
        title: "Rate with each change".to_owned(),
        description: "Transactions a second, one change at a time.".to_owned(),
        chart: Chart::Bars(Bars {
            categories: all.iter().map(|(name, _)| (*name).to_owned()).collect(),
            series: vec![Series {
                name: "rate".to_owned(),
                values: all.iter().map(|(_, one)| Some(Value::exactly(one.rate))).collect(),
            }],
            measure: "transactions a second".to_owned(),
            ..Bars::default()
        }),
        remarks: Vec::new(),
        table: Table {
            caption: "Each change".to_owned(),
            columns: ["change", "a second", "mean µs", "99 % µs", "processor µs", "bottleneck"]
                .map(String::from)
                .to_vec(),
            rows: all
                .iter()
                .map(|(name, one)| {
                    vec![
                        Cell::text(*name),
                        Cell::Number(one.rate),
                        Cell::Number(one.latency_us.mean),
                        Cell::Number(one.latency_us.p99),
                        Cell::Number(one.process_cpu_us()),
                        Cell::text(&one.bottleneck),
                    ]
                })
                .collect(),
        },
    }
}

fn curve(name: &str, points: &[(f64, f64)]) -> Curve {
    let points = points.iter().map(|(x, y)| Point { x: *x, y: Value::exactly(*y) }).collect();
    Curve { name: name.to_owned(), points }
}

fn by_in_flight(profile: &Profile, configuration: &Configuration, workload: Workload, seed: u64) -> Result<Figure> {
    let mut rows = Vec::new();
    let most = IN_FLIGHT_MAX / configuration.pairs.max(1);
    for in_flight in IN_FLIGHT.into_iter().filter(|in_flight| *in_flight <= most) {
        let one = Configuration { in_flight, target_rate: 0, ..configuration.clone() };
        rows.push((in_flight, predict_workload(profile, &one, workload, seed)?));
    }
    let points = |value: &dyn Fn(&Prediction) -> f64| -> Vec<(f64, f64)> {
        rows.iter().map(|(in_flight, one)| (f64::from(*in_flight), value(one))).collect()
    };
    let mut marks = Vec::new();
    if configuration.target_rate > 0 {
        marks.push(Mark { name: "target".to_owned(), place: Place::High(configuration.target_rate as f64) });
    }
    Ok(Figure {
        name: "rate-in-flight".to_owned(),
        title: "Rate by messages in flight".to_owned(),
        description: "As fast as it goes, with so many transactions of each pair under way.".to_owned(),
        chart: Chart::Lines(Lines {
            x: Axis { measure: "in flight".to_owned(), along: Along::Numbers(Spacing::Logarithmic) },
            y: Axis { measure: "transactions a second".to_owned(), along: Along::Numbers(Spacing::Linear) },
            curves: vec![
                curve("rate", &points(&|one| one.rate)),
                curve("mean-value analysis", &points(&|one| one.mean_value_rate)),
            ],
            marks,
        }),
        remarks: Vec::new(),
        table: Table {
            caption: "Rate by messages in flight".to_owned(),
            columns: ["in flight", "a second", "mean-value analysis", "mean µs", "bottleneck"]
                .map(String::from)
                .to_vec(),
            rows: rows
                .iter()
                .map(|(in_flight, one)| {
                    vec![
                        Cell::Number(f64::from(*in_flight)),
                        Cell::Number(one.rate),
                        Cell::Number(one.mean_value_rate),
                        Cell::Number(one.latency_us.mean),
                        Cell::text(&one.bottleneck),
                    ]
                })
                .collect(),
        },
    })
}

fn by_load(profile: &Profile, configuration: &Configuration, workload: Workload, seed: u64) -> Result<Figure> {
    let wide = configuration.in_flight.max(512).min(IN_FLIGHT_MAX / configuration.pairs.max(1));
    let flat_out = Configuration { in_flight: wide, target_rate: 0, ..configuration.clone() };
    let most = predict_workload(profile, &flat_out, workload, seed)?.rate;
    let mut rows = Vec::new();
    for percent in LOADS {
        let target_rate = ((most * f64::from(percent) / 100.0) as u64).max(1);
        let one = Configuration { in_flight: wide, target_rate, ..configuration.clone() };
        rows.push((percent, predict_workload(profile, &one, workload, seed)?));
    }
    let points = |value: &dyn Fn(&Prediction) -> f64| -> Vec<(f64, f64)> {
        rows.iter().map(|(percent, one)| (f64::from(*percent), value(one) / 1000.0)).collect()
    };
    let approximate = rows.iter().any(|(_, one)| one.latency_approximate);
    Ok(Figure {
        name: "response-load".to_owned(),
        title: "Response by load".to_owned(),
        description: format!(
            "Messages come in a burst each millisecond; 100 percent would be {} a second.",
            number(most)
        ),
        chart: Chart::Lines(Lines {
            x: Axis { measure: "percent of the greatest rate".to_owned(), along: Along::Numbers(Spacing::Linear) },
            y: Axis { measure: "ms".to_owned(), along: Along::Numbers(Spacing::Linear) },
            curves: vec![
                curve("mean", &points(&|one| one.latency_us.mean)),
                curve("90 %", &points(&|one| one.latency_us.p90)),
                curve("99 %", &points(&|one| one.latency_us.p99)),
            ],
            marks: Vec::new(),
        }),
        remarks: approximate
            .then(|| "percentiles are approximate: exponential about the mean".to_owned())
            .into_iter()
            .collect(),
        table: Table {
            caption: "Response by load, µs".to_owned(),
            columns: ["percent", "a second", "mean", "50 %", "90 %", "99 %", "99.9 %"].map(String::from).to_vec(),
            rows: rows
                .iter()
                .map(|(percent, one)| {
                    let latency = &one.latency_us;
                    let values = [one.rate, latency.mean, latency.p50, latency.p90, latency.p99, latency.p999];
                    std::iter::once(f64::from(*percent)).chain(values).map(Cell::Number).collect()
                })
                .collect(),
        },
    })
}
