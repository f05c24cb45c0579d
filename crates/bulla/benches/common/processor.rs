//! Processor time: of the threads of a process by their roles, of one thread, and of everybody else.

use super::Result;
use std::collections::BTreeMap;
use std::time::Duration;

/// Processor time in nanoseconds by the role of the thread.
pub(crate) type Roles = BTreeMap<String, u64>;

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What the processor calls itself.
pub(crate) fn model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown processor");
    model.trim_start_matches([' ', '\t', ':']).to_owned()
}

/// What all threads of a process have used so far, in nanoseconds.
pub(crate) fn of_process(pid: u32) -> Result<u64> {
    Ok(by_role(pid)?.values().sum())
}

/// What the threads of a process have used so far, those of one role together: `dispatcher-0` is a dispatcher.
pub(crate) fn by_role(pid: u32) -> Result<Roles> {
    let mut roles = Roles::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        // A thread may end while it is looked at.
        let (Ok(name), Ok(used)) =
            (std::fs::read_to_string(path.join("comm")), std::fs::read_to_string(path.join("schedstat")))
        else {
            continue;
        };
        let name = name.trim_end();
        let role = match name.split_once('-') {
            Some((role @ ("dispatcher" | "adapter"), _)) => role,
            _ => name,
        };
        let used: u64 = used.split(' ').next().unwrap_or_default().parse()?;
        *roles.entry(role.to_owned()).or_default() += used;
    }
    Ok(roles)
}

/// What each role used between two looks.
pub(crate) fn since(now: &Roles, earlier: &Roles) -> Roles {
    let used = |role: &String, now: &u64| now.saturating_sub(earlier.get(role).copied().unwrap_or(0));
    now.iter().map(|(role, ns)| (role.clone(), used(role, ns))).collect()
}

/// Processor time of the calling thread.
pub(crate) fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Processor time of everybody on this machine so far, in nanoseconds, to ten milliseconds.
pub(crate) fn of_everybody() -> Result<u64> {
    /// Nanoseconds of one tick of /proc/stat, which is always of a hundredth of a second.
    const TICK_NS: u64 = 10_000_000;
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map(str::parse).collect::<std::result::Result<_, _>>()?;
    // user nice system idle iowait irq softirq steal: all but idle and iowait are somebody's.
    let busy = ticks.iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks);
    Ok(busy.sum::<u64>() * TICK_NS)
}
