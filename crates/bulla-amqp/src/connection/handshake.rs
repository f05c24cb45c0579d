//! Protocol headers, SASL, and open (part 2, sections 2.2 and 2.4; part 5, section 5.3).

use super::{Connection, ConnectionRole, FrameHead, Heartbeat, Input, Phase, open_descriptor, undecodable};
use crate::codec::{DecodeError, Encode, Reader};
use crate::condition;
use crate::config::{FRAME_BYTES_MIN, PEER_IDLE_TIMEOUT_MIN, SASL_FRAME_BYTES_MAX};
use crate::event::Event;
use crate::output::FrameKind;
use crate::sasl::{BEARER_REFUSED, Mechanism, SaslClient, SaslSecret};
use crate::types::{Error, Open, SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse};
use crate::value::{Symbol, Value};
use bytes::Bytes;
use std::time::Duration;

const AMQP_HEADER: [u8; 8] = *b"AMQP\x00\x01\x00\x00";
const SASL_HEADER: [u8; 8] = *b"AMQP\x03\x01\x00\x00";
/// Outcome codes (part 5, section 5.3.3.6).
const OUTCOME_OK: u8 = 0;
const OUTCOME_AUTH: u8 = 1;
/// The server can't tell for now (part 5, section 5.3.3.6: sys-temp).
const OUTCOME_SYS_TEMP: u8 = 4;

impl Connection {
    pub(super) fn start_client(&mut self) {
        let ConnectionRole::Client { sasl, .. } = &self.role else { return };
        if sasl.mechanism().is_some() {
            self.out.raw(&SASL_HEADER);
        } else {
            self.client_amqp();
        }
    }

    /// AMQP header, open, and what the host has asked for already.
    fn client_amqp(&mut self) {
        self.out.raw(&AMQP_HEADER);
        self.phase = Phase::AmqpHeader;
        self.send_open();
    }

    pub(super) fn send_open(&mut self) {
        let config = &self.config;
        // The peer is told half of what is enforced, so that a late heartbeat does no harm.
        let idle = config.idle_timeout.map(|timeout| u32::try_from(timeout.as_millis() / 2).unwrap_or(u32::MAX));
        let open = Open {
            container_id: config.container_id.clone(),
            hostname: config.hostname.clone(),
            max_frame_size: config.max_frame_size,
            channel_max: config.channel_max,
            idle_time_out: idle,
            outgoing_locales: Vec::new(),
            incoming_locales: Vec::new(),
            offered_capabilities: config.offered_capabilities.clone(),
            desired_capabilities: config.desired_capabilities.clone(),
            properties: config.properties.clone(),
        };
        self.open_sent = true;
        self.emit(0, &open);
        if self.early.len() > 0 {
            self.out.append_small(&mut self.early);
        }
    }

    /// One header or SASL frame; false when it is not whole yet.
    pub(super) fn handshake_step(&mut self, input: &mut impl Input) -> Result<bool, Error> {
        if matches!(self.phase, Phase::Header | Phase::AmqpHeader) {
            let Some(header) = input.first_chunk::<8>().copied() else { return Ok(false) };
            input.advance(header.len());
            self.header_in(header);
            return Ok(true);
        }
        let Some(head) = FrameHead::parse(input, SASL_FRAME_BYTES_MAX)? else { return Ok(false) };
        if input.len() < head.size {
            return Ok(false);
        }
        if head.kind != FrameKind::Sasl as u8 {
            return Err(Error::new(condition::FRAMING_ERROR, "not a SASL frame"));
        }
        let body = input.get(head.body..head.size).unwrap_or_default();
        let done = self.sasl_in(&mut Reader::new(body));
        input.advance(head.size);
        done.map(|()| true)
    }

    fn header_in(&mut self, header: [u8; 8]) {
        let (bare, sasl) = match &self.role {
            ConnectionRole::Server(offer) => (offer.allow_bare_amqp, true),
            ConnectionRole::Client { sasl, .. } => (false, sasl.mechanism().is_some()),
        };
        let server = matches!(self.role, ConnectionRole::Server(_));
        match (self.phase, header) {
            (Phase::AmqpHeader, AMQP_HEADER) => {
                if server {
                    self.out.raw(&AMQP_HEADER);
                }
                self.phase = Phase::Open;
            }
            (Phase::Header, AMQP_HEADER) if bare => {
                self.out.raw(&AMQP_HEADER);
                self.phase = Phase::Open;
            }
            (Phase::Header, SASL_HEADER) if sasl => self.start_sasl(),
            (phase, _) => {
                if server {
                    self.out.raw(if phase == Phase::Header { &SASL_HEADER } else { &AMQP_HEADER });
                }
                self.end(Some(Error::new(condition::NOT_IMPLEMENTED, "another protocol header than this side speaks")));
            }
        }
    }

    fn start_sasl(&mut self) {
        match &self.role {
            ConnectionRole::Server(offer) => {
                let listed = offer.mechanisms.iter().filter(|mechanism| mechanism.is_listed());
                let names = listed.map(|mechanism| mechanism.symbol()).collect();
                self.out.raw(&SASL_HEADER);
                self.emit_sasl(&SaslMechanisms { sasl_server_mechanisms: names });
                self.phase = Phase::SaslInit;
            }
            ConnectionRole::Client { .. } => self.phase = Phase::SaslMechanisms,
        }
    }

    fn emit_sasl(&mut self, frame: &impl Encode) {
        self.out.frame(FrameKind::Sasl, 0, |out| frame.encode(out));
    }

    fn sasl_in(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let descriptor = open_descriptor(reader).map_err(undecodable)?;
        let unexpected =
            || undecodable(DecodeError::Descriptor { wanted: "the SASL frame that is due", code: descriptor });
        match (self.phase, descriptor) {
            (Phase::SaslInit, SaslInit::CODE) => self.sasl_init_in(SaslInit::decode_list(reader).map_err(undecodable)?),
            (Phase::SaslResponse, SaslResponse::CODE) => {
                let frame = SaslResponse::decode_list(reader).map_err(undecodable)?;
                self.phase = Phase::SaslHost;
                self.events.push_back(Event::SaslResponse(frame.response));
            }
            (Phase::SaslMechanisms, SaslMechanisms::CODE) => {
                let frame = SaslMechanisms::decode_list(reader).map_err(undecodable)?;
                self.sasl_mechanisms_in(&frame);
            }
            (Phase::SaslOutcome, SaslChallenge::CODE) => {
                let frame = SaslChallenge::decode_list(reader).map_err(undecodable)?;
                self.sasl_challenge_in(&frame.challenge)?;
            }
            (Phase::SaslOutcome, SaslOutcome::CODE) => {
                let frame = SaslOutcome::decode_list(reader).map_err(undecodable)?;
                self.sasl_outcome_in(&frame)?;
            }
            _ => return Err(unexpected()),
        }
        if reader.is_empty() { Ok(()) } else { Err(undecodable(DecodeError::Surplus)) }
    }

    fn sasl_init_in(&mut self, init: SaslInit) {
        let ConnectionRole::Server(offer) = &self.role else { return };
        let chosen = offer.mechanisms.iter().copied().find(|mechanism| init.mechanism == *mechanism.name());
        self.phase = Phase::SaslHost;
        match chosen {
            Some(mechanism) => self.events.push_back(Event::SaslInit {
                mechanism,
                response: init.initial_response.unwrap_or_default(),
                hostname: init.hostname,
            }),
            None => self.sasl_outcome(false),
        }
    }

    /// Server: asks the client on. Its answer is `Event::SaslResponse`.
    pub fn sasl_challenge(&mut self, challenge: Bytes) {
        if self.phase == Phase::SaslHost {
            self.emit_sasl(&SaslChallenge { challenge });
            self.phase = Phase::SaslResponse;
            self.process_held();
        }
    }

    /// Server: ends SASL. When it failed, the connection ends with it.
    pub fn sasl_outcome(&mut self, ok: bool) {
        if self.phase != Phase::SaslHost {
            return;
        }
        let code = if ok { OUTCOME_OK } else { OUTCOME_AUTH };
        self.end_sasl(code, "not authenticated");
    }

    /// Server: ends SASL, and the connection with it, because nothing was looked at: the client may try again
    /// (`sys-temp`).
    pub fn sasl_busy(&mut self) {
        if self.phase == Phase::SaslHost {
            self.end_sasl(OUTCOME_SYS_TEMP, "too busy to authenticate");
        }
    }

    fn end_sasl(&mut self, code: u8, why: &'static str) {
        self.emit_sasl(&SaslOutcome { code, additional_data: None });
        if code == OUTCOME_OK {
            self.phase = Phase::AmqpHeader;
            self.process_held();
        } else {
            self.end(Some(Error::new(condition::UNAUTHORIZED_ACCESS, why)));
        }
    }

    /// Goes on with what the client sent ahead.
    fn process_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        let mut bytes = &held[..];
        self.process(&mut bytes);
        self.hold(bytes);
    }

    fn sasl_mechanisms_in(&mut self, offered: &SaslMechanisms) {
        let ConnectionRole::Client { sasl, crypto, exchange } = &mut self.role else { return };
        let mechanism = sasl.mechanism().filter(|mechanism| {
            !mechanism.is_listed() || offered.sasl_server_mechanisms.iter().any(|name| *name == *mechanism.name())
        });
        let Some(mechanism) = mechanism else {
            return self
                .end(Some(Error::new(condition::UNAUTHORIZED_ACCESS, "the peer does not offer the SASL mechanism")));
        };
        let (response, started) = sasl.start(crypto.as_ref());
        *exchange = started;
        let initial_response =
            (mechanism != Mechanism::External || !response.is_empty()).then_some(SaslSecret(response));
        let hostname = self.config.hostname.clone();
        self.emit_sasl(&SaslInit { mechanism: mechanism.symbol(), initial_response, hostname });
        self.phase = Phase::SaslOutcome;
    }

    fn sasl_challenge_in(&mut self, challenge: &[u8]) -> Result<(), Error> {
        let ConnectionRole::Client { sasl, crypto, exchange } = &mut self.role else { return Ok(()) };
        let response = match exchange {
            Some(exchange) => exchange
                .respond(challenge, crypto.as_ref())
                .map_err(|error| Error::new(condition::UNAUTHORIZED_ACCESS, error.to_string()))?,
            // The server says why it refuses the token, and has to be asked for the outcome.
            None if matches!(sasl, SaslClient::Bearer { .. }) => Bytes::from_static(BEARER_REFUSED),
            None => Bytes::new(),
        };
        self.emit_sasl(&SaslResponse { response: SaslSecret(response) });
        Ok(())
    }

    fn sasl_outcome_in(&mut self, outcome: &SaslOutcome) -> Result<(), Error> {
        let refused = |text: &str| Error::new(condition::UNAUTHORIZED_ACCESS, text);
        if outcome.code == OUTCOME_SYS_TEMP {
            return Err(Error::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                "the peer is too busy to check user and password; try again",
            ));
        }
        if outcome.code != OUTCOME_OK {
            return Err(refused("the peer did not accept user and password"));
        }
        if let ConnectionRole::Client { exchange: Some(exchange), .. } = &mut self.role {
            if let (false, Some(data)) = (exchange.is_verified(), &outcome.additional_data) {
                exchange.verify(data).map_err(|error| refused(&error.to_string()))?;
            }
            if !exchange.is_verified() {
                return Err(refused("the peer did not prove that it knows the user"));
            }
        }
        self.client_amqp();
        Ok(())
    }

    pub(super) fn open_in(&mut self, open: Box<Open>) -> Result<(), Error> {
        if self.phase != Phase::Open {
            return Err(Error::new(condition::ILLEGAL_STATE, "a second open"));
        }
        if open.max_frame_size < FRAME_BYTES_MIN {
            return Err(Error::new(condition::INVALID_FIELD, "max-frame-size is below 512"));
        }
        if let Some(milliseconds) = open.idle_time_out.filter(|milliseconds| *milliseconds > 0) {
            let timeout = Duration::from_millis(milliseconds.into());
            if timeout < PEER_IDLE_TIMEOUT_MIN {
                return Err(Error::new(condition::INVALID_FIELD, "idle-time-out is too short to be kept"));
            }
            let interval = timeout / 3; // before half of it is over
            self.heartbeat = Some(Heartbeat { interval, next: self.now + interval });
        }
        self.peer_max_frame = open.max_frame_size.min(self.config.max_frame_size) as usize;
        self.peer_channel_max = open.channel_max;
        if self.config.host_opens && !self.open_sent {
            self.phase = Phase::OpenHost;
        } else {
            self.be_up();
        }
        self.events.push_back(Event::Opened(open));
        Ok(())
    }

    /// The opens of both sides have come and gone.
    fn be_up(&mut self) {
        self.phase = Phase::Up;
        self.deadline = None;
        self.idle_deadline = self.config.idle_timeout.and_then(|timeout| self.now.checked_add(timeout));
        if !self.open_sent {
            self.send_open();
        }
    }

    /// Server: answers the peer's open, where [`Config::host_opens`](crate::Config::host_opens) is set, with these
    /// capabilities and properties beside the configured ones. Nothing happens where it was answered before.
    pub fn accept_open(&mut self, capabilities: Vec<Symbol>, properties: Vec<(Symbol, Value)>) {
        if self.phase == Phase::OpenHost {
            self.config.offered_capabilities.extend(capabilities);
            self.config.properties.extend(properties);
            self.be_up();
            self.process_held();
        }
    }

    /// Server: answers the peer's open, as [`Connection::accept_open`] does, and closes the connection.
    pub fn refuse_open(&mut self, properties: Vec<(Symbol, Value)>, error: Option<Error>) {
        if self.phase == Phase::OpenHost {
            self.config.properties.extend(properties);
            self.be_up();
            self.start_closing(error);
            self.process_held();
        }
    }
}
