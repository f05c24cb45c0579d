//! Subscriptions that outlive their links.

use crate::Definitions;

/// A subscription that outlives its links.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Subscription {
    /// DESCR
    pub description: String,
    /// TOPICSTR as given.
    pub string: String,
    /// TOPICOBJ
    pub object: Option<String>,
    /// DEST: the queue.
    pub destination: String,
    /// DESTCLAS(MANAGED): an application's, with a queue of its own.
    pub managed: bool,
    /// SELECTOR; empty for all.
    pub selector: String,
    /// SUBUSER: whose it is.
    pub user: Option<String>,
    /// SUBSHARE(YES): several links may get at the same time.
    pub shared: bool,
    /// NOTFROM: the container whose own publications are left out.
    pub not_from: Option<String>,
    /// SUBMODEL: whose policy protects what is on a managed queue.
    pub model: Option<String>,
}

impl Subscription {
    /// The whole topic, wildcards included; none where TOPICOBJ names nothing.
    #[must_use]
    pub fn topic(&self, definitions: &Definitions) -> Option<String> {
        let Some(object) = &self.object else { return Some(self.string.clone()) };
        Some(self.below(&definitions.topics.get(object)?.string))
    }

    /// Its string below that of a topic object.
    pub fn below(&self, above: &str) -> String {
        match (above.is_empty(), self.string.is_empty()) {
            (_, true) => above.to_owned(),
            (true, false) => self.string.clone(),
            (false, false) => format!("{above}/{}", self.string),
        }
    }
}
