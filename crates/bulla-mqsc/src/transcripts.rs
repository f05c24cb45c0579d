//! Runs `testdata/transcripts/*.txt`: what is typed, what is answered.
//!
//! `$ bulla mqsc -c 'COMMAND'`, or `-c "COMMAND"`, or `-` with the text until a line `END`; what it prints follows, the
//! standard output first, then `[exit N]` unless N is 0. `% depth QUEUE N` and `% links QUEUE N` set up what no command
//! can; so do `% channel NAME STATE`, an instance of a channel, `% doubt NAME`, messages in doubt at it,
//! `% failed NAME WHY`, `% offline DEVICE WHY`, `% signed DEVICE N`, that many RSA 2048 signatures in calls of up to
//! eight, and `% keep`, which keeps the numbers. `#` begins a comment. Each file begins with a new queue manager DEMO.
//! With `BULLA_REWRITE` in the environment the test writes the files anew; read what it wrote.

use super::reply::show;
use super::run::{AdminError, Administered, Applied, Replay, Replayed, execute};
use bulla_catalog::status::{
    ChannelState, ChannelStatus, DeviceMeters, DeviceState, DeviceStatus, GroupState, GroupStatus, InitiatorStatus,
    QueueStatus, Snapshot, StopChannel, Tasks, TwoAverages,
};
use bulla_catalog::{Change, Definitions, Object, Sort};
use bulla_device::{Form, Meters, Operation, Shape};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// When everything here happens, in milliseconds since 1970.
const NOW_MS: u64 = 1_795_258_800_000;

/// A queue manager without queues and devices behind its definitions.
pub(crate) struct Paper {
    definitions: Definitions,
    status: BTreeMap<String, QueueStatus>,
    /// Devices that are not as their AUTOSTART says.
    states: BTreeMap<String, DeviceState>,
    /// Devices that can't run, and why.
    offline: BTreeMap<String, String>,
    /// Signatures made, by device.
    signed: BTreeMap<String, u64>,
    kept: Option<Snapshot>,
    /// Shared groups that were started.
    groups: BTreeMap<String, GroupState>,
    /// Instances of channels.
    channels: BTreeMap<String, Vec<ChannelStatus>>,
}

impl Paper {
    pub(crate) fn new() -> Self {
        Self {
            definitions: Definitions::initial("DEMO"),
            status: BTreeMap::new(),
            states: BTreeMap::new(),
            offline: BTreeMap::new(),
            signed: BTreeMap::new(),
            kept: None,
            groups: BTreeMap::new(),
            channels: BTreeMap::new(),
        }
    }

    /// One more instance of a channel, after an hour of work for each partner.
    fn add_instance(&mut self, name: &str, state: &str) {
        const STATES: [ChannelState; 10] = [
            ChannelState::Inactive,
            ChannelState::Starting,
            ChannelState::Binding,
            ChannelState::Requesting,
            ChannelState::Initializing,
            ChannelState::Running,
            ChannelState::Paused,
            ChannelState::Stopping,
            ChannelState::Retrying,
            ChannelState::Stopped,
        ];
        let instances = self.channels.entry(name.into()).or_default();
        let number = instances.len() as u64 + 2;
        let definition = &self.definitions.channels[name];
        instances.push(ChannelStatus {
            state: STATES.into_iter().find(|known| known.word() == state).unwrap(),
            substate: if state == "RUNNING" { "MQGET" } else { "" },
            connection: format!("10.0.0.{number}:5672"),
            local_address: "10.0.0.1:40112".into(),
            transmission_queue: definition.transmission_queue.clone().unwrap_or_default(),
            remote_manager: format!("QM{number}"),
            remote_application: format!("QM{number}"),
            remote_product: "Bulla".into(),
            remote_version: "0.1.0".into(),
            job: "4711.dispatcher-0".into(),
            user: "DEMO".into(),
            exactly_once: true,
            messages: 1000 * number,
            batches: 20 * number,
            buffers_sent: 41,
            buffers_received: 40,
            bytes_sent: u64::from(u32::MAX) + number,
            bytes_received: 9_000,
            current_messages: 3,
            current_sequence: 1003,
            last_sequence: 1000,
            current_unit: "0000000000000015".into(),
            last_unit: "0000000000000014".into(),
            last_message_ms: Some(NOW_MS - 1_000),
            started_ms: Some(NOW_MS - 3_600_000),
            short_retries_left: 10,
            long_retries_left: 999_999_999,
            batch_size: 50,
            heartbeat_seconds: 300,
            max_message_bytes: 4_194_304,
            non_persistent_fast: true,
            security_protocol: "NONE",
            queue_time_us: TwoAverages { short: 140, long: 95 },
            net_time_us: TwoAverages { short: 210, long: 205 },
            batch_messages: TwoAverages { short: 50, long: 48 },
            queue_messages: 7,
            ..ChannelStatus::default()
        });
    }

    fn meters(&self, name: &str) -> DeviceMeters {
        let device = &self.definitions.devices[name];
        let status = self.device_status(name).unwrap();
        let mut meters = Meters { cpu_ns: status.jobs * 125_000, ..Meters::default() };
        let shape = Shape { form: Form::RsaCrt, bits: 2048 };
        let mut left = status.jobs;
        while left > 0 {
            let lanes = left.min(8) as usize;
            (0..lanes).for_each(|_| meters.waited(0));
            meters.call(shape, lanes as u64 * 123_000, vec![(Operation::RsaSign, 1_500_000, false); lanes].into_iter());
            left -= lanes as u64;
        }
        DeviceMeters {
            name: name.into(),
            kind: device.kind(),
            engines: device.engines().unwrap_or(1).into(),
            pending: device.pending().unwrap_or(0).into(),
            state: status.state,
            reason: status.reason,
            since_ms: NOW_MS - 60_000,
            waiting: status.waiting,
            in_service: status.in_service,
            meters,
        }
    }

    fn check_links(&self, name: &str) -> Result<(), AdminError> {
        match self.status.get(name).map_or(0, |status| status.open_input) {
            0 => Ok(()),
            links => Err(AdminError::InUse { name: name.into(), links: links as usize }),
        }
    }
}

impl Administered for Paper {
    fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    fn apply(&mut self, change: Change) -> Result<Applied, AdminError> {
        match &change {
            Change::Delete { name, sort: Sort::Local, purge } => {
                self.check_links(name)?;
                let depth = self.status.get(name).map_or(0, |status| status.depth);
                if depth > 0 && !purge {
                    return Err(AdminError::NotEmpty { name: name.clone(), depth });
                }
                self.status.remove(name);
            }
            Change::ClearLocal { name } => {
                self.check_links(name)?;
                self.status.remove(name);
            }
            Change::Delete { name, sort: Sort::Alias, .. } => self.check_links(name)?,
            Change::Delete { name, sort: Sort::Channel, .. } => drop(self.channels.remove(name)),
            Change::Define { name, object: Object::Device(_) } => {
                self.states.insert(name.clone(), DeviceState::Stopped);
            }
            _ => {}
        }
        self.definitions.apply(&change);
        Ok(Applied::default())
    }

    /// On a copy of the paper, which is thrown away when a change can't be made.
    fn apply_all(&mut self, changes: Vec<Change>) -> Result<Applied, (usize, AdminError)> {
        let before = (self.definitions.clone(), self.status.clone(), self.channels.clone(), self.states.clone());
        for (at, change) in changes.into_iter().enumerate() {
            if let Err(error) = self.apply(change) {
                (self.definitions, self.status, self.channels, self.states) = before;
                return Err((at, error));
            }
        }
        Ok(Applied::default())
    }

    /// Every message fits; with an origin, one of them does not.
    fn replay(&mut self, replay: &Replay) -> Result<Replayed, AdminError> {
        let depth = self.status.get(&replay.from).map_or(0, |status| status.depth);
        let wanted = depth.min(replay.count.unwrap_or(u64::MAX));
        let left = u64::from(replay.origin.is_some()).min(wanted);
        let warnings = replay.origin.iter().filter(|_| left > 0).map(|origin| format!("{origin} is full")).collect();
        Ok(Replayed { moved: wanted - left, left, warnings })
    }

    fn queue_status(&self, name: &str) -> Option<QueueStatus> {
        self.definitions.queues.get(name).map(|_| self.status.get(name).cloned().unwrap_or_default())
    }

    fn start_group(&mut self, name: &str) -> Result<(), AdminError> {
        self.groups.insert(name.into(), GroupState::Standby);
        Ok(())
    }

    fn stop_group(&mut self, name: &str) -> Result<(), AdminError> {
        self.groups.remove(name);
        Ok(())
    }

    fn take_group_over(&mut self, name: &str) -> Result<(), AdminError> {
        match self.groups.get_mut(name) {
            Some(state) => {
                *state = GroupState::Owner;
                Ok(())
            }
            None => Err(AdminError::Failed { reason: 2102, detail: format!("shared group {name} is STOPPED here") }),
        }
    }

    fn group_status(&self, name: &str) -> Option<GroupStatus> {
        self.definitions.shared_groups.get(name)?;
        let Some(state) = self.groups.get(name).copied() else { return Some(GroupStatus::default()) };
        let is_owner = state == GroupState::Owner;
        let (owner, owner_address) = if is_owner { ("DEMO", "qm1:5672") } else { ("QM2", "qm2:5672") };
        let survives = if is_owner { "MINORITYPOWER" } else { "" };
        let (owner, owner_address, epoch) = (owner.into(), owner_address.into(), 2 + u64::from(is_owner));
        let known = GroupStatus { owner, owner_address, epoch, survives, ..GroupStatus::default() };
        Some(GroupStatus { state, since_ms: NOW_MS, position: 4_096, messages: 7, ..known })
    }

    fn start_device(&mut self, name: &str) -> Result<(), AdminError> {
        self.states.insert(name.into(), DeviceState::Running);
        Ok(())
    }

    fn stop_device(&mut self, name: &str) -> Result<(), AdminError> {
        self.states.insert(name.into(), DeviceState::Stopped);
        Ok(())
    }

    fn device_status(&self, name: &str) -> Option<DeviceStatus> {
        let autostart = self.definitions.devices.get(name)?.autostart;
        let by_itself = if autostart { DeviceState::Running } else { DeviceState::Stopped };
        let state = self.states.get(name).copied().unwrap_or(by_itself);
        let reason = self.offline.get(name).cloned();
        let state = if state == DeviceState::Running && reason.is_some() { DeviceState::Offline } else { state };
        Some(DeviceStatus {
            state,
            reason,
            waiting: 0,
            in_service: 0,
            utilisation_percent: 0,
            jobs: self.signed.get(name).copied().unwrap_or(0),
            errors: 0,
        })
    }

    fn start_channel(&mut self, name: &str) -> Result<(), AdminError> {
        self.channels.remove(name);
        self.add_instance(name, "RUNNING");
        Ok(())
    }

    fn stop_channel(&mut self, name: &str, how: StopChannel) -> Result<(), AdminError> {
        if how.inactive && !self.channel_status(name).iter().any(|status| status.state.is_active()) {
            return Err(AdminError::ChannelNotActive { name: name.into() });
        }
        self.channels.remove(name);
        if !how.inactive {
            self.add_instance(name, "STOPPED");
        }
        Ok(())
    }

    fn ping_channel(&mut self, name: &str) -> Result<String, AdminError> {
        match self.definitions.channels[name].connections.first() {
            Some(address) => Ok(format!("channel {name}: QM2 at {address} answers in 412 µs")),
            None => Err(AdminError::Failed { reason: 4030, detail: format!("channel {name} has no CONNAME") }),
        }
    }

    fn reset_channel(&mut self, name: &str, sequence: u64) -> Result<String, AdminError> {
        match self.channel_status(name).iter().any(|status| status.in_doubt) {
            true => Err(AdminError::ChannelInDoubt { name: name.into() }),
            false => Ok(format!("channel {name} reset, the next message has number {sequence}")),
        }
    }

    fn resolve_channel(&mut self, name: &str, _commit: bool) -> Result<(), AdminError> {
        self.channels.values_mut().flatten().for_each(|status| status.in_doubt = false);
        self.definitions.channels.get(name).map(drop).ok_or_else(|| AdminError::UnknownChannel { name: name.into() })
    }

    fn channel_status(&self, name: &str) -> Vec<ChannelStatus> {
        self.channels.get(name).cloned().unwrap_or_default()
    }

    fn initiator_status(&self) -> InitiatorStatus {
        let count = |wanted: fn(ChannelState) -> bool| {
            self.channels.values().flatten().filter(|status| wanted(status.state)).count() as u32
        };
        let tasks = |requested: Option<u32>, started| Tasks { started, requested: requested.unwrap_or(started) };
        let manager = &self.definitions.queue_manager;
        InitiatorStatus {
            adapters: tasks(manager.adapters, 8),
            dispatchers: tasks(manager.dispatchers, 2),
            tls_tasks: Tasks::default(),
            current: count(|state| state != ChannelState::Inactive),
            active: count(ChannelState::is_active),
            paused: count(|state| state == ChannelState::Paused),
            starting: count(|state| state == ChannelState::Starting),
            retrying: count(|state| state == ChannelState::Retrying),
            stopped: count(|state| state == ChannelState::Stopped),
            channels_max: manager.channels_max,
            active_channels_max: manager.active_channels_max,
            listeners: vec!["amqp://127.0.0.1:5672".into()],
        }
    }

    fn device_meters(&mut self, at_ms: Option<u64>) -> Result<Snapshot, AdminError> {
        let devices = self.definitions.devices.keys().map(|name| self.meters(name));
        match at_ms {
            None => Ok(Snapshot { taken_ms: NOW_MS, devices: devices.collect() }),
            Some(at_ms) => {
                let kept = self.kept.as_ref();
                let by_then = kept.filter(|kept| kept.taken_ms <= at_ms).cloned();
                by_then.ok_or(AdminError::NotKept { at_ms, oldest_ms: kept.map(|kept| kept.taken_ms) })
            }
        }
    }
}

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/transcripts");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    files
}

/// The transcript as it would be written now.
fn replayed(transcript: &str) -> String {
    let mut paper = Paper::new();
    let mut written = String::new();
    let mut lines = transcript.lines();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            // What is printed may hold blank lines: one of the transcript's own stands before a comment only.
            let blank = if written.is_empty() || written.ends_with("\n\n") { "" } else { "\n" };
            written += &format!("{blank}{line}\n");
        } else if let Some(setting) = line.strip_prefix("% ") {
            written += &format!("{line}\n");
            match setting.splitn(3, ' ').collect::<Vec<_>>()[..] {
                ["channel", name, state] => paper.add_instance(name, state),
                ["doubt", name] => paper.channels.get_mut(name).unwrap()[0].in_doubt = true,
                ["failed", name, why] => paper.channels.get_mut(name).unwrap()[0].reason = why.into(),
                ["keep"] => paper.kept = Some(paper.device_meters(None).unwrap()),
                ["offline", device, why] => drop(paper.offline.insert(device.into(), why.into())),
                ["signed", device, number] => drop(paper.signed.insert(device.into(), number.parse().unwrap())),
                _ => {}
            }
            if ["keep", "offline", "signed", "channel", "doubt", "failed"]
                .iter()
                .any(|known| setting.starts_with(known))
            {
                continue;
            }
            let [what, queue, number] = setting.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let status = paper.status.entry(queue.into()).or_default();
            let number: u64 = number.parse().unwrap();
            match what {
                "depth" => {
                    *status = QueueStatus {
                        depth: number,
                        bytes: number * 2048,
                        puts: number,
                        oldest_seconds: Some(90),
                        last_put_ms: Some(NOW_MS),
                        ..status.clone()
                    }
                }
                "links" => status.open_input = number,
                _ => panic!("{line}"),
            }
        } else if let Some(arguments) = line.strip_prefix("$ bulla mqsc ") {
            written += &format!("{line}\n");
            let (arguments, json) = match arguments.strip_prefix("--json ") {
                Some(rest) => (rest, true),
                None => (arguments, false),
            };
            let quoted = |text: &str| {
                let text = text.strip_prefix("-c ")?;
                let quote = text.chars().next().filter(|quote| "'\"".contains(*quote))?;
                Some(text.strip_prefix(quote)?.strip_suffix(quote)?.to_owned())
            };
            let (text, file) = if arguments == "-" {
                let text: Vec<_> = lines.by_ref().take_while(|line| *line != "END").collect();
                written += &format!("{}\nEND\n", text.join("\n"));
                (text.join("\n"), Some("-"))
            } else {
                (quoted(arguments).unwrap_or_else(|| panic!("{line}")), None)
            };
            let shown = show(&execute(&text, &mut paper), json, file);
            written += &shown.stdout;
            written += &shown.stderr;
            if shown.exit_code != 0 {
                written += &format!("[exit {}]\n", shown.exit_code);
            }
        }
        // Anything else is what was printed once, and is compared by the caller.
    }
    written
}

#[test]
fn each_transcript_reads_as_it_is_written() {
    let files = files();
    assert!(!files.is_empty());
    for path in files {
        let transcript = std::fs::read_to_string(&path).unwrap();
        let now = replayed(&transcript);
        if std::env::var_os("BULLA_REWRITE").is_some() {
            std::fs::write(&path, &now).unwrap();
            continue;
        }
        for (number, (was, is)) in transcript.lines().zip(now.lines()).enumerate() {
            assert_eq!(was, is, "{}:{}", path.display(), number + 1);
        }
        assert_eq!(transcript.lines().count(), now.lines().count(), "{}", path.display());
    }
}

#[test]
fn the_commands_in_the_page_about_authority_are_carried_out() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/authority.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut paper = Paper::new();
    paper.definitions.queue_manager.name = "QM1".into();
    let mut blocks = page.split("```mqsc\n").skip(1).peekable();
    assert!(blocks.peek().is_some() && page.contains(&bulla_catalog::authority::AS_BEFORE.join("; ")));
    for block in blocks {
        let commands = block.split("```").next().unwrap();
        let shown = show(&execute(commands, &mut paper), false, None);
        assert_eq!((shown.exit_code, shown.stderr.as_str()), (0, ""), "{commands}");
    }
}

#[test]
fn the_commands_in_the_page_about_topics_are_carried_out() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/topics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks: Vec<&str> = page.split("```mqsc\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    let mut paper = Paper::new();
    for commands in blocks {
        let shown = show(&execute(commands, &mut paper), false, None);
        assert_eq!(shown.exit_code, 0, "{commands}: {}", shown.stderr);
    }
}

#[test]
fn the_commands_in_the_page_about_channels_are_carried_out() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/channels.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut managers: BTreeMap<&str, Paper> = BTreeMap::new();
    let mut blocks = page.split("```mqsc\n").skip(1).peekable();
    assert!(blocks.peek().is_some());
    for block in blocks {
        let commands = block.split("```").next().unwrap();
        // Each block's first line is a comment that says at which queue manager.
        let manager = ["QM1", "QM2"].into_iter().find(|name| commands.lines().next().unwrap().contains(name)).unwrap();
        let paper = managers.entry(manager).or_insert_with(Paper::new);
        let shown = show(&execute(commands, paper), false, None);
        assert_eq!((shown.exit_code, shown.stderr.as_str()), (0, ""), "{commands}");
    }
}
