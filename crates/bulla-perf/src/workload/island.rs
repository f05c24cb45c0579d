//! Who protects what between two queue managers: the four topologies, as people, policies and SPLPROT.
//!
//! A requester at QM1 asks a server at QM2 through one channel, and the reply comes back through another.
//! `samples/islands` has the same four as files to read and to try.

use crate::configuration::{Configuration, Quality, Reuse};
use crate::site::algorithms;
use std::fmt::Write;

/// Which of the two queue managers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum At {
    /// Where requests are put and replies are got.
    One,
    /// Where requests are got and replies are put.
    Two,
}

/// Who protects what.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Island {
    /// Nothing is protected.
    Unprotected,
    /// The two queue managers seal and open for their applications, of one authority; channels pass on what is sealed.
    EndToEnd,
    /// QM1 seals for its applications, its channels open what leaves and seal what arrives; QM2 knows nothing of seals.
    OneSide,
    /// Both do as QM1 in [`Island::OneSide`], each with an authority of its own.
    TwoAuthorities,
}

/// A user with a key ring at a queue manager.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Person {
    /// Whether the ring is at QM1.
    pub(crate) at_one: bool,
    /// The user, and the ring.
    pub(crate) name: String,
    /// The key, as `bulla cert create --key` takes it.
    pub(crate) key: String,
    /// The authority that vouches for it; those of one authority know each other.
    pub(crate) authority: &'static str,
}

impl Person {
    fn new(at: At, role: &str, key: &str, authority: &'static str) -> Person {
        Person { at_one: at == At::One, name: format!("{role}-{key}"), key: key.to_owned(), authority }
    }

    /// The name in the certificate.
    pub(crate) fn dn(&self) -> String {
        format!("CN={},O={}", self.name, self.authority)
    }
}

/// The names of one pair's channels and queues.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The channel from QM1 to QM2, and its transmission queue.
    pub(crate) forth: String,
    /// The channel back, and its transmission queue.
    pub(crate) back: String,
    /// The queue of requests.
    pub(crate) asked: String,
    /// The queue of replies.
    pub(crate) answered: String,
}

impl Names {
    /// Those that end in `stem`.
    pub(crate) fn new(stem: &str) -> Names {
        let [forth, back, asked, answered] = ["F", "B", "ASK", "ANSWER"].map(|what| format!("{what}.{stem}"));
        Names { forth, back, asked, answered }
    }
}

/// The people of one topology with one key: requester, server, and whose rings the channels use at each end.
#[derive(Clone, Debug)]
pub(crate) struct People {
    /// Puts requests at QM1.
    pub(crate) requester: Person,
    /// Puts replies at QM2.
    pub(crate) server: Person,
    border_one: Option<Person>,
    border_two: Option<Person>,
}

impl People {
    /// All users.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Person> {
        [&self.requester, &self.server].into_iter().chain(&self.border_one).chain(&self.border_two)
    }
}

impl Island {
    /// All of them, in the order of reports.
    pub(crate) const ALL: [Island; 4] =
        [Island::Unprotected, Island::EndToEnd, Island::OneSide, Island::TwoAuthorities];

    /// As configurations and the command line have it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Island::Unprotected => "unprotected",
            Island::EndToEnd => "end-to-end",
            Island::OneSide => "one-side",
            Island::TwoAuthorities => "two-authorities",
        }
    }

    /// The one of that name.
    pub(crate) fn named(name: &str) -> Option<Island> {
        Island::ALL.into_iter().find(|island| island.as_str() == name)
    }

    /// Whose keys it takes. Without protection they are names alone.
    pub(crate) fn people(self, key: &str) -> People {
        let both = |authority| {
            (Person::new(At::One, "requester", key, authority), Person::new(At::Two, "server", key, authority))
        };
        let (mut requester, mut server) = both("Demo");
        let (mut border_one, mut border_two) = (None, None);
        match self {
            Island::Unprotected | Island::EndToEnd => {}
            Island::OneSide => {
                requester = Person::new(At::One, "inner", key, "North");
                border_one = Some(Person::new(At::One, "border", key, "North"));
            }
            Island::TwoAuthorities => {
                requester = Person::new(At::One, "inner", key, "North");
                server = Person::new(At::Two, "inner", key, "South");
                border_one = Some(Person::new(At::One, "border", key, "North"));
                border_two = Some(Person::new(At::Two, "border", key, "South"));
            }
        }
        People { requester, server, border_one, border_two }
    }

    /// Further attributes of the sending end of that queue manager, and of its receiving end.
    pub(crate) fn channel_ends(self, people: &People, at: At) -> (String, String) {
        let border = if at == At::One { &people.border_one } else { &people.border_two };
        match border {
            Some(Person { name, .. }) => {
                (format!("SPLPROT(REMOVE) MCAUSER('{name}')"), format!("SPLPROT(ASPOLICY) MCAUSER('{name}')"))
            }
            None => (String::new(), String::new()),
        }
    }

    /// The policies of one pair at a queue manager, MQSC, one a line.
    pub(crate) fn policies(self, configuration: &Configuration, people: &People, names: &Names, at: At) -> String {
        let People { requester, server, border_one, border_two } = people;
        let mut text = String::new();
        let mut set = |queue: &str, from: &Person, to: &Person| {
            if let Some(policy) = policy(configuration, queue, &[from.dn()], &[to.dn()]) {
                let _ = writeln!(text, "{policy}");
            }
        };
        match (self, at, border_one, border_two) {
            (Island::EndToEnd, ..) => {
                set(&names.asked, requester, server);
                set(&names.answered, server, requester);
            }
            (Island::OneSide | Island::TwoAuthorities, At::One, Some(border), _) => {
                set(&names.asked, requester, border);
                // The channel takes from the transmission queue, and opens by the policy of that name.
                set(&names.forth, requester, border);
                set(&names.answered, border, requester);
            }
            (Island::TwoAuthorities, At::Two, _, Some(border)) => {
                set(&names.answered, server, border);
                set(&names.back, server, border);
                set(&names.asked, border, server);
            }
            _ => {}
        }
        text
    }

    /// Seals of a round trip; as many openings belong to it.
    pub(crate) const fn seals(self) -> u32 {
        match self {
            Island::Unprotected => 0,
            Island::EndToEnd | Island::OneSide => 2,
            Island::TwoAuthorities => 4,
        }
    }
}

/// Whether a configuration has policies at all.
pub(crate) fn policy_is_needed(configuration: &Configuration) -> bool {
    configuration.quality != Quality::None
}

/// The policy of a queue: who signs, and who may read; none without protection.
pub(crate) fn policy(
    configuration: &Configuration,
    queue: &str,
    signers: &[String],
    recipients: &[String],
) -> Option<String> {
    let named =
        |keyword: &str, names: &[String]| names.iter().map(|name| format!(" {keyword}('{name}')")).collect::<String>();
    let batch = match configuration.sign_batch {
        1 => String::new(),
        most => format!(" SIGNBATCH({most})"),
    };
    let (digest, pqc) = algorithms(configuration);
    let sign = format!(" SIGNALG({digest}){}{batch}", named("SIGNER", signers));
    let encrypt = format!(" ENCALG(AES256){}", named("RECIP", recipients));
    let reuse = match configuration.reuse {
        Reuse::Times(0) => String::new(),
        Reuse::Times(times) => format!(" KEYREUSE({times})"),
        Reuse::Unlimited => " KEYREUSE(UNLIMITED)".to_owned(),
    };
    let how = match configuration.quality {
        Quality::None => return None,
        Quality::Integrity => sign,
        Quality::Privacy => format!("{sign}{encrypt}"),
        Quality::Confidentiality => format!("{encrypt}{reuse}"),
    };
    Some(format!("SET POLICY('{queue}'){how}{pqc}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(quality: Quality) -> Configuration {
        Configuration { quality, key: "p256".into(), reuse: Reuse::Times(32), ..Configuration::default() }
    }

    /// The queues that have a policy, with whose keys.
    fn policies(island: Island, at: At) -> Vec<String> {
        let people = island.people("p256");
        let text = island.policies(&configuration(Quality::Privacy), &people, &Names::new("1"), at);
        let short = |line: &str| {
            line.replace("SET POLICY", "")
                .replace(" SIGNALG(SHA256)", "")
                .replace(" ENCALG(AES256)", "")
                .replace("-p256", "")
        };
        text.lines().map(short).collect()
    }

    #[test]
    fn an_unprotected_island_has_no_policies_and_its_channels_pass_bytes_on() {
        let island = Island::Unprotected;
        assert!(policies(island, At::One).is_empty() && policies(island, At::Two).is_empty());
        assert_eq!(island.channel_ends(&island.people("p256"), At::One), (String::new(), String::new()));
        assert_eq!(island.seals(), 0);
    }

    #[test]
    fn end_to_end_both_have_the_same_policies_of_one_authority() {
        let expected = [
            "('ASK.1') SIGNER('CN=requester,O=Demo') RECIP('CN=server,O=Demo')",
            "('ANSWER.1') SIGNER('CN=server,O=Demo') RECIP('CN=requester,O=Demo')",
        ];
        assert_eq!(policies(Island::EndToEnd, At::One), expected);
        assert_eq!(policies(Island::EndToEnd, At::Two), expected);
    }

    #[test]
    fn one_side_opens_what_leaves_and_seals_what_arrives() {
        assert_eq!(
            policies(Island::OneSide, At::One),
            [
                "('ASK.1') SIGNER('CN=inner,O=North') RECIP('CN=border,O=North')",
                "('F.1') SIGNER('CN=inner,O=North') RECIP('CN=border,O=North')",
                "('ANSWER.1') SIGNER('CN=border,O=North') RECIP('CN=inner,O=North')",
            ]
        );
        assert!(policies(Island::OneSide, At::Two).is_empty());
        let people = Island::OneSide.people("p256");
        let (sender, receiver) = Island::OneSide.channel_ends(&people, At::One);
        assert_eq!(sender, "SPLPROT(REMOVE) MCAUSER('border-p256')");
        assert_eq!(receiver, "SPLPROT(ASPOLICY) MCAUSER('border-p256')");
        assert_eq!(Island::OneSide.channel_ends(&people, At::Two), (String::new(), String::new()));
    }

    #[test]
    fn two_authorities_do_the_same_on_both_sides_and_do_not_know_each_other() {
        assert_eq!(policies(Island::TwoAuthorities, At::One), policies(Island::OneSide, At::One));
        assert_eq!(
            policies(Island::TwoAuthorities, At::Two),
            [
                "('ANSWER.1') SIGNER('CN=inner,O=South') RECIP('CN=border,O=South')",
                "('B.1') SIGNER('CN=inner,O=South') RECIP('CN=border,O=South')",
                "('ASK.1') SIGNER('CN=border,O=South') RECIP('CN=inner,O=South')",
            ]
        );
        let people = Island::TwoAuthorities.people("p256");
        for person in people.all() {
            assert_eq!(person.authority, if person.at_one { "North" } else { "South" }, "{person:?}");
        }
    }

    #[test]
    fn a_policy_asks_for_what_its_quality_says() {
        let made = |quality| policy(&configuration(quality), "Q", &["CN=a".into()], &["CN=b".into()]);
        assert_eq!(made(Quality::None), None);
        assert_eq!(made(Quality::Integrity).unwrap(), "SET POLICY('Q') SIGNALG(SHA256) SIGNER('CN=a')");
        assert_eq!(
            made(Quality::Confidentiality).unwrap(),
            "SET POLICY('Q') ENCALG(AES256) RECIP('CN=b') KEYREUSE(32)"
        );
        for island in Island::ALL {
            assert_eq!(Island::named(island.as_str()), Some(island));
        }
    }
}
