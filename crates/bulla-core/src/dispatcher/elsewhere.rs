//! Clients that open a queue of a shared group which another member owns.

use crate::authority::{ObjectType, Rights};
use crate::catalog::reason::Elsewhere;
use crate::groups_elsewhere::GroupElsewhere;
use crate::manager::State;
use crate::reason::{self, Refusal};

impl State {
    /// What a client is told instead of a refusal, where the queue is one that another member owns. Only who has some
    /// right on it hears that: to others it is as if there were none of that name.
    pub(crate) fn or_elsewhere(&self, refusal: Refusal, opened: &str, user: Option<&str>) -> Refusal {
        let is_about_the_name = [reason::NOT_AUTHORIZED, reason::UNKNOWN_OBJECT_NAME].contains(&refusal.reason);
        // Who hears of these has the right to put by that name.
        let is_about_the_way = [reason::UNKNOWN_XMIT_Q, reason::UNKNOWN_REMOTE_Q_MGR].contains(&refusal.reason);
        let queue = match is_about_the_way {
            true => self.way_out(opened),
            false => Some(opened).filter(|_| is_about_the_name),
        };
        let found = queue.and_then(|queue| Some((queue, self.groups_elsewhere.with_queue(queue)?)));
        let Some((queue, (name, group))) = found else { return refusal };
        let authorities = &self.definitions.authorities;
        let may_here = is_about_the_way || authorities.rights(user, ObjectType::Queue, queue) != Rights::NONE;
        if !(may_here || group.has_record_of(queue, authorities.entities(user))) {
            return refusal;
        }
        let GroupElsewhere { owner, address, connections, .. } = group;
        let owner = if owner.is_empty() { "another member" } else { owner };
        let detail = format!("{queue} is a queue of shared group {name}, which {owner} owns");
        let elsewhere = address.clone().map(|(host, port)| {
            let (queue, whole_connection) = (opened.to_owned(), *connections);
            Box::new(Elsewhere { host, port, queue, whole_connection })
        });
        Refusal { cause: Some("group-elsewhere"), elsewhere, ..Refusal::new(reason::CF_NOT_AVAILABLE, detail) }
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
