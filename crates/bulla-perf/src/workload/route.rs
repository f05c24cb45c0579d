//! A way for messages from one queue manager to the other, and what to define for it at both ends.

use std::fmt::Write;

/// Messages that a queue holds, unless it is said otherwise: what is drained lies on one.
const DEPTH_MAX: u32 = 10_000_000;
/// Longest message that queues and channels take, in bytes: as long as there are, seal included.
const MESSAGE_BYTES_MAX: u32 = 100 << 20;

/// A channel with its transmission queue, a queue at the end of it, and the remote queue that leads there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Route {
    /// The channel, and its transmission queue.
    pub(crate) channel: String,
    /// The queue at the receiving end, and the remote queue at the sending end. Empty for none.
    pub(crate) queue: String,
    /// SSLCIPH; empty for no TLS.
    pub(crate) cipher: String,
    /// SSLRKEYC at both ends: the end that is called lets the other begin a renegotiation only where it has one, too.
    pub(crate) reset_bytes: u64,
    /// CERTLABL of the end that calls; empty for the certificate of the queue manager, if it has one.
    pub(crate) caller: String,
    /// CERTLABL of the end that is called.
    pub(crate) called: String,
    /// Messages that the transmission queue holds, beyond which a put is refused; 0 for as many as matter.
    pub(crate) depth_max: u32,
    /// Further attributes of the sender.
    pub(crate) sender: String,
    /// Further attributes of the receiver.
    pub(crate) receiver: String,
}

/// Where a queue manager listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listener<'a> {
    /// The queue manager's name.
    pub(crate) manager: &'a str,
    /// `HOST:PORT` for AMQP in clear.
    pub(crate) address: &'a str,
    /// `HOST:PORT` for AMQP over TLS.
    pub(crate) tls_address: &'a str,
}

impl Route {
    /// What the sending end must know: MQSC, one command a line.
    pub(crate) fn at_sender(&self, to: Listener<'_>) -> String {
        let Route { channel, queue, .. } = self;
        let address = if self.cipher.is_empty() { to.address } else { to.tls_address };
        let long = long();
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "5672"));
        let mut text = match self.depth_max {
            0 => format!("DEFINE QLOCAL('{channel}') USAGE(XMITQ) {long} MAXDEPTH({DEPTH_MAX})\n"),
            most => format!("DEFINE QLOCAL('{channel}') USAGE(XMITQ) {long} MAXDEPTH({most}) FULL(REJECT)\n"),
        };
        let tls = self.tls(&self.caller);
        let _ = writeln!(
            text,
            "DEFINE CHANNEL('{channel}') CHLTYPE(SDR) CONNAME('{host}({port})') XMITQ('{channel}') {long}{tls}{}",
            spaced(&self.sender),
        );
        if !queue.is_empty() {
            let manager = to.manager;
            let _ = writeln!(text, "DEFINE QREMOTE('{queue}') RNAME('{queue}') RQMNAME({manager}) XMITQ('{channel}')");
        }
        text
    }

    /// What the receiving end must know.
    pub(crate) fn at_receiver(&self) -> String {
        let Route { channel, queue, .. } = self;
        let authentication = match (self.cipher.is_empty(), self.caller.is_empty()) {
            (true, _) => "",
            (false, true) => " SSLCAUTH(OPTIONAL)",
            (false, false) => " SSLCAUTH(REQUIRED)",
        };
        let tls = self.tls(&self.called);
        let (receiver, long) = (spaced(&self.receiver), long());
        let mut text = format!("DEFINE CHANNEL('{channel}') CHLTYPE(RCVR) {long}{tls}{authentication}{receiver}\n");
        if !queue.is_empty() {
            let _ = writeln!(text, "DEFINE QLOCAL('{queue}') {long} MAXDEPTH({DEPTH_MAX})");
        }
        text
    }

    fn tls(&self, label: &str) -> String {
        if self.cipher.is_empty() {
            return String::new();
        }
        let mut text = format!(" SSLCIPH('{}')", self.cipher);
        if self.reset_bytes > 0 {
            let _ = write!(text, " SSLRKEYC({})", self.reset_bytes);
        }
        if !label.is_empty() {
            let _ = write!(text, " CERTLABL('{label}')");
        }
        text
    }
}

fn long() -> String {
    format!("MAXMSGL({MESSAGE_BYTES_MAX})")
}

fn spaced(attributes: &str) -> String {
    if attributes.is_empty() { String::new() } else { format!(" {attributes}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Listener<'_> = Listener { manager: "QM2", address: "127.0.0.1:1414", tls_address: "127.0.0.1:1415" };

    #[test]
    fn a_route_without_tls_leads_to_the_port_for_clear_text() {
        let route = Route { channel: "A.B".into(), queue: "ASK".into(), reset_bytes: 9, ..Route::default() };
        assert_eq!(
            route.at_sender(TO),
            "DEFINE QLOCAL('A.B') USAGE(XMITQ) MAXMSGL(104857600) MAXDEPTH(10000000)\n\
             DEFINE CHANNEL('A.B') CHLTYPE(SDR) CONNAME('127.0.0.1(1414)') XMITQ('A.B') MAXMSGL(104857600)\n\
             DEFINE QREMOTE('ASK') RNAME('ASK') RQMNAME(QM2) XMITQ('A.B')\n"
        );
        assert_eq!(
            route.at_receiver(),
            "DEFINE CHANNEL('A.B') CHLTYPE(RCVR) MAXMSGL(104857600)\nDEFINE QLOCAL('ASK') MAXMSGL(104857600) MAXDEPTH(10000000)\n"
        );
    }

    #[test]
    fn both_ends_renew_keys_and_a_caller_without_a_certificate_is_let_in() {
        let mut route = Route {
            channel: "A.B".into(),
            cipher: "ANY_TLS12".into(),
            reset_bytes: 1_048_576,
            called: "rsa2048".into(),
            sender: "BATCHSZ(50)".into(),
            ..Route::default()
        };
        let sender = route.at_sender(TO);
        let tls = "XMITQ('A.B') MAXMSGL(104857600) SSLCIPH('ANY_TLS12') SSLRKEYC(1048576) BATCHSZ(50)";
        assert!(sender.contains(tls) && sender.contains("(1415)"), "{sender}");
        let tls = "SSLCIPH('ANY_TLS12') SSLRKEYC(1048576) CERTLABL('rsa2048')";
        assert_eq!(
            route.at_receiver(),
            format!("DEFINE CHANNEL('A.B') CHLTYPE(RCVR) MAXMSGL(104857600) {tls} SSLCAUTH(OPTIONAL)\n")
        );
        route.caller = "p256".into();
        assert!(
            route.at_sender(TO).contains("CERTLABL('p256')") && route.at_receiver().ends_with("SSLCAUTH(REQUIRED)\n")
        );
    }
}
