//! Messages in and out, and what becomes of them.

use super::pair::Pair;
use super::peer::*;
use crate::codec::Encode;
use crate::types::{Attach, Detach, Disposition, Flow, Transfer};
use crate::{
    AttachRequest, Config, Delivery, DeliveryState, Error, Event, LinkId, Payload, ReceiverSettleMode, Role, condition,
};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

fn deliveries(events: Vec<Event>) -> Vec<Delivery> {
    events
        .into_iter()
        .map(|event| match event {
            Event::Delivery(delivery) => delivery,
            event => panic!("{event:?}"),
        })
        .collect()
}

fn payload(length: usize) -> Payload {
    Payload::from(Bytes::from((0..length).map(|n| (n % 251) as u8).collect::<Vec<u8>>()))
}

/// A receiving link with credit.
fn receiving(credit: u32) -> (Peer, LinkId) {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    peer.engine.set_credit(link, credit);
    peer.frames();
    (peer, link)
}

/// A sending link with demand.
fn sending(credit_given: u32) -> (Peer, LinkId) {
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    peer.send(0, &credit(0, 0, credit_given));
    peer.events();
    (peer, link)
}

/// The one error that detached the link.
fn detached(peer: &mut Peer, link: LinkId) -> crate::Symbol {
    let events = peer.events();
    let Some(Event::Detached { link: gone, closed: true, error: Some(error) }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(*gone, link);
    let frames = peer.frames();
    assert!(
        matches!(frames.last(), Some(Frame::Detach(Detach { closed: true, error: Some(sent), .. })) if sent == error),
        "{frames:?}"
    );
    error.condition.clone()
}

fn session_ended(peer: &mut Peer) -> crate::Symbol {
    let events = peer.events();
    let Some(Event::SessionEnded(_, Some(error))) = events.last() else { panic!("{events:?}") };
    assert!(matches!(peer.frames().last(), Some(Frame::End(end)) if end.error.as_ref() == Some(error)));
    error.condition.clone()
}

#[test]
fn a_message_arrives_as_it_was_sent() {
    let (mut peer, link) = receiving(10);
    for (id, length) in [(0, 0), (1, 5), (2, 255), (3, 256), (4, 50_000)] {
        let body = payload(length).to_contiguous();
        peer.transfer(0, &transfer(id), &body);
        let delivery = deliveries(peer.events()).pop().unwrap();
        assert_eq!(delivery.payload.to_contiguous(), body);
        assert_eq!((delivery.link, delivery.id.0, delivery.settled), (link, id, false));
        assert_eq!((delivery.format, delivery.beyond_credit, delivery.state), (0, false, None));
    }
}

#[test]
fn small_payloads_do_not_hold_the_read_buffer() {
    let (mut peer, _) = receiving(10);
    for (length, shares) in [(crate::COPY_IN_BYTES_MAX - 1, false), (crate::COPY_IN_BYTES_MAX, true)] {
        let bytes = frame(0, 0, &|out| transfer(length as u32).encode(out), &vec![7; length]);
        let mut input = BytesMut::from(&bytes[..]);
        let range = input.as_ptr_range();
        peer.engine.receive(peer.now, &mut input);
        let delivery = deliveries(peer.events()).pop().unwrap();
        assert_eq!(range.contains(&delivery.payload.chunks()[0].as_ptr()), shares);
    }
}

#[test]
fn a_copied_message_is_the_same_wherever_its_bytes_are_parted_and_holds_no_more_memory_than_its_frame() {
    let lengths = [0, 5, crate::COPY_IN_BYTES_MAX - 1, crate::COPY_IN_BYTES_MAX, 700, 3];
    let mut bytes = Vec::new();
    for (id, length) in (0..).zip(lengths) {
        bytes.extend(frame(0, 0, &|out| transfer(id).encode(out), &payload(length).to_contiguous()));
    }
    for parted in 0..bytes.len() {
        let (mut peer, _) = receiving(10);
        // What is read next lies where this lay.
        let mut room = vec![0; bytes.len()];
        let mut got = Vec::new();
        for part in [&bytes[..parted], &bytes[parted..]] {
            room[..part.len()].copy_from_slice(part);
            peer.engine.receive_copied(peer.now, &room[..part.len()]);
            room.fill(0xff);
            got.extend(deliveries(peer.events()));
        }
        assert_eq!(got.len(), lengths.len());
        for (delivery, length) in got.into_iter().zip(lengths) {
            assert_eq!(delivery.payload, payload(length), "parted at {parted}");
            if length == 0 {
                continue;
            }
            let bytes = delivery.payload.to_contiguous();
            drop(delivery);
            let owned = bytes.try_into_mut().expect("the memory is its own");
            assert!(owned.capacity() <= length + 64, "{} for {length}, parted at {parted}", owned.capacity());
        }
    }
}

#[test]
fn a_message_copied_byte_by_byte_arrives_as_it_was_sent() {
    let (mut peer, _) = receiving(10);
    let body = payload(1_000).to_contiguous();
    for byte in frame(0, 0, &|out| transfer(0).encode(out), &body) {
        assert!(peer.events().is_empty());
        peer.engine.receive_copied(peer.now, &[byte]);
    }
    assert_eq!(deliveries(peer.events()).pop().unwrap().payload.to_contiguous(), body);
}

#[test]
fn a_transfer_beyond_the_credit_is_marked() {
    let (mut peer, link) = receiving(1);
    peer.transfer(0, &transfer(0), b"a");
    peer.transfer(0, &transfer(1), b"b");
    let marks: Vec<bool> = deliveries(peer.events()).iter().map(|delivery| delivery.beyond_credit).collect();
    assert_eq!(marks, [false, true]);
    assert_eq!(peer.engine.credit(link), 0);
}

#[test]
fn a_settled_transfer_wants_no_disposition() {
    let (mut peer, link) = receiving(1);
    peer.transfer(0, &Transfer { settled: Some(true), ..transfer(0) }, b"a");
    let delivery = deliveries(peer.events()).pop().unwrap();
    assert!(delivery.settled);
    peer.engine.dispose(link, delivery.id, DeliveryState::Accepted);
    assert_eq!(peer.frames(), []);
}

#[test]
fn a_message_of_many_frames_is_one_delivery() {
    let (mut peer, _) = receiving(1);
    let body = payload(45_000).to_contiguous();
    for (n, part) in body.chunks(10_000).enumerate() {
        let more = (n + 1) * 10_000 < body.len();
        let first = n == 0;
        let frame = Transfer {
            delivery_id: first.then_some(0),
            delivery_tag: if first { transfer(0).delivery_tag } else { None },
            more,
            ..transfer(0)
        };
        peer.transfer(0, &frame, part);
    }
    let delivery = deliveries(peer.events()).pop().unwrap();
    assert_eq!(delivery.payload.to_contiguous(), body);
    assert_eq!(delivery.payload.chunks().len(), 5);
}

#[test]
fn small_frames_are_gathered() {
    let (mut peer, _) = receiving(1);
    for n in 0..1_000u32 {
        peer.transfer(0, &Transfer { more: n < 999, ..transfer(0) }, &[n as u8]);
    }
    let delivery = deliveries(peer.events()).pop().unwrap();
    assert_eq!((delivery.payload.len(), delivery.payload.chunks().len()), (1_000, 1));
}

#[test]
fn messages_of_several_links_may_interleave() {
    let (mut peer, one) = receiving(5);
    let two = peer.attach(&Attach { handle: 1, name: "two".into(), ..attach(Role::Sender) });
    peer.engine.set_credit(two, 5);
    peer.transfer(0, &Transfer { more: true, ..transfer(0) }, b"a");
    peer.transfer(0, &Transfer { more: true, handle: 1, ..transfer(1) }, b"b");
    peer.transfer(0, &Transfer { more: true, ..transfer(0) }, b"a");
    peer.transfer(0, &Transfer { handle: 1, ..transfer(1) }, b"b");
    peer.transfer(0, &transfer(0), b"a");
    let arrived = deliveries(peer.events());
    assert_eq!(arrived[0].link, two);
    assert_eq!(arrived[0].payload.to_contiguous(), "bb");
    assert_eq!(arrived[1].link, one);
    assert_eq!(arrived[1].payload.to_contiguous(), "aaa");
}

#[test]
fn an_aborted_delivery_vanishes_and_gives_its_credit_back() {
    let (mut peer, link) = receiving(1);
    peer.transfer(0, &Transfer { more: true, ..transfer(0) }, b"half");
    assert_eq!(peer.engine.credit(link), 0);
    peer.transfer(0, &Transfer { aborted: true, ..transfer(0) }, b"");
    assert_eq!(peer.events(), []);
    assert!(
        matches!(&peer.frames()[..], [Frame::Flow(flow)] if flow.link_credit == Some(1) && flow.delivery_count == Some(1))
    );
    peer.transfer(0, &Transfer { aborted: true, ..transfer(1) }, b"");
    assert!(
        matches!(&peer.frames()[..], [Frame::Flow(flow)] if flow.link_credit == Some(1) && flow.delivery_count == Some(2))
    );
    peer.transfer(0, &transfer(2), b"whole");
    let delivery = deliveries(peer.events()).pop().unwrap();
    assert!(!delivery.beyond_credit);
    assert_eq!(peer.engine.link(link).unwrap().unsettled, 1);
}

#[test]
fn a_message_longer_than_the_link_takes_detaches_it() {
    let long = |peer: &mut Peer, more| {
        peer.transfer(0, &Transfer { more, ..transfer(0) }, &[0; 600]);
        if more {
            peer.transfer(0, &transfer(0), &[0; 600]);
        }
    };
    for (limit, more) in [(599, false), (1_199, true)] {
        let mut peer = Peer::begun(config());
        peer.send(0, &attach(Role::Sender));
        let link = peer.asked();
        let reply = crate::AttachReply { max_message_size: limit, ..reply(&attach(Role::Sender)) };
        peer.engine.accept_link(link, reply);
        peer.engine.set_credit(link, 5);
        long(&mut peer, more);
        assert_eq!(detached(&mut peer, link), condition::MESSAGE_SIZE_EXCEEDED);
        peer.send(0, &Detach { handle: 0, closed: true, error: None });
        assert_eq!(peer.events(), [], "the host knows already");
    }
}

#[test]
fn bytes_of_messages_under_way_have_a_limit_for_the_connection() {
    let mut limited = config();
    limited.limits.in_progress_bytes = 1_000;
    let (mut peer, one) = Peer::attached(limited, Role::Sender);
    let two = peer.attach(&Attach { handle: 1, name: "two".into(), ..attach(Role::Sender) });
    peer.engine.set_credit(one, 5);
    peer.engine.set_credit(two, 5);
    peer.transfer(0, &Transfer { more: true, ..transfer(0) }, &[0; 600]);
    assert_eq!((peer.engine.in_progress(), peer.engine.arrived()), (600, 0));
    peer.transfer(0, &Transfer { more: true, handle: 1, ..transfer(1) }, &[0; 600]);
    assert_eq!(detached(&mut peer, two), condition::RESOURCE_LIMIT_EXCEEDED);
    // What the detached link held is free again.
    peer.transfer(0, &Transfer { more: true, ..transfer(0) }, &[0; 300]);
    peer.transfer(0, &transfer(0), &[0; 300]);
    assert_eq!(deliveries(peer.events())[0].payload.len(), 1_200);
    assert_eq!((peer.engine.in_progress(), peer.engine.arrived()), (0, 1));
}

#[test]
fn a_hundred_mebibytes_go_through() {
    let mut pair = Pair::opened();
    let (client, server) = pair.attach(AttachRequest::sender("link", "a"));
    pair.server.set_credit(server, 1);
    pair.run();
    let body = payload(100 << 20);
    assert!(pair.client.send(client, 1, body.clone(), true));
    pair.run();
    let delivery = deliveries(std::mem::take(&mut pair.server_events)).pop().unwrap();
    assert!(delivery.payload.to_contiguous() == body.to_contiguous());
}

#[test]
fn unsettled_deliveries_of_a_link_have_a_limit() {
    let mut limited = config();
    limited.limits.link_unsettled = 2;
    let (mut peer, link) = Peer::attached(limited.clone(), Role::Sender);
    peer.engine.set_credit(link, 10);
    for id in 0..3 {
        peer.transfer(0, &transfer(id), b"x");
    }
    assert_eq!(detached(&mut peer, link), condition::TRANSFER_LIMIT_EXCEEDED);
    let (mut peer, link) = Peer::attached(limited, Role::Receiver);
    peer.send(0, &credit(0, 0, 10));
    for token in 0..2 {
        assert!(peer.engine.can_send(link));
        peer.engine.send(link, token, payload(1), false);
    }
    assert!(!peer.engine.can_send(link));
    peer.send(0, &disposition(Role::Receiver, 0, None, true));
    assert!(peer.engine.can_send(link));
}

#[test]
fn transfers_beyond_the_window_end_the_session() {
    let mut limited = config();
    limited.limits.incoming_window = 4;
    let (mut peer, link) = Peer::attached(limited, Role::Sender);
    peer.engine.set_credit(link, 100);
    peer.frames();
    // The window is renewed at half, so a peer that looks at it never meets its end.
    for id in 0..20 {
        peer.transfer(0, &transfer(id), b"x");
    }
    let renewals = peer.frames();
    assert_eq!(renewals.len(), 10);
    assert!(matches!(
        &renewals[9],
        Frame::Flow(Flow { next_incoming_id: Some(20), incoming_window: 4, handle: None, .. })
    ));
}

#[test]
fn a_window_violation_has_its_error() {
    // Transfers that arrive after the window is used up: only an engine that never renewed would see them.
    let mut limited = config();
    limited.limits.incoming_window = 1;
    let (mut peer, link) = Peer::attached(limited, Role::Sender);
    peer.engine.set_credit(link, 100);
    peer.engine.exhaust_window(0);
    peer.transfer(0, &transfer(0), b"x");
    assert_eq!(session_ended(&mut peer), condition::WINDOW_VIOLATION);
}

#[test]
fn delivery_ids_must_grow_and_may_wrap() {
    let (mut peer, link) = receiving(10);
    peer.transfer(0, &transfer(u32::MAX), b"x");
    peer.transfer(0, &transfer(0), b"x");
    let arrived = deliveries(peer.events());
    for delivery in &arrived {
        peer.engine.dispose(link, delivery.id, DeliveryState::Accepted);
    }
    let [Frame::Disposition(sent)] = &peer.frames()[..] else { panic!() };
    assert_eq!((sent.first, sent.last), (u32::MAX, Some(0)));
    peer.transfer(0, &transfer(0), b"again");
    assert_eq!(session_ended(&mut peer), condition::INVALID_FIELD);
}

#[test]
fn transfers_that_contradict_the_link_are_errors() {
    let (mut peer, link) = receiving(1);
    peer.transfer(0, &Transfer { delivery_id: None, ..transfer(0) }, b"x");
    assert_eq!(detached(&mut peer, link), condition::INVALID_FIELD);

    let (mut peer, link) = receiving(1);
    peer.transfer(0, &Transfer { more: true, ..transfer(0) }, b"x");
    peer.transfer(0, &transfer(1), b"x");
    assert_eq!(detached(&mut peer, link), condition::INVALID_FIELD);

    let (mut peer, link) = sending(1);
    peer.transfer(0, &transfer(0), b"x");
    assert_eq!(detached(&mut peer, link), condition::NOT_ALLOWED);
}

#[test]
fn adjacent_equal_dispositions_become_one_frame() {
    let (mut peer, link) = receiving(10);
    for id in 0..7 {
        peer.transfer(0, &transfer(id), b"x");
    }
    let ids: Vec<_> = deliveries(peer.events()).iter().map(|delivery| delivery.id).collect();
    for id in &ids[..3] {
        peer.engine.dispose(link, *id, DeliveryState::Accepted);
    }
    peer.engine.dispose(
        link,
        ids[3],
        DeliveryState::Rejected(Some(Box::new(Error::new(condition::NOT_ALLOWED, "2053")))),
    );
    peer.engine.dispose(link, ids[6], DeliveryState::Accepted);
    peer.engine.dispose(link, ids[6], DeliveryState::Accepted);
    peer.engine.dispose(link, ids[5], DeliveryState::Accepted);
    assert!(peer.engine.output_len() > 0);
    let ranges: Vec<(u32, Option<u32>, bool)> = peer
        .frames()
        .iter()
        .map(|frame| match frame {
            Frame::Disposition(sent) => (sent.first, sent.last, sent.settled),
            frame => panic!("{frame:?}"),
        })
        .collect();
    assert_eq!(ranges, [(0, Some(2), true), (3, None, true), (6, None, true), (5, None, true)]);
    assert_eq!(peer.engine.link(link).unwrap().unsettled, 1);
}

#[test]
fn a_disposition_of_all_ids_walks_the_unsettled_deliveries() {
    let (mut peer, link) = sending(100);
    for token in 10..15 {
        peer.engine.send(link, token, payload(10), false);
    }
    peer.send(0, &disposition(Role::Receiver, 2, None, true));
    assert_eq!(peer.events().len(), 1);
    peer.send(0, &disposition(Role::Receiver, 0, Some(u32::MAX), true));
    let tokens: Vec<u64> = peer
        .events()
        .iter()
        .map(|event| match event {
            Event::Outcome { token, settled: true, state: Some(DeliveryState::Accepted), .. } => *token,
            event => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(tokens, [10, 11, 13, 14]);
    peer.send(0, &disposition(Role::Receiver, 0, Some(u32::MAX), true));
    assert_eq!(peer.events(), []);
    assert_eq!(peer.engine.link(link).unwrap().unsettled, 0);
}

#[test]
fn dispositions_that_change_nothing_do_not_go_on_for_ever() {
    let (mut peer, link) = sending(200_000);
    for token in 0..100_000 {
        peer.engine.send(link, token, payload(1), false);
        if token % 1_000 == 0 {
            peer.frames();
            peer.send(0, &Flow { next_incoming_id: Some(token as u32), ..flow() });
        }
    }
    for _ in 0..200 {
        peer.send(0, &disposition(Role::Receiver, 0, Some(u32::MAX), false));
    }
    let events = peer.events();
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Outcome { .. })).count(), 100_000);
    assert!(
        matches!(events.last(), Some(Event::Closed(Some(error))) if error.condition == condition::RESOURCE_LIMIT_EXCEEDED)
    );
}

#[test]
fn every_outcome_reaches_the_host() {
    let states = [
        DeliveryState::Accepted,
        DeliveryState::Released,
        DeliveryState::Rejected(Some(Box::new(Error::new(condition::NOT_ALLOWED, "no")))),
        DeliveryState::Modified { delivery_failed: true, undeliverable_here: true, message_annotations: vec![] },
    ];
    for state in states {
        let (mut peer, link) = sending(1);
        peer.engine.send(link, 77, payload(10), false);
        peer.send(0, &Disposition { state: Some(state.clone()), ..disposition(Role::Receiver, 0, None, true) });
        assert_eq!(peer.events(), [Event::Outcome { link, token: 77, state: Some(state), settled: true }]);
    }
    let (mut peer, link) = sending(1);
    peer.engine.send(link, 77, payload(10), false);
    peer.send(0, &Disposition { state: None, ..disposition(Role::Receiver, 0, None, true) });
    assert_eq!(peer.events(), [Event::Outcome { link, token: 77, state: None, settled: true }]);
}

#[test]
fn one_reason_for_very_many_deliveries_does_not_take_all_memory() {
    let (mut peer, link) = sending(20_000);
    for token in 0..20_000 {
        peer.engine.send(link, token, payload(1), false);
    }
    peer.frames();
    let rejected =
        |bytes| DeliveryState::Rejected(Some(Box::new(Error::new(condition::NOT_ALLOWED, "n".repeat(bytes)))));
    let all = |state| Disposition { state: Some(state), ..disposition(Role::Receiver, 0, Some(19_999), false) };
    peer.send(0, &all(rejected(200)));
    assert_eq!(peer.events().len(), 20_000);
    peer.send(0, &all(rejected(10_000)));
    let events = peer.events();
    assert!(events.len() > 1_000 && events.len() < 2_000, "{}", events.len());
    assert!(
        matches!(events.last(), Some(Event::Closed(Some(error))) if error.condition == condition::RESOURCE_LIMIT_EXCEEDED)
    );
}

#[test]
fn a_receiver_that_settles_second_waits_for_our_settlement() {
    let (mut peer, link) = sending(2);
    peer.engine.send(link, 5, payload(10), false);
    peer.engine.send(link, 6, payload(10), false);
    peer.frames();
    let received = DeliveryState::Received { section_number: 0, section_offset: 3 };
    peer.send(0, &Disposition { state: Some(received), ..disposition(Role::Receiver, 0, None, false) });
    assert_eq!(peer.events(), [], "not an outcome");
    peer.send(0, &disposition(Role::Receiver, 0, Some(1), false));
    let outcome = |token| Event::Outcome { link, token, state: Some(DeliveryState::Accepted), settled: false };
    assert_eq!(peer.events(), [outcome(5), outcome(6)]);
    peer.send(0, &disposition(Role::Receiver, 0, Some(1), false));
    assert_eq!(peer.events(), [], "told already");
    peer.engine.settle(link, 5, DeliveryState::Accepted);
    peer.engine.settle(link, 6, DeliveryState::Accepted);
    peer.engine.settle(link, 6, DeliveryState::Accepted);
    let [Frame::Disposition(sent)] = &peer.frames()[..] else { panic!() };
    assert_eq!((sent.role, sent.first, sent.last, sent.settled), (Role::Sender, 0, Some(1), true));
    assert_eq!(peer.engine.link(link).unwrap().unsettled, 0);
}

#[test]
fn a_receiver_may_say_another_outcome_until_its_delivery_is_settled() {
    let modified =
        DeliveryState::Modified { delivery_failed: true, undeliverable_here: false, message_annotations: vec![] };
    let in_unit = |id: &'static [u8]| DeliveryState::Transactional {
        txn_id: Bytes::from_static(id),
        outcome: Some(Box::new(DeliveryState::Accepted)),
    };
    let (mut peer, link) = sending(1);
    peer.engine.send(link, 5, payload(10), false);
    peer.frames();
    let said = [in_unit(b"one"), in_unit(b"two"), modified.clone(), modified, DeliveryState::Accepted];
    for state in said {
        peer.send(0, &Disposition { state: Some(state.clone()), ..disposition(Role::Receiver, 0, None, false) });
        assert_eq!(peer.events(), [Event::Outcome { link, token: 5, state: Some(state), settled: false }]);
    }
    peer.engine.settle(link, 5, DeliveryState::Accepted);
    assert_eq!(peer.engine.link(link).unwrap().unsettled, 0);
    peer.send(0, &Disposition { state: Some(DeliveryState::Released), ..disposition(Role::Receiver, 0, None, false) });
    assert_eq!(peer.events(), [], "it is settled");
}

#[test]
fn outcomes_that_are_changed_again_and_again_end_the_connection_before_they_fill_the_memory() {
    const DELIVERIES: u32 = 10_000;
    let (mut peer, link) = sending(DELIVERIES);
    for token in 0..DELIVERIES {
        peer.engine.send(link, token.into(), payload(1), false);
        if token % 1_000 == 0 {
            peer.frames();
            peer.send(0, &Flow { next_incoming_id: Some(token), ..flow() });
        }
    }
    for round in 0..100 {
        let state = if round % 2 == 0 { DeliveryState::Accepted } else { DeliveryState::Released };
        let all = disposition(Role::Receiver, 0, Some(u32::MAX), false);
        peer.send(0, &Disposition { state: Some(state), ..all });
    }
    let events = peer.events();
    assert!((200_000..400_000).contains(&events.len()), "{}", events.len());
    assert!(
        matches!(events.last(), Some(Event::Closed(Some(error))) if error.condition == condition::RESOURCE_LIMIT_EXCEEDED)
    );
}

#[test]
fn what_somebody_else_says_is_passed_on_as_it_is_said() {
    let (mut peer, link) = receiving(10);
    let ids: Vec<_> = (0..3)
        .map(|id| {
            peer.transfer(0, &transfer(id), b"x");
            deliveries(peer.events()).pop().unwrap().id
        })
        .collect();
    let said = |peer: &mut Peer| match &peer.frames()[..] {
        [Frame::Disposition(said)] => (said.first, said.settled, said.state.clone()),
        frames => panic!("{frames:?}"),
    };
    // It may be changed, and waits for the sender though the link's mode is *first*.
    for state in [DeliveryState::Accepted, DeliveryState::Released] {
        peer.engine.pass_on(link, ids[0], Some(state.clone()), false);
        assert_eq!(said(&mut peer), (0, false, Some(state)));
    }
    peer.send(0, &disposition(Role::Sender, 0, None, true));
    assert_eq!(peer.events(), [Event::Settled { link, id: ids[0], state: Some(DeliveryState::Accepted) }]);
    // It may settle without a state.
    peer.engine.pass_on(link, ids[1], None, true);
    assert_eq!(said(&mut peer), (1, true, None));
    // What is settled is no more.
    for id in [ids[0], ids[1]] {
        peer.engine.pass_on(link, id, Some(DeliveryState::Accepted), true);
    }
    assert_eq!(peer.frames(), []);
}

#[test]
fn in_mode_second_our_outcome_waits_for_the_senders_settlement() {
    let mut peer = Peer::begun(config());
    let link = peer.attach(&Attach { rcv_settle_mode: ReceiverSettleMode::Second, ..attach(Role::Sender) });
    peer.engine.set_credit(link, 2);
    peer.frames();
    peer.transfer(0, &transfer(0), b"x");
    let id = deliveries(peer.events())[0].id;
    peer.engine.dispose(link, id, DeliveryState::Accepted);
    let [Frame::Disposition(sent)] = &peer.frames()[..] else { panic!() };
    assert_eq!((sent.role, sent.settled, &sent.state), (Role::Receiver, false, &Some(DeliveryState::Accepted)));
    peer.send(0, &disposition(Role::Sender, 0, None, true));
    assert_eq!(peer.events(), [Event::Settled { link, id, state: Some(DeliveryState::Accepted) }]);
    peer.send(0, &disposition(Role::Sender, 0, None, true));
    assert_eq!(peer.events(), []);
    assert_eq!(peer.engine.link(link).unwrap().unsettled, 0);
}

#[test]
fn mode_second_works_between_two_engines() {
    let mut pair = Pair::opened();
    let request = AttachRequest { rcv_settle_mode: ReceiverSettleMode::Second, ..AttachRequest::sender("link", "a") };
    let (client, server) = pair.attach(request);
    pair.server.set_credit(server, 1);
    pair.run();
    pair.client_events.clear();
    pair.client.send(client, 9, payload(2_000), false);
    pair.run();
    let id = deliveries(std::mem::take(&mut pair.server_events))[0].id;
    pair.server.dispose(server, id, DeliveryState::Accepted);
    pair.run();
    let accepted = || Some(DeliveryState::Accepted);
    assert_eq!(pair.client_events, [Event::Outcome { link: client, token: 9, state: accepted(), settled: false }]);
    pair.client.settle(client, 9, DeliveryState::Accepted);
    pair.run();
    assert_eq!(pair.server_events, [Event::Settled { link: server, id, state: accepted() }]);
}

#[test]
fn a_message_is_cut_into_frames_of_the_peers_size() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &crate::Open { max_frame_size: 512, ..open() });
    peer.send(0, &begin());
    peer.events();
    peer.frames();
    let link = peer.attach(&attach(Role::Receiver));
    peer.send(0, &credit(0, 0, 2));
    let mut message = payload(700);
    message.push(Bytes::from(vec![9; 900]));
    peer.engine.send(link, 1, message.clone(), false);
    let mut whole = Vec::new();
    let frames = peer.frames();
    for (n, frame) in frames.iter().enumerate() {
        let Frame::Transfer(transfer, part) = frame else { panic!() };
        assert_eq!(
            (transfer.delivery_id, transfer.settled, transfer.more),
            (Some(0), Some(false), n + 1 < frames.len())
        );
        assert!(part.len() <= 512 - 36);
        whole.extend_from_slice(part);
    }
    assert_eq!(whole, message.to_contiguous());
    assert_eq!(frames.len(), 4);
    peer.engine.send(link, 2, Payload::new(), true);
    assert!(matches!(&peer.frames()[..], [Frame::Transfer(transfer, part)] if part.is_empty() && !transfer.more));
}

#[test]
fn windows_count_frames_and_messages_wait_inside_for_them() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &crate::Open { max_frame_size: 512, ..open() });
    peer.send(0, &crate::types::Begin { incoming_window: 3, ..begin() });
    peer.events();
    peer.frames();
    let link = peer.attach(&attach(Role::Receiver));
    peer.send(0, &Flow { incoming_window: 3, ..credit(0, 0, 10) });
    peer.events();
    assert!(peer.engine.can_send(link));
    peer.engine.send(link, 1, payload(2_000), true); // five frames
    assert!(!peer.engine.can_send(link));
    peer.engine.send(link, 2, payload(100), true); // waits behind
    assert_eq!(peer.frames().len(), 3);
    // Two of the three had arrived when the peer said this.
    peer.send(0, &Flow { next_incoming_id: Some(2), incoming_window: 3, ..flow() });
    assert_eq!(peer.frames().len(), 2);
    assert_eq!(peer.events(), [Event::Credit { link, credit: 8, drain: false }]);
    assert!(!peer.engine.can_send(link));
    peer.send(0, &Flow { next_incoming_id: Some(5), incoming_window: 3, ..flow() });
    assert!(matches!(&peer.frames()[..], [Frame::Transfer(transfer, part)] if part.len() == 100 && !transfer.more));
    assert!(peer.engine.can_send(link));
    assert_eq!(peer.events(), [Event::Credit { link, credit: 8, drain: false }]);
}

#[test]
fn a_window_of_the_largest_size_is_no_surprise() {
    let (mut peer, link) = sending(1_000);
    for id in 0..3 {
        peer.engine.send(link, u64::from(id), payload(10), true);
        peer.send(0, &Flow { next_incoming_id: Some(id), incoming_window: u32::MAX, ..flow() });
        assert!(peer.engine.can_send(link));
    }
    peer.send(0, &Flow { next_incoming_id: Some(1_000), incoming_window: 10, ..flow() });
    assert!(!peer.engine.can_send(link), "a peer ahead of what was sent has no window");
}

#[test]
fn a_link_that_goes_takes_its_waiting_messages_with_it() {
    let (mut peer, link) = sending(10);
    peer.send(0, &Flow { incoming_window: 0, ..flow() });
    peer.engine.send(link, 1, payload(10), false);
    peer.engine.send(link, 2, payload(10), false);
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    assert!(matches!(peer.events()[..], [Event::Detached { .. }]));
    peer.send(0, &flow());
    assert!(matches!(peer.frames()[..], [Frame::Detach(_)]));
    peer.send(0, &disposition(Role::Receiver, 0, Some(u32::MAX), true));
    assert_eq!(peer.events(), [], "the host requeues what it had sent");
}

#[test]
fn a_large_message_goes_out_as_the_socket_takes_it() {
    let mut limited = config();
    limited.limits.output_bytes = 64 << 10;
    limited.max_frame_size = 4 << 10;
    let (mut peer, link) = Peer::attached(limited, Role::Receiver);
    peer.send(0, &Flow { incoming_window: 1_000_000, ..credit(0, 0, 10) });
    peer.engine.send(link, 1, payload(10 << 20), true);
    assert!(peer.engine.output_len() < 80 << 10);
    let total: usize = peer
        .frames()
        .iter()
        .map(|frame| match frame {
            Frame::Transfer(_, part) => part.len(),
            frame => panic!("{frame:?}"),
        })
        .sum();
    assert_eq!(total, 10 << 20);
}

#[test]
fn transactional_states_pass_through() {
    let (mut peer, _) = receiving(1);
    let state = DeliveryState::Transactional { txn_id: Bytes::from_static(b"t"), outcome: None };
    peer.transfer(0, &Transfer { state: Some(state.clone()), ..transfer(0) }, b"x");
    assert_eq!(deliveries(peer.events())[0].state, Some(state));
}

#[test]
fn the_head_of_a_transfer_is_what_the_table_says() {
    let (mut peer, link) = sending(1);
    peer.engine.send(link, 1, payload(10), false);
    let [Frame::Transfer(sent, part)] = &peer.frames()[..] else { panic!() };
    assert_eq!(*sent, Transfer { settled: Some(false), ..transfer(0) });
    assert_eq!(part[..], payload(10).to_contiguous());
}

/// A conversation with something of everything, as bytes.
fn conversation() -> Vec<u8> {
    let mut all = AMQP_HEADER.to_vec();
    let mut add = |performative: &dyn Encode, payload: &[u8]| {
        all.extend(frame(0, 0, &|out| performative.encode(out), payload));
    };
    add(&open(), &[]);
    add(&begin(), &[]);
    add(&attach(Role::Sender), &[]);
    add(&Attach { handle: 1, ..attach(Role::Receiver) }, &[]);
    add(&credit(1, 0, 10), &[]);
    for id in 0..20 {
        let body = vec![id as u8; 37 * id as usize];
        add(&Transfer { more: id % 3 == 0, ..transfer(id) }, &body);
        if id % 3 == 0 {
            add(&transfer(id), &body);
        }
    }
    add(&Flow { drain: true, ..credit(1, 0, 10) }, &[]);
    add(&Detach { handle: 0, closed: true, error: None }, &[]);
    add(&crate::types::End { error: None }, &[]);
    add(&crate::types::Close { error: None }, &[]);
    all
}

fn events_of(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Vec<Event> {
    let mut peer = Peer::new(config(), offer());
    let mut events = Vec::new();
    let mut at = 0;
    for cut in cuts.chain([bytes.len()]) {
        let end = cut.clamp(at, bytes.len());
        peer.bytes(&bytes[at..end]);
        at = end;
        while let Some(event) = peer.engine.poll_event() {
            if let Event::Attached(asked) = &event {
                peer.engine.accept_link(asked.link, crate::AttachReply::default());
                peer.engine.set_credit(asked.link, 10);
            }
            events.push(event);
        }
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn events_do_not_depend_on_how_the_input_is_cut(mut cuts in proptest::collection::vec(0usize..9_000, 0..60)) {
        // All at once, the host's answers come after all of the peer's frames: credit differs, so the
        // mark of deliveries beyond it is left out of the comparison.
        let plain = |events: Vec<Event>| -> Vec<Event> {
            events.into_iter().map(|event| match event {
                Event::Delivery(delivery) => Event::Delivery(Delivery { beyond_credit: false, ..delivery }),
                event => event,
            }).filter(|event| !matches!(event, Event::Credit { .. })).collect()
        };
        let bytes = conversation();
        cuts.sort_unstable();
        let whole = plain(events_of(&bytes, std::iter::empty()));
        prop_assert!(whole.len() > 25);
        prop_assert_eq!(plain(events_of(&bytes, cuts.into_iter())), whole);
    }

    #[test]
    fn random_input_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600), at in 0usize..2_000) {
        let mut talk = conversation();
        let at = at.min(talk.len());
        talk.truncate(at);
        talk.extend_from_slice(&bytes);
        events_of(&talk, std::iter::empty());
    }

    #[test]
    fn a_changed_byte_never_panics(at: u16, byte: u8) {
        let mut talk = conversation();
        let at = usize::from(at) % talk.len();
        talk[at] = byte;
        events_of(&talk, (0..100).map(|n| n * 97));
    }

    #[test]
    fn messages_of_any_size_arrive_over_frames_of_any_size(
        sizes in proptest::collection::vec(0usize..5_000, 1..20),
        frame in 512u32..3_000,
        window in 1u32..20,
        step in 1usize..4_000,
    ) {
        let mut small = Config { max_frame_size: frame, ..config() };
        small.limits.incoming_window = window;
        let mut pair = Pair::opened_with(config(), small);
        let (client, server) = pair.attach(AttachRequest::sender("link", "a"));
        pair.step = step;
        pair.server.set_credit(server, 100);
        pair.run();
        pair.client_events.clear();
        for (token, size) in sizes.iter().enumerate() {
            prop_assert!(pair.client.send(client, token as u64, payload(*size), false));
        }
        pair.run();
        let arrived = deliveries(std::mem::take(&mut pair.server_events));
        prop_assert_eq!(arrived.len(), sizes.len());
        for (delivery, size) in arrived.iter().zip(&sizes) {
            prop_assert_eq!(&delivery.payload, &payload(*size));
            pair.server.dispose(server, delivery.id, DeliveryState::Accepted);
        }
        pair.run();
        let outcomes = pair.client_events.iter().filter(|event| matches!(event, Event::Outcome { settled: true, .. }));
        prop_assert_eq!(outcomes.count(), sizes.len());
    }
}

#[test]
fn a_delivery_that_is_marked_as_resumed_is_ignored_whole_and_takes_no_credit() {
    let (mut peer, link) = receiving(2);
    let resumed = |id, more| Transfer { resume: true, more, ..transfer(id) };
    peer.transfer(0, &resumed(0, false), b"\x00\x53\x77\x40");
    peer.transfer(0, &resumed(1, true), b"\x00\x53");
    peer.transfer(0, &Transfer { more: true, ..transfer(1) }, b"\x77");
    peer.transfer(0, &transfer(1), b"\x40");
    peer.transfer(0, &resumed(2, true), b"\x00");
    peer.transfer(0, &Transfer { aborted: true, ..transfer(2) }, b"");
    assert_eq!(peer.events(), []);
    assert_eq!(peer.engine.credit(link), 2);
    assert_eq!(peer.engine.in_progress(), 0);
    peer.transfer(0, &transfer(3), b"\x00\x53\x77\x40");
    assert!(matches!(&peer.events()[..], [Event::Delivery(delivery)] if !delivery.beyond_credit));
    assert_eq!((peer.engine.credit(link), peer.engine.link(link).unwrap().unsettled), (1, 1));
}

#[test]
fn deliveries_of_several_links_may_end_in_another_order_than_they_begin() {
    let (mut peer, first) = receiving(9);
    let second = peer.attach(&Attach { name: "second".into(), handle: 1, ..attach(Role::Sender) });
    peer.engine.set_credit(second, 9);
    peer.frames();
    peer.transfer(0, &Transfer { more: true, ..transfer(0) }, b"\x00\x53");
    peer.transfer(0, &Transfer { handle: 1, ..transfer(1) }, b"\x00\x53\x77\x40");
    peer.transfer(0, &transfer(0), b"\x77\x40");
    for id in 2..5 {
        peer.transfer(0, &Transfer { handle: 1, ..transfer(id) }, b"\x00\x53\x77\x40");
    }
    let arrived: Vec<_> = peer
        .events()
        .into_iter()
        .filter_map(|event| match event {
            Event::Delivery(delivery) => Some((delivery.link, delivery.id)),
            _ => None,
        })
        .collect();
    assert_eq!(arrived.len(), 5);
    for (link, id) in arrived.into_iter().rev() {
        peer.engine.dispose(link, id, DeliveryState::Accepted);
    }
    for link in [first, second] {
        assert_eq!(peer.engine.link(link).unwrap().unsettled, 0);
    }
}
