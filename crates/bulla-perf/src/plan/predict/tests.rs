//! Predictions beside what was published, and beside what must hold of any.

use super::*;
use crate::configuration::Reuse;
use crate::plan::profile::{Cores, Cost, Journal, Operation, Operations, Pace, PutGet, SealOpen, Times};
use std::path::Path;

fn serial() -> Profile {
    let text = include_str!("../../../../../docs/operating/profiles/serial-channel-published.toml");
    Profile::parse(text, Path::new("serial-channel-published.toml")).unwrap()
}

fn near(found: f64, wanted: f64, part: f64) {
    assert!((found - wanted).abs() <= part * wanted, "{found} instead of {wanted}");
}

fn configuration(quality: Quality, reuse: Reuse, in_flight: u32) -> Configuration {
    let key = if quality == Quality::None { String::new() } else { "rsa2048".to_owned() };
    Configuration { quality, key, reuse, in_flight, ..Configuration::default() }
}

#[test]
fn the_published_channel_reaches_the_published_rates() {
    let predict_at = |quality, reuse, target_rate| {
        predict(&serial(), &Configuration { target_rate, ..configuration(quality, reuse, 64) }).unwrap()
    };
    // 10,000 messages a second were wanted of each.
    let integrity = predict_at(Quality::Integrity, Reuse::Times(0), 10_000);
    near(integrity.rate, 3250.0, 0.03);
    assert_eq!((integrity.held, integrity.bottleneck.as_str()), (Some(false), "channel"));
    let privacy = predict_at(Quality::Privacy, Reuse::Times(0), 10_000);
    near(privacy.rate, 2510.0, 0.03);
    let reused = predict_at(Quality::Confidentiality, Reuse::Times(32), 10_000);
    near(reused.rate, 10_000.0, 0.03);
    assert_eq!(reused.held, Some(true));
    near(reused.stations[0].utilisation, 0.5, 0.01);
    // Random arrivals at half load wait a quarter of a service time on average, M/D/1: 75 µs with the service.
    near(reused.latency_us.mean, 75.0, 0.01);
    // Between two known reuses the time follows the share of new keys.
    let between = predict_at(Quality::Confidentiality, Reuse::Times(3), 0);
    assert!(between.rate > 7750.0 && between.rate < 20_000.0, "{}", between.rate);
    let beyond = predict(&serial(), &configuration(Quality::Confidentiality, Reuse::Unlimited, 64));
    assert!(beyond.unwrap_err().to_string().contains("reuse unlimited"), "nothing was published of it");
}

/// A machine like those on which this was written: two cores, lanes that are four times as fast, and a dispatcher.
fn two_cores() -> Profile {
    let mut profile = Profile::empty("two cores", "made up for a test");
    profile.cores = Cores { count: 2, wake_up_us: 5.0, wake_us: 1.0, ..Cores::default() };
    profile.threads.adapters = 2;
    let cost = |turn_us, message_us, byte_ns| Cost { turn_us, message_us, byte_ns, ..Cost::default() };
    profile.costs.application = PutGet { put: cost(2.0, 0.3, 0.1), get: cost(2.0, 0.3, 0.1) };
    profile.costs.queue_manager = PutGet { put: cost(3.0, 0.5, 0.1), get: cost(3.0, 0.5, 0.1) };
    profile.costs.hand_over_us = 2.0;
    profile.costs.protection.task_us = 3.0;
    profile.costs.protection.job_us = 2.0;
    let part = SealOpen { seal_us: 3.0, seal_byte_ns: 0.5, open_us: 4.0, open_byte_ns: 0.5 };
    profile.costs.protection.integrity = part;
    profile.costs.protection.privacy = part;
    profile.costs.protection.confidentiality = part;
    profile.costs.protection.live = SealOpen { seal_us: 1.0, open_us: 1.5, ..part };
    for (key, [sign, verify, wrap, unwrap]) in
        [("rsa2048", [355.0, 20.0, 21.0, 364.0]), ("rsa4096", [1963.0, 72.0, 73.0, 2695.0])]
    {
        let operations = |divide: f64| Operations {
            sign: Some(Times { alone: sign * 8.0 / divide / 2.0, full: sign / divide }),
            verify: Some(Times { alone: verify * 8.0 / divide / 2.0, full: verify / divide }),
            wrap: Some(Times { alone: wrap * 8.0 / divide / 2.0, full: wrap / divide }),
            unwrap: Some(Times { alone: unwrap * 8.0 / divide / 2.0, full: unwrap / divide }),
        };
        let mut alone = Operations::default();
        for (operation, us) in Operation::ALL.into_iter().zip([sign, verify, wrap, unwrap]) {
            alone.set(operation, us.into());
        }
        profile.cpu.insert(key.into(), alone);
        let device = profile.devices.entry("ACCELERATOR".into()).or_insert_with(|| Device {
            kind: DeviceKind::Accelerator,
            modelled: false,
            place: Place::Cores,
            engines: 1,
            lanes: 8,
            pending: 8,
            call_us: 2.0,
            job_us: 0.5,
            operations: BTreeMap::new(),
            me_us: BTreeMap::new(),
            crt_us: BTreeMap::new(),
        });
        device.operations.insert(key.into(), operations(3.3));
    }
    profile
}

#[test]
fn many_signatures_on_two_cores_fill_the_cores() {
    let profile = two_cores();
    let found = predict(&profile, &configuration(Quality::Integrity, Reuse::Times(0), 512)).unwrap();
    assert_eq!(found.bottleneck, "cores", "{found:?}");
    near(found.cores_busy, 2.0, 0.02);
    near(found.rate, 2e6 / found.process_cpu_us(), 0.02);
    near(found.cpu_us["devices"], 375.0, 0.01);
    assert!(found.rate <= found.bound * 1.01, "{} beyond {}", found.rate, found.bound);
    assert!(found.rate > 0.9 * found.bound, "{} far from {}", found.rate, found.bound);
}

#[test]
fn accelerators_bring_more_and_longer_keys_less() {
    let profile = two_cores();
    let rate = |devices: &str, key: &str| {
        let one = configuration(Quality::Integrity, Reuse::Times(0), 512);
        predict(&profile, &Configuration { devices: devices.into(), key: key.into(), ..one }).unwrap().rate
    };
    assert!(rate("2a", "rsa2048") > 1.8 * rate("cpu", "rsa2048"));
    assert!(rate("2a", "rsa2048") > 1.05 * rate("1a", "rsa2048"));
    assert!(rate("2a", "rsa4096") < 0.3 * rate("2a", "rsa2048"));
}

#[test]
fn a_content_key_is_unwrapped_once_whether_or_not_a_dispatcher_looked_for_it_first_and_on_every_link() {
    let profile = two_cores();
    let devices = |pairs, bytes| {
        let one = configuration(Quality::Confidentiality, Reuse::Times(32), 512);
        predict(&profile, &Configuration { pairs, bytes, ..one }).unwrap().cpu_us["devices"]
    };
    // A wrap and an unwrap for 33 messages.
    let once = (21.0 + 364.0) / 33.0;
    for (pairs, bytes) in [(1, 65_537), (1, 2048), (4, 2048)] {
        near(devices(pairs, bytes), once, 0.05);
    }
}

#[test]
fn cores_that_are_half_as_fast_do_half_as_much_and_a_card_does_not_care() {
    let mut profile = two_cores();
    let pace = |rsa_us| Pace { rsa_us, ..Pace::default() };
    assert_eq!(profile.at_pace(pace(200.0)), profile, "without a pace of its own a profile stays as it is");
    profile.cores.pace_us = 100.0;
    assert_eq!(profile.at_pace(pace(0.0)), profile);
    for devices in ["cpu", "1a"] {
        let one = configuration(Quality::Integrity, Reuse::Times(0), 512);
        let one = Configuration { devices: devices.into(), ..one };
        let rate = |profile: &Profile| predict(profile, &one).unwrap().rate;
        near(rate(&profile.at_pace(pace(200.0))), rate(&profile) / 2.0, 0.03);
    }
    let card = profile.devices.get_mut("ACCELERATOR").unwrap();
    card.place = Place::Card;
    assert_eq!(profile.at_pace(pace(200.0)).devices, profile.devices);
}

#[test]
fn curves_follow_a_signature_of_their_own_where_it_is_known() {
    let mut profile = two_cores();
    let rsa = profile.cpu["rsa2048"];
    profile.cpu.insert("p521".into(), rsa);
    let sign = |profile: &Profile, key: &str| profile.cpu[key].sign.unwrap().alone;
    let times = |to: Pace, profile: &Profile| {
        let paced = profile.at_pace(to);
        ["rsa2048", "p521"].map(|key| (100.0 * sign(&paced, key) / sign(profile, key)).round())
    };
    (profile.cores.pace_us, profile.cores.curve_pace_us) = (100.0, 400.0);
    assert_eq!(times(Pace { rsa_us: 120.0, curve_us: 600.0 }, &profile), [120.0, 150.0]);
    assert_eq!(times(Pace { rsa_us: 120.0, curve_us: 0.0 }, &profile), [120.0, 120.0]);
    // A fit to runs at another pace stretches all operations alike; the curve's part beyond that is there already.
    let mut fitted = profile.clone();
    fitted.fitted_at(Pace { rsa_us: 110.0, curve_us: 550.0 });
    assert_eq!((sign(&fitted, "rsa2048"), fitted.cores.pace_us), (sign(&profile, "rsa2048"), 110.0));
    assert!((sign(&fitted, "p521") / sign(&profile, "p521") - 1.25).abs() < 1e-9);
}

#[test]
fn reused_keys_leave_the_dispatcher_as_the_limit() {
    let found = predict(&two_cores(), &configuration(Quality::Confidentiality, Reuse::Unlimited, 512)).unwrap();
    assert_eq!(found.bottleneck, "dispatcher", "{found:?}");
    assert!(found.cores_busy < 1.9, "{found:?}");
}

#[test]
fn a_request_and_its_reply_take_their_parts_one_after_the_other() {
    let profile = two_cores();
    let bare = predict(&profile, &configuration(Quality::None, Reuse::Times(0), 1)).unwrap();
    let sealed = predict(&profile, &configuration(Quality::Integrity, Reuse::Times(0), 1)).unwrap();
    assert_eq!((bare.workload, bare.bottleneck.as_str()), (Workload::RequestReply, "in-flight"));
    // Two signatures and two verifications, and four wake-ups of an adapter.
    let added = sealed.latency_us.mean - bare.latency_us.mean;
    assert!((750.0..850.0).contains(&added), "{added}");
    near(sealed.rate, 1e6 / sealed.latency_us.mean, 0.001);
}

#[test]
fn mean_value_analysis_and_simulation_agree_where_cores_are_all_there_is() {
    let mut profile = two_cores();
    profile.cores = Cores { count: 2, ..Cores::default() };
    profile.threads.adapters = 64;
    profile.costs.application = PutGet::default();
    profile.costs.queue_manager = PutGet::default();
    for in_flight in [1, 64, 512] {
        let found = predict(&profile, &configuration(Quality::Integrity, Reuse::Times(0), in_flight)).unwrap();
        near(found.rate, found.mean_value_rate, 0.05);
    }
}

#[test]
fn a_card_is_filled_by_what_it_does_and_by_what_others_send() {
    let mut profile = two_cores();
    let card = Device {
        place: Place::Card,
        lanes: 1,
        operations: BTreeMap::new(),
        me_us: BTreeMap::from([("2048".into(), 46.0)]),
        crt_us: BTreeMap::from([("2048".into(), 507.0)]),
        ..profile.devices["ACCELERATOR"].clone()
    };
    profile.devices.insert("ACCELERATOR".into(), card);
    profile.cpu.clear();
    let one = Configuration { devices: "1a".into(), ..configuration(Quality::Integrity, Reuse::Times(0), 512) };
    let found = predict(&profile, &one).unwrap();
    near(found.rate, 1e6 / 553.0, 0.01);
    assert_eq!(found.bottleneck, "ACCELERATOR1");
    assert!(found.cpu_us["devices"] < 1e-6, "a card takes no processor time: {:?}", found.cpu_us);
    let paced = predict(&profile, &Configuration { target_rate: 900, ..one.clone() }).unwrap();
    near(paced.devices[0].utilisation, 900.0 * 553.0 / 1e6, 0.03);
    assert_eq!(paced.held, Some(true));
    // Half of it is another program's.
    profile.load = vec![super::super::profile::Load {
        device: "ACCELERATOR".into(),
        format: super::super::profile::Format::Crt,
        bits: 2048,
        rate: 0.5e6 / 507.0,
    }];
    let shared = predict(&profile, &one).unwrap();
    near(shared.rate, 0.5e6 / 553.0, 0.02);
}

#[test]
fn a_lone_persistent_message_waits_for_its_sync() {
    let mut profile = two_cores();
    profile.journal = Journal { sync_us: 70.0, bytes_per_second: 0.0, group_commit: true };
    let one = Configuration { persistent: true, ..configuration(Quality::None, Reuse::Times(0), 1) };
    let lone = predict_workload(&profile, &one, Workload::Stream, 1).unwrap();
    assert!((70.0..130.0).contains(&lone.latency_us.mean), "{lone:?}");
    let many = predict_workload(&profile, &Configuration { in_flight: 1000, ..one }, Workload::Stream, 1).unwrap();
    assert!(many.rate > 20.0 * lone.rate, "{} and {}", lone.rate, many.rate);
}

#[test]
fn what_a_profile_does_not_describe_is_refused() {
    let profile = two_cores();
    let one = configuration(Quality::Integrity, Reuse::Times(0), 64);
    for (one, says) in [
        (Configuration { key: "p256".into(), ..one.clone() }, "does not say what sign takes with p256"),
        (Configuration { devices: "1c".into(), ..one.clone() }, "describes no coprocessor"),
        (Configuration { devices: "modelled:1a".into(), ..one.clone() }, "describes no modelled accelerator"),
        (Configuration { devices: "many".into(), ..one.clone() }, "many: cpu, software"),
        (Configuration { devices: "99a".into(), ..one.clone() }, "at most 32 devices"),
        (Configuration { topology: "ring".into(), ..one.clone() }, "topology ring is not planned"),
        (Configuration { in_flight: 60_000, pairs: 60, ..one.clone() }, "of all pairs together"),
        (Configuration { devices: "software".into(), ..one }, "does not say what sign takes"),
    ] {
        let said = predict(&profile, &one).unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn the_cheapest_setup_that_holds_a_rate_is_found() {
    use crate::plan::target::cheapest;
    let profile = two_cores();
    let one = configuration(Quality::Integrity, Reuse::Times(0), 512);
    let found = cheapest(&profile, &one, Workload::Stream, 1, 10_000).unwrap();
    let (setup, prediction) = (found.setup.unwrap(), found.prediction.unwrap());
    assert_eq!(prediction.held, Some(true));
    assert!(setup.cores <= 3 && setup.devices.ends_with('a'), "lanes are cheaper than cores: {setup:?}");
    assert!(found.passed_over > 0);
    let none = cheapest(&profile, &one, Workload::Stream, 1, 100_000_000).unwrap();
    assert!(none.setup.is_none() && none.computed == 0, "{none:?}");
    let channel =
        cheapest(&serial(), &configuration(Quality::Integrity, Reuse::Times(0), 64), Workload::Stream, 1, 10_000);
    assert!(channel.unwrap().setup.is_none(), "one message at a time can't");
}

#[test]
fn a_change_is_predicted_beside_what_it_changes() {
    use crate::plan::what_if::what_if;
    let profile = two_cores();
    let one = configuration(Quality::Integrity, Reuse::Times(0), 512);
    let before = predict(&profile, &one).unwrap().rate;
    let rate = |change: &str| what_if(&profile, &one, Workload::Stream, 1, change).unwrap().prediction.rate;
    assert!(rate("rsa=4096") < 0.3 * before);
    near(rate("cores=4"), 2.0 * before, 0.1);
    assert!(rate("accelerators=2") > 1.8 * before);
}

#[test]
fn a_profile_that_says_nothing_of_messages_gives_no_rate() {
    let text = include_str!("../../../../../docs/operating/profiles/accelerator-published.toml");
    let card = Profile::parse(text, Path::new("accelerator-published.toml")).unwrap();
    let refused = predict(&card, &configuration(Quality::None, Reuse::Times(0), 512)).unwrap_err();
    assert!(matches!(&refused, Error::Usage(why) if why.contains("profile accelerator")), "{refused}");
    let refused = predict(&card, &configuration(Quality::Privacy, Reuse::Times(0), 512)).unwrap_err();
    assert!(matches!(refused, Error::Usage(_)), "{refused}");
}

#[test]
fn one_signature_for_many_messages_lets_a_longer_key_cost_little() {
    let mut profile = two_cores();
    profile.costs.protection.batch = SealOpen { seal_us: 4.0, open_us: 3.0, ..SealOpen::default() };
    let predicted = |key: &str, sign_batch, in_flight| {
        let one = configuration(Quality::Integrity, Reuse::Times(0), in_flight);
        predict(&profile, &Configuration { key: key.into(), sign_batch, ..one }).unwrap()
    };
    let (alone, shared) = (predicted("rsa4096", 1, 128), predicted("rsa4096", 64, 128));
    assert_eq!(alone.sharing, None);
    assert!(shared.rate > 8.0 * alone.rate, "{} beside {}", shared.rate, alone.rate);
    let sharing = shared.sharing.unwrap();
    assert!(sharing.together > 16.0 && sharing.together <= 64.0, "{sharing:?}");
    near(shared.operations["sign"], 1.0 / sharing.together, 1e-9);
    near(shared.operations["verify"], sharing.verifications, 1e-9);
    assert!(shared.rate <= shared.bound * 1.02, "{} beyond {}", shared.rate, shared.bound);
    let said = crate::plan::text::prediction(&shared);
    assert!(
        said.contains("rsa4096, batch 64, 2 KB") && said.contains("messages a signature on average, 64 at most"),
        "{said}"
    );
    // No more share one than are in flight, and one alone has its own, without a tree.
    let few = predicted("rsa4096", 64, 4);
    assert!(few.sharing.unwrap().together <= 4.0, "{few:?}");
    let lonely = predicted("rsa4096", 64, 1);
    near(lonely.sharing.unwrap().together, 1.0, 1e-9);
    near(lonely.latency_us.mean, predicted("rsa4096", 1, 1).latency_us.mean, 0.01);
    // A longer key makes more wait: it loses less than where each message has its own.
    let kept = shared.rate / predicted("rsa2048", 64, 128).rate;
    assert!(kept > alone.rate / predicted("rsa2048", 1, 128).rate, "{kept}");
}

#[test]
fn a_channel_that_protects_one_message_at_a_time_shares_no_signature() {
    let one = Configuration { sign_batch: 64, ..configuration(Quality::Integrity, Reuse::Times(0), 64) };
    let said = predict(&serial(), &one).unwrap_err().to_string();
    assert!(said.contains("each has a signature of its own"), "{said}");
}

#[test]
fn a_profile_of_before_shared_signatures_says_what_is_assumed_of_them() {
    let text = toml::to_string(&two_cores()).unwrap();
    let before: String = text
        .split_inclusive('\n')
        .scan(false, |skips, line| {
            if line.starts_with('[') {
                *skips = line.starts_with("[costs.protection.batch]");
            }
            Some(if *skips { "" } else { line })
        })
        .collect();
    assert_ne!(text, before);
    let read = |text: &str| Profile::parse(text, Path::new("x.toml")).unwrap().costs.protection.batch;
    assert_eq!(read(&text), SealOpen::default());
    assert_eq!(read(&before), SealOpen { seal_us: 5.0, open_us: 5.0, ..SealOpen::default() });
}
