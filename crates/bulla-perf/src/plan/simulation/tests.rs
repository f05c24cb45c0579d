//! The simulation beside formulas that are exact, and its own rules.

use super::*;
use crate::configuration::Quality;
use crate::plan::mva::{self, Station};
use crate::plan::operations::Step;
use crate::plan::profile::{Cores as Machine, Device as Card, DeviceKind, Journal, Operation, Operations, Place};
use crate::plan::queueing;

/// Nothing takes any time.
fn free() -> System {
    System {
        cores: Machine { count: 64, ..Machine::default() },
        dispatchers: 1,
        adapters: 64,
        class: Class { key: "rsa2048".into(), bytes: 2048.0, key_uses: 1, cpu: [Some(0.0); 4], ..Class::default() },
        devices: Vec::new(),
        journal: Journal::default(),
        network_us: 0.0,
        channel: false,
        shape: Shape::Stream,
        pairs: 1,
        window: 1_000_000,
        pace: Pace::Closed,
    }
}

/// Signatures are made by a card of so many engines, and nothing else takes time.
fn card(engines: u32, sign_us: f64) -> System {
    let mut system = free();
    let device = Card {
        kind: DeviceKind::Accelerator,
        modelled: false,
        place: Place::Card,
        engines,
        lanes: 1,
        pending: 8,
        call_us: 0.0,
        job_us: 0.0,
        operations: BTreeMap::from([(
            "rsa2048".into(),
            Operations { sign: Some(sign_us.into()), ..Operations::default() },
        )]),
        me_us: BTreeMap::new(),
        crt_us: BTreeMap::new(),
    };
    system.devices.push(("card".into(), device));
    system.class.quality = Quality::Integrity;
    system.class.seal_steps = vec![Operation::Sign];
    system.class.open_steps = vec![Operation::Verify];
    system.class.cpu[Operation::Sign as usize] = None;
    system
}

fn settings(exponential: bool) -> Settings {
    Settings { seed: 5, warm_up: 20_000, measured: 200_000, turns: false, exponential }
}

/// Within its own confidence interval, widened by half, or a percent.
fn agrees(found: f64, within: f64, wanted: f64) {
    let allowed = (1.5 * within).max(0.01 * wanted);
    assert!((found - wanted).abs() <= allowed, "{found} ± {within} instead of {wanted}");
    assert!(within < 0.1 * wanted, "{found} ± {within} says nothing");
}

#[test]
fn random_arrivals_at_cards_wait_as_long_as_in_m_m_c() {
    for (engines, rate, service) in [(1, 700.0, 1000.0), (2, 1700.0, 1000.0), (5, 4000.0, 1000.0)] {
        let system = System { pace: Pace::Poisson(rate), ..card(engines, service) };
        let outcome = run(&system, settings(true));
        assert!(outcome.complete);
        let exact = queueing::m_m_c(rate, service / 1e6, engines);
        // With one engine messages leave in their order by themselves; with more they wait for those before them.
        if engines == 1 {
            agrees(outcome.response, outcome.response_within, exact.response * 1e6);
        }
        let found = outcome.devices[0].response_us / 1e6;
        agrees(found, outcome.response_within / 1e6, exact.response);
        assert!((outcome.devices[0].utilisation - exact.utilisation).abs() < 0.02, "{:?}", outcome.devices);
        agrees(outcome.rate, outcome.rate_within, rate);
    }
}

#[test]
fn random_arrivals_at_a_card_of_constant_speed_wait_as_long_as_in_m_d_1() {
    let system = System { pace: Pace::Poisson(800.0), ..card(1, 1000.0) };
    let outcome = run(&system, settings(false));
    agrees(outcome.response, outcome.response_within, queueing::m_d_1(800.0, 0.001).response * 1e6);
}

#[test]
fn a_closed_system_of_threads_and_cards_is_as_mean_value_analysis_has_it() {
    // Of one pair with many messages under way, the application's threads are stations; of many pairs with one message
    // each, every thread has its own work and none waits for it.
    for (pairs, window, engines) in [(1, 1, 1), (1, 3, 1), (1, 20, 1), (4, 1, 2), (30, 1, 2)] {
        let mut system = System { shape: Shape::RequestReply, pairs, window, ..card(engines, 100.0) };
        let class = &mut system.class;
        class.app_put = Step { turn: 0.0, message: 20.0, far: 0.0 };
        class.app_get = Step { turn: 0.0, message: 10.0, far: 0.0 };
        let outcome = run(&system, settings(true));
        // A transaction puts two messages and gets two; a get comes with the next put in one piece of work.
        let ends = |name: &str| if pairs == 1 { Station::queue(name, 1, 30.0) } else { Station::delay(name, 30.0) };
        let stations = [ends("requester"), ends("server"), Station::queue("card", engines, 200.0)];
        let exact = mva::solve(&stations, pairs * window).pop().unwrap();
        agrees(outcome.rate, outcome.rate_within, exact.rate * 1e6);
        agrees(outcome.response, outcome.response_within, exact.response);
        agrees(outcome.devices[0].utilisation, 0.0, exact.utilisation[2]);
    }
}

#[test]
fn threads_that_share_cores_are_as_a_station_with_so_many_servers() {
    for (pairs, cores) in [(1, 2), (4, 2), (10, 2), (10, 4)] {
        let mut system = System { shape: Shape::RequestReply, window: 1, pairs, ..card(64, 200.0) };
        system.cores.count = cores;
        system.class.app_put = Step { turn: 0.0, message: 60.0, far: 0.0 };
        system.class.app_get = Step { turn: 0.0, message: 40.0, far: 0.0 };
        let outcome = run(&system, settings(true));
        let stations = [Station::queue("cores", cores, 200.0), Station::delay("cards", 400.0)];
        let exact = mva::solve(&stations, pairs).pop().unwrap();
        // Those who compute nothing, dispatcher and adapters, wait for a core too, which the station does not know.
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.02, "{found} not {wanted}");
        near(outcome.rate, exact.rate * 1e6);
        near(outcome.cores_busy, exact.utilisation[0] * f64::from(cores));
    }
}

#[test]
fn one_message_at_a_time_takes_the_sum_of_its_parts() {
    let mut system = System { shape: Shape::RequestReply, window: 1, ..free() };
    system.cores = Machine { count: 2, wake_up_us: 5.0, ..Machine::default() };
    system.class.app_put = Step { turn: 3.0, message: 1.0, far: 0.0 };
    system.class.app_get = Step { turn: 2.0, message: 1.0, far: 0.0 };
    system.class.qm_put = Step { turn: 4.0, message: 0.5, far: 0.0 };
    system.class.qm_get = Step { turn: 4.0, message: 0.5, far: 0.0 };
    let outcome = run(&system, Settings::for_window(1, 1));
    // Four times a thread is woken; each message is put and got once, with a turn's cost each time.
    let sum = 2.0 * (3.0 + 1.0 + 4.0 + 0.5 + 4.0 + 0.5 + 2.0 + 1.0) + 4.0 * 5.0;
    assert!(
        (outcome.response - sum + 7.0).abs() < 1e-6 || (outcome.response - sum).abs() < 1e-6,
        "{}",
        outcome.response
    );
    assert!((outcome.rate - 1e6 / sum).abs() < 1.0, "{} instead of {}", outcome.rate, 1e6 / sum);
    assert!((outcome.cpu_us["queue-manager"] - 18.0).abs() < 1e-3, "{:?}", outcome.cpu_us);
    assert!((outcome.cpu_us["application"] - 14.0).abs() < 1e-3, "{:?}", outcome.cpu_us);
}

#[test]
fn many_messages_share_the_cost_of_a_turn() {
    let mut system = System { window: 512, ..free() };
    system.cores.count = 4;
    system.class.qm_put = Step { turn: 10.0, message: 1.0, far: 0.0 };
    system.class.app_get = Step { turn: 0.0, message: 0.1, far: 0.0 };
    let outcome = run(&system, Settings::for_window(1, 512));
    // 128 messages a turn at most, 64 at least, because a putter waits for an eighth of its window.
    let (most, least) = (1e6 / (1.0 + 10.0 / 128.0), 1e6 / (1.0 + 10.0 / 64.0));
    assert!((least..=most * 1.001).contains(&outcome.rate), "{} not in {least} to {most}", outcome.rate);
    assert_eq!(outcome.stations[1].name, "dispatcher");
    assert!(outcome.stations[1].utilisation > 0.99, "{:?}", outcome.stations);
}

#[test]
fn each_connection_is_read_and_written_by_itself() {
    let mut system = System { shape: Shape::RequestReply, window: 1, pairs: 8, ..free() };
    (system.class.qm_put.turn, system.class.qm_get.turn) = (10.0, 5.0);
    let outcome = run(&system, Settings::for_window(1, 8));
    // A request and a reply, from as many connections as there are messages: none shares a read or a write with
    // another.
    assert!((outcome.cpu_us["queue-manager"] - 30.0).abs() < 0.3, "{:?}", outcome.cpu_us);
}

#[test]
fn a_wake_up_is_paid_for_by_who_was_asleep_and_by_who_woke_it() {
    let mut system = System { shape: Shape::RequestReply, window: 1, ..free() };
    system.class.app_put.message = 10.0;
    system.class.app_get.message = 10.0;
    (system.cores.sleep_us, system.cores.wake_us) = (3.0, 2.0);
    let outcome = run(&system, Settings::for_window(1, 1));
    // Each transaction wakes the dispatcher twice and each end once; the dispatcher wakes both ends, they wake it once
    // each.
    assert!((outcome.cpu_us["queue-manager"] - 2.0 * (3.0 + 2.0)).abs() < 0.1, "{:?}", outcome.cpu_us);
    assert!((outcome.cpu_us["application"] - 40.0 - 2.0 * (3.0 + 2.0)).abs() < 0.1, "{:?}", outcome.cpu_us);
}

#[test]
fn lanes_are_filled_while_jobs_wait() {
    let mut system = System { window: 512, ..card(1, 100.0) };
    let times = profile::Times { alone: 400.0, full: 100.0 };
    if let Some((_, device)) = system.devices.first_mut() {
        (device.place, device.lanes) = (Place::Cores, 8);
        device.operations.insert("rsa2048".into(), Operations { sign: Some(times), ..Operations::default() });
    }
    let outcome = run(&system, Settings::for_window(1, 512));
    assert!((outcome.rate - 10_000.0).abs() < 100.0, "{}", outcome.rate);
    assert!(outcome.devices[0].lanes_filled > 7.9, "{:?}", outcome.devices);
    assert!((outcome.cpu_us["devices"] - 100.0).abs() < 1.0, "{:?}", outcome.cpu_us);
    // One at a time has a call of its own.
    system.window = 1;
    let outcome = run(&system, Settings::for_window(1, 1));
    assert!((outcome.devices[0].lanes_filled - 1.0).abs() < 1e-9);
    assert!((outcome.rate - 2500.0).abs() < 5.0, "{}", outcome.rate);
}

#[test]
fn a_lonely_job_is_done_on_the_spot_and_many_go_to_the_device() {
    let mut system = System { window: 1, ..card(1, 0.0) };
    let times = profile::Times { alone: 800.0, full: 110.0 };
    system.class.cpu[Operation::Sign as usize] = Some(350.0);
    if let Some((_, device)) = system.devices.first_mut() {
        (device.place, device.lanes) = (Place::Cores, 8);
        device.operations.insert("rsa2048".into(), Operations { sign: Some(times), ..Operations::default() });
    }
    (system.cores.count, system.adapters) = (2, 2);
    let lonely = run(&system, Settings::for_window(1, 1));
    assert!((lonely.inline_jobs - 2.0).abs() < 1e-9, "signature and check: {}", lonely.inline_jobs);
    assert!((lonely.rate - 1e6 / 350.0).abs() < 5.0, "{}", lonely.rate);
    system.window = 512;
    let many = run(&system, Settings::for_window(1, 512));
    assert!(many.devices[0].jobs > 0.7, "{:?}", many.devices);
    assert!(many.rate > 9000.0, "{}", many.rate);
}

#[test]
fn a_content_key_that_is_used_again_is_made_once() {
    let mut system = System { window: 64, ..card(1, 0.0) };
    system.cores.count = 2;
    let class = &mut system.class;
    class.quality = Quality::Confidentiality;
    class.seal_steps = vec![Operation::Wrap];
    class.open_steps = vec![Operation::Unwrap];
    class.cpu = [Some(1.0), Some(1.0), Some(20.0), Some(350.0)];
    class.live_on_dispatcher = true;
    (class.seal_live, class.open_live, class.key_uses) = (2.0, 2.0, 33);
    system.devices.clear();
    let outcome = run(&system, Settings::for_window(1, 64).for_key_uses(33));
    let operations = outcome.cpu_us["devices"];
    assert!((operations - 370.0 / 33.0).abs() < 0.05 * 11.2, "{operations}");
    assert!((outcome.inline_jobs - 2.0 / 33.0).abs() < 0.05 * 0.06, "{}", outcome.inline_jobs);
    system.class.key_uses = 1;
    let outcome = run(&system, Settings::for_window(1, 64));
    assert!((outcome.cpu_us["devices"] - 370.0).abs() < 1.0, "{:?}", outcome.cpu_us);
}

#[test]
fn a_sync_is_shared_by_all_that_wait() {
    let mut system = System { window: 1, ..free() };
    system.cores.count = 4;
    system.class.persistent = true;
    system.journal = Journal { sync_us: 100.0, bytes_per_second: 0.0, group_commit: true };
    let lonely = run(&system, Settings::for_window(1, 1));
    assert!((lonely.rate - 10_000.0).abs() < 10.0, "{}", lonely.rate);
    system.window = 512;
    let many = run(&system, Settings::for_window(1, 512));
    assert!(many.rate > 500_000.0, "{}", many.rate);
    system.journal.group_commit = false;
    let each = run(&system, Settings::for_window(1, 512));
    assert!((each.rate - 10_000.0).abs() < 100.0, "{}", each.rate);
}

#[test]
fn a_rate_is_held_while_it_can_be() {
    let mut system = System { window: 512, pace: Pace::Bursts(5000.0), ..card(1, 100.0) };
    system.cores.count = 2;
    let held = run(&system, Settings::for_window(1, 512));
    assert!((held.rate - 5000.0).abs() < 30.0, "{}", held.rate);
    assert!((held.devices[0].utilisation - 0.5).abs() < 0.02, "{:?}", held.devices);
    system.pace = Pace::Bursts(20_000.0);
    let over = run(&system, Settings::for_window(1, 512));
    assert!((over.rate - 10_000.0).abs() < 100.0, "{}", over.rate);
}

#[test]
fn a_seed_runs_again_as_it_ran() {
    let system = System { pace: Pace::Poisson(700.0), ..card(1, 1000.0) };
    let few = Settings { measured: 2000, warm_up: 100, ..settings(true) };
    let (first, again) = (run(&system, few), run(&system, few));
    assert_eq!(first.responses, again.responses);
    let other = run(&system, Settings { seed: 6, ..few });
    assert_ne!(first.responses, other.responses);
}

#[test]
fn two_queue_managers_are_two_dispatchers() {
    let mut system = System { window: 512, ..free() };
    system.cores.count = 8;
    system.class.qm_put = Step { turn: 0.0, message: 1.0, far: 0.0 };
    system.class.qm_get = Step { turn: 0.0, message: 1.0, far: 0.0 };
    let one = run(&system, Settings::for_window(1, 512));
    assert!((one.rate - 500_000.0).abs() < 5000.0, "{}", one.rate);
    system.channel = true;
    let two = run(&system, Settings::for_window(1, 512));
    assert!((two.rate - 1_000_000.0).abs() < 20_000.0, "{}", two.rate);
}

#[test]
fn what_waits_while_a_signature_is_made_shares_the_next_one() {
    // One card that takes a millisecond whatever it signs, and so many messages of one link: those that come while one
    // signature is made are the next batch, all but none of them waits longer than for one signature and its own.
    for (sign_batch, window, together) in [(1, 32, 1.0), (8, 32, 8.0), (64, 32, 32.0), (64, 1, 1.0)] {
        let mut system = System { shape: Shape::RequestReply, window, ..card(1, 1000.0) };
        system.class.sign_batch = sign_batch;
        let outcome =
            run(&system, Settings { seed: 5, warm_up: 4_000, measured: 40_000, turns: true, exponential: false });
        assert!(outcome.complete);
        // What is in flight goes from one link to the other in one batch, where a batch has room for all of it.
        let wanted: f64 = together;
        assert!((outcome.together / wanted - 1.0).abs() < 0.1, "{sign_batch} of {window}: {}", outcome.together);
        let near = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 0.1, "{found} not {wanted}");
        // The card is full, and two signatures prove a request and a reply.
        near(outcome.rate, 1e6 / 1000.0 / 2.0 * wanted);
        near(outcome.devices[0].jobs, 2.0 / wanted);
    }
}

#[test]
fn messages_that_share_a_signature_keep_their_order_and_are_all_there() {
    for devices in [1, 4] {
        let mut system = System { window: 300, pairs: 3, ..card(devices, 300.0) };
        system.class.sign_batch = 64;
        (system.class.leaf, system.class.branch) = (2.0, 1.0);
        system.class.cpu[Operation::Verify as usize] = Some(50.0);
        system.adapters = 4;
        let outcome = run(&system, Settings::for_window(3, 900));
        assert!(outcome.complete, "a message was lost");
        assert!(outcome.together > 10.0 && outcome.together <= 64.0, "{}", outcome.together);
        // A reader verifies a batch once: those that it opens meanwhile share the answer.
        let once = 1.0 / outcome.together;
        assert!((outcome.verifications / once - 1.0).abs() < 0.1, "{} not {once}", outcome.verifications);
        // Each message has its part of the tree and its way to the root.
        let verified = 50.0 * outcome.verifications;
        assert!((outcome.cpu_us["protection"] - 3.0).abs() < 0.2, "{:?}", outcome.cpu_us);
        assert!((outcome.cpu_us["devices"] / verified - 1.0).abs() < 0.1, "{:?}", outcome.cpu_us);
    }
}

#[test]
fn full_batches_are_signed_at_once() {
    // Four engines, and as many full batches as keep them busy: the policy's own limit is what a signature proves.
    let mut system = System { window: 256, ..card(4, 1000.0) };
    system.class.sign_batch = 8;
    let outcome = run(&system, Settings { measured: 40_000, ..Settings::for_window(5, 256) });
    assert!(outcome.together > 7.5, "{}", outcome.together);
    assert!((outcome.rate / 32_000.0 - 1.0).abs() < 0.1, "{}", outcome.rate);
}

#[test]
fn the_processor_makes_fuller_batches_of_what_it_is_about_to_bring() {
    // Two cores for all of it: what is left over by one signature waits for those that the other core brings. Without
    // that a batch is of 60.
    let mut system = System { window: 1024, adapters: 2, ..card(1, 0.0) };
    system.devices.clear();
    system.cores = Machine { count: 2, slice_us: 3000.0, ..Machine::default() };
    (system.class.sign_batch, system.class.cpu[Operation::Sign as usize]) = (256, Some(800.0));
    system.class.app_put = Step { turn: 0.0, message: 15.0, far: 0.0 };
    (system.class.qm_put, system.class.qm_get) =
        (Step { turn: 2.0, message: 2.0, far: 0.0 }, Step { turn: 2.0, message: 2.0, far: 0.0 });
    let outcome = run(&system, Settings::for_window(5, 256));
    assert!(outcome.complete, "a message was lost");
    assert!(outcome.together > 100.0, "{}", outcome.together);
}

#[test]
fn content_keys_that_are_wrapped_first_are_shared_in_signatures_too() {
    let mut system = System { window: 300, pairs: 2, ..card(2, 300.0) };
    system.class.seal_steps = vec![Operation::Wrap, Operation::Sign];
    system.class.open_steps = vec![Operation::Unwrap, Operation::Verify];
    system.class.cpu = [None, Some(50.0), Some(20.0), Some(20.0)];
    (system.class.sign_batch, system.adapters, system.cores.count) = (64, 2, 2);
    let outcome = run(&system, Settings::for_window(3, 600));
    assert!(outcome.complete, "a message was lost");
    // Two cards are quick, so that few messages wait for one.
    assert!(outcome.together > 4.0 && outcome.together <= 64.0, "{}", outcome.together);
}
