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
        let found = self.groups_elsewhere.with_queue(opened).filter(|_| is_about_the_name);
        let Some((name, group)) = found else { return refusal };
        let authorities = &self.definitions.authorities;
        let may_here = authorities.rights(user, ObjectType::Queue, opened) != Rights::NONE;
        if !(may_here || group.has_record_of(opened, authorities.entities(user))) {
            return refusal;
        }
        let GroupElsewhere { owner, address, connections, .. } = group;
        let owner = if owner.is_empty() { "another member" } else { owner };
        let detail = format!("{opened} is a queue of shared group {name}, which {owner} owns");
        let elsewhere = address.clone().map(|(host, port)| {
            let (queue, whole_connection) = (opened.to_owned(), *connections);
            Box::new(Elsewhere { host, port, queue, whole_connection })
        });
        Refusal { cause: Some("group-elsewhere"), elsewhere, ..Refusal::new(reason::CF_NOT_AVAILABLE, detail) }
    }
}
