//! Two sockets under full load both ways, driven as a dispatcher drives them: by readiness that the system tells once.

use super::*;
use crate::tls::tests::Pair;
use bulla_device::{Inline, Kind, Scheduler};
use mio::{Events, Interest, Poll, Token};

/// Most bytes offered to one write, and read at once.
const CHUNK_BYTES: usize = 100 << 10;

/// One end: what it sends and what it receives are streams that can be computed.
struct End {
    socket: TlsSocket,
    readable: bool,
    writable: bool,
    sent: u64,
    heard: u64,
    to_send: u64,
    ended: Option<io::Error>,
}

/// The byte at that place of every stream: neighbours, and whole records, differ.
fn byte_at(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl End {
    fn turn(&mut self) -> io::Result<()> {
        if self.readable {
            self.read()?;
        }
        self.write()
    }

    fn read(&mut self) -> io::Result<()> {
        if self.socket.handshake()? == Moved::Blocked {
            self.readable = false;
            return Ok(());
        }
        let mut room = vec![0; CHUNK_BYTES];
        match self.socket.read(&mut room)? {
            Moved::Bytes(n) => {
                for byte in &room[..n] {
                    assert_eq!(*byte, byte_at(self.heard), "byte {}", self.heard);
                    self.heard += 1;
                }
                self.readable = !self.socket.is_drained();
            }
            Moved::Blocked => self.readable = false,
            Moved::End => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        self.writable |= self.socket.write_goes_on();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.socket.send()? {
            self.writable = false;
        }
        self.readable |= self.socket.read_goes_on();
        while self.writable && self.socket.established().is_some() && self.sent < self.to_send {
            let len = CHUNK_BYTES.min((self.to_send - self.sent) as usize);
            let chunk: Vec<u8> = (self.sent..self.sent + len as u64).map(byte_at).collect();
            // Pieces of odd sizes, as frames and payloads are.
            let (head, tail) = chunk.split_at(len / 7);
            match self.socket.write(&[IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)])? {
                Moved::Bytes(n) => self.sent += n as u64,
                Moved::Blocked => {
                    self.writable = false;
                    self.readable |= self.socket.write_waits_for_read();
                }
                Moved::End => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        self.ended.is_none() && (self.readable || (self.writable && self.sent < self.to_send))
    }

    fn is_done(&self, other_sends: u64) -> bool {
        self.ended.is_some() || (self.sent == self.to_send && self.heard == other_sends && !self.socket.wants_to_send())
    }
}

/// Two ends over loopback, and what drives them.
struct Run {
    poll: Poll,
    ends: [End; 2],
    /// The files and settings that the sessions were made from.
    _from: (Pair, [crate::tls::Tls; 2]),
}

impl Run {
    fn new(spec: &str, to_send: [u64; 2]) -> Self {
        let poll = Poll::new().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let pair = Pair::new();
        let [(caller, client), (called, server)] = pair.sessions(spec);
        let mut index = 0;
        let ends = [(near, client), (far, server)].map(|(stream, ssl)| {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut socket = TlsSocket::new(TcpStream::from_std(stream), ssl).unwrap();
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(socket.tcp(), Token(index), interest).unwrap();
            index += 1;
            End { socket, readable: true, writable: true, sent: 0, heard: 0, to_send: to_send[index - 1], ended: None }
        });
        Self { poll, ends, _from: (pair, [caller, called]) }
    }

    /// Until both have sent and heard all, or have ended.
    fn go(&mut self) {
        let mut events = Events::with_capacity(8);
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let sends = [self.ends[0].to_send, self.ends[1].to_send];
            if self.ends[0].is_done(sends[1]) && self.ends[1].is_done(sends[0]) {
                return;
            }
            assert!(Instant::now() < deadline, "{}", self.state());
            let timeout = if self.ends.iter().any(End::has_work) { 0 } else { 20_000 };
            self.poll.poll(&mut events, Some(Duration::from_millis(timeout))).unwrap();
            assert!(timeout == 0 || !events.is_empty(), "nothing happens any more: {}", self.state());
            for event in &events {
                let end = &mut self.ends[event.token().0];
                end.readable |= event.is_readable();
                end.writable |= event.is_writable();
            }
            for end in &mut self.ends {
                if end.ended.is_none()
                    && let Err(error) = end.turn()
                {
                    end.socket.tcp().shutdown(std::net::Shutdown::Both).ok();
                    end.ended = Some(error);
                }
            }
        }
    }

    fn state(&self) -> String {
        let of = |end: &End| {
            format!("sent {} heard {} resets {} {:?}", end.sent, end.heard, end.socket.key_resets(), end.ended)
        };
        format!("{} | {}", of(&self.ends[0]), of(&self.ends[1]))
    }

    fn assert_whole(&self) {
        assert!(self.ends.iter().all(|end| end.ended.is_none()), "{}", self.state());
    }
}

const MIB: u64 = 1 << 20;

/// 1,000 resets of the smallest kind while both ends send at once.
fn thousand_resets(spec: &str) {
    let mut run = Run::new(spec, [40 * MIB, 40 * MIB]);
    run.ends[0].socket.set_key_reset(1);
    run.ends[1].socket.allow_renegotiation(true);
    run.go();
    run.assert_whole();
    let [near, far] = run.ends.each_ref().map(|end| end.socket.key_resets());
    assert!(near >= 1_000, "{}", run.state());
    assert!(near.abs_diff(far) <= 1, "both ends count: {}", run.state());
    assert!(run.ends.iter().all(|end| end.socket.last_key_reset().is_some()));
}

#[test]
fn a_thousand_renegotiations_under_load_lose_no_byte() {
    thousand_resets("ECDHE_ECDSA_AES_256_GCM_SHA384");
}

#[test]
fn a_thousand_renegotiations_of_a_cbc_suite_under_load_lose_no_byte() {
    thousand_resets("ECDHE_ECDSA_AES_128_CBC_SHA256");
}

#[test]
fn a_thousand_key_updates_under_load_lose_no_byte() {
    thousand_resets("TLS_AES_256_GCM_SHA384");
}

#[test]
fn an_end_that_only_sends_renews_its_keys_too() {
    for spec in ["ANY_TLS12", "ANY_TLS13"] {
        for sender in 0..2 {
            let mut run = Run::new(spec, if sender == 0 { [40 * MIB, 0] } else { [0, 40 * MIB] });
            run.ends[0].socket.set_key_reset(64 << 10);
            run.ends[1].socket.allow_renegotiation(true);
            run.go();
            run.assert_whole();
            // What the other end sends before it sees the hello is megabytes, on their way or in buffers. Under TLS 1.3
            // it is a write that renews keys: an end that only listens has none to make.
            let at_least = match (spec, sender) {
                (_, 0) => 100,
                ("ANY_TLS12", _) => 2,
                _ => 0,
            };
            assert!(run.ends[0].socket.key_resets() >= at_least, "{spec} {sender}: {}", run.state());
        }
    }
}

#[test]
fn without_sslrkeyc_no_key_is_renewed() {
    for spec in ["ANY_TLS12", "ANY_TLS13"] {
        let mut run = Run::new(spec, [4 * MIB, 4 * MIB]);
        run.go();
        run.assert_whole();
        assert_eq!(run.ends.map(|end| end.socket.key_resets()), [0, 0]);
    }
}

#[test]
fn a_renegotiation_that_is_not_allowed_ends_the_connection_of_whoever_began_it() {
    let mut run = Run::new("ANY_TLS12", [4 * MIB, 4 * MIB]);
    run.ends[0].socket.set_key_reset(1);
    run.go();
    let ended = run.ends[0].ended.as_ref().expect("a partner without SSLRKEYC does not renegotiate");
    let refusal = TlsRefusal::of_io(ended).expect("a refusal by TLS");
    assert_eq!(refusal.to_string(), "refused by the partner: no renegotiation: its SSLRKEYC for this channel is 0");
    assert_eq!(run.ends[1].socket.key_resets(), 0);
}

#[test]
fn data_after_a_heartbeat_has_new_keys() {
    for spec in ["ANY_TLS12", "ANY_TLS13"] {
        let mut run = Run::new(spec, [1000, 1000]);
        run.ends[1].socket.allow_renegotiation(true);
        run.ends[0].socket.set_key_reset(MIB);
        run.go();
        assert_eq!(run.ends[0].socket.key_resets(), 0);
        for heartbeat in 1..=3 {
            run.ends[0].socket.reset_before_data_after_heartbeat();
            run.ends[0].to_send += 10;
            run.ends[0].writable = true;
            run.go();
            run.assert_whole();
            assert_eq!(run.ends[0].socket.key_resets(), heartbeat, "{spec}");
        }
    }
}

#[test]
fn a_partner_that_renews_keys_without_moving_bytes_is_sent_away() {
    for spec in ["ANY_TLS12", "ANY_TLS13"] {
        let mut run = Run::new(spec, [1, 1]);
        run.ends[1].socket.allow_renegotiation(true);
        run.ends[0].socket.set_key_reset(MIB);
        for _ in 0..10_000 {
            run.ends[0].socket.reset_before_data_after_heartbeat();
            run.ends[0].to_send += 1;
            run.ends[0].writable = true;
            run.go();
            if run.ends[1].ended.is_some() {
                break;
            }
        }
        let ended = run.ends[1].ended.as_ref().expect("there is a limit");
        assert_eq!(TlsRefusal::of_io(ended), Some(&TlsRefusal::TooManyResets), "{spec}");
    }
}

#[test]
fn the_limit_grows_with_time_and_with_bytes() {
    let start = Instant::now();
    let mut limit = PeerLimit { seen: 0, left: 2, grew_at: start, grew_bytes: 0 };
    assert!(limit.take(start, 0) && limit.take(start, 0) && !limit.take(start, 0));
    assert!(limit.take(start + PEER_RESET_EVERY, 0) && !limit.take(start + PEER_RESET_EVERY, 0));
    assert!(!limit.take(start + PEER_RESET_EVERY, KEY_RESET_BYTES_MIN - 1));
    assert!(limit.take(start + PEER_RESET_EVERY, KEY_RESET_BYTES_MIN));
    let later = start + 1_000 * PEER_RESET_EVERY;
    assert_eq!((0..100).filter(|_| limit.take(later, KEY_RESET_BYTES_MIN)).count(), PEER_RESETS_BURST as usize);
}

/// What the ends of these runs ask devices for, computed here; how many there were.
fn sign(runs: &mut [Run]) -> usize {
    let scheduler = Scheduler::new(Kind::Cpu, 1);
    let mut inline = Inline::new();
    let mut asked = 0;
    for end in runs.iter_mut().flat_map(|run| &mut run.ends) {
        if let Some(job) = end.socket.question() {
            inline.push_here(job);
            end.socket.answer(inline.run(&scheduler).remove(0).result);
            end.readable = true;
            asked += 1;
        }
    }
    scheduler.shut_down();
    asked
}

#[test]
fn handshakes_wait_for_their_signatures_side_by_side() {
    for spec in ["ANY_TLS12", "ANY_TLS13", "ECDHE_ECDSA_AES_128_CBC_SHA256"] {
        let mut runs: Vec<Run> = (0..8).map(|_| Run::new(spec, [100, 100])).collect();
        runs.iter_mut().flat_map(|run| &mut run.ends).for_each(|end| end.socket.use_devices());
        let mut asked = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(30);
        while runs.iter().flat_map(|run| &run.ends).any(|end| end.socket.established().is_none()) {
            assert!(Instant::now() < deadline, "{spec}: {asked:?}");
            for run in &mut runs {
                for end in &mut run.ends {
                    end.readable = true;
                    end.turn().unwrap();
                }
            }
            asked.push(sign(&mut runs));
        }
        asked.retain(|count| *count > 0);
        assert_eq!(asked, [8, 8], "{spec}: all servers at once, then all clients");
        for mut run in runs {
            run.go();
            run.assert_whole();
        }
    }
}

#[test]
fn a_connection_that_ends_while_its_signature_is_made_leaves_nothing_behind() {
    for spec in ["ANY_TLS12", "ANY_TLS13"] {
        let mut run = Run::new(spec, [1, 1]);
        run.ends[1].socket.use_devices();
        let deadline = Instant::now() + Duration::from_secs(30);
        let question = loop {
            assert!(Instant::now() < deadline);
            for end in &mut run.ends {
                end.readable = true;
                end.turn().unwrap();
            }
            if let Some(question) = run.ends[1].socket.question() {
                break question;
            }
        };
        drop(run);
        assert!(question.key.private().is_some());
    }
}

#[test]
fn a_server_acknowledges_the_end_of_a_tls13_handshake_at_once() {
    let mut run = Run::new("ANY_TLS13", [0, 0]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while run.ends.iter().any(|end| end.socket.established().is_none()) {
        assert!(Instant::now() < deadline, "{}", run.state());
        for end in &mut run.ends {
            end.readable = true;
            end.turn().unwrap();
        }
    }
    let [client, server] = &mut run.ends;
    let at_once = |end: &mut End| rustix::net::sockopt::tcp_quickack(end.socket.tcp()).unwrap();
    // The client's is what the system does by itself: it waits for something to send along.
    assert!(at_once(server) && !at_once(client));
}
