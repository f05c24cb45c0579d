//! Attach and detach, credit and drain.

use super::pair::Pair;
use super::peer::*;
use crate::types::{Attach, Coordinator, Detach, End};
use crate::{
    AnyTarget, AttachReply, AttachRequest, Error, Event, Payload, ReceiverSettleMode, Role, SenderSettleMode, Source,
    Symbol, Target, Value, condition,
};
use bytes::Bytes;

fn message(text: &'static str) -> Payload {
    Payload::from(Bytes::from_static(text.as_bytes()))
}

fn gone() -> Error {
    Error::new(condition::NOT_FOUND, "no such queue")
}

#[test]
fn a_sender_and_a_receiver_may_have_the_same_name() {
    let mut peer = Peer::begun(config());
    let one = peer.attach(&attach(Role::Sender));
    let two = peer.attach(&Attach { handle: 1, ..attach(Role::Receiver) });
    assert_eq!(peer.engine.link(one).unwrap().role, Role::Receiver);
    assert_eq!(peer.engine.link(two).unwrap().role, Role::Sender);
}

#[test]
fn a_name_and_role_that_is_attached_is_refused() {
    let (mut peer, _) = Peer::attached(config(), Role::Sender);
    peer.send(0, &Attach { handle: 1, ..attach(Role::Sender) });
    assert_eq!(peer.events(), []);
    let [Frame::Attach(attach), Frame::Detach(detach)] = &peer.frames()[..] else { panic!() };
    assert!(attach.source.is_none() && attach.target.is_none());
    assert_eq!(detach.error.as_ref().unwrap().condition, condition::NOT_ALLOWED);
}

#[test]
fn a_name_can_be_attached_again_right_behind_its_detach() {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    peer.send(0, &attach(Role::Sender));
    let [Event::Detached { link: gone, .. }, Event::Attached(again)] = &peer.events()[..] else { panic!() };
    assert_eq!(*gone, link);
    assert_ne!(again.link, link);
    peer.engine.accept_link(again.link, AttachReply::default());
    assert!(matches!(peer.frames()[..], [Frame::Detach(_), Frame::Attach(_)]));
}

#[test]
fn a_handle_in_use_ends_the_session() {
    let (mut peer, _) = Peer::attached(config(), Role::Sender);
    peer.send(0, &Attach { name: "other".into(), ..attach(Role::Sender) });
    let [Event::SessionEnded(_, Some(error))] = &peer.events()[..] else { panic!() };
    assert_eq!(error.condition, condition::HANDLE_IN_USE);
    assert!(matches!(&peer.frames()[..], [Frame::End(End { error: Some(sent) })] if sent == error));
}

#[test]
fn a_handle_over_handle_max_is_a_framing_error() {
    let mut limited = config();
    limited.limits.session_links = 4;
    let mut peer = Peer::begun(limited);
    peer.send(0, &Attach { handle: 4, ..attach(Role::Sender) });
    assert!(matches!(&peer.events()[..], [Event::Closed(Some(error))] if error.condition == condition::FRAMING_ERROR));
}

#[test]
fn an_unattached_handle_ends_the_session() {
    type Case = fn(&mut Peer);
    let cases: [Case; 3] = [
        |peer| peer.transfer(0, &transfer(0), b"x"),
        |peer| peer.send(0, &credit(7, 0, 1)),
        |peer| peer.send(0, &Detach { handle: 5, closed: true, error: None }),
    ];
    for case in cases {
        let mut peer = Peer::begun(config());
        case(&mut peer);
        let [Event::SessionEnded(_, Some(error))] = &peer.events()[..] else { panic!() };
        assert_eq!(error.condition, condition::UNATTACHED_HANDLE);
    }
}

#[test]
fn links_have_a_limit() {
    let mut limited = config();
    limited.limits.connection_links = 2;
    let mut peer = Peer::begun(limited);
    for handle in 0..2 {
        peer.attach(&Attach { handle, name: handle.to_string(), ..attach(Role::Sender) });
    }
    peer.send(0, &Attach { handle: 2, name: "2".into(), ..attach(Role::Sender) });
    let [Event::SessionEnded(_, Some(error))] = &peer.events()[..] else { panic!() };
    assert_eq!(error.condition, condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn a_link_name_has_a_limit() {
    let mut peer = Peer::begun(config());
    peer.send(0, &Attach { name: "x".repeat(crate::LINK_NAME_BYTES_MAX + 1), ..attach(Role::Sender) });
    assert!(
        matches!(&peer.events()[..], [Event::SessionEnded(_, Some(error))] if error.condition == condition::INVALID_FIELD)
    );
}

#[test]
fn a_refused_link_is_attached_without_source_and_target_then_detached_with_the_error() {
    for role in [Role::Sender, Role::Receiver] {
        let mut peer = Peer::begun(config());
        peer.send(0, &attach(role));
        let link = peer.asked();
        peer.engine.refuse_link(link, gone());
        let [Frame::Attach(answer), Frame::Detach(detach)] = &peer.frames()[..] else { panic!() };
        assert_eq!((answer.role, &answer.source, &answer.target), (role.other(), &None, &None));
        assert_eq!((detach.closed, detach.error.as_ref()), (true, Some(&gone())));
        peer.send(0, &Detach { handle: 0, closed: true, error: None });
        assert_eq!(peer.events(), [], "the host knows already");
        peer.attach(&attach(role));
    }
}

#[test]
fn a_refused_name_is_free_before_the_peer_has_answered_the_detach() {
    let mut peer = Peer::begun(config());
    peer.send(0, &attach(Role::Sender));
    let link = peer.asked();
    peer.engine.refuse_link(link, gone());
    peer.frames();
    // python-proton tries again under its name and a new handle, and answers the detach afterwards.
    peer.send(0, &Attach { handle: 1, ..attach(Role::Sender) });
    let again = peer.asked();
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    assert_eq!(peer.events(), []);
    assert!(peer.engine.link(again).is_some());
}

#[test]
fn an_answer_that_crosses_our_detach_is_no_new_link() {
    let mut pair = Pair::opened();
    let session = pair.begin();
    let link = pair.client.attach(session, AttachRequest::sender("link", "a"));
    pair.run();
    let Some(Event::Attached(asked)) = pair.server_events.pop() else { panic!() };
    pair.server.accept_link(asked.link, AttachReply { target: Some(Target::default()), ..AttachReply::default() });
    pair.client.detach(link, true, None);
    pair.run();
    assert_eq!(pair.client_events, [Event::Detached { link, closed: true, error: None }]);
    assert_eq!(pair.server_events, [Event::Detached { link: asked.link, closed: true, error: None }]);
    pair.client_events.clear();
    pair.server_events.clear();
    pair.attach_on(session, AttachRequest::sender("link", "a"));
}

#[test]
fn a_client_hears_of_a_refusal_as_detached() {
    let mut pair = Pair::opened();
    let session = pair.begin();
    let link = pair.client.attach(session, AttachRequest::sender("link", "nowhere"));
    pair.run();
    let Some(Event::Attached(asked)) = pair.server_events.pop() else { panic!() };
    pair.server.refuse_link(asked.link, gone());
    pair.run();
    assert_eq!(pair.client_events, [Event::Detached { link, closed: true, error: Some(gone()) }]);
    assert_eq!(pair.client.link(link), None);
}

#[test]
fn detach_mirrors_closed() {
    for closed in [false, true] {
        let (mut peer, link) = Peer::attached(config(), Role::Receiver);
        peer.send(0, &Detach { handle: 0, closed, error: None });
        assert_eq!(peer.frames(), []);
        assert_eq!(peer.events(), [Event::Detached { link, closed, error: None }]);
        assert_eq!(peer.frames(), [Frame::Detach(Detach { handle: 0, closed, error: None })]);
        assert_eq!(peer.engine.link(link), None);
    }
}

#[test]
fn what_the_host_disposes_before_it_sees_the_detach_goes_out_before_the_answer() {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    peer.engine.set_credit(link, 1);
    peer.frames();
    peer.transfer(0, &transfer(0), b"x");
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    let Some(Event::Delivery(delivery)) = peer.engine.poll_event() else { panic!() };
    peer.engine.dispose(link, delivery.id, crate::DeliveryState::Accepted);
    assert!(matches!(peer.engine.poll_event(), Some(Event::Detached { .. })));
    assert!(matches!(peer.frames()[..], [Frame::Disposition(_), Frame::Detach(_)]));
}

#[test]
fn our_detach_is_told_when_the_peer_has_answered() {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    peer.engine.detach(link, true, Some(gone()));
    peer.engine.detach(link, true, Some(gone()));
    assert_eq!(peer.frames(), [Frame::Detach(Detach { handle: 0, closed: true, error: Some(gone()) })]);
    peer.transfer(0, &transfer(0), b"late");
    assert_eq!(peer.events(), []);
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    assert_eq!(peer.events(), [Event::Detached { link, closed: true, error: None }]);
}

#[test]
fn a_link_attached_and_detached_at_once_gets_both_answers() {
    let mut peer = Peer::begun(config());
    peer.send(0, &attach(Role::Sender));
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    let Some(Event::Attached(asked)) = peer.engine.poll_event() else { panic!() };
    assert!(matches!(peer.engine.poll_event(), Some(Event::Detached { link, .. }) if link == asked.link));
    assert!(matches!(peer.frames()[..], [Frame::Attach(_), Frame::Detach(_)]));
    peer.engine.accept_link(asked.link, AttachReply::default());
    assert_eq!(peer.frames(), []);
}

#[test]
fn the_anonymous_relay_is_a_target_without_address() {
    let mut peer = Peer::begun(config());
    let target = Some(AnyTarget::Target(Target::default()));
    peer.send(0, &Attach { target: target.clone(), ..attach(Role::Sender) });
    let [Event::Attached(asked)] = &peer.events()[..] else { panic!() };
    assert_eq!(asked.target, target);
    // No target at all is told apart.
    let mut peer = Peer::begun(config());
    peer.send(0, &Attach { target: None, ..attach(Role::Sender) });
    assert!(matches!(&peer.events()[..], [Event::Attached(asked)] if asked.target.is_none()));
}

#[test]
fn dynamic_addresses_are_in_the_reply() {
    let mut pair = Pair::opened();
    let session = pair.begin();
    let lifetime =
        (Symbol::from_static("lifetime-policy"), Value::Described(Box::new((Value::Ulong(0x2b), Value::List(vec![])))));
    let source = Source { dynamic: true, dynamic_node_properties: vec![lifetime], ..Source::default() };
    let request = AttachRequest { source: Some(source.clone()), ..AttachRequest::receiver("replies", "") };
    pair.client.attach(session, request);
    pair.run();
    let Some(Event::Attached(asked)) = pair.server_events.pop() else { panic!() };
    assert_eq!(asked.source, Some(source.clone()));
    let made = Source { address: Some("temp.1".into()), ..source };
    pair.server.accept_link(asked.link, AttachReply { source: Some(made.clone()), ..AttachReply::default() });
    pair.run();
    let Some(Event::LinkOpened(opened)) = pair.client_events.pop() else { panic!() };
    assert_eq!(opened.source, Some(made));
}

#[test]
fn filters_and_capabilities_go_both_ways_as_the_hosts_say() {
    let filter = |name: &'static str| {
        let described = Value::Described(Box::new((Value::Ulong(0x0000_468C_0000_0004), Value::from("color = 'red'"))));
        (Symbol::from_static(name), described)
    };
    let mut pair = Pair::opened();
    let session = pair.begin();
    let source = Source {
        filter: vec![filter("selector"), filter("unknown")],
        distribution_mode: Some(Symbol::from_static("copy")),
        ..Source::at("a")
    };
    let request = AttachRequest {
        source: Some(source.clone()),
        desired_capabilities: vec![Symbol::from_static("bulla:sealed")],
        properties: vec![(Symbol::from_static("p"), Value::Uint(1))],
        ..AttachRequest::receiver("link", "a")
    };
    pair.client.attach(session, request);
    pair.run();
    let Some(Event::Attached(asked)) = pair.server_events.pop() else { panic!() };
    assert_eq!(asked.source, Some(source.clone()));
    assert_eq!(asked.desired_capabilities[..], ["bulla:sealed"]);
    assert_eq!(asked.properties.len(), 1);
    let honoured = Source { filter: vec![filter("selector")], ..source };
    let reply = AttachReply {
        source: Some(honoured.clone()),
        offered_capabilities: vec![Symbol::from_static("bulla:sealed")],
        max_message_size: 4 << 20,
        ..AttachReply::default()
    };
    pair.server.accept_link(asked.link, reply);
    pair.run();
    let Some(Event::LinkOpened(opened)) = pair.client_events.pop() else { panic!() };
    assert_eq!(opened.source, Some(honoured));
    assert_eq!(opened.offered_capabilities[..], ["bulla:sealed"]);
    assert_eq!(opened.max_message_size, 4 << 20);
}

#[test]
fn a_coordinator_is_told_apart_and_can_be_refused() {
    let mut peer = Peer::begun(config());
    let coordinator =
        AnyTarget::Coordinator(Coordinator { capabilities: vec![Symbol::from_static("amqp:local-transactions")] });
    peer.send(0, &Attach { target: Some(coordinator), ..attach(Role::Sender) });
    let [Event::Attached(asked)] = &peer.events()[..] else { panic!() };
    assert!(matches!(&asked.target, Some(AnyTarget::Coordinator(_))));
    peer.engine.refuse_link(asked.link, Error::new(condition::NOT_IMPLEMENTED, "no transactions"));
    assert!(matches!(peer.frames()[..], [Frame::Attach(_), Frame::Detach(_)]));
}

#[test]
fn settle_modes_are_surfaced_and_answered() {
    let mut peer = Peer::begun(config());
    let asked = Attach {
        snd_settle_mode: SenderSettleMode::Settled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        ..attach(Role::Receiver)
    };
    peer.send(0, &asked);
    let link = peer.asked();
    peer.engine.accept_link(link, AttachReply::default());
    let [Frame::Attach(answer)] = &peer.frames()[..] else { panic!() };
    assert_eq!(answer.snd_settle_mode, SenderSettleMode::Settled);
    assert_eq!(answer.rcv_settle_mode, ReceiverSettleMode::Second);
    assert_eq!(answer.initial_delivery_count, Some(0));
}

#[test]
fn credit_is_absolute_and_told_once() {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    peer.engine.set_credit(link, 10);
    let [Frame::Flow(flow)] = &peer.frames()[..] else { panic!() };
    assert_eq!((flow.handle, flow.delivery_count, flow.link_credit), (Some(0), Some(0), Some(10)));
    assert_eq!((flow.next_incoming_id, flow.drain, flow.echo), (Some(0), false, false));
    peer.engine.set_credit(link, 10);
    assert_eq!(peer.frames(), []);
    peer.transfer(0, &transfer(0), b"x");
    assert_eq!(peer.engine.credit(link), 9);
    peer.engine.set_credit(link, 10);
    let [Frame::Flow(flow)] = &peer.frames()[..] else { panic!() };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.next_incoming_id), (Some(1), Some(10), Some(1)));
}

#[test]
fn demand_follows_the_peers_view_of_what_it_has_seen() {
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    peer.send(0, &credit(0, 0, 3));
    assert_eq!(peer.events(), [Event::Credit { link, credit: 3, drain: false }]);
    assert!(peer.engine.can_send(link));
    assert!(peer.engine.send(link, 1, message("a"), true));
    assert!(peer.engine.send(link, 2, message("b"), true));
    // This flow was written when the peer had seen one of the two.
    peer.send(0, &credit(0, 1, 3));
    assert_eq!(peer.events(), [Event::Credit { link, credit: 2, drain: false }]);
    peer.send(0, &credit(0, 2, 2));
    assert_eq!(peer.events(), [], "nothing changed");
    peer.send(0, &credit(0, 0, 1));
    assert_eq!(peer.events(), [Event::Credit { link, credit: 0, drain: false }]);
    assert!(!peer.engine.can_send(link));
    assert!(!peer.engine.send(link, 3, message("c"), true));
}

#[test]
fn demand_that_came_before_the_attach_was_answered_is_told_after_it() {
    let mut peer = Peer::begun(config());
    peer.send(0, &attach(Role::Receiver));
    peer.send(0, &credit(0, 0, 5));
    let link = peer.asked();
    peer.engine.accept_link(link, AttachReply::default());
    assert_eq!(peer.events(), [Event::Credit { link, credit: 5, drain: false }]);
}

#[test]
fn a_drain_consumes_the_credit_after_what_was_there_is_sent() {
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    peer.send(0, &crate::types::Flow { drain: true, ..credit(0, 0, 10) });
    assert_eq!(peer.events(), [Event::Credit { link, credit: 10, drain: true }]);
    peer.engine.send(link, 1, message("a"), true);
    peer.engine.send(link, 2, message("b"), true);
    peer.engine.drained(link);
    let frames = peer.frames();
    let [Frame::Transfer(..), Frame::Transfer(..), Frame::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(10), Some(0), true));
    peer.engine.drained(link);
    assert_eq!(peer.frames(), [], "only once");
    // The next credit is counted from there.
    peer.send(0, &credit(0, 10, 1));
    assert_eq!(peer.events(), [Event::Credit { link, credit: 1, drain: false }]);
}

#[test]
fn a_drain_without_credit_is_answered_too() {
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    peer.send(0, &crate::types::Flow { drain: true, ..credit(0, 0, 0) });
    assert_eq!(peer.events(), [Event::Credit { link, credit: 0, drain: true }]);
    peer.engine.drained(link);
    assert!(matches!(&peer.frames()[..], [Frame::Flow(flow)] if flow.drain && flow.link_credit == Some(0)));
}

#[test]
fn the_answer_to_a_drain_waits_behind_messages_that_wait_for_the_window() {
    let mut pair = Pair::opened();
    let (client, server) = pair.attach(AttachRequest::receiver("link", "a"));
    // On the wire, with a window of one frame.
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    peer.send(0, &crate::types::Flow { incoming_window: 1, drain: true, ..credit(0, 0, 5) });
    for token in 0..2 {
        assert!(peer.engine.send(link, token, message("a"), true));
    }
    peer.engine.drained(link);
    assert!(matches!(peer.frames()[..], [Frame::Transfer(..)]));
    peer.send(0, &crate::types::Flow { next_incoming_id: Some(1), incoming_window: 9, ..flow() });
    let frames = peer.frames();
    let [Frame::Transfer(..), Frame::Flow(flow)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((flow.delivery_count, flow.link_credit), (Some(5), Some(0)));
    // And between two engines.
    pair.client.set_credit(client, 5);
    pair.run();
    pair.client.drain(client);
    pair.run();
    assert_eq!(pair.server_events.pop(), Some(Event::Credit { link: server, credit: 5, drain: true }));
    pair.server.send(server, 0, message("a"), true);
    pair.server.drained(server);
    pair.run();
    assert!(matches!(pair.client_events[..], [Event::Delivery(_), Event::Flowed { link }] if link == client));
    assert_eq!(pair.client.credit(client), 0);
}

#[test]
fn a_drain_that_uses_up_the_credit_is_over_without_a_flow() {
    let mut pair = Pair::opened();
    let (client, server) = pair.attach(AttachRequest::receiver("link", "a"));
    pair.client.set_credit(client, 1);
    pair.client.drain(client);
    pair.run();
    pair.server.send(server, 0, message("a"), true);
    pair.run();
    assert!(matches!(pair.client_events[..], [Event::Delivery(_), Event::Flowed { link }] if link == client));
}

#[test]
fn echo_is_answered_for_links_and_for_sessions() {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    peer.engine.set_credit(link, 7);
    peer.frames();
    peer.send(0, &crate::types::Flow { echo: true, ..flow() });
    assert!(matches!(&peer.frames()[..], [Frame::Flow(flow)] if flow.handle.is_none() && !flow.echo));
    peer.send(0, &crate::types::Flow { echo: true, handle: Some(0), delivery_count: Some(0), ..flow() });
    assert!(matches!(&peer.frames()[..], [Frame::Flow(flow)] if flow.link_credit == Some(7) && !flow.echo));
}

#[test]
fn a_sender_that_advances_its_count_gives_up_credit() {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    peer.engine.set_credit(link, 7);
    peer.send(0, &credit(0, 3, 0));
    assert_eq!(peer.engine.credit(link), 4);
    peer.send(0, &credit(0, 100, 0));
    assert_eq!(peer.engine.credit(link), 0);
    peer.engine.set_credit(link, 2);
    assert!(matches!(&peer.frames()[..], [_, Frame::Flow(flow)] if flow.delivery_count == Some(100)));
}

#[test]
fn output_that_is_not_taken_stops_sending_and_then_reading() {
    let mut limited = config();
    limited.limits.output_bytes = 10_000;
    let (mut peer, link) = Peer::attached(limited, Role::Receiver);
    peer.send(0, &credit(0, 0, 1_000));
    let mut sent = 0;
    while peer.engine.can_send(link) {
        peer.engine.send(link, sent, Payload::from(Bytes::from(vec![0; 1_000])), true);
        sent += 1;
    }
    assert_eq!(sent, 10);
    assert!(peer.engine.wants_input());
    for _ in 0..500 {
        peer.send(0, &crate::types::Flow { echo: true, ..flow() });
    }
    assert!(!peer.engine.wants_input());
    peer.frames();
    assert!(peer.engine.can_send(link) && peer.engine.wants_input());
}

#[test]
fn commands_on_what_is_gone_do_nothing() {
    let (mut peer, link) = Peer::attached(config(), Role::Receiver);
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    peer.events();
    peer.frames();
    let engine = &mut peer.engine;
    engine.accept_link(link, AttachReply::default());
    engine.refuse_link(link, gone());
    engine.detach(link, true, None);
    engine.set_credit(link, 1);
    engine.drain(link);
    engine.drained(link);
    engine.settle(link, 0, crate::DeliveryState::Accepted);
    assert!(!engine.can_send(link) && !engine.send(link, 0, message("a"), true));
    assert_eq!((engine.credit(link), engine.output_len()), (0, 0));
}

#[test]
fn a_link_to_a_session_that_is_gone_is_told_as_detached() {
    let mut pair = Pair::opened();
    let session = pair.begin();
    pair.client.end_session(session, None);
    pair.run();
    pair.client_events.clear();
    let link = pair.client.attach(session, AttachRequest::sender("link", "a"));
    assert!(matches!(pair.client.poll_event(), Some(Event::Detached { link: gone, .. }) if gone == link));
}
