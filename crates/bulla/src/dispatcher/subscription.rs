//! The subscription that a link gets from.

/// What a consumer's link knows of its subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The topic, wildcards included.
    pub(crate) topic: String,
    /// The name of a durable one.
    pub(crate) durable: Option<String>,
    /// Several links may get from it.
    pub(crate) shared: bool,
    /// The model's policy is asked for by this name: the queue.
    pub(crate) queue: String,
    /// It was made for this link, and goes again where the link does not come to be.
    pub(crate) is_new: bool,
}
