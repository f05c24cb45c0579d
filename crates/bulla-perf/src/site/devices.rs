//! Crypto devices as configurations name them, and the commands that set a queue manager up with them.

use std::fmt;
use std::str::FromStr;

/// Most of one kind.
const DEVICES_MAX: u32 = 8;

/// What a queue manager has beside the processor, as
/// [`Configuration::devices`](crate::configuration::Configuration::devices) writes it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Devices {
    /// The processor without its instructions for cryptography.
    pub software: bool,
    /// The others are cards that this machine has not. The processor then leaves the keys' work to them, unless they
    /// are accelerators and the keys are on curves.
    pub modelled: bool,
    /// Accelerators.
    pub accelerators: u32,
    /// Coprocessors.
    pub coprocessors: u32,
}

/// A device beside the processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Card {
    /// Eight lanes of this processor, or a modelled card with clear keys.
    Accelerator,
    /// A PKCS#11 token, or a modelled card that keeps its keys.
    Coprocessor,
}

impl Devices {
    /// Those beside the processor, with their names.
    pub fn cards(&self) -> impl Iterator<Item = (String, Card)> + '_ {
        let accelerators = (1..=self.accelerators).map(|number| (format!("ACCEL{number}"), Card::Accelerator));
        let coprocessors = (1..=self.coprocessors).map(|number| (format!("COPROC{number}"), Card::Coprocessor));
        let named =
            move |(name, card): (String, Card)| (if self.modelled { format!("MODEL.{name}") } else { name }, card);
        accelerators.chain(coprocessors).map(named)
    }

    /// Whether private keys live on tokens, and can be used nowhere else.
    #[must_use]
    pub fn keeps_keys(&self) -> bool {
        self.coprocessors > 0 && !self.modelled
    }
}

impl Devices {
    /// Whether there are modelled cards of both kinds.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.modelled && self.accelerators > 0 && self.coprocessors > 0
    }
}

impl FromStr for Devices {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: expected cpu, software, or cards as 1a, 2c, 1a+1c, modelled:1a");
        match text {
            "cpu" => return Ok(Devices::default()),
            "software" => return Ok(Devices { software: true, ..Devices::default() }),
            _ => {}
        }
        let (modelled, cards) = match text.strip_prefix("modelled:") {
            Some(cards) => (true, cards),
            None => (false, text),
        };
        let mut devices = Devices { modelled, ..Devices::default() };
        for part in cards.split('+') {
            let (count, kind) = match (part.strip_suffix('a'), part.strip_suffix('c')) {
                (Some(count), _) => (count, &mut devices.accelerators),
                (_, Some(count)) => (count, &mut devices.coprocessors),
                _ => return Err(wrong()),
            };
            let count = count.parse().ok().filter(|count| (1..=DEVICES_MAX).contains(count)).ok_or_else(wrong)?;
            if *kind != 0 {
                return Err(wrong());
            }
            *kind = count;
        }
        Ok(devices)
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.software {
            return f.write_str("software");
        }
        let cards = [(self.accelerators, 'a'), (self.coprocessors, 'c')];
        let cards: Vec<String> =
            cards.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count}{kind}")).collect();
        match (cards.is_empty(), self.modelled) {
            (true, _) => f.write_str("cpu"),
            (false, true) => write!(f, "modelled:{}", cards.join("+")),
            (false, false) => f.write_str(&cards.join("+")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_come_back_from_their_own_text() {
        for text in ["cpu", "software", "1a", "2c", "1a+1c", "modelled:2a", "modelled:2a+8c"] {
            assert_eq!(text.parse::<Devices>().unwrap().to_string(), text);
        }
        assert_eq!("1c+1a".parse::<Devices>().unwrap().to_string(), "1a+1c");
        for text in ["", "a", "0a", "9a", "1a+2a", "1x", "modelled:", "modelled:cpu", "1a,1c"] {
            assert!(text.parse::<Devices>().is_err(), "{text}");
        }
    }

    #[test]
    fn modelled_cards_have_names_of_their_own() {
        let names = |text: &str| text.parse::<Devices>().unwrap().cards().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("2a+1c"), ["ACCEL1", "ACCEL2", "COPROC1"]);
        assert_eq!(names("modelled:1c"), ["MODEL.COPROC1"]);
        assert!(names("cpu").is_empty());
    }
}
