//! Transactions on the wire (part 4).

use super::peer::*;
use crate::transaction::{Control, Declare, Discharge, LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN, TXN_ID_BYTES_MAX};
use crate::types::{Attach, Disposition, Flow, Transfer};
use crate::{
    AnyTarget, AttachReply, AttachRequest, Coordinator, DecodeError, DeliveryState, Event, Payload, Role, Symbol,
    Value, condition,
};
use bytes::Bytes;

fn message(bytes: &[u8]) -> Payload {
    Payload::from(Bytes::copy_from_slice(bytes))
}

fn txn(id: &'static [u8]) -> Bytes {
    Bytes::from_static(id)
}

/// The bytes that the standard's types come to, by hand: section, descriptor, list.
#[test]
fn what_is_said_to_a_coordinator_has_the_standards_bytes() {
    let said: [(&[u8], Control); 6] = [
        (b"\x00\x53\x77\x00\x53\x31\x45", Control::Declare(Declare { global_id: None })),
        (
            b"\x00\x53\x77\x00\x53\x31\xc0\x03\x01\x52\x07",
            Control::Declare(Declare { global_id: Some(Value::Uint(7)) }),
        ),
        (
            b"\x00\x53\x77\x00\x53\x32\xc0\x05\x01\xa0\x02ab",
            Control::Discharge(Discharge { txn_id: txn(b"ab"), fail: false }),
        ),
        (
            b"\x00\x53\x77\x00\x53\x32\xc0\x06\x02\xa0\x02ab\x41",
            Control::Discharge(Discharge { txn_id: txn(b"ab"), fail: true }),
        ),
        // Symbolic descriptors, and the false that could have been left out.
        (
            b"\x00\xa3\x11amqp:amqp-value:*\x00\xa3\x11amqp:declare:list\x45",
            Control::Declare(Declare { global_id: None }),
        ),
        (
            b"\x00\x53\x77\x00\xa3\x13amqp:discharge:list\xc0\x06\x02\xa0\x02ab\x42",
            Control::Discharge(Discharge { txn_id: txn(b"ab"), fail: false }),
        ),
    ];
    for (bytes, control) in said {
        assert_eq!(Control::read(&message(bytes)), Ok(control.clone()), "{bytes:02x?}");
        if !bytes.contains(&0xa3) {
            assert_eq!(control.to_message().to_contiguous(), bytes);
        }
    }
}

#[test]
fn what_else_is_sent_to_a_coordinator_is_an_error() {
    let wrong: [(&[u8], DecodeError); 8] = [
        (b"", DecodeError::Value { of: "declare or discharge" }),
        (b"\x00\x53\x75\xa0\x00", DecodeError::Value { of: "declare or discharge" }),
        (b"\x00\x53\x76\x45", DecodeError::Descriptor { wanted: "amqp-value", code: 0x76 }),
        (b"\x00\x53\x77\x40", DecodeError::Type { wanted: "declare or discharge", code: 0x40 }),
        (b"\x00\x53\x77\x00\x53\x33\x45", DecodeError::Descriptor { wanted: "declare or discharge", code: 0x33 }),
        (b"\x00\x53\x77\x00\x53\x32\x45", DecodeError::Missing { of: "Discharge", field: "txn_id" }),
        (b"\x00\x53\x77\x00\x53\x32\xc0\x06\x02\xa0\x02ab\x43", DecodeError::Type { wanted: "boolean", code: 0x43 }),
        (b"\x00\x53\x77\x00\x53\x31\xc0\x03\x02\x40\x40", DecodeError::Surplus),
    ];
    for (bytes, error) in wrong {
        assert_eq!(Control::read(&message(bytes)), Err(error), "{bytes:02x?}");
    }
}

#[test]
fn states_of_transactions_have_the_standards_bytes() {
    let states: [(&[u8], DeliveryState); 3] = [
        (b"\x00\x53\x33\xc0\x05\x01\xa0\x02ab", DeliveryState::Declared { txn_id: txn(b"ab") }),
        (b"\x00\x53\x34\xc0\x05\x01\xa0\x02ab", DeliveryState::Transactional { txn_id: txn(b"ab"), outcome: None }),
        (
            b"\x00\x53\x34\xc0\x09\x02\xa0\x02ab\x00\x53\x24\x45",
            DeliveryState::Transactional { txn_id: txn(b"ab"), outcome: Some(Box::new(DeliveryState::Accepted)) },
        ),
    ];
    for (bytes, state) in states {
        let mut out = Vec::new();
        crate::codec::Encode::encode(&state, &mut out);
        assert_eq!(out, bytes);
    }
}

#[test]
fn a_coordinator_that_is_accepted_says_what_it_can_do() {
    let mut peer = Peer::begun(config());
    let wanted = AnyTarget::Coordinator(Coordinator { capabilities: vec![LOCAL_TRANSACTIONS] });
    peer.send(0, &Attach { target: Some(wanted), ..attach(Role::Sender) });
    let link = peer.asked();
    let coordinator = Coordinator { capabilities: vec![LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN] };
    let reply = AttachReply { coordinator: Some(coordinator.clone()), ..AttachReply::default() };
    peer.engine.accept_link(link, reply);
    let [Frame::Attach(answer)] = &peer.frames()[..] else { panic!() };
    assert_eq!(answer.target, Some(AnyTarget::Coordinator(coordinator)));

    peer.engine.set_credit(link, 10);
    let declare = Control::Declare(Declare { global_id: None }).to_message().to_contiguous();
    peer.frames();
    peer.transfer(0, &transfer(0), &declare);
    let [Event::Delivery(delivery)] = &peer.events()[..] else { panic!() };
    assert!(matches!(Control::read(&delivery.payload), Ok(Control::Declare(_))));
    peer.engine.dispose(link, delivery.id, DeliveryState::Declared { txn_id: txn(b"t") });
    let [Frame::Disposition(Disposition { settled: true, state: Some(state), .. })] = &peer.frames()[..] else {
        panic!()
    };
    assert_eq!(*state, DeliveryState::Declared { txn_id: txn(b"t") });
}

#[test]
fn a_client_asks_for_a_coordinator_and_not_for_a_target() {
    let mut pair = super::pair::Pair::opened();
    let session = pair.client.begin();
    let wanted = Coordinator { capabilities: vec![LOCAL_TRANSACTIONS] };
    pair.client.attach(session, AttachRequest::coordinator("units", wanted.clone()));
    pair.run();
    let asked = pair.server_events.iter().find_map(|event| match event {
        Event::Attached(asked) => Some(asked.clone()),
        _ => None,
    });
    assert_eq!(asked.unwrap().target, Some(AnyTarget::Coordinator(wanted)));
}

#[test]
fn each_frame_of_a_transactional_message_names_its_transaction() {
    let (mut peer, link) = {
        let config = config();
        let mut peer = Peer::new(config, offer());
        peer.bytes(AMQP_HEADER);
        peer.send(0, &crate::Open { max_frame_size: 512, ..open() });
        peer.events();
        peer.frames();
        peer.send(0, &begin());
        peer.events();
        peer.frames();
        let link = peer.attach(&attach(Role::Receiver));
        (peer, link)
    };
    peer.send(0, &credit(0, 0, 10));
    peer.events();
    let body = Payload::from(Bytes::from(vec![9; 1_000]));
    assert!(!peer.engine.send_in(link, 1, body.clone(), false, Bytes::from(vec![0; TXN_ID_BYTES_MAX + 1])));
    let id = Bytes::from(vec![0xaa; TXN_ID_BYTES_MAX]);
    assert!(peer.engine.send_in(link, 1, body, false, id.clone()));
    let state = DeliveryState::Transactional { txn_id: id, outcome: None };
    let frames = peer.frames();
    let mut bytes = 0;
    for (at, frame) in frames.iter().enumerate() {
        let Frame::Transfer(sent, part) = frame else { panic!("{frame:?}") };
        let wanted =
            Transfer { settled: Some(false), more: at + 1 < frames.len(), state: Some(state.clone()), ..transfer(0) };
        assert_eq!(*sent, wanted);
        bytes += part.len();
    }
    assert_eq!((bytes, frames.len()), (1_000, 3));
}

#[test]
fn the_transaction_of_a_flow_is_told_before_its_credit() {
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    let flow =
        |txn_id, count| Flow { properties: vec![(Symbol::from_static("txn-id"), txn_id)], ..credit(0, 0, count) };
    let credit = |credit| Event::Credit { link, credit, drain: false };
    peer.send(0, &flow(Value::Binary(txn(b"t")), 1));
    assert_eq!(peer.events(), [Event::Acquires { link, txn_id: Some(txn(b"t")) }, credit(1)]);
    peer.send(0, &flow(Value::Null, 2));
    assert_eq!(peer.events(), [Event::Acquires { link, txn_id: None }, credit(2)]);
    peer.send(0, &flow(Value::Uint(1), 3));
    let [Event::Detached { link: gone, error: Some(error), .. }] = &peer.events()[..] else { panic!() };
    assert_eq!((*gone, &error.condition), (link, &condition::INVALID_FIELD));
}

#[test]
fn a_message_that_waits_for_the_window_is_being_sent() {
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    peer.send(0, &Flow { incoming_window: 1, ..credit(0, 0, 10) });
    peer.events();
    assert!(peer.engine.send(link, 1, message(b"\x00\x53\x77\x40"), false));
    assert!(!peer.engine.is_sending(link));
    assert!(peer.engine.send(link, 2, message(b"\x00\x53\x77\x40"), false));
    assert!(peer.engine.is_sending(link));
}

/// The receiver's word on a delivery, in a transaction or not.
fn outcome_of(first: u32, last: u32, in_transaction: bool) -> Disposition {
    let accepted = DeliveryState::Accepted;
    let in_unit = DeliveryState::Transactional { txn_id: txn(b"t"), outcome: Some(Box::new(accepted.clone())) };
    Disposition {
        role: Role::Receiver,
        first,
        last: Some(last),
        settled: true,
        state: Some(if in_transaction { in_unit } else { accepted }),
        batchable: false,
    }
}

#[test]
fn an_outcome_in_a_transaction_on_a_link_or_session_that_has_ended_is_told_of() {
    let lost = Event::OutcomeLost { txn_id: txn(b"t") };
    for ends_session in [false, true] {
        let (mut peer, link) = Peer::attached(config(), Role::Receiver);
        peer.send(0, &credit(0, 0, 10));
        peer.events();
        for token in 0..4 {
            assert!(peer.engine.send(link, token, message(b"\x00\x53\x77\x40"), false));
        }
        peer.send(0, &outcome_of(1, 1, true));
        assert!(matches!(&peer.events()[..], [Event::Outcome { token: 1, .. }]), "the link is there");
        let session = peer.engine.link(link).unwrap().session;
        match ends_session {
            false => peer.engine.detach(link, true, None),
            true => peer.engine.end_session(session, None),
        }
        peer.send(0, &outcome_of(2, 2, true));
        assert_eq!(peer.events(), std::slice::from_ref(&lost));
        peer.send(0, &outcome_of(3, 3, false));
        assert_eq!(peer.events(), [], "outside of a transaction the message comes again, and that is all");
        if !ends_session {
            peer.send(0, &outcome_of(1, 1, true));
            assert_eq!(peer.events(), [], "that one was applied");
            // Also once the link is detached on both ends.
            peer.send(0, &crate::types::Detach { handle: 0, closed: true, error: None });
            peer.events();
            peer.send(0, &outcome_of(0, 1, true));
            assert_eq!(peer.events(), std::slice::from_ref(&lost));
        }
    }
}
