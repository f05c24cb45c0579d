//! Pairs of a requester at QM1 and a server at QM2, each with two channels of its own, in one of the four topologies.

use super::island::{At, Island, Names, People, policy_is_needed};
use super::partners::Partners;
use super::route::Route;
use crate::configuration::{Configuration, Quality};
use crate::error::Result;
use crate::load::Loads;
use crate::load::pair::{Exchange, Pair};

/// The CipherSpec of channels that open what leaves or seal what arrives, where none is asked for.
pub(crate) const BORDER_CIPHER: &str = "TLS_AES_256_GCM_SHA384";

/// Pairs that are defined, and whose channels run.
#[derive(Debug)]
pub(crate) struct Fleet {
    names: Vec<Names>,
    people: People,
    /// The channels to QM2, one for each pair.
    pub(crate) forth: Vec<Route>,
    /// The channels back.
    pub(crate) back: Vec<Route>,
}

/// What makes a fleet another one: who protects what, and how; and how channels are protected on the way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kind {
    /// The topology.
    pub(crate) island: Island,
    /// Of it: quality, key, reuse, batches, cipher, keys' renewal. The rest is passed over.
    pub(crate) configuration: Configuration,
    /// CERTLABL of the called queue manager where channels speak TLS; the caller shows it, too, where configured.
    pub(crate) label: String,
    /// Further attributes of sending ends, and of receiving ends.
    pub(crate) sender: String,
    /// See [`Kind::sender`].
    pub(crate) receiver: String,
}

impl Kind {
    /// That of a configuration, without what does not matter to channels and queues.
    pub(crate) fn of(island: Island, configuration: &Configuration, label: &str) -> Kind {
        let Configuration { quality, key, reuse, sign_batch, cipher, client_certificates, reset_bytes, .. } =
            configuration.clone();
        let configuration = Configuration {
            quality,
            key,
            reuse,
            sign_batch,
            cipher,
            client_certificates,
            reset_bytes,
            ..Configuration::default()
        };
        Kind { island, configuration, label: label.to_owned(), sender: String::new(), receiver: String::new() }
    }
}

impl Fleet {
    /// Defines so many pairs and starts their channels. `number` tells fleets apart.
    ///
    /// # Errors
    /// What a queue manager refuses.
    pub(crate) fn launch(partners: &mut Partners<'_>, kind: &Kind, number: usize, pairs: u32) -> Result<Fleet> {
        let Kind { island, configuration, label, .. } = kind;
        let people = island.people(if configuration.key.is_empty() { "any" } else { &configuration.key });
        if policy_is_needed(configuration) {
            partners.introduce(people.all())?;
        } else {
            partners.sign_up(&people.requester.name, &people.server.name)?;
        }
        let names: Vec<Names> = (1..=pairs).map(|pair| Names::new(&format!("{number}.{pair}"))).collect();
        let route = |channel: &str, queue: &str, from: At| {
            let to = if from == At::One { At::Two } else { At::One };
            let labelled = |is_shown: bool| if is_shown { label.clone() } else { String::new() };
            let has_tls = !configuration.cipher.is_empty();
            Route {
                channel: channel.to_owned(),
                queue: queue.to_owned(),
                cipher: configuration.cipher.clone(),
                reset_bytes: configuration.reset_bytes,
                caller: labelled(has_tls && configuration.client_certificates),
                called: labelled(has_tls),
                depth_max: 0,
                sender: joined(&island.channel_ends(&people, from).0, &kind.sender),
                receiver: joined(&island.channel_ends(&people, to).1, &kind.receiver),
            }
        };
        let forth: Vec<Route> = names.iter().map(|names| route(&names.forth, &names.asked, At::One)).collect();
        let back: Vec<Route> = names.iter().map(|names| route(&names.back, &names.answered, At::Two)).collect();
        let policies = |at| {
            let of = |names| island.policies(configuration, &people, names, at);
            names.iter().map(of).collect::<String>()
        };
        partners.define(&forth, &back, &policies(At::One), &policies(At::Two))?;
        partners.run(&forth, &back)?;
        Ok(Fleet { names, people, forth, back })
    }

    /// So many of its pairs at work.
    ///
    /// # Errors
    /// [`Error::Broker`](crate::error::Error::Broker): a user was not let in.
    pub(crate) fn sail(&self, partners: &Partners<'_>, configuration: &Configuration) -> Result<Loads<Pair>> {
        let exchange = Exchange {
            bytes: usize::try_from(configuration.bytes).unwrap_or(usize::MAX),
            persistent: configuration.persistent,
            in_flight: configuration.in_flight,
        };
        let People { requester, server, .. } = &self.people;
        let pair = |(number, names): (usize, &Names)| {
            let asks = partners.seat(At::One, &requester.name, &names.asked, &names.answered);
            let answers = partners.seat(At::Two, &server.name, &names.answered, &names.asked);
            Pair::start(&asks, &answers, exchange, number)
        };
        let pairs = self.names.iter().take(configuration.pairs as usize).enumerate().map(pair);
        Ok(Loads(pairs.collect::<Result<_>>()?))
    }

    /// Who puts at QM1.
    pub(crate) fn requester(&self) -> &str {
        &self.people.requester.name
    }

    /// How many pairs there are.
    pub(crate) fn pairs(&self) -> usize {
        self.names.len()
    }
}

fn joined(one: &str, other: &str) -> String {
    format!("{one} {other}").trim().to_owned()
}

/// What a topology is measured with: an unprotected one without a quality, any other with each that protects. None
/// where the two do not go together.
pub(crate) fn fits(island: Island, configuration: &Configuration) -> Option<Configuration> {
    let topology = island.as_str().to_owned();
    match (island, configuration.quality) {
        (Island::Unprotected, _) => Some(Configuration {
            quality: Quality::None,
            key: String::new(),
            reuse: crate::configuration::Reuse::default(),
            sign_batch: 1,
            topology,
            ..configuration.clone()
        }),
        (_, Quality::None) => None,
        // Channels that open and seal do so only for a partner with a certificate.
        (Island::OneSide | Island::TwoAuthorities, _) if configuration.cipher.is_empty() => Some(Configuration {
            topology,
            cipher: BORDER_CIPHER.to_owned(),
            client_certificates: true,
            ..configuration.clone()
        }),
        _ => Some(Configuration { topology, ..configuration.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Reuse;

    #[test]
    fn size_and_number_of_pairs_make_no_other_fleet() {
        let configuration = Configuration { key: "p256".into(), pairs: 50, bytes: 9, ..Configuration::default() };
        let other = Configuration { pairs: 1, bytes: 10, in_flight: 3, ..configuration.clone() };
        let kind = |configuration| Kind::of(Island::OneSide, configuration, "rsa2048");
        assert_eq!(kind(&configuration), kind(&other));
        let renewed = Configuration { reset_bytes: 1, ..configuration.clone() };
        assert_ne!(kind(&configuration), kind(&renewed));
    }

    #[test]
    fn an_unprotected_island_is_measured_once_and_no_other_without_protection() {
        let of =
            |quality| Configuration { quality, key: "p256".into(), reuse: Reuse::Times(2), ..Configuration::default() };
        let plain = fits(Island::Unprotected, &of(Quality::Privacy)).unwrap();
        assert_eq!(
            Some(plain.clone()),
            fits(Island::Unprotected, &of(Quality::None)).map(|mut other| {
                other.key.clear();
                other
            })
        );
        assert_eq!((plain.topology.as_str(), plain.quality, plain.key.as_str()), ("unprotected", Quality::None, ""));
        assert!(fits(Island::EndToEnd, &of(Quality::None)).is_none());
        let one_side = fits(Island::OneSide, &of(Quality::Integrity)).unwrap();
        assert_eq!((one_side.topology.as_str(), one_side.cipher.as_str()), ("one-side", BORDER_CIPHER));
        assert!(one_side.client_certificates);
    }
}
