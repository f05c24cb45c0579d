//! What queue managers count: looked at before and after a sample, and subtracted.

use super::processor::{self, AllProcesses, Roles};
use crate::host::{Host, Row};
use crate::load::APPLICATION;
use crate::result::{DeviceUse, OperationUse, TaskUse};
use bulla_device::Histogram;
use std::path::PathBuf;
use std::time::Instant;

/// A queue manager, or another broker, that a sample looks at.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Watched {
    /// Its name, to tell it from another.
    pub name: String,
    /// Its process, where it runs on this machine.
    pub pid: Option<u32>,
    /// Its data directory, where it is a Bulla of this machine's; its meters are read there.
    pub data: Option<PathBuf>,
}

/// All counters at one moment.
#[derive(Debug)]
pub struct Look {
    at: Instant,
    all_processes: AllProcesses,
    /// This process: the application, and everything.
    own: (u64, u64),
    /// Of the application, the threads that put, and those that get.
    ends: [u64; 2],
    managers: Vec<ManagerLook>,
}

/// A queue manager's counters.
#[derive(Debug, Default)]
struct ManagerLook {
    name: String,
    /// By role, and the process's own count.
    cpu: (Roles, u64),
    /// Whether the queue manager told that itself; else it is by the names of threads.
    tells_costs: bool,
    /// What else it tells of its costs.
    beside: Beside,
    /// None where the queue manager did not answer.
    devices: Option<Vec<Row>>,
    tasks: Option<Vec<Row>>,
}

/// What a queue manager tells of its costs beside the roles. Nanoseconds, but for what scratch files hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Beside {
    /// Of protection, for puts.
    pub sealing: u64,
    /// Of protection, for gets.
    pub opening: u64,
    /// Messages that went to scratch files.
    pub scratch_messages: u64,
    /// Bytes of them.
    pub scratch_bytes: u64,
    /// How long it was waited for scratch files.
    pub scratch_wait: u64,
}

impl Beside {
    /// Out of DISPLAY COSTSTATUS(*) ALL.
    fn told(rows: &[Row]) -> Beside {
        let of = |role: &str, keyword: &str| {
            rows.iter().find(|row| text(row, "COSTSTATUS") == role).map_or(0, |row| number(row, keyword))
        };
        Beside {
            sealing: of("protection", "SEALCPU"),
            opening: of("protection", "OPENCPU"),
            scratch_messages: of("process", "SCRATCHMSGS"),
            scratch_bytes: of("process", "SCRATCHBYTES"),
            scratch_wait: of("process", "SCRATCHWAIT"),
        }
    }

    fn add(&mut self, now: &Beside, before: &Beside) {
        self.sealing += now.sealing.saturating_sub(before.sealing);
        self.opening += now.opening.saturating_sub(before.opening);
        self.scratch_messages += now.scratch_messages.saturating_sub(before.scratch_messages);
        self.scratch_bytes += now.scratch_bytes.saturating_sub(before.scratch_bytes);
        self.scratch_wait += now.scratch_wait.saturating_sub(before.scratch_wait);
    }
}

/// What happened between two looks.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// How long it was, seconds.
    pub seconds: f64,
    /// By role, the application among them, nanoseconds.
    pub roles: Roles,
    /// The processes' own count, nanoseconds: never corrected by what roles add up to.
    pub process: u64,
    /// Devices, those of a second queue manager with its name before.
    pub devices: Vec<DeviceUse>,
    /// Tasks, likewise.
    pub tasks: Vec<TaskUse>,
    /// Of them, what modelled devices took of this processor for their real results, which a card would not;
    /// nanoseconds.
    pub modelled: u64,
    /// What queue managers tell of their costs beside the roles.
    pub beside: Beside,
    /// Of the application, the threads that put, and those that get; nanoseconds.
    pub ends: [u64; 2],
    /// Cores that were busy, with whatever.
    pub cores_busy: f64,
    /// Of them, those that were none of ours.
    pub cores_elsewhere: f64,
    /// Cores that the hypervisor took.
    pub cores_stolen: f64,
    /// Queue managers whose meters could not all be read at both looks: what is missing is left out of the numbers.
    pub unread: Vec<String>,
}

impl Look {
    /// Looks at everything. A broker that does not tell has no numbers.
    #[must_use]
    pub fn take(host: &dyn Host, watched: &[Watched]) -> Look {
        let managers = watched.iter().map(|watched| ManagerLook::take(host, watched)).collect();
        let ends = ["put", "get"].map(|end| processor::of_own_threads(&format!("{APPLICATION}{end}-")));
        let (all_processes, own) = (AllProcesses::now(), processor::of_this_process());
        Look { managers, all_processes, own, ends, at: Instant::now() }
    }

    /// What happened since an earlier look at the same.
    #[must_use]
    pub fn since(&self, earlier: &Look) -> Used {
        let time = self.at.duration_since(earlier.at);
        let cores = |ns: u64| ns as f64 / time.as_nanos().max(1) as f64;
        let mut used = Used { seconds: time.as_secs_f64(), ..Used::default() };
        let several = self.managers.len() > 1;
        for (now, before) in self.managers.iter().zip(&earlier.managers) {
            let prefix = if several { format!("{} ", now.name) } else { String::new() };
            let is_like = now.tells_costs == before.tells_costs;
            let mut known = 0;
            // Two different kinds of numbers have no difference.
            for (role, ns) in now.cpu.0.iter().filter(|_| is_like) {
                let ns = ns.saturating_sub(before.cpu.0.get(role).copied().unwrap_or(0));
                *used.roles.entry(role.clone()).or_default() += ns;
                known += ns;
            }
            let process = if is_like { now.cpu.1.saturating_sub(before.cpu.1) } else { 0 };
            *used.roles.entry("unattributed".to_owned()).or_default() += process.saturating_sub(known);
            used.process += process;
            if is_like {
                used.beside.add(&now.beside, &before.beside);
            }
            let both = now.devices.as_ref().zip(before.devices.as_ref());
            if let Some((now, before)) = both {
                used.modelled += modelled(now).saturating_sub(modelled(before));
                used.devices.extend(devices(now, before, used.seconds, &prefix));
            }
            let tasks_of_both = now.tasks.as_ref().zip(before.tasks.as_ref());
            if let Some((now, before)) = tasks_of_both {
                used.tasks.extend(tasks(now, before, used.seconds, &prefix));
            }
            if !is_like || both.is_none() || tasks_of_both.is_none() {
                used.unread.push(now.name.clone());
            }
        }
        let managers = used.process;
        let application = self.own.0.saturating_sub(earlier.own.0);
        used.roles.insert("application".to_owned(), application);
        used.process += application;
        used.ends = [0, 1].map(|end| self.ends[end].saturating_sub(earlier.ends[end]));
        let busy = self.all_processes.busy.saturating_sub(earlier.all_processes.busy);
        let ours = managers + self.own.1.saturating_sub(earlier.own.1);
        used.cores_busy = cores(busy);
        used.cores_elsewhere = cores(busy.saturating_sub(ours));
        used.cores_stolen = cores(self.all_processes.stolen.saturating_sub(earlier.all_processes.stolen));
        used
    }
}

impl ManagerLook {
    fn take(host: &dyn Host, watched: &Watched) -> ManagerLook {
        // Without a data directory there is nothing to read, and nothing is missing.
        let rows = |command: &str| -> Option<Vec<Row>> {
            watched.data.as_ref().map_or(Some(Vec::new()), |data| host.display(data, command).ok())
        };
        let (devices, tasks) = (rows("DISPLAY DEVSTATUS(*) ALL"), rows("DISPLAY TASKSTATUS"));
        let costs = rows("DISPLAY COSTSTATUS(*) ALL").unwrap_or_default();
        let (told, beside) = (by_role(&costs), Beside::told(&costs));
        let tells_costs = told.is_some();
        let helpers = watched.pid.map_or(0, processor::of_helpers);
        let cpu = match told {
            Some((mut roles, process)) => {
                *roles.entry("devices".to_owned()).or_default() += helpers;
                (roles, process + helpers)
            }
            None => {
                let roles = watched.pid.map(processor::of_process).unwrap_or_default();
                let process = roles.values().sum();
                (roles, process)
            }
        };
        ManagerLook { name: watched.name.clone(), cpu, tells_costs, beside, devices, tasks }
    }
}

/// Processor time by role, and the process's own, out of DISPLAY COSTSTATUS(*); none where the queue manager has not
/// that.
fn by_role(rows: &[Row]) -> Option<(Roles, u64)> {
    let mut roles = Roles::new();
    let mut process = None;
    for row in rows {
        let (role, ns) = (text(row, "COSTSTATUS"), number(row, "CPUTIME"));
        if role == "process" {
            process = Some(ns);
        } else if role != "unattributed" {
            roles.insert(role.to_owned(), ns);
        }
    }
    process.map(|process| (roles, process))
}

/// Processor time of modelled devices' results, nanoseconds.
fn modelled(rows: &[Row]) -> u64 {
    rows.iter().map(|row| number(row, "MODELCPU")).sum()
}

/// The share of the time that the busiest device was busy between two answers to DISPLAY DEVSTATUS(*) ALL, percent.
#[must_use]
pub fn busiest(now: &[Row], before: &[Row], seconds: f64) -> Option<f64> {
    devices(now, before, seconds, "").iter().map(|device| device.busy_percent).max_by(f64::total_cmp)
}

fn devices(now: &[Row], before: &[Row], seconds: f64, prefix: &str) -> Vec<DeviceUse> {
    let mut found: Vec<DeviceUse> = Vec::new();
    let mut engines = 1.0;
    for row in now {
        let Some(form) = row.get("FORM").and_then(|form| form.as_str()) else {
            engines = number(row, "ENGINES").max(1) as f64;
            if text(row, "STATUS") == "RUNNING" || number(row, "JOBS") > 0 {
                let (name, kind) = (format!("{prefix}{}", text(row, "DEVICE")), text(row, "TYPE").to_owned());
                found.push(DeviceUse { name, kind, ..DeviceUse::default() });
            }
            continue;
        };
        let keywords = ["DEVICE", "FORM", "BITS", "OPERATION"];
        let same = |old: &&Row| keywords.iter().all(|keyword| old.get(*keyword) == row.get(*keyword));
        let old = before.iter().find(same);
        let since = |keyword: &str| number(row, keyword).saturating_sub(old.map_or(0, |old| number(old, keyword)));
        let (count, busy) = (since("JOBS"), since("BUSYTIME"));
        let name = format!("{prefix}{}", text(row, "DEVICE"));
        let Some(device) = found.last_mut().filter(|device| count > 0 && device.name == name) else { continue };
        let histogram = |row: &Row| Histogram::from_text(text(row, "LATHIST")).unwrap_or_default();
        let latency = histogram(row).since(&old.map(histogram).unwrap_or_default());
        device.busy_percent += busy as f64 / 1e7 / seconds / engines;
        device.operations.push(OperationUse {
            operation: text(row, "OPERATION").to_lowercase(),
            format: form.to_owned(),
            bits: u32::try_from(number(row, "BITS")).unwrap_or(0),
            count,
            execution_us: busy as f64 / 1e3 / count as f64,
            latency_us: latency.mean() / 1e3,
        });
    }
    for device in &mut found {
        device.busy_percent = device.busy_percent.min(100.0);
    }
    found
}

fn tasks(now: &[Row], before: &[Row], seconds: f64, prefix: &str) -> Vec<TaskUse> {
    let task = |row: &Row| -> Option<TaskUse> {
        let same =
            |old: &&Row| text(old, "TASK") == text(row, "TASK") && text(old, "TASKTYPE") == text(row, "TASKTYPE");
        let old = before.iter().find(same);
        let since = |keyword: &str| number(row, keyword).saturating_sub(old.map_or(0, |old| number(old, keyword)));
        let requests = since("REQUESTS");
        let each = |ns: u64| ns as f64 / 1e3 / requests as f64;
        let (cpu_us, elapsed_us) = (each(since("REQCPU")), each(since("ELAPSED")));
        (requests > 0).then(|| TaskUse {
            kind: text(row, "TASKTYPE").to_owned(),
            name: format!("{prefix}{}", text(row, "TASK")),
            requests,
            busy_percent: (since("ELAPSED") as f64 / 1e7 / seconds).min(100.0),
            cpu_us,
            elapsed_us,
            wait_us: (elapsed_us - cpu_us).max(0.0),
        })
    };
    now.iter().filter_map(task).collect()
}

/// A number in a row; 0 where there is none.
#[must_use]
pub fn number(row: &Row, keyword: &str) -> u64 {
    row.get(keyword).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// A word in a row; empty where there is none.
#[must_use]
pub fn text<'a>(row: &'a Row, keyword: &str) -> &'a str {
    row.get(keyword).and_then(serde_json::Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rows(json: serde_json::Value) -> Vec<Row> {
        json.as_array().unwrap().iter().map(|row| row.as_object().unwrap().clone()).collect()
    }

    #[test]
    fn roles_come_from_the_queue_manager_where_it_tells_them() {
        let told = rows(json!([
            {"COSTSTATUS": "queue-manager", "CPUTIME": 700},
            {"COSTSTATUS": "protection", "CPUTIME": 250},
            {"COSTSTATUS": "unattributed", "CPUTIME": 50},
            {"COSTSTATUS": "process", "CPUTIME": 1000, "PUTS": 3},
        ]));
        let (roles, process) = by_role(&told).unwrap();
        assert_eq!((roles["queue-manager"], roles["protection"], process), (700, 250, 1000));
        // What is left over is found anew from the difference of two looks.
        assert!(!roles.contains_key("unattributed"));
        assert!(by_role(&[]).is_none());
    }

    fn look(cpu: &[(&str, u64)], process: u64, tells_costs: bool, is_read: bool) -> Look {
        let roles = cpu.iter().map(|(role, ns)| ((*role).to_owned(), *ns)).collect();
        let rows = is_read.then(Vec::new);
        let (beside, cpu) = (Beside { opening: process / 4, ..Beside::default() }, (roles, process));
        let (devices, tasks) = (rows.clone(), rows);
        let managers = vec![ManagerLook { name: "QM1".into(), cpu, tells_costs, beside, devices, tasks }];
        Look { at: Instant::now(), all_processes: AllProcesses::default(), own: (0, 0), ends: [0; 2], managers }
    }

    #[test]
    fn the_processes_own_count_is_not_what_roles_add_up_to() {
        let before = look(&[("queue-manager", 100), ("protection", 10)], 120, true, true);
        let used = look(&[("queue-manager", 700), ("protection", 210)], 1020, true, true).since(&before);
        assert_eq!((used.process, used.roles["queue-manager"], used.roles["unattributed"]), (900, 600, 100));
        assert!(used.unread.is_empty());
        assert_eq!(used.beside, Beside { opening: 225, ..Beside::default() });
        // Roles that were charged twice are seen to be.
        let used = look(&[("queue-manager", 1300), ("protection", 410)], 1020, true, true).since(&before);
        assert_eq!((used.process, used.roles.values().sum::<u64>()), (900, 1600));
    }

    #[test]
    fn a_look_that_failed_is_told_and_counts_nothing() {
        let (told, by_names) = (look(&[("queue-manager", 100)], 100, true, true), look(&[], 0, false, true));
        for (now, before) in [(&told, &by_names), (&by_names, &told)] {
            let used = now.since(before);
            assert_eq!(
                (used.process, used.roles.values().sum::<u64>(), used.unread.as_slice()),
                (0, 0, &["QM1".to_owned()][..])
            );
        }
        let unread = look(&[("queue-manager", 300)], 300, true, false);
        let used = unread.since(&told);
        assert_eq!((used.process, used.unread.len()), (200, 1));
    }

    #[test]
    fn a_device_did_what_lies_between_two_looks() {
        let look = |jobs: u64, busy: u64, latencies: &[u64]| {
            let mut histogram = Histogram::new();
            latencies.iter().for_each(|ns| histogram.record(*ns));
            rows(json!([
                {"DEVICE": "ACCEL1", "TYPE": "ACCELERATOR", "STATUS": "RUNNING", "ENGINES": 2, "JOBS": jobs},
                {"DEVICE": "ACCEL1", "FORM": "CRT", "BITS": 2048, "OPERATION": "RSA-SIGN", "JOBS": jobs, "BUSYTIME": busy,
                 "LATHIST": histogram.to_text()},
            ]))
        };
        let (before, now) = (look(10, 1_000_000, &[5]), look(110, 401_000_000, &[5, 2_000, 4_000]));
        let found = devices(&now, &before, 1.0, "QM1 ");
        assert_eq!((found.len(), found[0].name.as_str(), found[0].busy_percent), (1, "QM1 ACCEL1", 20.0));
        let sign = &found[0].operations[0];
        assert_eq!((sign.operation.as_str(), sign.count, sign.execution_us), ("rsa-sign", 100, 4000.0));
        assert_eq!(sign.latency_us, 3.0);
        assert_eq!(busiest(&now, &before, 1.0), Some(20.0));
    }

    #[test]
    fn a_task_waits_when_it_is_neither_done_nor_on_the_processor() {
        let look = |requests: u64, elapsed: u64, cpu: u64| {
            rows(
                json!([{"TASK": "adapter-0", "TASKTYPE": "ADAPTER", "REQUESTS": requests, "ELAPSED": elapsed, "REQCPU": cpu}]),
            )
        };
        let found = tasks(&look(110, 600_000_000, 200_000_000), &look(10, 100_000_000, 100_000_000), 1.0, "");
        assert_eq!(found.len(), 1);
        let task = &found[0];
        assert_eq!((task.requests, task.busy_percent), (100, 50.0));
        assert_eq!((task.elapsed_us, task.cpu_us, task.wait_us), (5000.0, 1000.0, 4000.0));
        assert!(tasks(&look(10, 5, 5), &look(10, 5, 5), 1.0, "").is_empty());
    }
}
