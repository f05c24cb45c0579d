//! Predictions of the trading workload beside what must hold of any.

use super::costs::{Ends, Handshakes, Https, Mix, Order, Software};
use super::{Customers, Setup, predict};
use crate::configuration::{Configuration, Quality};
use crate::plan::Profile;
use crate::plan::predict::Prediction;
use crate::plan::profile::{Device, DeviceKind, Operation, Operations, Place, Times};
use std::collections::BTreeMap;

fn operations(private: f64, public: f64) -> Operations {
    let mut operations = Operations::default();
    for operation in Operation::ALL {
        let is_private = matches!(operation, Operation::Sign | Operation::Unwrap);
        operations.set(operation, if is_private { private } else { public }.into());
    }
    operations
}

/// Made up; one core would sign with RSA 4096 in 2 ms, in software in 6 ms.
fn profile() -> Profile {
    let ends = |queue_manager_us, application_us| Ends { queue_manager_us, application_us };
    let handshakes = Handshakes { full: ends(150.0, 150.0), resumed: ends(60.0, 60.0) };
    let mut profile = Profile::empty("two cores", "made up for a test");
    profile.cores.count = 2;
    profile.threads.adapters = 2;
    profile.cpu =
        [("rsa2048".to_owned(), operations(300.0, 20.0)), ("rsa4096".to_owned(), operations(2000.0, 60.0))].into();
    profile.software =
        [("rsa2048".to_owned(), operations(900.0, 40.0)), ("rsa4096".to_owned(), operations(6000.0, 90.0))].into();
    profile.https = Some(Https {
        tls12: handshakes,
        tls13: handshakes,
        get: ends(40.0, 40.0),
        get_4k: ends(50.0, 50.0),
        list: ends(60.0, 50.0),
        put: ends(50.0, 50.0),
        put_persistent: ends(80.0, 50.0),
        publish: ends(60.0, 50.0),
        order: Order { queue_manager_us: 200.0, application_us: 200.0, protection_us: 100.0 },
        mix: Mix::default(),
        software: Software { handshake_times: 1.5, request_times: 1.2 },
    });
    profile
}

fn asked(devices: &str) -> Configuration {
    let cipher = "ECDHE_RSA_AES_256_GCM_SHA384".to_owned();
    let (key, devices) = ("rsa4096".to_owned(), devices.to_owned());
    Configuration { key, devices, cipher, bytes: 0, in_flight: 16, requests: 1, ..Configuration::default() }
}

fn predicted(configuration: &Configuration, setup: &Setup) -> Prediction {
    predict(&profile(), configuration, setup, 1).unwrap()
}

#[test]
fn a_closed_system_answers_as_many_customers_as_it_has() {
    let one = predicted(&asked("cpu"), &Setup::default());
    // Little's law: customers are always under way.
    assert!((one.rate * one.latency_us.mean / 1e6 - 16.0).abs() < 0.5, "{one:?}");
    // One dispatcher computes the signatures: 1.08 of them a transaction, 2 ms each, and hardly more than that.
    assert!(one.rate > 380.0 && one.rate < 460.0, "{}", one.rate);
    assert_eq!(one.bottleneck, "dispatcher");
    assert!((one.operations["sign"] - 1.24).abs() < 1e-9, "{:?}", one.operations);
    assert_eq!(one, predicted(&asked("cpu"), &Setup::default()), "a seed gives the same again");
}

#[test]
fn what_saves_handshakes_saves_their_signatures() {
    let rate = |configuration: &Configuration| predicted(configuration, &Setup::default()).rate;
    let each = rate(&asked("cpu"));
    let ten = rate(&Configuration { requests: 10, ..asked("cpu") });
    assert!(ten > 4.0 * each, "{each} {ten}");
    let resumed = predicted(&Configuration { resumed: true, ..asked("cpu") }, &Setup::default());
    assert!(resumed.rate > ten && resumed.operations["sign"] < 0.2, "{resumed:?}");
    let short = rate(&Configuration { key: "rsa2048".into(), ..asked("cpu") });
    assert!(short > 2.0 * each, "{short}");
    assert!(rate(&asked("software")) < each / 2.0);
}

#[test]
fn a_card_that_is_derived_carries_what_was_asked_of_it_and_is_the_limit() {
    let setup = Setup { customers: Customers::Elsewhere, cores: Some(4), card_carries: Some(5.9), ..Setup::default() };
    let software = predicted(&asked("software"), &Setup { card_carries: None, ..setup.clone() });
    let one = predicted(&asked("modelled:1a"), &setup);
    assert!((one.rate / software.rate - 5.9).abs() < 0.3, "{} {}", software.rate, one.rate);
    let card = one.devices.iter().find(|device| device.name == "accelerator1").unwrap();
    assert!(card.utilisation > 0.95 && card.pending > 4.0, "{card:?}");
    assert_eq!(one.bottleneck, "accelerator1");
    assert!(one.remarks.iter().any(|remark| remark.contains("derived: RSA-CRT-4096=")), "{:?}", one.remarks);
    assert!(one.remarks.iter().any(|remark| remark.contains("modelled-cpu-us")), "{:?}", one.remarks);
    // A card computes by itself.
    assert_eq!(one.cpu_us["devices"], 0.0, "{:?}", one.cpu_us);
    let two = predicted(&asked("modelled:2a"), &setup);
    assert!(two.rate > one.rate, "{} {}", one.rate, two.rate);
}

#[test]
fn lanes_on_the_cores_take_signatures_from_the_dispatcher() {
    let mut with_lanes = profile();
    let full = |alone, full| Times { alone, full };
    let mut fast = Operations::default();
    fast.set(Operation::Sign, full(5000.0, 1000.0));
    let device = Device {
        kind: DeviceKind::Accelerator,
        modelled: false,
        place: Place::Cores,
        engines: 1,
        lanes: 8,
        pending: 0,
        call_us: 2.0,
        job_us: 0.5,
        operations: BTreeMap::from([("rsa4096".to_owned(), fast)]),
        me_us: BTreeMap::new(),
        crt_us: BTreeMap::new(),
    };
    with_lanes.devices.insert("accelerator".to_owned(), device);
    let lanes = predict(&with_lanes, &asked("1a"), &Setup::default(), 1).unwrap();
    let without = predicted(&asked("cpu"), &Setup::default());
    assert!(lanes.rate > 1.3 * without.rate, "{} {}", lanes.rate, without.rate);
}

#[test]
fn what_is_not_planned_and_what_a_profile_lacks_is_said() {
    let refused = |configuration: &Configuration| {
        predict(&profile(), configuration, &Setup::default(), 1).unwrap_err().to_string()
    };
    for (configuration, says) in [
        (Configuration { target_rate: 100, ..asked("cpu") }, "https is planned as fast as it goes"),
        (Configuration { quality: Quality::Privacy, ..asked("cpu") }, "leave quality"),
        (Configuration { key: String::new(), ..asked("cpu") }, "https needs the key"),
        (Configuration { in_flight: 1001, ..asked("cpu") }, "at most 1000 clients"),
        (Configuration { key: "p521".into(), ..asked("cpu") }, "what sign takes with p521"),
        (asked("1a"), "describes no accelerator"),
    ] {
        let said = refused(&configuration);
        assert!(said.contains(says), "{said}");
    }
    let old = Profile { https: None, format: 1, ..profile() };
    let said = predict(&old, &asked("cpu"), &Setup::default(), 1).unwrap_err().to_string();
    assert!(said.contains("format 1") && said.contains("bulla plan calibrate"), "{said}");
    assert!(old.lacks().unwrap().contains("[https]") && profile().lacks().is_none());
    let text = profile().to_toml().unwrap();
    assert_eq!(Profile::parse(&text, std::path::Path::new("here.toml")).unwrap(), profile(), "{text}");
    let early = text.replace("format = 2", "format = 1");
    let said = Profile::parse(&early, std::path::Path::new("here.toml")).unwrap_err().to_string();
    assert!(said.contains("https is there since format 2"), "{said}");
}
