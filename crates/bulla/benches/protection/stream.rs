//! Every case as fast as it goes, beside its bound.

use crate::cases::{Case, Quality};
use crate::components::{Components, Price};
use crate::flow::{Pace, Place, Stream, Window};
use crate::manager::Manager;
use crate::table::{Report, Row};
use crate::{Options, Result};

/// What a case came to.
pub(crate) struct Measured {
    /// Of all rounds the one with the median rate.
    pub(crate) window: Window,
    /// The rates of all rounds.
    pub(crate) rates: Vec<f64>,
}

/// Runs one case as fast as it goes.
pub(crate) fn measure(options: &Options, manager: &Manager, case: &Case) -> Result<Measured> {
    let queue = manager.define(case)?;
    let (putter, getter) = case.users();
    let (put_on, get_from) =
        (Place { manager, queue: &queue, user: &putter }, Place { manager, queue: &queue, user: &getter });
    let stream = Stream::start(put_on, get_from, options.window.max(1), Pace::Flat)?;
    std::thread::sleep(options.warm_up());
    let mut windows = Vec::new();
    while windows.len() < options.rounds.max(1) && stream.flows() {
        windows.push(stream.watch(options.round())?);
    }
    stream.stop()?;
    windows.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let rates = windows.iter().map(Window::rate).collect();
    let middle = windows.len() / 2;
    windows.into_iter().nth(middle).map(|window| Measured { window, rates }).ok_or_else(|| "no round came about".into())
}

/// Every case, beside its bound.
pub(crate) fn all(options: &Options, manager: &Manager, cases: &[Case], mut report: Report) -> Result<()> {
    let unprotected = measure(options, manager, &Case::unprotected())?;
    let (client, queue_manager) = unprotected.window.costs();
    let mut components = Components::new(manager, client + queue_manager)?;
    let mut unprotected = Some(unprotected);
    for case in cases {
        // Once is enough for what everything else is compared with.
        let measured = match (case.quality, unprotected.take()) {
            (Quality::None, Some(measured)) => measured,
            _ => measure(options, manager, case)?,
        };
        let prices: Vec<Price> = components.of(case)?;
        report.add(&manager.devices.to_string(), Row::new(case, &measured, &prices))?;
    }
    report.print_streams();
    report.print_components(&components);
    Ok(())
}
