//! Processor time as the system counts it: of threads by their names, and of the whole machine.

use crate::load::APPLICATION;
use std::collections::BTreeMap;
use std::fs;

/// Processor time by role, nanoseconds; see [`ROLES`](crate::result::ROLES).
pub type Roles = BTreeMap<String, u64>;

/// Nanoseconds of one tick of /proc/stat, which is always of a hundredth of a second.
const TICK_NS: u64 = 10_000_000;

/// What this process has used so far: the threads that play the application, and all of them together.
#[must_use]
pub fn of_this_process() -> (u64, u64) {
    threads(std::process::id()).iter().fold((0, 0), |(application, all), (name, used)| {
        (application + if name.starts_with(APPLICATION) { *used } else { 0 }, all + used)
    })
}

/// What the threads of this process have used so far whose names begin so, nanoseconds.
#[must_use]
pub fn of_own_threads(begin: &str) -> u64 {
    threads(std::process::id()).iter().filter(|(name, _)| name.starts_with(begin)).map(|(_, used)| used).sum()
}

/// What a queue manager and the helpers of its tokens have used so far, by role as the names of their threads have it.
/// Helper processes are part of what devices cost.
#[must_use]
pub fn of_process(pid: u32) -> Roles {
    let mut roles = Roles::new();
    for (name, used) in threads(pid) {
        *roles.entry(role_of(&name).to_owned()).or_default() += used;
    }
    let helpers = of_helpers(pid);
    if helpers > 0 {
        *roles.entry("devices".to_owned()).or_default() += helpers;
    }
    roles
}

/// What the processes have used so far that a process has started, nanoseconds.
#[must_use]
pub fn of_helpers(pid: u32) -> u64 {
    let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let pids: Vec<u32> = tasks
        .map(children)
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    pids.into_iter().flat_map(threads).map(|(_, used)| used).sum()
}

/// The role of a queue manager's thread. One that is not known counts for no role.
fn role_of(name: &str) -> &'static str {
    match name.split_once('-').map_or(name, |(stem, _)| stem) {
        "dispatcher" => "queue-manager",
        "adapter" => "protection",
        "device" => "devices",
        "journal" => "journal",
        "admin" | "devices" | "statistics" | "metrics" | "signals" | "bulla" => "administration",
        _ => "unattributed",
    }
}

/// Name and processor time in nanoseconds of each thread of a process.
fn threads(pid: u32) -> Vec<(String, u64)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            // A thread may end while it is looked at.
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let used = fs::read_to_string(task.path().join("schedstat")).ok()?;
            Some((name.trim_end().to_owned(), used.split(' ').next()?.parse().ok()?))
        })
        .collect()
}

/// What the machine's processors did so far, nanoseconds, to ten milliseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AllProcesses {
    /// Of any process.
    pub busy: u64,
    /// Taken by the hypervisor for other guests.
    pub stolen: u64,
}

impl AllProcesses {
    /// Up to now; zero where the system does not say.
    #[must_use]
    pub fn now() -> AllProcesses {
        AllProcesses::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(stat: &str) -> AllProcesses {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|ticks| ticks.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal: guests are in user already.
        let of = |at: usize| ticks.get(at).copied().unwrap_or(0) * TICK_NS;
        AllProcesses { busy: [0, 1, 2, 5, 6].into_iter().map(of).sum(), stolen: of(7) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_is_nobodys_work() {
        let all_processes = AllProcesses::of("cpu  10 20 30 4000 500 6 7 80 9 0\ncpu0 1 2 3 4\n");
        assert_eq!(all_processes, AllProcesses { busy: 73 * TICK_NS, stolen: 80 * TICK_NS });
        assert_eq!(AllProcesses::of(""), AllProcesses::default());
    }

    #[test]
    fn a_thread_of_the_application_is_known_by_its_name() {
        let (before, _) = of_this_process();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("{APPLICATION}test")).spawn(move || {
            let mut number = 0u64;
            while of_this_process().0 == 0 {
                number = number.wrapping_add(1);
            }
            ready.send(number).unwrap();
            let _ = stopped.recv();
        });
        is_ready.recv().unwrap();
        let (application, all) = of_this_process();
        assert!(application > before && all >= application, "{application} of {all}");
        drop(stop);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn threads_of_a_queue_manager_have_roles() {
        for (name, role) in [
            ("dispatcher-3", "queue-manager"),
            ("adapter-0", "protection"),
            ("device-ACCEL1", "devices"),
            ("journal", "journal"),
            ("bulla", "administration"),
            ("tokio-rt-worker", "unattributed"),
        ] {
            assert_eq!(role_of(name), role);
        }
    }
}
