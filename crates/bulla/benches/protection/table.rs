//! Tables for people, JSON lines for programs.

use crate::Result;
use crate::cases::Case;
use crate::components::{Components, Price};
use crate::flow::Window;
use crate::processor;
use crate::stream::Measured;
use serde_json::{Value as Json, json};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// One line of the table of streams.
pub(crate) struct Row {
    case: Case,
    rate: f64,
    rates: Vec<f64>,
    window: Window,
    prices: Vec<Price>,
}

impl Row {
    /// What was measured, and the components that it is compared with.
    pub(crate) fn new(case: &Case, measured: &Measured, prices: &[Price]) -> Row {
        Row {
            case: case.clone(),
            rate: measured.window.rate(),
            rates: measured.rates.clone(),
            window: measured.window.clone(),
            prices: prices.to_vec(),
        }
    }

    /// Microseconds of processor time that a message cannot do without.
    fn needed_us(&self) -> f64 {
        self.prices.iter().map(Price::share).sum()
    }

    /// Messages a second if the cores did nothing else.
    fn bound(&self) -> f64 {
        processor::cores() as f64 * 1e6 / self.needed_us()
    }

    fn spent_us(&self) -> f64 {
        let (client, manager) = self.window.costs();
        client + manager
    }

    fn markdown(&self) -> String {
        let (client, manager) = self.window.costs();
        let (_, mean, most) = self.window.depth;
        format!(
            "| {} | {:.0} | {:.0} | {:.2} | {:.1} | {:.1} + {:.1} | {:.2} | {} | {mean:.0}, {most} | {} | {:.2} of {:.2} |",
            self.case,
            self.rate,
            self.bound(),
            self.rate / self.bound(),
            self.needed_us(),
            client,
            manager,
            self.needed_us() / self.spent_us(),
            self.roles(),
            self.jobs(),
            self.window.elsewhere,
            self.window.busy,
        )
    }

    /// Microseconds a message by role.
    fn roles(&self) -> String {
        let each = |ns: u64| ns as f64 / 1000.0 / self.window.messages.max(1) as f64;
        let roles = self.window.manager.iter().map(|(role, ns)| (role, each(*ns))).filter(|(_, us)| *us >= 0.05);
        roles.map(|(role, us)| format!("{role} {us:.1}")).collect::<Vec<_>>().join(", ")
    }

    /// Jobs a message by device, and how many lanes were filled in each call.
    fn jobs(&self) -> String {
        let devices = self.window.devices.devices.iter().filter(|device| device.meters.count() > 0).map(|device| {
            let jobs = device.meters.count() as f64 / self.window.messages.max(1) as f64;
            let calls: u64 = device.meters.shapes.iter().map(|shape| shape.calls).sum();
            let lanes: u64 = device.meters.shapes.iter().map(|shape| shape.lanes_filled).sum();
            format!("{} {jobs:.2} × {:.1}", device.name, lanes as f64 / calls.max(1) as f64)
        });
        devices.collect::<Vec<_>>().join(", ")
    }

    fn json(&self, devices: &str) -> Json {
        let (client, manager) = self.window.costs();
        let (least, mean, most) = self.window.depth;
        let each = |ns: &u64| *ns as f64 / 1000.0 / self.window.messages.max(1) as f64;
        json!({
            "mode": "stream", "case": self.case.to_string(), "devices": devices, "cores": processor::cores(),
            "rate": self.rate, "rates": self.rates, "bound": self.bound(), "ratio": self.rate / self.bound(),
            "needed_us": self.needed_us(), "client_us": client, "manager_us": manager,
            "cpu_ratio": self.needed_us() / self.spent_us(),
            "roles_us": self.window.manager.iter().chain(&self.window.client).map(|(role, ns)| (role.clone(), each(ns).into())).collect::<serde_json::Map<_, _>>(),
            "depth_min": least, "depth_mean": mean, "depth_max": most, "cores_elsewhere": self.window.elsewhere, "cores_busy": self.window.busy,
            "components": self.prices.iter().map(|price| json!({
                "what": price.what, "us": price.us, "times": price.times, "device": price.device,
            })).collect::<Vec<_>>(),
            "jobs": self.window.devices.devices.iter().flat_map(|device| device.meters.operations.iter().map(|meter| json!({
                "device": device.name, "operation": meter.operation.as_str(), "shape": format!("{} {}", meter.shape.form, meter.shape.bits),
                "count": meter.count, "busy_ns": meter.busy_ns,
            }))).collect::<Vec<_>>(),
            "calls": self.window.devices.devices.iter().flat_map(|device| device.meters.shapes.iter().map(|meter| json!({
                "device": device.name, "shape": format!("{} {}", meter.shape.form, meter.shape.bits), "calls": meter.calls,
                "lanes_filled": meter.lanes_filled,
            }))).collect::<Vec<_>>(),
        })
    }
}

/// Everything that was measured.
pub(crate) struct Report {
    rows: Vec<Row>,
    json: Option<File>,
}

impl Report {
    /// An empty one; JSON lines are added to the file.
    pub(crate) fn new(json: Option<&Path>) -> Result<Report> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Report { rows: Vec::new(), json: json.map(open).transpose()? })
    }

    /// Adds a line, and says on standard error how far the run has come.
    pub(crate) fn add(&mut self, devices: &str, row: Row) -> Result<()> {
        eprintln!("{}: {:.0} a second, {:.2} of the bound", row.case, row.rate, row.rate / row.bound());
        self.json(&row.json(devices))?;
        self.rows.push(row);
        Ok(())
    }

    /// Adds a JSON line.
    pub(crate) fn json(&mut self, line: &Json) -> Result<()> {
        if let Some(file) = &mut self.json {
            writeln!(file, "{line}")?;
        }
        Ok(())
    }

    /// The table of streams.
    pub(crate) fn print_streams(&self) {
        println!(
            "\n| case | messages/s | bound | ratio | needed µs | spent µs: client + queue manager | needed ÷ spent | by role | depth mean, max | jobs a message × lanes filled | busy cores elsewhere |"
        );
        println!("|{}", " --- |".repeat(11));
        for row in &self.rows {
            println!("{}", row.markdown());
        }
    }

    /// The tables of components.
    pub(crate) fn print_components(&self, components: &Components<'_>) {
        println!("\n| sealing and opening | seal µs | open µs |\n| --- | --- | --- |");
        for (case, seal, open) in components.seals() {
            println!("| {case} | {seal:.2} | {open:.2} |");
        }
        println!("\n| job, lanes full | µs | device |\n| --- | --- | --- |");
        for (key, operation, us, device) in components.jobs() {
            println!("| {key} {operation} | {us:.2} | {device} |");
        }
    }
}
