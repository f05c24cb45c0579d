//! Messages that no key ring here can open, and keys that are gone, as they were found when they were looked for last.

use crate::catalog::status::{MissingKey, NeededKey, Stranded};
use bulla_queue::{KeyNames, Keys};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a reader is told who has no key for what is there.
const ADDRESSED_TO_OTHERS: &str = "what is there is addressed to others";

/// What was found when it was looked for last.
#[derive(Debug, Default)]
pub struct StrandedNow {
    /// Messages that no key ring here can open, by queue.
    pub by_queue: BTreeMap<String, Stranded>,
    /// The keys of those for which no ring has one: any of a set would open them.
    pub without_key: HashSet<KeyNames>,
    /// Keys that rings here had, that messages need, and that are gone.
    pub missing: Vec<MissingKey>,
    /// Every key that messages need.
    pub needed: Vec<NeededKey>,
    /// By policy that allows keys of both kinds for encryption: the key that opens its messages most easily, as
    /// `rsa2048 of CN=billing`. None where no ring here has a certificate of a recipient.
    pub weakest: HashMap<String, String>,
}

impl StrandedNow {
    /// Why a reader can't open a message that needs these keys, of which it has none. Only whose own key is gone is
    /// told which one it is.
    pub fn why_not(&self, user: Option<&str>, keys: &Keys) -> String {
        let Keys::OneOf(names) = keys else { return ADDRESSED_TO_OTHERS.to_owned() };
        let is_own = |key: &&MissingKey| {
            let had_it = user.is_some_and(|user| key.users.iter().any(|of| of == user));
            had_it && names.iter().any(|name| key.is_named(name))
        };
        match self.missing.iter().find(is_own) {
            Some(MissingKey { subject, serial, .. }) => format!(
                "what is there needs the key {serial} of {subject}, which is no longer in the key ring of {}",
                user.unwrap_or_default()
            ),
            None if self.without_key.contains(names) => {
                format!("{ADDRESSED_TO_OTHERS}, and no key ring here can open it")
            }
            None => ADDRESSED_TO_OTHERS.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn names(number: usize) -> Keys {
        Keys::OneOf([Bytes::from(number.to_string())].into())
    }

    #[test]
    fn only_whose_own_key_is_gone_is_told_which_one_it_is() {
        let Keys::OneOf(set) = names(1) else { unreachable!("it has a name") };
        let key = MissingKey {
            users: vec!["billing".into()],
            subject: "CN=billing".into(),
            serial: "0a".into(),
            names: vec![b"1".to_vec()],
            ..MissingKey::default()
        };
        let now = StrandedNow { without_key: [set].into(), missing: vec![key], ..StrandedNow::default() };
        let own = "what is there needs the key 0a of CN=billing, which is no longer in the key ring of billing";
        assert_eq!(now.why_not(Some("billing"), &names(1)), own);
        let nobody = format!("{ADDRESSED_TO_OTHERS}, and no key ring here can open it");
        assert_eq!([Some("audit"), None].map(|user| now.why_not(user, &names(1))), [nobody.clone(), nobody]);
        for keys in [names(2), Keys::Unknown, Keys::None] {
            assert_eq!(now.why_not(Some("billing"), &keys), ADDRESSED_TO_OTHERS);
        }
    }
}
