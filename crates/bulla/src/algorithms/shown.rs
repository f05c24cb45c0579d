//! The report as text for people, and as JSON.

use super::certificates::NotRead;
use super::dates::{Due, MILESTONES, Milestone, Rules, Source};
use super::{
    AgreedRow, CertificateRow, ChannelRow, MessagesRow, Named, PolicyRow, Report, UNPROTECTED_SHOWN_MAX, counted,
};
use crate::catalog::tls_group;
use bulla_table::{Column, Table};
use serde_json::{Value, json};
use std::fmt::Write;

/// Places of one certificate that the page shows.
const PLACES_SHOWN_MAX: usize = 3;

impl Report {
    /// As JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "queue_manager": self.manager,
            "taken": self.taken,
            "policies": self.policies.iter().map(PolicyRow::to_json).collect::<Vec<_>>(),
            "unprotected_queues": self.unprotected,
            "messages": self.messages.iter().map(MessagesRow::to_json).collect::<Vec<_>>(),
            "certificates": self.certificates.iter().map(CertificateRow::to_json).collect::<Vec<_>>(),
            "channels": self.channels.iter().map(ChannelRow::to_json).collect::<Vec<_>>(),
            "running_channels": self.agreed(true).map(AgreedRow::to_json).collect::<Vec<_>>(),
            "connections": self.agreed(false).map(AgreedRow::to_json).collect::<Vec<_>>(),
            "not_read": self.not_read.iter().map(gap).collect::<Vec<_>>(),
            "dates": MILESTONES.iter().map(milestone).collect::<Vec<_>>(),
        })
    }

    /// As text. Names of others steer no terminal: every table shows control characters as what they are.
    pub(crate) fn page(&self) -> String {
        let mut page = String::new();
        let name = self.manager.as_deref().unwrap_or("(not asked)");
        let _ = writeln!(page, "queue manager {}, {}", plain(name), self.taken);
        let heads = Rules::ALL.map(Rules::head);
        if self.manager.is_some() {
            let head = ["policy", "quality", "signers", "recipients", "cipher", "PQC", heads[0], heads[1]];
            table(&mut page, "policies", &head, self.policies.iter().map(|row| (row.cells(), row.remarks.as_slice())));
            self.unprotected_queues(&mut page);
            let head = ["queue", "messages", "protected", "signers", "recipients", "cipher", heads[0], heads[1]];
            let rows = self.messages.iter().filter(|row| !row.is_unknown());
            table(&mut page, "messages", &head, rows.map(|row| (row.cells(), row.remarks.as_slice())));
            let head = ["channel", "type", "CipherSpec", "groups", "certificate", heads[0], heads[1]];
            let rows = self.channels.iter().map(|row| (row.cells(), row.remarks.as_slice()));
            table(&mut page, "channels and listeners", &head, rows);
            let head = ["channel", "partner", "address", "cipher", "group", heads[0], heads[1]];
            let rows = self.agreed(true).map(|row| (row.cells(), row.remarks.as_slice()));
            table(&mut page, "agreed on by running channels", &head, rows);
            let head = ["user", "connections", "cipher", "group", heads[0], heads[1]];
            let rows = self.agreed(false).map(|row| (row.cells(), row.remarks.as_slice()));
            table(&mut page, "agreed on by connections", &head, rows);
        }
        let head = ["subject", "key", "signed with", "until", "where", heads[0], heads[1]];
        let rows = self.certificates.iter().map(|row| (row.cells(), [].as_slice()));
        table(&mut page, "certificates", &head, rows);
        let gaps = self.not_read.iter().map(|gap| (vec![gap.place.clone(), gap.why.clone()], [].as_slice()));
        table(&mut page, "not in the report", &[], gaps);
        dates(&mut page);
        page
    }

    /// What running channels have agreed on, or what clients have.
    fn agreed(&self, by_channels: bool) -> impl Iterator<Item = &AgreedRow> {
        self.agreed.iter().filter(move |row| row.channel.is_some() == by_channels)
    }

    fn unprotected_queues(&self, page: &mut String) {
        let count = self.unprotected.len();
        if count == 0 {
            return;
        }
        let names = self.unprotected.iter().take(UNPROTECTED_SHOWN_MAX).map(|name| plain(name));
        let more = count.saturating_sub(UNPROTECTED_SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = names.collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "  without a policy: {}: {names}{more}", counted(count as u64, "local queue"));
    }
}

impl PolicyRow {
    fn to_json(&self) -> Value {
        json!({
            "policy": self.name,
            "quality": self.quality,
            "digest": self.digest,
            "signature_padding": self.padding,
            "pqc": self.pqc,
            "cipher": self.cipher,
            "signers": self.signers.iter().map(Named::to_json).collect::<Vec<_>>(),
            "recipients": self.recipients.iter().map(Named::to_json).collect::<Vec<_>>(),
            "remarks": self.remarks,
            "due": dues(&self.due),
        })
    }

    fn cells(&self) -> Vec<String> {
        let mut signers = kinds(&self.signers);
        if !self.digest.is_empty() {
            let padding = if signers.contains("rsa") { format!(" {}", self.padding) } else { String::new() };
            let digest = format!("{}{padding}", self.digest);
            signers = if signers.is_empty() { digest } else { format!("{signers} {digest}") };
        }
        let (name, quality) = (self.name.clone(), self.quality.to_owned());
        let row = vec![name, quality, signers, kinds(&self.recipients), self.cipher.clone(), self.pqc.clone()];
        with_dates(row, &self.due)
    }
}

impl Named {
    fn to_json(&self) -> Value {
        json!({ "dn": self.dn, "keys": self.keys })
    }
}

impl MessagesRow {
    fn to_json(&self) -> Value {
        json!({
            "queue": self.queue,
            "messages": self.messages,
            "protected": self.protected,
            "signers": self.signers,
            "recipients": self.recipients,
            "cipher": self.cipher,
            "cause": self.cause,
            "remarks": self.remarks,
            "due": dues(&self.due),
        })
    }

    fn cells(&self) -> Vec<String> {
        let (signers, recipients) = (self.signers.join(", "), self.recipients.join(", "));
        let (queue, count) = (self.queue.clone(), self.messages.to_string());
        let row = vec![queue, count, self.protected.clone(), signers, recipients, self.cipher.clone()];
        with_dates(row, &self.due)
    }
}

impl CertificateRow {
    fn to_json(&self) -> Value {
        json!({
            "subject": self.subject,
            "serial": self.serial,
            "key": self.key,
            "signature": self.signature,
            "not_after": self.until,
            "ended": self.ended,
            "places": self.places,
            "due": dues(&self.due),
        })
    }

    fn cells(&self) -> Vec<String> {
        let until = if self.ended { format!("{} (ended)", self.until) } else { self.until.clone() };
        let mut places = self.places.iter().take(PLACES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = self.places.len().saturating_sub(PLACES_SHOWN_MAX);
        if more > 0 {
            let _ = write!(places, " and {more} more");
        }
        with_dates(vec![self.subject.clone(), self.key.clone(), self.signature.clone(), until, places], &self.due)
    }
}

impl ChannelRow {
    fn to_json(&self) -> Value {
        json!({
            "channel": self.name,
            "type": self.kind,
            "cipher_spec": self.cipher_spec,
            "groups": self.groups,
            "certificate": self.certificate,
            "remarks": self.remarks,
            "due": dues(&self.due),
        })
    }

    fn cells(&self) -> Vec<String> {
        let (name, kind, spec) = (self.name.clone(), self.kind.clone(), self.cipher_spec.clone());
        let groups = match self.groups.len() == tls_group::ALL.len() {
            true => "all".to_owned(),
            false => self.groups.join(", "),
        };
        with_dates(vec![name, kind, spec, groups, self.certificate.clone()], &self.due)
    }
}

impl AgreedRow {
    fn to_json(&self) -> Value {
        let (cipher, group) = (&self.cipher, &self.group);
        let (remarks, due) = (&self.remarks, dues(&self.due));
        match &self.channel {
            Some(channel) => json!({
                "channel": channel, "partner": self.partner, "address": self.address, "cipher": cipher, "group": group,
                "remarks": remarks, "due": due,
            }),
            None => json!({
                "user": self.partner, "connections": self.connections, "cipher": cipher, "group": group,
                "remarks": remarks, "due": due,
            }),
        }
    }

    fn cells(&self) -> Vec<String> {
        let (partner, address) = (self.partner.clone(), self.address.clone());
        let mut row = match &self.channel {
            Some(channel) => vec![channel.clone(), partner, address],
            None if partner.is_empty() => vec!["(not signed in)".to_owned(), self.connections.to_string()],
            None => vec![partner, self.connections.to_string()],
        };
        row.extend([self.cipher.clone(), self.group.clone()]);
        with_dates(row, &self.due)
    }
}

/// The kinds of keys of several names, each once.
fn kinds(names: &[Named]) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for key in names.iter().flat_map(|name| &name.keys) {
        if !kinds.contains(&key.as_str()) {
            kinds.push(key);
        }
    }
    kinds.join(", ")
}

/// With the earliest date of each set of rules behind it.
fn with_dates(mut row: Vec<String>, dues: &[Due]) -> Vec<String> {
    for rules in Rules::ALL {
        let earliest = dues.iter().find(|due| due.milestone.rules == rules);
        row.push(earliest.map_or_else(|| "-".to_owned(), |due| date(due.milestone)));
    }
    row
}

fn date(milestone: &Milestone) -> String {
    match milestone.date {
        Some(date) => format!("{date} {}", milestone.status),
        None => format!("{} already", milestone.status),
    }
}

fn dues(dues: &[Due]) -> Vec<Value> {
    let due = |due: &Due| {
        let Milestone { rules, date, status, .. } = due.milestone;
        json!({ "rules": rules.word(), "date": date, "status": status, "because": due.because })
    };
    dues.iter().map(due).collect()
}

fn gap(gap: &NotRead) -> Value {
    json!({ "place": gap.place, "why": gap.why })
}

fn milestone(milestone: &Milestone) -> Value {
    let Milestone { rules, date, status, says, source, section, of } = milestone;
    let Source { title, address, .. } = source;
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    json!({
        "rules": rules.word(),
        "date": date,
        "status": status,
        "says": says,
        "source": title,
        "section": section,
        "address": address,
        "counts": of.is_some(),
    })
}

fn dates(page: &mut String) {
    let rows = MILESTONES.iter().map(|milestone| {
        let date = milestone.date.unwrap_or("already").to_owned();
        let where_it_is = format!("{}, {}", milestone.source.name, milestone.section);
        let row = vec![milestone.rules.head().to_owned(), date, milestone.says.to_owned(), where_it_is];
        (row, [].as_slice())
    });
    table(page, "dates", &[], rows);
    page.push_str(
        "\nCNSA 2.0 is for national security systems of the United States. NIST IR 8547 is a draft: its dates may \
         move.\n",
    );
}

/// A heading, a table, and remarks below the rows that have some.
fn table<'a>(page: &mut String, heading: &str, head: &[&str], rows: impl Iterator<Item = (Vec<String>, &'a [String])>) {
    let rows: Vec<_> = rows.collect();
    let Some(columns) = rows.first().map(|(row, _)| row.len()) else { return };
    let _ = writeln!(page, "\n{heading}");
    let mut table = Table::new(vec![Column::left(); columns]).indented();
    if !head.is_empty() {
        table.row(head);
    }
    for (row, remarks) in rows {
        table.row(row);
        remarks.iter().for_each(|remark| table.line(format!("      {}", plain(remark))));
    }
    page.push_str(&table.text());
}

/// A text of others, without what would steer a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '?' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::certificates::Certificates;
    use super::super::{Fields, Report, Shown};
    use super::*;
    use std::time::SystemTime;

    fn fields(value: &Value) -> Fields {
        value.as_object().cloned().unwrap_or_default()
    }

    fn report(shown: &Shown) -> Report {
        Report::new(Some(shown), Certificates::default(), SystemTime::UNIX_EPOCH)
    }

    fn of_messages(rows: &[Value]) -> Report {
        report(&Shown { messages: rows.iter().map(fields).collect(), ..Shown::default() })
    }

    fn of_channel(row: &Value) -> Report {
        report(&Shown { channels: vec![fields(row)], ..Shown::default() })
    }

    #[test]
    fn messages_have_the_dates_of_their_weakest_part_and_a_mixed_list_says_what_it_amounts_to() {
        let report = of_messages(&[json!({
            "ALGUSE": "ORDERS", "MSGS": 3, "PROTECTED": "ENCRYPTED", "SIGNKEYS": [], "CIPHER": "AES256",
            "RECIPKEYS": ["ml-kem-1024", "rsa2048 OAEP"],
        })]);
        let shown = report.to_json();
        let row = &shown["messages"][0];
        assert_eq!(row["remarks"][0], "each recipient opens alone: as strong as the weakest, RSA 2048");
        assert_eq!(row["remarks"][1], "a signature inside an envelope does not show: the policy says how it is made");
        let because: Vec<_> =
            row["due"].as_array().unwrap().iter().map(|due| (&due["date"], &due["because"])).collect();
        assert_eq!(because.len(), 3);
        assert!(because.iter().all(|(_, because)| **because == json!(["rsa2048"])), "{because:?}");
        assert_eq!([2029, 2030, 2035].map(|year| report.due_by(year, &Rules::ALL)), [0, 1, 1]);
        assert_eq!([2030, 2031].map(|year| report.due_by(year, &[Rules::Cnsa])), [0, 1]);
        assert_eq!(report.gaps(), 0);
        assert!(report.page().contains("2030-12-31 deprecated"));
    }

    #[test]
    fn what_was_not_looked_at_and_what_is_damaged_are_gaps() {
        let row = |protected: &str, cause: &str, count: u64| {
            json!({ "ALGUSE": "Q", "MSGS": count, "PROTECTED": protected, "SIGNKEYS": [], "RECIPKEYS": [], "CIPHER": "",
                    "CAUSE": cause })
        };
        let report = of_messages(&[
            row("CLEAR", "", 2),
            row("NOTLOOKED", "", 9000),
            row("DEFECTIVE", "malformed", 1),
            row("OTHER", "", 4),
            row("UNREADABLE", "", 5),
        ]);
        assert_eq!((report.gaps(), report.due_by(2099, &Rules::ALL)), (4, 0));
        let page = report.page();
        for line in [
            "queue Q  9000 messages not looked at: --messages takes more of each queue",
            "queue Q  1 message damaged (malformed), so that nothing can be said of the seal",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn a_channel_says_which_groups_can_be_negotiated() {
        let tls = |spec: &str, groups: &str| {
            let row = json!({ "CHANNEL": "A.B", "CHLTYPE": "SDR", "SSLCIPH": spec, "SSLGROUPS": groups });
            let shown = of_channel(&row).to_json();
            let row = &shown["channels"][0];
            let dates =
                row["due"].as_array().unwrap().iter().map(|due| due["date"].as_str().unwrap_or("now").to_owned());
            (row["groups"].clone(), row["remarks"].clone(), dates.collect::<Vec<_>>())
        };
        let (groups, remarks, dates) = tls("TLS_AES_256_GCM_SHA384", "SecP384r1MLKEM1024");
        assert_eq!((groups, remarks, dates), (json!(["SecP384r1MLKEM1024"]), json!([]), vec![]));
        let (_, remarks, dates) = tls("TLS_AES_256_GCM_SHA384", "X25519MLKEM768");
        assert_eq!((remarks, dates), (json!([]), vec!["2031-12-31".to_owned()]));
        let (groups, remarks, dates) = tls("TLS_AES_256_GCM_SHA384", "SecP384r1MLKEM1024,x25519,secp384r1");
        assert_eq!(groups.as_array().unwrap().len(), 3);
        assert_eq!(remarks, json!(["a classical key agreement can be negotiated: x25519, secp384r1"]));
        assert_eq!(dates, ["2031-12-31", "2035-12-31"]);
        let (groups, _, _) = tls("ECDHE_RSA_AES_256_GCM_SHA384", "X25519MLKEM768,secp521r1");
        assert_eq!(groups, json!(["secp521r1"]), "groups with ML-KEM are for TLS 1.3");
        let (groups, remarks, dates) = tls("TLS_RSA_WITH_AES_256_GCM_SHA384", "");
        assert_eq!((groups, dates.len()), (json!([]), 2));
        assert!(remarks[0].as_str().unwrap().contains("without forward secrecy"));
        let (groups, remarks, _) = tls("ANY_TLS12_OR_HIGHER", "");
        assert_eq!(groups.as_array().unwrap().len(), 8);
        assert!(remarks[0].as_str().unwrap().ends_with("x25519, secp256r1, secp384r1, secp521r1, x448"));
        let (_, remarks, dates) = tls("", "");
        assert!(remarks[0].as_str().unwrap().starts_with("no TLS"));
        assert_eq!(dates, Vec::<String>::new());
    }

    #[test]
    fn clients_over_tls_are_a_row_and_clear_listeners_are_none() {
        let at = |listeners: Value| {
            let initiator = fields(&json!({ "LISTENER": listeners }));
            report(&Shown { initiator, ..Shown::default() }).to_json()["channels"].clone()
        };
        assert_eq!(at(json!(["amqp://127.0.0.1:5672"])), json!([]));
        let rows = at(json!(["amqp://127.0.0.1:5672", "amqps://127.0.0.1:5671"]));
        assert_eq!((&rows[0]["channel"], &rows[0]["type"]), (&json!("amqps://127.0.0.1:5671"), &json!("LISTENER")));
        assert_eq!(rows[0]["due"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_was_agreed_on_is_told_of_each_channel_and_of_the_connections_of_each_user() {
        let channel = |status: &str, cipher: &str, group: &str| {
            fields(&json!({
                "CHANNEL": "A.B", "STATUS": status, "RQMNAME": "B", "CONNAME": "192.0.2.1(5671)", "SSLCIPH": cipher,
                "SSLGROUP": group,
            }))
        };
        let client = |user: &str, cipher: &str, group: &str| {
            fields(&json!({ "CONN": "1", "USERID": user, "SSLCIPH": cipher, "SSLGROUP": group }))
        };
        let strong = ("TLS_AES_256_GCM_SHA384", "SecP384r1MLKEM1024");
        let shown = Shown {
            running: vec![
                channel("RUNNING", strong.0, strong.1),
                channel("RETRYING", "", ""),
                channel("RUNNING", "TLS_RSA_WITH_AES_256_GCM_SHA384", ""),
            ],
            connections: vec![
                client("orders", strong.0, "x25519"),
                client("", "", ""),
                client("orders", strong.0, "x25519"),
                client("orders", "ECDHE-RSA-AES256-GCM-SHA384", "secp256r1"),
            ],
            no_connections: Some("dispatcher 1 did not answer".to_owned()),
            ..Shown::default()
        };
        let report = report(&shown);
        let shown_now = report.to_json();
        let because =
            |row: &Value| row["due"].as_array().unwrap().last().map_or(json!([]), |due| due["because"].clone());
        let rows = |key: &str| shown_now[key].as_array().unwrap().clone();
        let told: Vec<_> = rows("running_channels").iter().map(|row| (row["group"].clone(), because(row))).collect();
        let transport = json!(["RSA key transport"]);
        assert_eq!(told, [(json!("SecP384r1MLKEM1024"), json!([])), (json!(""), transport)]);
        let told: Vec<_> = rows("connections")
            .iter()
            .map(|row| (row["user"].clone(), row["connections"].clone(), row["group"].clone(), because(row)))
            .collect();
        assert_eq!(
            told,
            [
                (json!(""), json!(1), json!(""), json!([])),
                (json!("orders"), json!(1), json!("secp256r1"), json!(["secp256r1"])),
                (json!("orders"), json!(2), json!("x25519"), json!(["x25519"])),
            ]
        );
        assert_eq!((report.due_by(2035, &Rules::ALL), report.gaps()), (3, 1));
        let page = report.page();
        assert!(
            page.contains("(not signed in)") && page.contains("connections  dispatcher 1 did not answer"),
            "{page}"
        );
    }

    #[test]
    fn a_policy_with_names_that_steer_a_terminal_shows_them_as_text() {
        let policy = json!({
            "POLICY": "ORDERS", "SIGNALG": "SHA256", "ENCALG": "AES128", "SIGNPAD": "PKCS1", "PQC": "NONE",
            "SIGNER": [], "RECIP": ["CN=\u{1b}[2Jbilling"],
        });
        let shown = Shown {
            policies: vec![fields(&policy)],
            queues: vec![fields(&json!({ "QUEUE": "A\u{7}B" })), fields(&json!({ "QUEUE": "ORDERS" }))],
            ..Shown::default()
        };
        let report = report(&shown);
        let page = report.page();
        assert!(!page.contains('\u{1b}') && !page.contains('\u{7}'), "{page}");
        assert!(page.contains("no certificate here that fits: CN=?[2Jbilling"), "{page}");
        assert!(page.contains("without a policy: 1 local queue: A?B"), "{page}");
        assert!(page.contains("PQC(NONE): RSA or EC keys sign"), "{page}");
        let shown = report.to_json();
        assert_eq!(shown["policies"][0]["recipients"][0]["keys"], json!([]));
        let dates = shown["policies"][0]["due"].as_array().unwrap();
        assert_eq!(dates[0]["because"], json!(["SHA256", "AES128", "RSA or EC signer"]));
    }

    #[test]
    fn without_a_queue_manager_certificates_alone_are_told_of() {
        let report = Report::new(None, Certificates::default(), SystemTime::UNIX_EPOCH);
        let page = report.page();
        assert!(page.starts_with("queue manager (not asked), 1970-01-01"), "{page}");
        assert!(!page.contains("policies") && page.contains("dates"), "{page}");
    }
}
