//! Links that are attached again with unsettled deliveries (part 2, section 2.6.13).

use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::tests::peer::{Frame, Peer, attach, begin, config, credit, disposition, open, reply, transfer};
use crate::types::{Attach, Detach, End, Transfer};
use crate::{
    AttachReply, DeliveryState, DeliveryTag, Event, KeptOutcome, LinkId, Payload, ReceiverSettleMode, Role,
    UNSETTLED_ENTRIES_MAX, UnsettledMap,
};
use bytes::Bytes;

const MESSAGE: &[u8] = b"\x00\x53\x77\x40";

fn tag(number: u32) -> DeliveryTag {
    DeliveryTag::new(&number.to_be_bytes()).unwrap()
}

fn map(entries: &[(u32, Option<DeliveryState>)]) -> UnsettledMap {
    UnsettledMap(entries.iter().map(|(number, state)| (tag(*number), state.clone())).collect())
}

/// A link of that role of the peer, attached with what `fill` makes of an attach and of the answer; and the answer.
fn attached(role: Role, fill: impl FnOnce(&mut Attach, &mut AttachReply)) -> (Peer, LinkId, Attach) {
    let mut peer = Peer::begun(config());
    let mut asks = attach(role);
    let mut reply = AttachReply { resumable: true, ..reply(&asks) };
    fill(&mut asks, &mut reply);
    peer.send(0, &asks);
    let link = peer.asked();
    peer.engine.accept_link(link, reply);
    let [Frame::Attach(answer)] = &peer.frames()[..] else { panic!("no attach") };
    let answer = answer.clone();
    if role == Role::Sender {
        peer.engine.set_credit(link, 10);
        peer.frames();
    }
    (peer, link, answer)
}

fn arrives(peer: &mut Peer, id: u32) -> crate::DeliveryId {
    peer.transfer(0, &transfer(id), MESSAGE);
    match &peer.events()[..] {
        [Event::Delivery(delivery)] => delivery.id,
        events => panic!("{events:?}"),
    }
}

fn kept(peer: &mut Peer, link: LinkId) -> Vec<(DeliveryTag, Option<DeliveryState>)> {
    let mut kept = peer.engine.take_outcomes(link);
    kept.sort_by_key(|outcome| outcome.tag.as_bytes().to_vec());
    kept.into_iter().map(|KeptOutcome { tag, state, .. }| (tag, state)).collect()
}

#[test]
fn outcomes_outlive_a_detach_the_session_and_the_connection_but_not_a_close() {
    let ends: [fn(&mut Peer); 3] = [
        |peer| peer.send(0, &Detach { handle: 0, closed: false, error: None }),
        |peer| peer.send(0, &End { error: None }),
        |_| {},
    ];
    for end in ends {
        let (mut peer, link, _) = attached(Role::Sender, |_, _| {});
        for id in [0, 1] {
            arrives(&mut peer, id);
        }
        peer.engine.dispose(link, crate::DeliveryId(0), DeliveryState::Accepted);
        end(&mut peer);
        peer.events();
        assert_eq!(kept(&mut peer, link), [(tag(0), Some(DeliveryState::Accepted)), (tag(1), None)]);
        assert_eq!(kept(&mut peer, link), []);
    }
    let (mut peer, link, _) = attached(Role::Sender, |_, _| {});
    arrives(&mut peer, 0);
    peer.send(0, &Detach { handle: 0, closed: true, error: None });
    peer.events();
    assert_eq!(kept(&mut peer, link), []);
}

#[test]
fn an_outcome_that_the_sender_has_settled_is_not_kept() {
    let (mut peer, link, _) = attached(Role::Sender, |asks, _| asks.rcv_settle_mode = ReceiverSettleMode::Second);
    let id = arrives(&mut peer, 0);
    peer.engine.dispose(link, id, DeliveryState::Accepted);
    peer.send(0, &disposition(Role::Sender, 0, None, true));
    peer.events();
    assert_eq!(kept(&mut peer, link), []);
}

#[test]
fn no_more_outcomes_are_kept_than_there_may_be() {
    let mut outcomes = crate::unsettled::Outcomes::default();
    for id in 0..5 * crate::OUTCOMES_KEPT_MAX as u32 {
        outcomes.arrived(id, tag(id));
        outcomes.answered(id, &DeliveryState::Accepted);
    }
    let ids: Vec<u32> = outcomes.into_kept().iter().map(|kept| kept.id.unwrap().0).collect();
    assert_eq!(ids.len(), crate::OUTCOMES_KEPT_MAX);
    assert_eq!(ids.iter().min(), Some(&(4 * crate::OUTCOMES_KEPT_MAX as u32)), "the newest");
}

#[test]
fn a_resumed_delivery_is_answered_with_its_outcome_and_an_unknown_one_is_ignored() {
    let rejected = || Some(DeliveryState::Rejected(None));
    let (mut peer, link, answer) = attached(Role::Sender, |asks, reply| {
        asks.unsettled = Some(map(&[(7, None), (8, None), (9, None)]));
        reply.unsettled = Some(map(&[(7, Some(DeliveryState::Accepted)), (9, rejected())]));
    });
    assert_eq!(answer.unsettled, Some(map(&[(7, Some(DeliveryState::Accepted)), (9, rejected())])));
    assert!(!answer.incomplete_unsettled);
    let resumed = |id, number| Transfer { resume: true, delivery_tag: Some(tag(number)), ..transfer(id) };
    peer.transfer(0, &resumed(0, 7), MESSAGE);
    peer.transfer(0, &resumed(1, 8), MESSAGE);
    peer.transfer(0, &Transfer { settled: Some(true), ..resumed(2, 9) }, b"");
    assert_eq!(peer.events(), []);
    let told: Vec<_> = peer
        .frames()
        .into_iter()
        .filter_map(|frame| match frame {
            Frame::Disposition(told) => Some((told.first, told.last, told.settled, told.state)),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(0, None, true, Some(DeliveryState::Accepted))]);
    assert_eq!(peer.engine.credit(link), 10);
    assert_eq!(kept(&mut peer, link), [(tag(7), Some(DeliveryState::Accepted))]);
}

#[test]
fn what_is_not_resumed_yet_is_kept_for_the_next_attachment() {
    let accepted = || map(&[(7, Some(DeliveryState::Accepted))]);
    let (mut peer, link, _) = attached(Role::Sender, |_, reply| reply.unsettled = Some(accepted()));
    assert_eq!(kept(&mut peer, link), accepted().0);
}

#[test]
fn a_map_that_does_not_fit_into_a_frame_is_cut_and_then_nothing_new_is_taken() {
    let mut peer = Peer::new(config(), crate::tests::peer::offer());
    peer.bytes(crate::tests::peer::AMQP_HEADER);
    peer.send(0, &crate::Open { max_frame_size: 512, ..open() });
    peer.send(0, &begin());
    let asks = attach(Role::Sender);
    peer.send(0, &asks);
    let attached = peer.events().into_iter().find_map(|event| match event {
        Event::Attached(attached) => Some(attached.link),
        _ => None,
    });
    let link = attached.unwrap();
    let all: Vec<_> = (0..100).map(|number| (number, Some(DeliveryState::Accepted))).collect();
    peer.engine.accept_link(link, AttachReply { resumable: true, unsettled: Some(map(&all)), ..reply(&asks) });
    peer.engine.set_credit(link, 10);
    let answer = peer.frames().into_iter().find_map(|frame| match frame {
        Frame::Attach(answer) => Some(answer),
        _ => None,
    });
    let answer = answer.unwrap();
    let mut encoded = Vec::new();
    answer.encode(&mut encoded);
    assert!(encoded.len() + 8 <= 512 && encoded.len() > 450, "{}", encoded.len());
    assert!(answer.incomplete_unsettled && peer.engine.resumes_only(link));
    let told = answer.unsettled.unwrap().0;
    assert_eq!(told, map(&all).0[..told.len()]);
    peer.transfer(0, &Transfer { resume: true, delivery_tag: Some(tag(99)), ..transfer(0) }, b"");
    assert!(peer.frames().iter().any(|frame| matches!(frame, Frame::Disposition(_))), "it is known all the same");
    peer.transfer(0, &transfer(1), MESSAGE);
    assert!(matches!(&peer.events()[..], [Event::Detached { closed: true, error: Some(_), .. }]));
}

#[test]
fn a_sending_link_resumes_with_the_tag_of_before_and_settles_without_the_message() {
    let (mut peer, link, answer) = attached(Role::Receiver, |asks, reply| {
        asks.unsettled = Some(UnsettledMap::default());
        reply.unsettled = Some(UnsettledMap(vec![(DeliveryTag::of_token(5), None), (DeliveryTag::of_token(6), None)]));
        reply.resumed = vec![5, 6];
    });
    assert_eq!(answer.unsettled.unwrap().0.len(), 2);
    peer.engine.settle(link, 6, DeliveryState::Accepted);
    assert_eq!(peer.frames(), [], "it has no credit");
    peer.send(0, &credit(0, 0, 2));
    assert!(matches!(peer.events()[..], [Event::Credit { credit: 1, .. }]));
    let message = Payload::from(Bytes::from_static(MESSAGE));
    assert!(peer.engine.can_send(link) && peer.engine.send(link, 5, message.clone(), false));
    assert!(!peer.engine.can_send(link));
    peer.send(0, &credit(0, 2, 1));
    peer.events();
    assert!(peer.engine.send(link, 7, message, false));
    let sent: Vec<_> = peer
        .frames()
        .into_iter()
        .map(|frame| match frame {
            Frame::Transfer(transfer, payload) => {
                let Transfer { delivery_tag, settled, resume, state, .. } = transfer;
                (delivery_tag.unwrap().token(), settled, resume, state, payload)
            }
            frame => panic!("{frame:?}"),
        })
        .collect();
    let from_start = DeliveryState::Received { section_number: 0, section_offset: 0 };
    assert_eq!(
        sent,
        [
            (Some(6), Some(true), true, Some(DeliveryState::Accepted), vec![]),
            (Some(5), Some(false), true, Some(from_start), MESSAGE.to_vec()),
            (Some(7), Some(false), false, None, MESSAGE.to_vec()),
        ]
    );
    peer.send(0, &disposition(Role::Receiver, 1, None, true));
    assert!(matches!(peer.events()[..], [Event::Outcome { token: 5, settled: true, .. }]));
}

fn decoded(bytes: &[u8]) -> Result<UnsettledMap, DecodeError> {
    let mut reader = Reader::new(bytes);
    let code = reader.u8()?;
    UnsettledMap::decode(&mut reader, code)
}

#[test]
fn a_damaged_map_is_an_error() {
    let encoded = |map: &UnsettledMap| {
        let mut out = Vec::new();
        map.encode(&mut out);
        out
    };
    let whole = map(&[(1, None), (2, Some(DeliveryState::Accepted))]);
    assert_eq!(decoded(&encoded(&whole)), Ok(whole.clone()));
    for length in 0..encoded(&whole).len() {
        assert!(decoded(&encoded(&whole)[..length]).is_err(), "{length}");
    }
    let twice = map(&[(1, None), (1, None)]);
    assert_eq!(decoded(&encoded(&twice)), Err(DecodeError::Value { of: "unsettled map" }));
    let many: Vec<_> = (0..=UNSETTLED_ENTRIES_MAX).map(|number| (number, None)).collect();
    assert_eq!(decoded(&encoded(&map(&many))), Err(DecodeError::Count));
    assert!(decoded(&encoded(&map(&many[1..]))).is_ok());
    assert!(decoded(b"\xc1\x03\x02\x40\x40").is_err(), "a tag that is null");
    assert!(decoded(b"\xc1\x04\x02\xa0\x00\x41").is_err(), "a state that is none");
}
