//! The network between a queue manager and the servers, which can fail.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How it fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Connections are refused.
    Refuses,
    /// What clients send arrives, and no answer to it. Who waited is cut off afterwards.
    Mute,
}

/// A way to each server.
pub struct Network {
    pub addresses: Vec<String>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    fault: Option<(Fault, Instant)>,
    /// How much later answers arrive.
    delay: Duration,
    /// Servers to which no connection is let through.
    broken: Vec<usize>,
    /// Both ends of each connection, and to which server it is.
    open: Vec<(usize, TcpStream)>,
    /// Bytes of answers that were lost.
    lost: usize,
}

impl State {
    fn fault(&self) -> Option<Fault> {
        self.fault.filter(|(_, until)| Instant::now() < *until).map(|(fault, _)| fault)
    }

    fn cut(&mut self) {
        for (_, stream) in self.open.drain(..) {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn cut_from(&mut self, server: usize) {
        self.open.retain(|(to, stream)| {
            if *to == server {
                // It may have ended already.
                let _ = stream.shutdown(Shutdown::Both);
            }
            *to != server
        });
    }
}

impl Network {
    pub fn before(servers: &[String]) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let way = |(number, server): (usize, &String)| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let (server, state) = (server.clone(), state.clone());
            std::thread::spawn(move || {
                for client in listener.incoming().map_while(Result::ok) {
                    // A server that does not run refuses.
                    let _ = connect(client, number, &server, &state);
                }
            });
            address
        };
        Network { addresses: servers.iter().enumerate().map(way).collect(), state }
    }

    /// All connections break, once.
    pub fn cut(&self) {
        self.state.lock().unwrap().cut();
    }

    /// Fails for so long; connections are cut where new ones are refused.
    pub fn fails(&self, fault: Fault, time: Duration) {
        let mut state = self.state.lock().unwrap();
        state.fault = Some((fault, Instant::now() + time));
        if fault == Fault::Refuses {
            state.cut();
        }
    }

    /// What servers send arrives so much later from now on.
    pub fn slows(&self, delay: Duration) {
        self.state.lock().unwrap().delay = delay;
    }

    /// It fails no more.
    pub fn recovers(&self) {
        self.state.lock().unwrap().fault = None;
    }

    /// No connection is let through to one server any more.
    pub fn breaks(&self, server: usize) {
        let mut state = self.state.lock().unwrap();
        state.broken.push(server);
        state.cut_from(server);
    }

    /// All ways that broke are there again.
    pub fn heals(&self) {
        self.state.lock().unwrap().broken.clear();
    }

    /// Bytes of answers that were lost so far.
    pub fn lost(&self) -> usize {
        self.state.lock().unwrap().lost
    }
}

fn connect(client: TcpStream, number: usize, server: &str, state: &Arc<Mutex<State>>) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    {
        // Held while it is looked at, so that a way that breaks now cuts this one, too.
        let mut state = state.lock().unwrap();
        if state.fault() == Some(Fault::Refuses) || state.broken.contains(&number) {
            return Ok(());
        }
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            state.open.push((number, stream.try_clone()?));
        }
    }
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || pass_on(from, to, None));
    let state = state.clone();
    std::thread::spawn(move || pass_on(server, client, Some(&state)));
    Ok(())
}

/// Does nothing until then.
fn wait_until(then: Instant) {
    while let Some(left) = then.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// Passes bytes on until an end closes. What `state` says may get lost, and then this ends with the next that comes.
fn pass_on(mut from: TcpStream, mut to: TcpStream, state: Option<&Mutex<State>>) {
    let mut bytes = vec![0; 64 << 10];
    let mut is_whole = true;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut delay = Duration::ZERO;
        if let Some(mut state) = state.map(|state| state.lock().unwrap()) {
            if state.fault() == Some(Fault::Mute) {
                is_whole = false;
                state.lost += count;
                continue;
            }
            delay = state.delay;
        }
        wait_until(Instant::now() + delay);
        if !is_whole || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        // It may have ended already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}
