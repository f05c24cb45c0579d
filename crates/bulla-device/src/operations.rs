//! Which operations a device may do.

use std::fmt;

use crate::work::Operation;

/// A set of operations, as OPERATIONS of a device says it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operations(u16);

/// A word, and the operations that it stands for. A word that stands for others comes before them.
struct Word {
    word: &'static str,
    operations: Operations,
}

/// How many words there are.
const WORDS: usize = 18;

const fn of(all: &[Operation]) -> Operations {
    let (mut bits, mut at) = (0, 0);
    while at < all.len() {
        bits |= 1 << all[at] as u16;
        at += 1;
    }
    Operations(bits)
}

const fn word(word: &'static str, operations: &[Operation]) -> Word {
    Word { word, operations: of(operations) }
}

const TABLE: [Word; WORDS] = [
    word("ALL", Operation::ALL),
    word("NONE", &[]),
    word("SIGN", &[Operation::RsaSign, Operation::EcdsaSign, Operation::MlDsaSign]),
    word("VERIFY", &[Operation::RsaVerify, Operation::EcdsaVerify, Operation::MlDsaVerify]),
    word("WRAP", &[Operation::RsaWrap, Operation::EcdhEphemeral, Operation::MlKemEncapsulate]),
    word("UNWRAP", &[Operation::RsaUnwrap, Operation::EcdhDerive, Operation::MlKemDecapsulate]),
    word("RSASIGN", &[Operation::RsaSign]),
    word("RSAVERIFY", &[Operation::RsaVerify]),
    word("RSAWRAP", &[Operation::RsaWrap]),
    word("RSAUNWRAP", &[Operation::RsaUnwrap]),
    word("ECSIGN", &[Operation::EcdsaSign]),
    word("ECVERIFY", &[Operation::EcdsaVerify]),
    word("ECWRAP", &[Operation::EcdhEphemeral]),
    word("ECUNWRAP", &[Operation::EcdhDerive]),
    word("MLDSASIGN", &[Operation::MlDsaSign]),
    word("MLDSAVERIFY", &[Operation::MlDsaVerify]),
    word("MLKEMWRAP", &[Operation::MlKemEncapsulate]),
    word("MLKEMUNWRAP", &[Operation::MlKemDecapsulate]),
];

impl Operations {
    /// Every operation.
    pub const ALL: Operations = of(Operation::ALL);

    /// The words for operations.
    pub const WORDS: [&'static str; WORDS] = {
        let (mut words, mut at) = ([""; WORDS], 0);
        while at < TABLE.len() {
            words[at] = TABLE[at].word;
            at += 1;
        }
        words
    };

    /// What these words stand for together. Words that are not among [`WORDS`](Self::WORDS) stand for nothing.
    pub fn of_words(words: impl IntoIterator<Item = impl AsRef<str>>) -> Operations {
        let known = |word: &str| TABLE.iter().find(|known| known.word == word).map_or(0, |known| known.operations.0);
        Operations(words.into_iter().fold(0, |bits, word| bits | known(word.as_ref())))
    }

    /// The fewest words for it.
    pub fn words(self) -> Vec<&'static str> {
        if self.0 == 0 {
            return vec!["NONE"];
        }
        let (mut left, mut words) = (self.0, Vec::new());
        for Word { word, operations } in &TABLE {
            let is_all_there = operations.0 != 0 && self.0 & operations.0 == operations.0;
            if is_all_there && left & operations.0 != 0 {
                left &= !operations.0;
                words.push(*word);
            }
        }
        words
    }

    /// Whether it has an operation.
    pub const fn contains(self, operation: Operation) -> bool {
        self.0 & 1 << operation as u16 != 0
    }
}

impl Default for Operations {
    fn default() -> Operations {
        Operations::ALL
    }
}

impl fmt::Display for Operations {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.words().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_what_they_stand_for() {
        for words in [&["ALL"][..], &["NONE"], &["SIGN", "RSAUNWRAP"], &["SIGN", "VERIFY", "WRAP", "ECUNWRAP"]] {
            assert_eq!(Operations::of_words(words).words(), words);
        }
        let all = ["SIGN", "RSAVERIFY", "ECVERIFY", "MLDSAVERIFY", "WRAP", "UNWRAP"];
        assert_eq!(Operations::of_words(all).words(), ["ALL"]);
        assert_eq!(Operations::of_words(["NONE", "SIGN", "ECSIGN"]).to_string(), "SIGN");
    }

    #[test]
    fn each_operation_has_words_of_its_own_and_of_its_purpose() {
        for operation in Operation::ALL {
            let with = TABLE.iter().filter(|word| word.operations.contains(*operation)).count();
            assert_eq!(with, 3, "{operation}: ALL, what it is for, and its own");
            assert!(!Operations::of_words(["NONE"]).contains(*operation));
        }
    }
}
