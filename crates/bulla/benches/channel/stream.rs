//! A client puts at QM1, the channel seals at QM2 what arrives in clear, a client gets there what is opened for it.

use crate::common::Result;
use crate::common::cases::{self, Case, Quality};
use crate::common::components::{Components, Price};
use crate::common::flow::{Pace, Place, Stream, Window};
use crate::common::processor;
use crate::report::Report;
use crate::site::{Channel, Site};
use crate::{Options, PaceOf};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Of the rate that was asked for, so much must have been achieved.
const HELD_SHARE: f64 = 0.995;
/// The queue grows when its mean depth in the last quarter is beyond that of the second one by this share of a second's messages.
const GROWTH_SHARE: f64 = 0.05;
/// Before anything is counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// Every case that the options name; only the unprotected one where no sealing is wanted.
pub(crate) fn cases(options: &Options, sealing: bool) -> Vec<Case> {
    if !sealing {
        return vec![Case::unprotected()];
    }
    let mut keys = options.key.clone();
    keys.extend(options.held_key.iter().filter(|key| !options.key.contains(key)).cloned());
    cases::product(&options.quality, &keys, &options.reuse)
}

/// One channel for all cases of a key: it seals with the ring of that key's putter.
fn name(case: &Case) -> String {
    let key = if case.key.is_empty() { "any" } else { &case.key };
    format!("TO.QM2.{}", key.to_uppercase())
}

pub(crate) fn all(options: &Options, site: &Site, report: &mut Report) -> Result<()> {
    let mut all = cases(options, true);
    if !all.contains(&Case::unprotected()) {
        all.insert(0, Case::unprotected());
    }
    let mut defined: Vec<String> = Vec::new();
    for case in &all {
        let (putter, getter) = case.users();
        let name = name(case);
        let receiver = format!("SPLPROT(ASPOLICY) MCAUSER('{putter}')");
        let channel = Channel { name: &name, forth: true, cipher: None, sender: "", receiver: &receiver };
        if !defined.contains(&name) {
            site.define(&channel)?;
            site.run(&channel)?;
            defined.push(name.clone());
        }
        let queue = case.queue();
        site.define_queue(&channel, &queue)?;
        if let Some(policy) = case.policy(&format!("'{queue}'"), &putter, &getter) {
            site.two.mqsc(&policy)?;
        }
    }
    if options.pace.contains(&PaceOf::Held) {
        for case in all.iter().filter(|case| case.key.is_empty() || options.held_key.contains(&case.key)) {
            held(options, site, case, report)?;
        }
        report.print(
            &format!(
                "{} messages a second of 2 KB, not persistent, from a partner into SPLPROT(ASPOLICY), then got and opened, for {} s:",
                options.rate, options.hold
            ),
            &[
                "case",
                "achieved",
                "least second",
                "on the way: mean, most",
                "2nd quarter → last",
                "XQTIME µs, first quarter → last",
                "CPU µs a message: clients + partner + queue manager",
                "by role of the queue manager",
                "busy cores elsewhere",
                "verdict",
            ],
        );
    }
    if options.pace.contains(&PaceOf::Flat) {
        flat(options, site, &all, report)?;
    }
    Ok(())
}

fn begin<'a>(
    site: &'a Site,
    queue: &'a str,
    users: &'a (String, String),
    window: u64,
    pace: Pace,
) -> Result<Stream<'a>> {
    let put_on = Place { manager: &site.one, queue, user: &users.0 };
    let get_from = Place { manager: &site.two, queue, user: &users.1 };
    Stream::start(put_on, get_from, window, pace)
}

fn held(options: &Options, site: &Site, case: &Case, report: &mut Report) -> Result<()> {
    let (queue, users, name) = (case.queue(), case.users(), name(case));
    let channel = Channel { name: &name, forth: true, cipher: None, sender: "", receiver: "" };
    // Room for a tenth of a second in flight, so that the schedule and not the window is what holds back.
    let stream = begin(site, &queue, &users, options.window.max(options.rate / 10), Pace::Rate(options.rate))?;
    std::thread::sleep(WARM_UP);
    let (mut windows, mut queue_times) = (Vec::new(), Vec::new());
    for _ in 0..options.hold.clamp(4, 3600) {
        if stream.flows() {
            windows.push(stream.watch(Duration::from_secs(1))?);
            queue_times.push(site.number(&channel, "XQTIME")? as f64);
        }
    }
    stream.stop()?;
    let sum = |of: &dyn Fn(&Window) -> f64| windows.iter().map(of).sum::<f64>();
    let messages = sum(&|window| window.messages as f64);
    let achieved = messages / sum(&|window| window.time.as_secs_f64());
    let least = windows.iter().map(Window::rate).fold(f64::INFINITY, f64::min);
    let depths: Vec<f64> = windows.iter().map(|window| window.depth.1).collect();
    let depth_max = windows.iter().map(|window| window.depth.2).max().unwrap_or(0);
    let quarter = depths.len() / 4;
    let (second, last) = (mean(&depths[quarter..2 * quarter]), mean(&depths[depths.len() - quarter..]));
    let (wait_first, wait_last) = (mean(&queue_times[..quarter]), mean(&queue_times[queue_times.len() - quarter..]));
    let grows = last - second > GROWTH_SHARE * options.rate as f64;
    let is_held = achieved >= HELD_SHARE * options.rate as f64 && !grows;
    let elsewhere = sum(&|window| window.elsewhere) / windows.len() as f64;
    let costs = Costs::of(&windows);
    report.add(
        &json!({
            "part": "stream", "pace": "held", "case": case.to_string(), "devices": options.devices.to_string(), "rate": options.rate,
            "achieved": achieved, "least": least, "held": is_held, "grows": grows, "depth_mean": mean(&depths), "depth_max": depth_max,
            "xqtime_us": queue_times, "costs": costs.json(), "elsewhere": elsewhere,
        }),
        &[
            case.to_string(),
            format!("{achieved:.0}"),
            format!("{least:.0}"),
            format!("{:.0}, {depth_max}", mean(&depths)),
            format!("{second:.0} → {last:.0}"),
            format!("{wait_first:.0} → {wait_last:.0}"),
            costs.shares(),
            costs.roles(),
            format!("{elsewhere:.2}"),
            if is_held { "held" } else { "not held" }.to_owned(),
        ],
    );
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// As fast as it goes, all cases in turns.
fn flat(options: &Options, site: &Site, all: &[Case], report: &mut Report) -> Result<()> {
    let mut rounds: Vec<Vec<Window>> = all.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds() {
        for (case, windows) in all.iter().zip(&mut rounds) {
            let (queue, users) = (case.queue(), case.users());
            let stream = begin(site, &queue, &users, options.window.max(1), Pace::Flat)?;
            std::thread::sleep(WARM_UP);
            windows.push(stream.watch(options.round())?);
            stream.stop()?;
        }
    }
    for windows in &mut rounds {
        windows.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    }
    let unprotected = all.iter().zip(&rounds).find(|(case, _)| case.quality == Quality::None);
    let unprotected = unprotected.map_or(f64::NAN, |(_, windows)| Costs::of(windows).sum());
    let mut components = Components::new(&site.two, unprotected)?;
    for (case, windows) in all.iter().zip(&rounds) {
        let Some(middle) = windows.get(windows.len() / 2) else { continue };
        let prices = components.of(case)?;
        let needed: f64 = prices.iter().map(Price::share).sum();
        let bound = processor::cores() as f64 * 1e6 / needed;
        let costs = Costs::of(std::slice::from_ref(middle));
        let rates: Vec<f64> = windows.iter().map(Window::rate).collect();
        report.add(
            &json!({
                "part": "stream", "pace": "flat", "case": case.to_string(), "devices": options.devices.to_string(), "rate": middle.rate(),
                "rates": rates, "bound": bound, "needed_us": needed, "costs": costs.json(), "elsewhere": middle.elsewhere,
                "components": prices.iter().map(|price| json!({
                    "what": price.what, "us": price.us, "times": price.times, "device": price.device,
                })).collect::<Vec<_>>(),
            }),
            &[
                case.to_string(),
                format!("{:.0}", middle.rate()),
                format!("{bound:.0}"),
                format!("{:.2}", middle.rate() / bound),
                format!("{needed:.1}"),
                costs.shares(),
                format!("{:.2}", needed / costs.sum()),
                costs.roles(),
                format!("{:.2}", middle.elsewhere),
            ],
        );
    }
    report.print(
        "2 KB, not persistent, from a partner into SPLPROT(ASPOLICY), then got and opened, as fast as it goes:",
        &[
            "case",
            "messages/s",
            "bound",
            "ratio",
            "needed µs",
            "spent µs: clients + partner + queue manager",
            "needed ÷ spent",
            "by role of the queue manager",
            "busy cores elsewhere",
        ],
    );
    Ok(())
}

/// Microseconds of processor time for a message.
struct Costs {
    clients: f64,
    partner: f64,
    manager: BTreeMap<String, f64>,
}

impl Costs {
    fn of(windows: &[Window]) -> Costs {
        let messages = windows.iter().map(|window| window.messages).sum::<u64>().max(1) as f64;
        let mut costs = Costs { clients: 0.0, partner: 0.0, manager: BTreeMap::new() };
        for window in windows {
            costs.clients += window.client.values().sum::<u64>() as f64 / 1000.0 / messages;
            for (role, ns) in &window.manager {
                let us = *ns as f64 / 1000.0 / messages;
                match role.strip_prefix("partner ") {
                    Some(_) => costs.partner += us,
                    None => *costs.manager.entry(role.clone()).or_default() += us,
                }
            }
        }
        costs
    }

    fn sum(&self) -> f64 {
        self.clients + self.partner + self.manager.values().sum::<f64>()
    }

    fn shares(&self) -> String {
        format!("{:.1} + {:.1} + {:.1}", self.clients, self.partner, self.manager.values().sum::<f64>())
    }

    fn roles(&self) -> String {
        let roles = self.manager.iter().filter(|(_, us)| **us >= 0.05);
        roles.map(|(role, us)| format!("{role} {us:.1}")).collect::<Vec<_>>().join(", ")
    }

    fn json(&self) -> Json {
        json!({ "clients_us": self.clients, "partner_us": self.partner, "roles_us": self.manager })
    }
}
