//! Tokens of servers with keys that the servers refuse: who asks is told, and of each there is one event.

use bulla_device::transit::TokenNews;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Events that wait to be raised. More than that are in the log alone.
const NEWS_MAX: usize = 100;

/// The devices whose tokens are refused.
#[derive(Debug, Default)]
pub struct RefusedTokens {
    inner: Mutex<Inner>,
    has_news: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    refused: BTreeSet<String>,
    /// Device and why, of refusals that were not told of.
    news: Vec<(String, String)>,
}

impl RefusedTokens {
    /// Takes in what a device heard, and writes the line of the log.
    pub fn hear(&self, device: &str, news: &TokenNews) {
        if let Some(line) = news.line() {
            crate::warning!("device {device}: {line}");
        }
        let mut inner = self.inner();
        let TokenNews::Refused(why) = news else {
            inner.refused.remove(device);
            return;
        };
        inner.refused.insert(device.to_owned());
        if inner.news.len() < NEWS_MAX {
            inner.news.push((device.to_owned(), why.clone()));
            self.has_news.store(true, Ordering::Release);
        }
    }

    /// The device is opened anew: nothing is known of its token.
    pub fn forget(&self, device: &str) {
        self.inner().refused.remove(device);
    }

    /// Whether the server refuses the device's token.
    pub fn has(&self, device: &str) -> bool {
        self.inner().refused.contains(device)
    }

    /// Refusals since the last call, device and why. One compare where there are none.
    pub fn take_news(&self) -> Vec<(String, String)> {
        match self.has_news.swap(false, Ordering::AcqRel) {
            true => std::mem::take(&mut self.inner().news),
            false => Vec::new(),
        }
    }

    /// Nothing that a panic elsewhere could leave half changed.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_news_once_and_lasts_until_another_token_is_taken() {
        let tokens = RefusedTokens::default();
        assert_eq!((tokens.has("VAULT"), tokens.take_news()), (false, Vec::new()));
        tokens.hear("VAULT", &TokenNews::Refused("the server refused the token (403)".into()));
        assert!(tokens.has("VAULT") && !tokens.has("OTHER"));
        assert_eq!(tokens.take_news(), [("VAULT".to_owned(), "the server refused the token (403)".to_owned())]);
        assert_eq!(tokens.take_news(), []);
        for end in [TokenNews::Taken, TokenNews::Replaced("another one".into())] {
            tokens.hear("VAULT", &TokenNews::Refused("again".into()));
            tokens.hear("VAULT", &end);
            assert!(!tokens.has("VAULT"));
        }
        for _ in 0..2 * NEWS_MAX {
            tokens.hear("VAULT", &TokenNews::Refused("and again".into()));
        }
        assert_eq!(tokens.take_news().len(), NEWS_MAX, "what is told late is bounded");
    }
}
