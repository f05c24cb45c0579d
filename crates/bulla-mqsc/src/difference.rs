//! What would have to change for one set of definitions to become another: as commands.
//!
//! Both are compared in the form in which they are kept: one command for each object, with every attribute. So what can
//! be kept can be compared, and nothing else is to be told of a new kind of object.

use super::objects::AsText;
use bulla_catalog::{Definitions, objects};
use std::collections::{HashMap, HashSet};

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

/// Names that begin so are the queue manager's own: nothing of them is removed because it is not named.
const OWN_PREFIX: &str = "'SYSTEM.";
/// What is there before anything is defined.
const OWN_DEVICES: [&str; 2] = [objects::device::CPU, objects::device::ACCELERATOR];
/// Types of which two can't have one name.
const QUEUE_NOUNS: [&str; 4] = ["QLOCAL", "QALIAS", "QREMOTE", "QMODEL"];
/// The attribute of an authority record that says what is allowed; the others say who, and what for.
const RIGHTS: &str = "AUTHADD";
/// Rules for connections: several may have one channel name.
const RULE_NOUN: &str = "CHLAUTH";
/// What clients' addresses stand for; none of them is the queue manager's own.
const ADDRESS_NOUN: &str = "ADDRMAP";
/// The attributes by which a rule is known beside its channel.
const SELECTORS: [&str; 5] = ["TYPE", "ADDRESS", "CLNTUSER", "SSLPEER", "SSLCERTI"];

/// The steps from `now` to `wanted`, in an order in which they can be carried out: what is in another's way goes first,
/// then what is new or changes, and what is not wanted any more goes last.
#[must_use]
pub fn steps(now: &Definitions, wanted: &Definitions) -> Vec<Step> {
    let (now, wanted) = (kept(now), kept(wanted));
    let have: HashMap<String, &Kept> = now.iter().map(|kept| (kept.identity(), kept)).collect();
    let want: HashSet<String> = wanted.iter().map(Kept::identity).collect();
    let queues: HashSet<&str> = wanted.iter().filter(|kept| kept.is_queue()).map(|kept| kept.name.as_str()).collect();
    let mut steps = Vec::new();
    let mut last = Vec::new();
    for gone in now.iter().rev().filter(|kept| !want.contains(&kept.identity())) {
        if gone.is_queue() && queues.contains(gone.name.as_str()) {
            steps.push(gone.removed(StepKind::Replace));
        } else if !gone.is_own() {
            last.push(gone.removed(StepKind::Remove));
        }
    }
    for kept in &wanted {
        match have.get(&kept.identity()) {
            None => steps.push(Step { kind: StepKind::Add, command: kept.command(), was: String::new() }),
            Some(before) if before.attributes == kept.attributes => {}
            Some(before) => steps.push(kept.changed_from(before)),
        }
    }
    steps.append(&mut last);
    steps
}

/// One command of the kept form, in its parts as they are written.
#[derive(Debug)]
struct Kept {
    verb: String,
    noun: String,
    /// With its quotes; empty where the noun takes none.
    name: String,
    attributes: Vec<String>,
}

impl Kept {
    fn is_queue(&self) -> bool {
        QUEUE_NOUNS.contains(&self.noun.as_str())
    }

    fn is_own(&self) -> bool {
        self.noun == "QMGR"
            || (self.name.starts_with(OWN_PREFIX) && !self.is_rule() && self.noun != ADDRESS_NOUN)
            // What applications make is theirs.
            || (self.noun == "SUB" && self.name.contains('|'))
            || (self.noun == "QLOCAL" && self.attributes.iter().any(|attribute| attribute == "DEFTYPE(PERMDYN)"))
            || (self.noun == "DEVICE" && OWN_DEVICES.contains(&self.name.trim_matches('\'')))
    }

    fn is_rule(&self) -> bool {
        self.noun == RULE_NOUN
    }

    /// A rule with what it is known by.
    fn rule(&self) -> String {
        let known_by = self.attributes.iter().map(String::as_str).filter(|text| SELECTORS.contains(&keyword(text)));
        std::iter::once(self.head(&self.verb).as_str()).chain(known_by).collect::<Vec<_>>().join(" ")
    }

    /// What makes it the same object, whatever its attributes.
    fn identity(&self) -> String {
        if self.is_rule() {
            return self.rule();
        }
        if self.name.is_empty() && self.verb == "SET" {
            return format!("{} {}", self.noun, self.who().join(" "));
        }
        format!("{}({})", self.noun, self.name)
    }

    /// Of a record without a name: the attributes that stand for one.
    fn who(&self) -> Vec<&str> {
        self.attributes.iter().map(String::as_str).filter(|text| keyword(text) != RIGHTS).collect()
    }

    fn head(&self, verb: &str) -> String {
        match self.name.as_str() {
            "" => format!("{verb} {}", self.noun),
            name => format!("{verb} {}({name})", self.noun),
        }
    }

    fn command(&self) -> String {
        std::iter::once(self.head(&self.verb)).chain(self.attributes.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    fn removed(&self, kind: StepKind) -> Step {
        let mut command = self.head("DELETE");
        if self.name.is_empty() {
            command = format!("{command} {}", self.who().join(" "));
        }
        if self.noun == ADDRESS_NOUN {
            command = format!("{} ACTION(REMOVE)", self.head(&self.verb));
        }
        if self.is_rule() {
            let is_list = self.attributes.iter().any(|text| text.starts_with("TYPE(BLOCK"));
            command = format!("{} ACTION({})", self.rule(), if is_list { "REMOVEALL" } else { "REMOVE" });
        }
        Step { kind, command, was: String::new() }
    }

    fn changed_from(&self, before: &Kept) -> Step {
        let new = |attribute: &&String| !before.attributes.contains(attribute);
        let changed: Vec<&str> = self.attributes.iter().filter(new).map(String::as_str).collect();
        let old: Vec<&str> = {
            let new = |attribute: &&String| !self.attributes.contains(attribute);
            before.attributes.iter().filter(new).map(String::as_str).collect()
        };
        // An attribute that is not written any more can't be altered to nothing: the whole object is said again.
        let lost = old.iter().any(|old| !changed.iter().any(|new| keyword(new) == keyword(old)));
        let command = match self.verb.as_str() {
            "SET" if self.name.is_empty() => self.rights_changed(before),
            "SET" if self.is_rule() => format!("{} ACTION(REPLACE)", self.command()),
            "SET" => self.command(),
            "DEFINE" if lost => format!("{} REPLACE", self.command()),
            _ => std::iter::once(self.head("ALTER").as_str()).chain(changed).collect::<Vec<_>>().join(" "),
        };
        Step { kind: StepKind::Change, command, was: old.join(" ") }
    }

    /// SET AUTHREC with what comes and what goes.
    fn rights_changed(&self, before: &Kept) -> String {
        let (now, then) = (self.rights(), before.rights());
        let listed = |word: &str, rights: Vec<&str>| match rights.is_empty() {
            true => String::new(),
            false => format!(" {word}({})", rights.join(", ")),
        };
        let added = listed("AUTHADD", now.iter().copied().filter(|right| !then.contains(right)).collect());
        let removed = listed("AUTHRMV", then.iter().copied().filter(|right| !now.contains(right)).collect());
        format!("{} {}{added}{removed}", self.head("SET"), self.who().join(" "))
    }

    /// The words in the parentheses of AUTHADD; NONE is none of them.
    fn rights(&self) -> Vec<&str> {
        let list =
            self.attributes.iter().find_map(|text| text.strip_prefix(RIGHTS)?.strip_prefix('(')?.strip_suffix(')'));
        list.unwrap_or_default().split(',').map(str::trim).filter(|word| !matches!(*word, "" | "NONE")).collect()
    }
}

/// `MAXDEPTH` of `MAXDEPTH(5000)`, and a switch by itself.
fn keyword(attribute: &str) -> &str {
    attribute.split('(').next().unwrap_or(attribute)
}

/// The commands of the kept form, in its order.
fn kept(definitions: &Definitions) -> Vec<Kept> {
    let text = definitions.text();
    let mut commands = Vec::new();
    let mut whole = String::new();
    for line in text.lines().filter(|line| !line.starts_with('*')) {
        match line.strip_suffix(" +") {
            Some(more) => whole = whole + more.trim_start() + " ",
            None => {
                whole.push_str(line.trim_start());
                commands.extend(parts(&std::mem::take(&mut whole)));
            }
        }
    }
    commands
}

/// Cuts a command at the blanks outside of parentheses and quotes.
fn parts(command: &str) -> Option<Kept> {
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
    Some(Kept { verb, noun, name, attributes: words.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
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
