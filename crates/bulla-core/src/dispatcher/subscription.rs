//! The subscription that a link gets from.

/// What a consumer's link knows of its subscription.
#[derive(Debug)]
pub struct Subscription {
    /// The topic, wildcards included.
    pub topic: String,
    /// The name of a durable one.
    pub durable: Option<String>,
    /// Several links may get from it.
    pub shared: bool,
    /// The model's policy is asked for by this name: the queue.
    pub queue: String,
    /// It was made for this link, and goes again where the link does not come to be.
    pub is_new: bool,
}
