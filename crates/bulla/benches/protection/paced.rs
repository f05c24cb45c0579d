//! Whether a rate is held while the queue stays short.

use crate::cases::Case;
use crate::flow::{Pace, Place, Stream};
use crate::manager::Manager;
use crate::table::Report;
use crate::{Options, Result};
use serde_json::json;
use std::time::Duration;

/// Of the rate that was asked for, so much must have been achieved.
const HELD_SHARE: f64 = 0.995;
/// The queue grows when its mean depth in the last quarter is beyond that of the second one by this share of a second's messages.
const GROWTH_SHARE: f64 = 0.05;

/// Every case at the rate, with a line for each: held or not, and the depth of the queue.
pub(crate) fn all(options: &Options, manager: &Manager, cases: &[Case], mut report: Report) -> Result<()> {
    println!(
        "\n| case | rate asked | achieved | least second | depth mean | depth max | mean 2nd quarter → last | CPU µs a message (client + queue manager) | cores elsewhere | verdict |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for case in cases {
        one(options, manager, case, &mut report)?;
    }
    Ok(())
}

fn one(options: &Options, manager: &Manager, case: &Case, report: &mut Report) -> Result<()> {
    let queue = manager.define(case)?;
    let (putter, getter) = case.users();
    // Room for a tenth of a second in flight, so that the schedule and not the window is what holds back.
    let window = options.window.max(options.rate / 10);
    let (put_on, get_from) =
        (Place { manager, queue: &queue, user: &putter }, Place { manager, queue: &queue, user: &getter });
    let stream = Stream::start(put_on, get_from, window, Pace::Rate(options.rate))?;
    std::thread::sleep(options.warm_up());
    let seconds = options.round().as_secs().max(4);
    let mut windows = Vec::new();
    for _ in 0..seconds {
        if stream.flows() {
            windows.push(stream.watch(Duration::from_secs(1))?);
        }
    }
    stream.stop()?;
    let total = |of: &dyn Fn(&crate::flow::Window) -> f64| windows.iter().map(of).sum::<f64>();
    let time = total(&|window| window.time.as_secs_f64());
    let messages = total(&|window| window.messages as f64);
    let achieved = messages / time;
    let least = windows.iter().map(crate::flow::Window::rate).fold(f64::INFINITY, f64::min);
    let depths: Vec<f64> = windows.iter().map(|window| window.depth.1).collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let quarter = depths.len() / 4;
    let (second, last) = (mean(&depths[quarter..2 * quarter]), mean(&depths[depths.len() - quarter..]));
    let depth_max = windows.iter().map(|window| window.depth.2).max().unwrap_or(0);
    let grows = last - second > GROWTH_SHARE * options.rate as f64;
    let held = achieved >= HELD_SHARE * options.rate as f64 && !grows;
    let cpu =
        |of: &dyn Fn(&crate::flow::Window) -> f64| total(&|window| of(window) * window.messages as f64) / messages;
    let (client, queue_manager) = (cpu(&|window| window.costs().0), cpu(&|window| window.costs().1));
    let elsewhere = total(&|window| window.elsewhere) / windows.len() as f64;
    let verdict = match (held, grows) {
        (true, _) => "held",
        (false, true) => "not held: the queue grows",
        (false, false) => "not held",
    };
    println!(
        "| {case} | {} | {achieved:.0} | {least:.0} | {:.0} | {depth_max} | {second:.0} → {last:.0} | {client:.1} + {queue_manager:.1} | {elsewhere:.2} | {verdict} |",
        options.rate,
        mean(&depths),
    );
    report.json(&json!({
        "mode": "paced", "case": case.to_string(), "devices": manager.devices.to_string(), "seconds": time, "rate": options.rate,
        "achieved": achieved, "held": held, "grows": grows, "cores_elsewhere": elsewhere,
        "client_us": client, "manager_us": queue_manager,
        "by_second": windows.iter().map(|window| json!({
            "rate": window.rate(), "depth_min": window.depth.0, "depth_mean": window.depth.1, "depth_max": window.depth.2,
        })).collect::<Vec<_>>(),
    }))
}
