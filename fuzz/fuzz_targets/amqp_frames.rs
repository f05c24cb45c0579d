//! A server engine fed with anything: it accepts what it is asked, grants credit, settles, answers, and
//! its output is taken. The first byte says how the input is cut.
#![no_main]

use bulla_amqp::{
    AnyTarget, AttachReply, Config, Connection, DeliveryState, Event, Mechanism, Payload, Role, SaslOffer,
};
use bulla_amqp::transaction::Control;
use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, Instant};

fuzz_target!(|data: &[u8]| {
    let Some((cut, bytes)) = data.split_first() else { return };
    let mut now = Instant::now();
    let mut config = Config::new("fuzz");
    config.idle_timeout = Some(Duration::from_secs(60));
    config.limits.in_progress_bytes = 1 << 16;
    config.limits.link_unsettled = 64;
    config.limits.incoming_window = 32;
    let offer =
        SaslOffer { mechanisms: vec![Mechanism::Anonymous, Mechanism::Plain], allow_bare_amqp: true };
    let mut connection = Connection::server(config, offer, now);
    let mut input = BytesMut::new();
    let size = usize::from(*cut).max(1);
    for part in bytes.chunks(if size == 255 { bytes.len().max(1) } else { size * 8 }) {
        input.extend_from_slice(part);
        if connection.wants_input() {
            connection.receive(now, &mut input);
        }
        while let Some(event) = connection.poll_event() {
            answer(&mut connection, event);
        }
        let mut slices = Vec::new();
        let count = connection.output_slices(&mut slices);
        assert_eq!(count, slices.iter().map(|slice| slice.len()).sum::<usize>());
        drop(slices);
        connection.output_written(count / 2 + 1);
        now += Duration::from_secs(1);
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
    }
});

fn answer(connection: &mut Connection, event: Event) {
    match event {
        Event::SaslInit { .. } | Event::SaslResponse(_) => connection.sasl_outcome(true),
        Event::Attached(attach) => {
            let (target, coordinator) = match attach.target {
                Some(AnyTarget::Target(target)) => (Some(target), None),
                Some(AnyTarget::Coordinator(coordinator)) => (None, Some(coordinator)),
                None => (None, None),
            };
            let source = attach.source;
            let reply =
                AttachReply { source, target, coordinator, max_message_size: 1 << 15, ..AttachReply::default() };
            connection.accept_link(attach.link, reply);
            if attach.role == Role::Receiver {
                connection.set_credit(attach.link, 10);
            }
        }
        Event::Delivery(delivery) => {
            let outcome = match Control::read(&delivery.payload) {
                Ok(control) => {
                    assert_eq!(Control::read(&control.to_message()).as_ref(), Ok(&control));
                    DeliveryState::Declared { txn_id: Bytes::from_static(b"fuzz") }
                }
                Err(_) => match delivery.state {
                    Some(DeliveryState::Transactional { txn_id, .. }) => {
                        DeliveryState::Transactional { txn_id, outcome: Some(Box::new(DeliveryState::Accepted)) }
                    }
                    _ => DeliveryState::Accepted,
                },
            };
            connection.dispose(delivery.link, delivery.id, outcome);
            connection.set_credit(delivery.link, 10);
        }
        Event::Credit { link, drain, .. } => {
            for token in 0..4 {
                if connection.can_send(link) {
                    connection.send(link, token, Payload::from(Bytes::from(vec![7; 700])), token % 2 == 0);
                }
            }
            if drain {
                connection.drained(link);
            }
        }
        Event::Outcome { link, token, settled: false, .. } => {
            connection.settle(link, token, DeliveryState::Accepted);
        }
        _ => {}
    }
}
