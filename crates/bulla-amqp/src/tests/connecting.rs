//! Headers, SASL, open, close, idle-timeout, and frames that must not be.

use super::pair::Pair;
use super::peer::*;
use crate::codec::Encode;
use crate::types::{Close, End, SaslInit, SaslMechanisms, SaslResponse};
use crate::{
    BearerResponse, Config, Error, Event, Mechanism, Open, PlainResponse, Role, SaslClient, SaslOffer, Symbol,
    condition,
};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

fn init(mechanism: Mechanism, response: &'static [u8]) -> SaslInit {
    SaslInit {
        mechanism: mechanism.symbol(),
        initial_response: Some(Bytes::from_static(response).into()),
        hostname: Some("host".into()),
    }
}

fn closed(events: &[Event]) -> Symbol {
    match events {
        [Event::Closed(Some(error))] => error.condition.clone(),
        events => panic!("{events:?}"),
    }
}

/// The error of the one close frame.
fn close_error(frames: &[Frame]) -> Symbol {
    match frames {
        [Frame::Close(Close { error: Some(error) })] => error.condition.clone(),
        frames => panic!("{frames:?}"),
    }
}

#[test]
fn a_client_may_leave_sasl_out_where_that_is_allowed() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    assert_eq!(peer.frames(), [Frame::Header(*AMQP_HEADER)]);
    peer.send(0, &open());
    assert!(matches!(&peer.events()[..], [Event::Opened(open)] if open.container_id == "peer"));
    assert!(matches!(&peer.frames()[..], [Frame::Open(open)] if open.container_id == "engine"));
}

#[test]
fn a_bare_amqp_header_is_refused_where_sasl_is_wanted() {
    let mut peer = Peer::new(config(), SaslOffer { allow_bare_amqp: false, ..offer() });
    peer.bytes(AMQP_HEADER);
    assert_eq!(peer.frames(), [Frame::Header(*SASL_HEADER)]);
    assert!(peer.engine.is_closed());
    assert_eq!(closed(&peer.events()), condition::NOT_IMPLEMENTED);
}

#[test]
fn another_protocol_header_is_answered_with_ours_and_the_end() {
    for header in [b"AMQP\x00\x00\x09\x01", b"AMQP\x02\x01\x00\x00", b"GET / HT"] {
        let mut peer = Peer::new(config(), offer());
        peer.bytes(header);
        assert_eq!(peer.frames(), [Frame::Header(*SASL_HEADER)]);
        assert!(peer.engine.is_closed());
    }
}

#[test]
fn sasl_goes_through_the_host() {
    let mut peer = Peer::new(config(), SaslOffer { allow_bare_amqp: false, ..offer() });
    peer.bytes(SASL_HEADER);
    let [Frame::Header(_), Frame::SaslMechanisms(SaslMechanisms { sasl_server_mechanisms })] = &peer.frames()[..]
    else {
        panic!();
    };
    assert_eq!(sasl_server_mechanisms[..], ["ANONYMOUS", "PLAIN"]);
    peer.sasl(&init(Mechanism::Plain, b"\0orders\0secret"));
    let [Event::SaslInit { mechanism: Mechanism::Plain, response, hostname }] = &peer.events()[..] else { panic!() };
    assert_eq!(PlainResponse::parse(response).unwrap().user, "orders");
    assert_eq!(hostname.as_deref(), Some("host"));
    peer.engine.sasl_challenge(Bytes::from_static(b"?"));
    assert_eq!(peer.frames(), [Frame::OtherSasl]);
    peer.sasl(&SaslResponse { response: Bytes::from_static(b"!").into() });
    assert_eq!(peer.events(), [Event::SaslResponse(Bytes::from_static(b"!").into())]);
    peer.engine.sasl_outcome(true);
    assert!(matches!(&peer.frames()[..], [Frame::SaslOutcome(outcome)] if outcome.code == 0));
    peer.bytes(AMQP_HEADER);
    peer.send(0, &open());
    assert!(matches!(peer.events()[..], [Event::Opened(_)]));
}

#[test]
fn a_failed_outcome_ends_the_connection() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(SASL_HEADER);
    peer.frames();
    peer.sasl(&init(Mechanism::Plain, b"\0orders\0guess"));
    peer.events();
    peer.engine.sasl_outcome(false);
    assert!(matches!(&peer.frames()[..], [Frame::SaslOutcome(outcome)] if outcome.code == 1));
    assert!(peer.engine.is_closed());
    assert_eq!(closed(&peer.events()), condition::UNAUTHORIZED_ACCESS);
}

#[test]
fn a_server_that_is_too_busy_says_that_and_not_that_the_password_is_wrong() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(SASL_HEADER);
    peer.frames();
    peer.sasl(&init(Mechanism::Plain, b"\0orders\0secret"));
    peer.events();
    peer.engine.sasl_busy();
    assert!(matches!(&peer.frames()[..], [Frame::SaslOutcome(outcome)] if outcome.code == 4));
    assert!(peer.engine.is_closed());
}

#[test]
fn a_mechanism_that_was_not_offered_fails() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(SASL_HEADER);
    peer.frames();
    peer.sasl(&init(Mechanism::External, b""));
    assert!(matches!(&peer.frames()[..], [Frame::SaslOutcome(outcome)] if outcome.code == 1));
    assert_eq!(closed(&peer.events()), condition::UNAUTHORIZED_ACCESS);
}

#[test]
fn a_client_may_send_all_from_the_header_to_the_attach_in_one_go() {
    let mut all = SASL_HEADER.to_vec();
    all.extend(frame(1, 0, &|out| init(Mechanism::Anonymous, b"").encode(out), &[]));
    all.extend_from_slice(AMQP_HEADER);
    all.extend(frame(0, 0, &|out| open().encode(out), &[]));
    all.extend(frame(0, 0, &|out| begin().encode(out), &[]));
    all.extend(frame(0, 0, &|out| attach(Role::Sender).encode(out), &[]));
    for size in [all.len(), 1, 7] {
        let mut peer = Peer::new(config(), offer());
        let mut events = Vec::new();
        for part in all.chunks(size) {
            peer.bytes(part);
            while let Some(event) = peer.engine.poll_event() {
                if matches!(event, Event::SaslInit { .. }) {
                    assert!(!peer.engine.wants_input());
                    peer.engine.sasl_outcome(true);
                } else {
                    events.push(event);
                }
            }
        }
        assert!(matches!(events[..], [Event::Opened(_), Event::SessionBegun(_), Event::Attached(_)]), "{events:?}");
        assert!(peer.engine.wants_input());
    }
}

#[test]
fn the_engines_speak_to_each_other_by_every_mechanism() {
    let (user, password) = ("orders".to_owned(), "secret".to_owned());
    let clients = [
        (SaslClient::Anonymous, Mechanism::Anonymous),
        (SaslClient::Plain { user, password }, Mechanism::Plain),
        (SaslClient::External, Mechanism::External),
    ];
    for (client, want) in clients {
        let offer = SaslOffer { mechanisms: vec![Mechanism::ScramSha256, want], allow_bare_amqp: false };
        let mut pair = Pair::new(config(), client, config(), offer);
        pair.run();
        assert!(matches!(pair.server_events[..], [Event::SaslInit { mechanism, .. }] if mechanism == want));
        pair.server.sasl_outcome(true);
        pair.run();
        assert!(matches!(pair.client_events[..], [Event::Opened(_)]));
        assert!(matches!(pair.server_events[1..], [Event::Opened(_)]));
    }
}

#[test]
fn scram_goes_through_the_frames() {
    use super::pair::NoCrypto;
    use crate::scram::{ScramServer, ScramVerifier};
    for (password, good) in [("secret", true), ("guess", false)] {
        let client = SaslClient::Scram { user: "orders".into(), password: password.into() };
        let offer = SaslOffer { mechanisms: vec![Mechanism::ScramSha256], allow_bare_amqp: false };
        let mut pair = Pair::new(config(), client, config(), offer);
        pair.run();
        let Some(Event::SaslInit { response, .. }) = pair.server_events.pop() else { panic!() };
        let mut exchange = ScramServer::start(&response).unwrap();
        let verifier = ScramVerifier::derive("secret", vec![1, 2, 3], 4096, &NoCrypto);
        pair.server.sasl_challenge(exchange.challenge(verifier, &NoCrypto));
        pair.run();
        let Some(Event::SaslResponse(response)) = pair.server_events.pop() else { panic!() };
        let proof = exchange.finish(&response, &NoCrypto);
        assert_eq!(proof.is_ok(), good);
        match proof {
            Ok(server_final) => {
                pair.server.sasl_challenge(server_final);
                pair.run();
                assert_eq!(pair.server_events.pop(), Some(Event::SaslResponse(Bytes::new().into())));
                pair.server.sasl_outcome(true);
                pair.run();
                assert!(matches!(pair.client_events[..], [Event::Opened(_)]));
            }
            Err(_) => {
                pair.server.sasl_outcome(false);
                pair.run();
                assert_eq!(closed(&pair.client_events), condition::UNAUTHORIZED_ACCESS);
            }
        }
    }
}

#[test]
fn a_token_goes_through_the_frames_and_a_refused_one_is_told_why_before_the_outcome() {
    for good in [true, false] {
        let client = SaslClient::Bearer { token: "a.b.c".into() };
        let offer = SaslOffer { mechanisms: vec![Mechanism::OAuthBearer], allow_bare_amqp: false };
        let mut pair = Pair::new(config(), client, config(), offer);
        pair.run();
        let Some(Event::SaslInit { mechanism: Mechanism::OAuthBearer, response, .. }) = pair.server_events.pop() else {
            panic!()
        };
        let response = BearerResponse::parse(&response).unwrap();
        assert_eq!((response.authorization.as_str(), response.token), ("", "a.b.c"));
        if good {
            pair.server.sasl_outcome(true);
            pair.run();
            assert!(matches!(pair.client_events[..], [Event::Opened(_)]));
        } else {
            pair.server.sasl_challenge(Bytes::from_static(b"{\"status\":\"invalid_token\"}"));
            pair.run();
            assert_eq!(pair.server_events.pop(), Some(Event::SaslResponse(Bytes::from_static(b"\x01").into())));
            pair.server.sasl_outcome(false);
            pair.run();
            assert_eq!(closed(&pair.client_events), condition::UNAUTHORIZED_ACCESS);
        }
    }
}

#[test]
fn a_server_that_proves_nothing_is_not_believed() {
    let client = SaslClient::Scram { user: "orders".into(), password: "secret".into() };
    let offer = SaslOffer { mechanisms: vec![Mechanism::ScramSha256], allow_bare_amqp: false };
    let mut pair = Pair::new(config(), client, config(), offer);
    pair.run();
    pair.server.sasl_outcome(true);
    pair.run();
    assert_eq!(closed(&pair.client_events), condition::UNAUTHORIZED_ACCESS);
}

#[test]
fn a_client_refuses_mechanisms_it_does_not_have() {
    let mut pair = Pair::new(config(), SaslClient::External, config(), offer());
    pair.run();
    assert_eq!(closed(&pair.client_events), condition::UNAUTHORIZED_ACCESS);
}

#[test]
fn what_a_client_asks_for_before_it_is_open_goes_out_afterwards() {
    let mut pair = Pair::new(config(), SaslClient::Anonymous, config(), offer());
    let session = pair.client.begin();
    pair.client.attach(session, crate::AttachRequest::sender("link", "a"));
    pair.run();
    pair.server.sasl_outcome(true);
    pair.run();
    let events = &pair.server_events[1..];
    assert!(matches!(events, [Event::Opened(_), Event::SessionBegun(_), Event::Attached(_)]), "{events:?}");
}

#[test]
fn close_is_answered_when_the_host_knows() {
    let mut peer = Peer::opened(config());
    let error = Some(Error::new(condition::CONNECTION_FORCED, "bye"));
    peer.send(0, &Close { error: error.clone() });
    assert_eq!(peer.frames(), []);
    assert_eq!(peer.events(), [Event::Closed(error)]);
    assert_eq!(peer.frames(), [Frame::Close(Close { error: None })]);
    assert!(peer.engine.is_closed());
}

#[test]
fn our_close_waits_for_the_peers() {
    let mut peer = Peer::opened(config());
    peer.engine.close(None);
    assert_eq!(peer.frames(), [Frame::Close(Close { error: None })]);
    peer.send(0, &begin()); // it does not know yet
    assert!(!peer.engine.is_closed());
    peer.send(0, &Close { error: None });
    assert!(peer.engine.is_closed());
    assert_eq!(peer.events(), [Event::Closed(None)]);
}

#[test]
fn a_close_that_is_not_answered_ends_after_a_while() {
    let mut peer = Peer::opened(config());
    peer.engine.close(None);
    peer.frames();
    let deadline = peer.engine.poll_timeout().unwrap();
    assert_eq!(deadline, peer.now + crate::config::CLOSE_TIMEOUT);
    peer.advance(crate::config::CLOSE_TIMEOUT);
    assert!(peer.engine.is_closed());
    assert_eq!(peer.frames(), []);
    assert_eq!(peer.engine.poll_timeout(), None);
}

#[test]
fn a_silent_peer_is_closed_at_the_idle_deadline() {
    let mut peer = Peer::opened(Config { idle_timeout: Some(Duration::from_secs(30)), ..config() });
    peer.advance(Duration::from_secs(29));
    peer.bytes(&[0, 0, 0, 8, 2, 0, 0, 0]);
    peer.advance(Duration::from_secs(29));
    assert!(!peer.engine.is_closed());
    assert_eq!(peer.engine.poll_timeout(), Some(peer.now + Duration::from_secs(1)));
    peer.advance(Duration::from_secs(1));
    assert!(peer.engine.is_closed());
    assert_eq!(close_error(&peer.frames()), condition::RESOURCE_LIMIT_EXCEEDED);
    assert_eq!(closed(&peer.events()), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn a_peer_that_is_not_read_is_not_silent() {
    let mut peer = Peer::opened(Config { idle_timeout: Some(Duration::from_secs(30)), ..config() });
    peer.advance(Duration::from_secs(29));
    peer.engine.not_read(peer.now);
    peer.advance(Duration::from_secs(29));
    assert!(!peer.engine.is_closed());
    peer.advance(Duration::from_secs(1));
    assert!(peer.engine.is_closed());
}

#[test]
fn a_peer_that_never_opens_is_given_up() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(SASL_HEADER);
    peer.frames();
    peer.advance(crate::config::HANDSHAKE_TIMEOUT);
    assert!(peer.engine.is_closed());
    assert_eq!(closed(&peer.events()), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn the_peer_is_told_half_of_the_idle_timeout_that_is_enforced() {
    let mut peer = Peer::new(Config { idle_timeout: Some(Duration::from_secs(60)), ..config() }, offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &open());
    assert!(matches!(&peer.frames()[1], Frame::Open(Open { idle_time_out: Some(30_000), .. })));
}

#[test]
fn heartbeats_come_before_half_of_the_peers_idle_timeout() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &Open { idle_time_out: Some(30_000), ..open() });
    peer.frames();
    for _ in 0..5 {
        let before = peer.now;
        let due = peer.engine.poll_timeout().unwrap();
        assert!(due - before < Duration::from_secs(15));
        peer.advance(due - before);
        assert_eq!(peer.frames(), [Frame::Heartbeat]);
    }
    // Two engines keep each other alive for as long as one likes.
    let idle = Config { idle_timeout: Some(Duration::from_secs(10)), ..config() };
    let mut pair = Pair::opened_with(idle.clone(), idle);
    for _ in 0..100 {
        let due = pair.client.poll_timeout().min(pair.server.poll_timeout()).unwrap();
        let step = due.saturating_duration_since(pair.now);
        pair.advance(step);
    }
    assert!(pair.now.elapsed() < Duration::from_secs(1) && !pair.client.is_closed() && !pair.server.is_closed());
}

#[test]
fn an_idle_timeout_too_short_to_keep_is_refused() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &Open { idle_time_out: Some(5), ..open() });
    assert_eq!(close_error(&peer.frames()[2..]), condition::INVALID_FIELD);
}

#[test]
fn a_max_frame_size_below_512_is_refused() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &Open { max_frame_size: 511, ..open() });
    let frames = peer.frames();
    assert!(matches!(frames[1], Frame::Open(_)), "the close comes after an open");
    assert_eq!(close_error(&frames[2..]), condition::INVALID_FIELD);
    assert_eq!(closed(&peer.events()), condition::INVALID_FIELD);
}

#[test]
fn frames_that_do_not_add_up_are_framing_errors() {
    let max = config().max_frame_size;
    let [a, b, c, d] = (max + 1).to_be_bytes();
    let cases: [&[u8]; 5] = [
        &[0, 0, 0, 7, 2, 0, 0, 0],
        &[0, 0, 0, 8, 1, 0, 0, 0],
        &[0, 0, 0, 8, 3, 0, 0, 0],
        &[a, b, c, d, 2, 0, 0, 0],
        &[0, 0, 0, 9, 2, 1, 0, 0, 0],
    ];
    for case in cases {
        let mut peer = Peer::opened(config());
        peer.bytes(case);
        assert_eq!(close_error(&peer.frames()), condition::FRAMING_ERROR, "{case:?}");
        assert_eq!(closed(&peer.events()), condition::FRAMING_ERROR);
        assert!(peer.input.is_empty());
    }
}

#[test]
fn an_extended_frame_header_is_passed_over() {
    let mut peer = Peer::opened(config());
    let mut begun = frame(0, 0, &|out| begin().encode(out), &[]);
    begun.splice(8..8, [1, 2, 3, 4]);
    begun[3] += 4;
    begun[4] = 3;
    peer.bytes(&begun);
    assert!(matches!(peer.events()[..], [Event::SessionBegun(_)]));
}

#[test]
fn what_cannot_be_decoded_is_a_decode_error() {
    let cases: [&[u8]; 7] = [
        &[0x40],                                                    // not described
        &[0, 0x53, 0x99, 0x45],                                     // no such performative
        &[0, 0x53, 0x10, 0x45],                                     // open without container-id
        &[0, 0x53, 0x11, 0xc0, 2, 1, 0x41],                         // a boolean as channel
        &[0, 0x53, 0x18, 0xc0, 3, 2, 0x40, 0x40],                   // more fields than close has
        &[0, 0x53, 0x18, 0x45, 0],                                  // bytes after the performative
        &[0, 0x53, 0x18, 0xd0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], // a size beyond the frame
    ];
    for case in cases {
        let mut peer = Peer::opened(config());
        peer.bytes(&frame(0, 0, &|out| out.extend_from_slice(case), &[]));
        assert_eq!(close_error(&peer.frames()), condition::DECODE_ERROR, "{case:?}");
        assert_eq!(closed(&peer.events()), condition::DECODE_ERROR);
    }
}

#[test]
fn a_second_open_is_an_error() {
    let mut peer = Peer::opened(config());
    peer.send(0, &open());
    assert_eq!(close_error(&peer.frames()), condition::ILLEGAL_STATE);
}

#[test]
fn a_frame_before_open_is_an_error() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &begin());
    assert_eq!(close_error(&peer.frames()[2..]), condition::ILLEGAL_STATE);
    let mut peer = Peer::new(config(), offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &transfer(0));
    assert_eq!(close_error(&peer.frames()[2..]), condition::DECODE_ERROR);
}

#[test]
fn a_sasl_frame_that_is_not_due_ends_the_connection() {
    let mut peer = Peer::new(config(), offer());
    peer.bytes(SASL_HEADER);
    peer.sasl(&SaslResponse { response: Bytes::new().into() });
    assert!(peer.engine.is_closed());
    let mut peer = Peer::new(config(), offer());
    peer.bytes(SASL_HEADER);
    peer.bytes(&(crate::config::SASL_FRAME_BYTES_MAX + 1).to_be_bytes());
    peer.bytes(&[2, 1, 0, 0]);
    assert_eq!(closed(&peer.events()), condition::FRAMING_ERROR);
}

#[test]
fn a_channel_over_channel_max_is_an_error() {
    let mut peer = Peer::opened(Config { channel_max: 3, ..config() });
    peer.send(3, &begin());
    assert!(matches!(peer.events()[..], [Event::SessionBegun(_)]));
    peer.frames();
    peer.send(4, &begin());
    assert_eq!(close_error(&peer.frames()), condition::FRAMING_ERROR);
}

#[test]
fn a_frame_on_a_channel_without_session_is_an_error() {
    let mut peer = Peer::opened(config());
    peer.send(9, &flow());
    assert_eq!(close_error(&peer.frames()), condition::ILLEGAL_STATE);
}

#[test]
fn a_second_begin_on_a_channel_is_an_error() {
    let mut peer = Peer::begun(config());
    peer.send(0, &begin());
    assert_eq!(close_error(&peer.frames()), condition::ILLEGAL_STATE);
}

#[test]
fn sessions_have_a_limit() {
    let mut limited = config();
    limited.limits.sessions = 2;
    let mut peer = Peer::opened(limited);
    peer.send(0, &begin());
    peer.send(1, &begin());
    assert_eq!(peer.events().len(), 2);
    peer.frames();
    peer.send(2, &begin());
    assert_eq!(close_error(&peer.frames()), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn a_channel_can_be_used_again_after_its_end() {
    let mut peer = Peer::begun(config());
    for _ in 0..3 {
        peer.send(0, &End { error: None });
        assert_eq!(peer.frames(), []);
        assert!(matches!(peer.events()[..], [Event::SessionEnded(_, None)]));
        assert_eq!(peer.frames(), [Frame::End(End { error: None })]);
        peer.send(0, &begin());
        assert!(matches!(peer.events()[..], [Event::SessionBegun(_)]));
        peer.frames();
    }
}

#[test]
fn a_session_ended_from_here_hears_nothing_more() {
    let (mut peer, link) = Peer::attached(config(), Role::Sender);
    let session = peer.engine.link(link).unwrap().session;
    peer.engine.end_session(session, None);
    assert_eq!(peer.frames(), [Frame::End(End { error: None })]);
    peer.transfer(0, &transfer(0), b"late");
    peer.send(0, &flow());
    assert_eq!(peer.events(), []);
    peer.send(0, &End { error: None });
    assert_eq!(peer.events(), [Event::SessionEnded(session, None)]);
    assert_eq!(peer.engine.link(link), None);
}

#[test]
fn a_client_learns_that_the_peer_allows_no_further_channel() {
    let mut pair = Pair::opened_with(config(), Config { channel_max: 0, ..config() });
    pair.begin();
    let second = pair.client.begin();
    let Some(Event::SessionEnded(ended, Some(_))) = pair.client.poll_event() else { panic!() };
    assert_eq!(ended, second);
}

#[test]
fn wanted_is_what_completes_the_frame() {
    let peer = Peer::opened(config());
    assert_eq!(peer.engine.wanted(&BytesMut::from(&[0, 0, 4][..])), 0);
    assert_eq!(peer.engine.wanted(&BytesMut::from(&[0, 0, 4, 0, 2][..])), 1024 - 5);
}

/// A server whose host answers opens, after an open and a begin.
fn asked_to_open() -> Peer {
    let mut peer = Peer::new(Config { host_opens: true, ..config() }, offer());
    peer.bytes(AMQP_HEADER);
    peer.send(0, &open());
    peer.send(0, &begin());
    assert!(matches!(peer.events()[..], [Event::Opened(_)]));
    assert_eq!(peer.frames(), [Frame::Header(*AMQP_HEADER)]);
    assert!(!peer.engine.wants_input());
    peer
}

#[test]
fn what_follows_an_open_waits_until_the_host_has_answered_the_open() {
    let mut peer = asked_to_open();
    peer.engine.accept_open(vec![Symbol::from_static("x")], vec![(Symbol::from_static("p"), "v".into())]);
    assert!(matches!(peer.events()[..], [Event::SessionBegun(_)]));
    let frames = peer.frames();
    let [Frame::Open(open), Frame::Begin(_)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(open.offered_capabilities.last().unwrap().as_str(), "x");
    assert_eq!(open.properties.last().unwrap().0.as_str(), "p");
    assert!(peer.engine.wants_input());
    peer.engine.refuse_open(Vec::new(), None);
    assert_eq!(peer.frames(), [], "it was answered");
}

#[test]
fn a_host_that_refuses_an_open_or_closes_instead_is_heard_as_open_and_close() {
    for closes in [false, true] {
        let mut peer = asked_to_open();
        let error = Some(Error::new(condition::INVALID_FIELD, "no"));
        match closes {
            false => peer.engine.refuse_open(Vec::new(), error),
            true => peer.engine.close(error),
        }
        let frames = peer.frames();
        assert!(matches!(frames[0], Frame::Open(_)), "{frames:?}");
        assert_eq!(close_error(&frames[1..]), condition::INVALID_FIELD);
        peer.send(0, &Close { error: None });
        assert!(peer.engine.is_closed());
    }
}

#[test]
fn an_open_that_is_not_answered_ends_with_the_handshakes_time() {
    let mut peer = asked_to_open();
    let due = peer.engine.poll_timeout().unwrap();
    peer.engine.handle_timeout(due);
    assert!(peer.engine.is_closed());
}

/// To keep what a client sends ahead costs a few copies of it. A copy for each byte would take the host seconds.
#[test]
fn what_a_client_sends_ahead_of_an_answer_is_copied_a_few_times_at_most() {
    const AHEAD: usize = 8;
    let heartbeats = [0, 0, 0, 8, 2, 0, 0, 0].repeat(512);
    let signing_in = frame(1, 0, &|out| init(Mechanism::Plain, b"\0user\0password").encode(out), &[]);
    let sasl = [&SASL_HEADER[..], &signing_in].concat();
    let bare = [&AMQP_HEADER[..], &frame(0, 0, &|out| open().encode(out), &[])].concat();
    for begun in [sasl, bare] {
        let mut peer = Peer::new(config(), offer());
        peer.engine.receive_copied(peer.now, &begun);
        for _ in 0..AHEAD {
            peer.engine.receive_copied(peer.now, &heartbeats);
        }
        let sent = begun.len() + AHEAD * heartbeats.len();
        assert!(peer.engine.held_copied <= 2 * sent, "{} bytes copied of {sent}", peer.engine.held_copied);
    }
}
