//! What would have to change for one set of definitions to become another: as commands.
//!
//! Both are compared in the form in which they are kept: one command for each object, with every attribute. So what can
//! be kept can be compared, and nothing else is to be told of a new kind of object.

use super::kept::{self, ObjectName};
use bulla_catalog::Definitions;
use std::collections::{BTreeMap, BTreeSet};

/// One command that brings definitions nearer to what is wanted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    /// What it does.
    pub kind: StepKind,
    /// The command, on one line.
    pub command: String,
    /// What the attributes are now that it changes; empty for what is new or goes.
    pub was: String,
}

/// What a step does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StepKind {
    /// Something is defined that is not there.
    Add,
    /// Something that is there becomes another.
    Change,
    /// Something that is wanted by another type of object's name, and goes for it.
    Replace,
    /// Something that is there and not wanted goes.
    Remove,
}

/// The steps from `now` to `wanted`, in an order in which they can be carried out: what is in another's way goes first,
/// then what is new or changes, and what is not wanted any more goes last.
#[must_use]
pub fn steps(now: &Definitions, wanted: &Definitions) -> Vec<Step> {
    let (have, want) = (commands(now), commands(wanted));
    let known: BTreeMap<&ObjectName, &Parts> = have.iter().map(|(object, parts)| (object, parts)).collect();
    let is_wanted: BTreeSet<&ObjectName> = want.iter().map(|(object, _)| object).collect();
    let mut steps = Vec::new();
    let mut last = Vec::new();
    for (object, parts) in have.iter().rev().filter(|(object, _)| !is_wanted.contains(object)) {
        let noun = object.noun();
        let removed = |kind| Step { kind, command: noun.removal(parts), was: String::new() };
        if noun.is_in_the_way(object, wanted) {
            steps.push(removed(StepKind::Replace));
        } else if !noun.stays(now, object) {
            last.push(removed(StepKind::Remove));
        }
    }
    for (object, parts) in &want {
        let (kind, command, was) = match known.get(object) {
            None => (StepKind::Add, parts.command(), String::new()),
            Some(before) if before.attributes == parts.attributes => continue,
            Some(before) => {
                let was = before.beyond(parts).collect::<Vec<_>>().join(" ");
                (StepKind::Change, object.noun().change(before, parts), was)
            }
        };
        steps.push(Step { kind, command, was });
    }
    steps.append(&mut last);
    steps
}

/// One command of the kept form, in its parts as they are written.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) verb: String,
    noun: String,
    /// With its quotes; empty where the noun takes none.
    name: String,
    pub(crate) attributes: Vec<String>,
}

impl Parts {
    /// Another verb with the noun and the name.
    pub(crate) fn head(&self, verb: &str) -> String {
        match self.name.as_str() {
            "" => format!("{verb} {}", self.noun),
            name => format!("{verb} {}({name})", self.noun),
        }
    }

    /// The whole command.
    pub(crate) fn command(&self) -> String {
        self.with_those(&self.verb, |_| true)
    }

    /// A verb with the attributes of some words.
    pub(crate) fn with_those(&self, verb: &str, is_meant: impl Fn(&str) -> bool) -> String {
        let attributes = self.attributes.iter().filter(|text| is_meant(keyword(text))).cloned();
        std::iter::once(self.head(verb)).chain(attributes).collect::<Vec<_>>().join(" ")
    }

    /// What it says that the other one does not.
    pub(crate) fn beyond<'a>(&'a self, other: &'a Parts) -> impl Iterator<Item = &'a str> {
        self.attributes.iter().filter(|text| !other.attributes.contains(text)).map(String::as_str)
    }

    /// Whether an attribute of the one before is not written any more: it can't be altered to nothing, so the whole
    /// object is said again.
    pub(crate) fn has_lost(&self, before: &Parts) -> bool {
        before.beyond(self).any(|old| !self.beyond(before).any(|new| keyword(new) == keyword(old)))
    }
}

/// `MAXDEPTH` of `MAXDEPTH(5000)`, and a switch by itself.
fn keyword(attribute: &str) -> &str {
    attribute.split('(').next().unwrap_or(attribute)
}

/// The commands of the kept form, in its order.
fn commands(definitions: &Definitions) -> Vec<(ObjectName, Parts)> {
    let parts = |object: ObjectName| {
        let mut text = String::new();
        // Into a string: cannot fail.
        let _ = object.write(&mut text, definitions)?;
        let text: Vec<&str> = text.lines().map(|line| line.strip_suffix(" +").unwrap_or(line).trim_start()).collect();
        parts(&text.join(" ")).map(|parts| (object, parts))
    };
    kept::all(definitions).filter_map(parts).collect()
}

/// Cuts a command at the blanks outside of parentheses and quotes.
fn parts(command: &str) -> Option<Parts> {
    let (mut words, mut word, mut depth, mut quoted) = (Vec::new(), String::new(), 0_u32, false);
    for letter in command.chars() {
        match letter {
            '\'' => quoted = !quoted, // a doubled quote closes and opens
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth = depth.saturating_sub(1),
            ' ' if !quoted && depth == 0 => {
                words.push(std::mem::take(&mut word));
                continue;
            }
            _ => {}
        }
        word.push(letter);
    }
    words.push(word);
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let (verb, noun) = (words.next()?, words.next()?);
    let (noun, name) = match noun.split_once('(') {
        Some((noun, name)) => (noun.to_owned(), name.strip_suffix(')').unwrap_or(name).to_owned()),
        None => (noun, String::new()),
    };
    Some(Parts { verb, noun, name, attributes: words.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::AsText;
    use crate::run;
    use std::path::Path;

    fn made(commands: &str) -> Definitions {
        let bare = Definitions::bare(&Definitions::initial("QM1"));
        Definitions::from_commands(commands, Path::new("wanted.mqsc"), bare).unwrap()
    }

    fn told(now: &str, wanted: &str) -> Vec<(StepKind, String, String)> {
        let steps = steps(&made(now), &made(wanted));
        steps.into_iter().map(|step| (step.kind, step.command, step.was)).collect()
    }

    /// The definitions that come of the steps, each command understood against what the ones before made.
    fn carried_out(now: &Definitions, steps: &[Step]) -> Definitions {
        let mut definitions = now.clone();
        for step in steps {
            for statement in crate::parse::statements(&step.command) {
                let statement = statement.unwrap_or_else(|error| panic!("{}: {error}", step.command));
                let change = run::plan(&statement, &definitions)
                    .unwrap_or_else(|failure| panic!("{}: {}", step.command, failure.message));
                definitions.apply(&change);
            }
        }
        definitions
    }

    #[test]
    fn the_same_definitions_need_no_step() {
        let text = "DEFINE QLOCAL(A) DESCR('it''s +'); DEFINE QALIAS(B) TARGET(A)";
        assert_eq!(told(text, text), []);
    }

    #[test]
    fn only_what_differs_is_altered_and_what_it_was_is_told() {
        assert_eq!(
            told("DEFINE QLOCAL(A) MAXDEPTH(7) DESCR('a (b)')", "DEFINE QLOCAL(A) MAXDEPTH(9) DESCR('a (b)')"),
            [(StepKind::Change, "ALTER QLOCAL('A') MAXDEPTH(9)".into(), "MAXDEPTH(7)".into())]
        );
    }

    #[test]
    fn a_name_that_becomes_another_type_of_queue_goes_first() {
        let steps = told("DEFINE QLOCAL(X); DEFINE QALIAS(A) TARGET(X)", "DEFINE QLOCAL(X); DEFINE QLOCAL(A)");
        assert_eq!(steps[0], (StepKind::Replace, "DELETE QALIAS('A')".into(), String::new()));
        assert_eq!(steps[1].0, StepKind::Add);
        assert_eq!(steps.len(), 2);
    }

    #[test]
    fn rights_come_and_go_without_the_others() {
        let record =
            |rights: &str| format!("SET AUTHREC PROFILE('A.**') OBJTYPE(QUEUE) PRINCIPAL('bo') AUTHADD({rights})");
        let steps = told(&record("PUT, GET"), &record("GET, BROWSE"));
        assert_eq!(steps.len(), 1);
        let command = &steps[0].1;
        assert!(command.contains("AUTHADD(BROWSE)") && command.contains("AUTHRMV(PUT)"), "{command}");
        assert!(!command.contains("GET"), "{command}");
    }

    #[test]
    fn carrying_the_steps_out_gives_what_was_wanted() {
        let texts = [
            "",
            "DEFINE QLOCAL(A); DEFINE QLOCAL(B) MAXDEPTH(3)",
            "DEFINE QALIAS(A) TARGET(B); DEFINE QLOCAL(B) DESCR('b') PUT(DISABLED); ALTER QMGR DESCR('here')",
            "DEFINE QLOCAL(B) USAGE(XMITQ) TRIGGER; DEFINE QREMOTE(A) RNAME(R) RQMNAME(B) XMITQ(B)",
            "DEFINE QLOCAL(B); SET POLICY(B) SIGNALG(SHA256) SIGNER('CN=a')",
            "DEFINE QLOCAL(B); SET POLICY(B) ENCALG(AES256) RECIP('CN=a') RECIP('CN=b') KEYREUSE(32)",
            "DEFINE GROUP(G) MEMBERS('a', 'b'); SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) GROUP(G) AUTHADD(PUT, GET)",
            "DEFINE GROUP(G); SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) GROUP(G) AUTHADD(GET)",
            "SET CHLAUTH(SYSTEM.*) TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS); \
             SET CHLAUTH(SYSTEM.*) TYPE(ADDRESSMAP) ADDRESS('10.*') USERSRC(CHANNEL); \
             SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('a', 'b')",
            "SET CHLAUTH(SYSTEM.*) TYPE(ADDRESSMAP) ADDRESS('*') MCAUSER('a') WARN(YES); \
             SET CHLAUTH('*') TYPE(BLOCKUSER) USERLIST('b', 'c'); SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('10.*')",
        ];
        for now in texts.map(made) {
            for wanted in texts.map(made) {
                let reached = carried_out(&now, &steps(&now, &wanted));
                assert_eq!(reached.text(), wanted.text());
            }
        }
    }

    #[test]
    fn what_is_the_queue_managers_own_is_never_removed() {
        let now = Definitions::initial("QM1");
        let bare = Definitions::bare(&now);
        assert_eq!(steps(&now, &bare), []);
    }

    #[test]
    fn what_applications_have_made_is_never_removed() {
        assert_eq!(told("DEFINE QLOCAL(A) DEFTYPE(PERMDYN)", ""), []);
        assert_eq!(told("DEFINE QLOCAL(A)", "").len(), 1);
        // A model is made by an administrator, whatever is made of it.
        assert_eq!(told("DEFINE QMODEL(A) DEFTYPE(PERMDYN)", "").len(), 1);
    }
}
