//! Clients that open a queue of a shared group which another member owns.

use crate::authority::{ObjectType, Rights};
use crate::catalog::objects::Redirect;
use crate::catalog::reason::{Elsewhere, Forwarded, Way};
use crate::envelope::Arrival;
use crate::groups_elsewhere::GroupElsewhere;
use crate::manager::State;
use crate::reason::{self, Refusal};
use crate::sign_in::verdict::Identity;
use bulla_amqp::Payload;

impl State {
    /// What a client is told instead of a refusal, where the queue is one that another member owns. Only who has some
    /// right on it hears that: to others it is as if there were none of that name.
    pub(crate) fn or_elsewhere(&self, refusal: Refusal, opened: &str, who: &Identity) -> Refusal {
        // `QUEUE@QMGR` with this queue manager's own name; the owner has another one.
        let own = opened.split_once('@').filter(|(_, manager)| *manager == self.definitions.queue_manager.name);
        let is_plain = !opened.contains('@');
        let opened = own.map_or(opened, |(queue, _)| queue);
        let is_about_the_name = [reason::NOT_AUTHORIZED, reason::UNKNOWN_OBJECT_NAME].contains(&refusal.reason);
        // Who hears of these has the right to put by that name.
        let is_about_the_way = [reason::UNKNOWN_XMIT_Q, reason::UNKNOWN_REMOTE_Q_MGR].contains(&refusal.reason);
        let queue = match is_about_the_way {
            true => self.way_out(opened),
            // Of `QUEUE@QMGR` the right is one on the transmission queue that is named like the queue manager.
            false => Some(opened.split_once('@').map_or(opened, |(_, manager)| manager)).filter(|_| is_about_the_name),
        };
        let found = queue.and_then(|queue| Some((queue, self.groups_elsewhere.with_queue(queue)?)));
        let Some((queue, (name, group))) = found else { return refusal };
        let user = who.user.as_deref();
        let authorities = &self.definitions.authorities;
        let may_here = is_about_the_way || authorities.rights(user, ObjectType::Queue, queue) != Rights::NONE;
        if !(may_here || group.has_record_of(queue, authorities.entities(user))) {
            return refusal;
        }
        let GroupElsewhere { owner, address, redirect, cipher_spec, .. } = group;
        let owner = if owner.is_empty() { "another member" } else { owner };
        let detail = format!("{queue} is a queue of shared group {name}, which {owner} owns");
        let way = match (redirect, who.vouched_in.is_some()) {
            (Redirect::Link, _) => Some(Way::Link),
            (Redirect::Connection, _) => Some(Way::Connection),
            // What another member forwards ends here, and remote queues are each member's own. A link goes on by the
            // address that its client gave.
            (Redirect::Forward, false) if !is_about_the_way && is_plain => {
                let (group, user) = (name.to_owned(), who.user.clone());
                Some(Way::Forwarded(Forwarded { group, user, ring: who.ring, cipher_spec: cipher_spec.clone() }))
            }
            (Redirect::Forward | Redirect::No, _) => None,
        };
        let elsewhere = address.clone().zip(way).map(|((host, port), way)| {
            let queue = opened.to_owned();
            Box::new(Elsewhere { host, port, queue, way })
        });
        Refusal { cause: Some("group-elsewhere"), elsewhere, ..Refusal::new(reason::CF_NOT_AVAILABLE, detail) }
    }

    /// The same of a message that names its queue itself. None where its refusal holds.
    pub(crate) fn message_elsewhere(&self, refusal: &Refusal, payload: &Payload, who: &Identity) -> Option<Refusal> {
        let arrival = Arrival::take(payload.clone(), 0).ok()?;
        let to = arrival.to().ok()??;
        let opened = self.address(&to, false).into_owned();
        Some(self.or_elsewhere(refusal.clone(), &opened, who)).filter(|refusal| refusal.elsewhere.is_some())
    }

    /// The transmission queue that messages put by a name go on, which may not be here.
    fn way_out<'a>(&'a self, opened: &'a str) -> Option<&'a str> {
        if let Some((_, manager)) = opened.split_once('@') {
            let alias = self.definitions.remotes.get(manager);
            return alias.and_then(|alias| alias.transmission_queue.as_deref()).or(Some(manager));
        }
        let alias = self.definitions.aliases.get(opened);
        let remote = self.definitions.remotes.get(alias.map_or(opened, |alias| &alias.target))?;
        remote.transmission_queue.as_deref().or(remote.remote_manager.as_deref())
    }
}
