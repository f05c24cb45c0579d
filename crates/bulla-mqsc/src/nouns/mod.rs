//! Nouns whose attributes are [`Field`]s: one file for each, in which everything stands that is peculiar to it, and one
//! line in the list here. What the verbs do is the same for all of them ([`Noun`]).

mod address_map;
mod administrators;
mod alias;
pub(crate) mod authority;
pub(crate) mod channel;
pub(crate) mod channel_rule;
pub(crate) mod device;
mod field;
mod group;
mod keyed;
pub(crate) mod limit;
mod local;
mod model;
mod noun;
pub(crate) mod policy;
mod process;
pub(crate) mod queue_manager;
pub(crate) mod queues;
mod remote;
pub(crate) mod shared_group;
mod subscription;
mod topic;

use crate::table::{self, Command};
use bulla_catalog::Sort;
pub(crate) use field::{Field, attributes, joined};
pub(crate) use keyed::{Keyed, KeyedNoun};
pub(crate) use noun::{Kept, Noun, ObjectNoun, Rules, Said};

/// Makes [`noun`] and the order of the reference page of one line for each noun. Between them stand the commands of the
/// other nouns, in arrays of the table.
macro_rules! nouns {
    ($({ $($sort:ident = $noun:path;)* } then $($commands:path),+;)*) => {
        /// The noun for a sort of object.
        pub(crate) fn noun(sort: Sort) -> &'static dyn Noun {
            match sort {
                $($(Sort::$sort => &$noun,)*)*
            }
        }

        /// Nouns, and the commands that follow theirs on the reference page.
        const PARTS: &[(&[Sort], &[&[Command]])] = &[$((&[$(Sort::$sort,)*], &[$(&$commands),+]),)*];
    };
}

nouns! {
    {
        Local = local::LOCAL;
        Alias = alias::ALIAS;
        Remote = remote::REMOTE;
        Model = model::MODEL;
        Process = process::PROCESS;
        Topic = topic::TOPIC;
        Subscription = subscription::SUBSCRIPTION;
    } then table::COMMANDS_OF_PROTECTION;
    {
        Policy = policy::POLICY;
        Device = device::DEVICE;
    } then table::COMMANDS_OF_DEVICES;
    {
        Channel = channel::CHANNEL;
        SharedGroup = shared_group::SHARED_GROUP;
    } then table::COMMANDS_OF_TASKS, authority::COMMANDS;
    {
        Group = group::GROUP;
        Administrators = administrators::ADMINISTRATORS;
    } then table::COMMANDS_OF_UNITS, channel_rule::COMMANDS;
    {
        AddressMap = address_map::ADDRESS_MAP;
        Limit = limit::LIMIT;
    } then table::OTHER_COMMANDS;
}

/// Every noun.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Noun> {
    Sort::ALL.iter().map(|sort| noun(*sort))
}

/// Nouns whose objects are kept and no name finds alone.
pub(crate) static OTHERS: [&dyn Kept; 3] =
    [&queue_manager::QUEUE_MANAGER, &authority::AUTHORITY_RECORD, &channel_rule::CHANNEL_RULE];

/// Every noun whose objects are kept.
pub(crate) fn kept() -> impl Iterator<Item = &'static dyn Kept> {
    all().map(|noun| -> &'static dyn Kept { noun }).chain(OTHERS)
}

/// Every command of the language, in the order of the reference page.
pub(crate) fn commands() -> impl Iterator<Item = &'static Command> {
    PARTS.iter().flat_map(|(sorts, others)| {
        let of_nouns = sorts.iter().flat_map(|sort| noun(*sort).commands());
        of_nouns.chain(others.iter().copied().flatten())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::AsText;
    use crate::reply::{EXIT_DONE, Outcome, show};
    use crate::run::Administered;
    use crate::table::{Attribute, Kind};
    use crate::transcripts::Paper;
    use crate::{difference, execute, kept, parse, run};
    use bulla_catalog::Definitions;
    use std::collections::{BTreeMap, BTreeSet, HashSet};
    use std::path::{Path, PathBuf};

    /// What a command shows; it is carried out.
    fn done(command: &str, paper: &mut Paper) -> String {
        let shown = show(&execute(command, paper), false, None);
        assert_eq!(shown.exit_code, EXIT_DONE, "{command}: {}", shown.stderr);
        shown.stdout
    }

    /// Whether a noun has the verb.
    fn has(noun: &dyn Noun, verb: &str) -> bool {
        noun.commands().iter().any(|command| (command.verb, command.noun) == (verb, noun.word()))
    }

    #[test]
    fn each_noun_that_is_defined_has_every_verb_and_is_kept() {
        for noun in all().filter(|noun| has(*noun, "DEFINE")) {
            let word = noun.word();
            let mut paper = Paper::new();
            let initial = paper.definitions().clone();
            let define = noun.commands()[0].examples[0];
            let name = parse::statements(define)[0].as_ref().unwrap().name.stem.clone();
            done(define, &mut paper);
            assert!(noun.objects(paper.definitions()).any(|known| known.of(noun.sort()) == Some(&name)), "{define}");
            let again = execute(define, &mut paper);
            assert_ne!(show(&again, false, None).exit_code, EXIT_DONE, "{define}: it exists already");

            let before = paper.definitions().clone();
            done(&format!("ALTER {word}({name}) DESCR('quite another')"), &mut paper);
            let after = paper.definitions().clone();
            let shown = done(&format!("DISPLAY {word}(*) WHERE(DESCR EQ 'quite another')"), &mut paper);
            assert!(shown.contains(&name) && shown.contains("DESCR(quite another)"), "{shown}");
            assert!(
                !done(&format!("DISPLAY {word}({name}) WHERE(DESCR NE 'quite another')"), &mut paper).contains(&name)
            );
            let attributes = noun.commands()[0].attributes.iter();
            for attribute in attributes.filter(|attribute| noun.default_cell(attribute.key).is_some()) {
                let command = format!("DISPLAY {word}({name}) {}", attribute.keyword);
                // A switch is shown by its state alone.
                let after = if matches!(attribute.kind, Kind::Switch(_)) { "" } else { "(" };
                assert!(done(&command, &mut paper).contains(&format!("{}{after}", attribute.keyword)), "{command}");
                assert!(done(&format!("HELP DEFINE {word}"), &mut paper).contains(attribute.doc));
            }

            let text = after.text();
            assert!(text.contains(&format!("DEFINE {word}('{name}') +\n")), "{text}");
            let read = Definitions::from_text(&text, Path::new("objects.mqsc")).unwrap();
            assert_eq!(read, after, "{text}");
            let read = kept::from_records(&kept::records(&after).collect(), Path::new("journal")).unwrap();
            assert_eq!(read, after);
            let steps = difference::steps(&before, &after);
            assert_eq!(steps.len(), 1, "{steps:?}");
            assert_eq!(steps[0].command, format!("ALTER {word}('{name}') DESCR('quite another')"));

            let given = define.split_once(')').unwrap().1;
            let was = done(&format!("DISPLAY {word}({name}) ALL"), &mut paper);
            done(&format!("DELETE {word}({name})"), &mut paper);
            assert_eq!(*paper.definitions(), initial, "{word}");
            // LIKE takes over what the command does not give.
            done(define, &mut paper);
            done(&format!("ALTER {word}({name}) DESCR('quite another')"), &mut paper);
            let own = given.replacen("('", "('2.", 1);
            done(&format!("DEFINE {word}(COPY) LIKE({name}){own}"), &mut paper);
            assert_eq!(done(&format!("DISPLAY {word}({name}) ALL"), &mut paper), was);
            let taken_over = done(&format!("DISPLAY {word}(COPY) DESCR"), &mut paper).contains("DESCR(quite another)");
            assert_eq!(taken_over, !given.contains("DESCR("), "{word}");
        }
    }

    #[test]
    fn each_noun_that_is_set_is_shown_kept_and_taken_away() {
        for noun in all().filter(|noun| has(*noun, "SET")) {
            let word = noun.word();
            let mut paper = Paper::new();
            let initial = paper.definitions().clone();
            let set = noun.commands()[0].examples[0];
            let name = parse::statements(set)[0].as_ref().unwrap().name.stem.clone();
            done(set, &mut paper);
            let after = paper.definitions().clone();
            assert!(noun.objects(&after).any(|known| known.of(noun.sort()) == Some(&name)), "{set}");
            done(set, &mut paper);
            assert_eq!(*paper.definitions(), after, "{set}: as often as one likes");
            assert!(done(&format!("DISPLAY {word}('{name}')"), &mut paper).starts_with(&format!("{word}({name})")));
            for attribute in noun.commands()[0].attributes {
                assert!(done(&format!("HELP SET {word}"), &mut paper).contains(attribute.doc));
            }
            let text = after.text();
            assert!(text.contains(&format!("SET {word}('{name}')")), "{text}");
            assert_eq!(Definitions::from_text(&text, Path::new("objects.mqsc")).unwrap(), after, "{text}");
            let read = kept::from_records(&kept::records(&after).collect(), Path::new("journal")).unwrap();
            assert_eq!(read, after);
            for (from, to) in [(&initial, &after), (&after, &initial)] {
                let steps = difference::steps(from, to);
                assert_eq!(steps.len(), 1, "{steps:?}");
                done(&steps[0].command, &mut paper);
                assert_eq!(paper.definitions(), to, "{steps:?}");
            }
        }
    }

    /// What only a device of one TYPE has, and times that are read.
    const DEVICE_OF_ONE_TYPE: [&str; 12] = [
        "TYPE",
        "MODULE",
        "TOKEN",
        "PINFILE",
        "TIMEOUT",
        "SERVICE",
        "ADDRESS",
        "CAFILE",
        "CERTFILE",
        "TOKENFILE",
        "MOUNT",
        "NAMESPACE",
    ];

    /// Attributes of which any value makes sense only with others: what stands there instead, with the object's name.
    fn needed(noun: &str, name: &str) -> (&'static [&'static str], String) {
        match noun {
            "QALIAS" => (&[], "TARGET(T)".into()),
            "TOPIC" => (&["TOPICSTR"], format!("TOPICSTR('it''s/{name}')")),
            "SUB" => (
                &["TOPICSTR", "TOPICOBJ", "DEST", "DESTCLAS", "SELECTOR"],
                "TOPICSTR('a/#') DEST(D) SELECTOR('b = ''c''')".into(),
            ),
            "CHANNEL" => (
                &[
                    "CHLTYPE",
                    "CONNAME",
                    "MRRTY",
                    "MRTMR",
                    "MCAUSER",
                    "SPLPROT",
                    "SSLCIPH",
                    "SSLGROUPS",
                    "SSLPEER",
                    "SSLCAUTH",
                    "CERTLABL",
                    "PASSFILE",
                    "SOURCE",
                    "TARGET",
                ],
                "CHLTYPE(SDR) CONNAME('h') XMITQ(X)".into(),
            ),
            "POLICY" => (
                &["KEYREUSE", "WEAK", "KEYAWAY"],
                "SIGNALG(SHA256) ENCALG(AES256) RECIP('CN=a', 'CN=it''s') KEYAWAY('CN=it''s')".into(),
            ),
            "DEVICE" => (&DEVICE_OF_ONE_TYPE, "TYPE(MODELLED)".into()),
            "QSGROUP" => (
                &["SERVERS", "MONITORS", "CREDS", "CAFILE", "CERTFILE", "KEYFILE", "CONNAME"],
                "SERVERS('n1:4222,n2:4222') CONNAME('h:1') CREDS('/it''s')".into(),
            ),
            "ADDRMAP" => (&["QUEUE", "TOPIC"], format!("TOPIC('it''s/{name}')")),
            // Made for an application: never removed.
            "QLOCAL" => (&["DEFTYPE"], String::new()),
            _ => (&[], String::new()),
        }
    }

    /// An attribute with a value that it takes, as one would type it.
    fn given(attribute: &Attribute, random: &mut fastrand::Rng) -> Option<String> {
        const TEXTS: [&str; 5] = ["' '", "'it''s; + - * \"x\" é'", "' (lead'", "'a+'", "'X'"];
        let mut word = |choices: &[&str]| choices[random.usize(..choices.len())].to_owned();
        let value = match &attribute.kind {
            Kind::Switch(states) => return Some(word(states)),
            Kind::Word { choices, .. } => word(choices),
            Kind::Name { optional: false } => word(&["N", "'n/1'"]),
            Kind::Name { optional: true } => word(&["' '", "N", "'n/1'"]),
            Kind::Text { .. } => word(&TEXTS),
            Kind::Users { .. } => word(&["' '", "'u'", "'u', 'v.w'"]),
            Kind::Number { min, max } => {
                let between = random.u64(min..=max);
                [*min, *max, between][random.usize(..3)].to_string()
            }
            Kind::NumberOr { min, max, word } => match random.bool() {
                true => random.u64(min..=max).to_string(),
                false => (*word).to_owned(),
            },
            _ => return None,
        };
        Some(format!("{}({value})", attribute.keyword))
    }

    /// Objects of every noun with attributes of any value, and how many there are of each noun.
    fn any_definitions(random: &mut fastrand::Rng, made: &mut BTreeMap<&'static str, usize>) -> Definitions {
        let mut definitions = Definitions::initial("QM1");
        // No two queues have one name: each sort has its turn to be first.
        let mut nouns: Vec<_> = all().collect();
        random.shuffle(&mut nouns);
        for noun in nouns {
            for name in ["O", if noun.word() == "LIMIT" { "'o*'" } else { "'o/2'" }, "O.3", "O.4"]
                .into_iter()
                .filter(|_| random.bool())
                .collect::<Vec<_>>()
            {
                let (left_out, needed) = needed(noun.word(), name.trim_matches('\''));
                let attributes = noun.commands()[0].attributes.iter();
                let attributes = attributes.filter(|attribute| !left_out.contains(&attribute.keyword));
                let any = attributes.filter(|_| random.u8(..3) == 0).collect::<Vec<_>>();
                let any: Vec<String> = any.into_iter().filter_map(|attribute| given(attribute, random)).collect();
                let again =
                    |attribute: &&str| !any.iter().any(|any| any.split('(').next() == attribute.split('(').next());
                let needed = needed.split(' ').filter(again).collect::<Vec<_>>().join(" ");
                let verb = noun.commands()[0].verb;
                let command = format!("{verb} {}({name}) {needed} {}", noun.word(), any.join(" "));
                let statement = parse::statements(&command).remove(0).unwrap_or_else(|why| panic!("{command}: {why}"));
                if let Ok(change) = run::plan(&statement, &definitions) {
                    definitions.apply(&change);
                    *made.entry(noun.word()).or_default() += 1;
                }
            }
        }
        definitions
    }

    #[test]
    fn any_object_of_each_noun_is_read_back_and_the_steps_from_one_to_another_lead_there() {
        let mut random = fastrand::Rng::with_seed(15);
        let mut made = BTreeMap::new();
        let mut now = any_definitions(&mut random, &mut made);
        for _ in 0..80 {
            let wanted = any_definitions(&mut random, &mut made);
            let text = wanted.text();
            assert_eq!(Definitions::from_text(&text, Path::new("objects.mqsc")).unwrap(), wanted, "{text}");
            let read = kept::from_records(&kept::records(&wanted).collect(), Path::new("journal")).unwrap();
            assert_eq!(read, wanted);
            let mut reached = now.clone();
            for step in difference::steps(&now, &wanted) {
                for statement in parse::statements(&step.command) {
                    let statement = statement.unwrap_or_else(|why| panic!("{}: {why}", step.command));
                    let change = run::plan(&statement, &reached);
                    reached.apply(&change.unwrap_or_else(|failure| panic!("{}: {}", step.command, failure.message)));
                }
            }
            assert_eq!(reached.text(), text);
            now = wanted;
        }
        for noun in all() {
            assert!(made.get(noun.word()).is_some_and(|count| *count >= 20), "{made:?}");
        }
    }

    #[test]
    fn each_verb_says_by_the_same_reason_that_there_is_no_such_object() {
        for noun in all() {
            let reason = |verb: &str| {
                let replies = execute(&format!("{verb} {}(NONE)", noun.word()), &mut Paper::new());
                match &replies[0].outcome {
                    Outcome::Failed(failure) => failure.reason,
                    outcome => panic!("{verb} {}: {outcome:?}", noun.word()),
                }
            };
            let expected = reason("DISPLAY");
            assert!(expected.is_some());
            for verb in ["ALTER", "DELETE"].into_iter().filter(|verb| has(noun, verb)) {
                assert_eq!(reason(verb), expected, "{verb} {}", noun.word());
            }
        }
    }

    #[test]
    fn no_two_nouns_have_one_place_in_the_file() {
        let places: HashSet<usize> = super::kept().map(Kept::place).collect();
        assert_eq!(places.len(), super::kept().count());
    }

    /// The files of a folder, but for those of tests.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false if path.ends_with("tests.rs") => {}
                false => found.push(path),
            }
        }
    }

    /// How many lines of code name processes: the module, the type, or their map. Comments, texts and tests don't
    /// count.
    fn lines_that_name_processes(text: &str) -> usize {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let names = lines.filter(|line| {
            let code: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
            let mut words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            words.any(|word| word == "Process" || word == "processes")
                || ["mod process;", "process::"].iter().any(|module| code.contains(module))
        });
        names.count()
    }

    #[test]
    fn an_attribute_of_queues_stands_in_one_row_and_in_the_catalog() {
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
        let mut found = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
            let named = lines.filter(|(_, line)| line.contains("CAPEXPRY") || line.contains("expiry_cap_tenths"));
            found.extend(named.map(|(number, _)| (file.clone(), number)));
        }
        let lines: Vec<usize> = found.iter().map(|(_, number)| *number).collect();
        // The word; after what it takes, its default and its meaning, how it is read and written.
        assert_eq!(lines.iter().map(|line| line - lines[0]).collect::<Vec<_>>(), [0, 5, 6], "{found:?}");
        assert!(found.iter().all(|(file, _)| file.ends_with("nouns/local.rs")), "{found:?}");
    }

    #[test]
    fn a_noun_stands_in_its_own_files_and_in_the_lists() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for name in ["bulla-catalog", "bulla-mqsc"] {
            sources(&crates.join(name).join("src"), &mut files);
        }
        let own = |file: &&PathBuf| !file.ends_with("process.rs");
        let found: BTreeSet<(String, usize)> = files
            .iter()
            .filter(own)
            .map(|file| (file, lines_that_name_processes(&std::fs::read_to_string(file).unwrap())))
            .filter(|(_, lines)| *lines > 0)
            .map(|(file, lines)| (file.strip_prefix(&crates).unwrap().to_string_lossy().into_owned(), lines))
            .collect();
        let expected = [
            // The module, and its type outside of it; the row of the list.
            ("bulla-catalog/src/objects/mod.rs", 2),
            ("bulla-catalog/src/objects/sorts.rs", 1),
            // The attribute PROCESS of queues: a warning where it names none.
            ("bulla-mqsc/src/nouns/local.rs", 1),
            // The module, and the row of the list.
            ("bulla-mqsc/src/nouns/mod.rs", 2),
        ];
        let found: Vec<(&str, usize)> = found.iter().map(|(file, lines)| (file.as_str(), *lines)).collect();
        assert_eq!(found, expected);
    }
}
