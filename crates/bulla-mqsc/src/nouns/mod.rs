//! Nouns whose attributes are [`Field`]s: one file for each, in which everything stands that is peculiar to it, and one
//! line in the list here. What the verbs do is the same for all of them ([`Noun`]).

mod field;
mod noun;
mod process;
mod subscription;
mod topic;

use crate::table::{self, Command};
use bulla_catalog::Sort;
pub(crate) use field::{Field, attributes, joined};
pub(crate) use noun::{Noun, ObjectNoun, Rules, Said};
pub(crate) use subscription::managing;

/// Makes [`noun`] and the order of the reference page of one line for each noun. Between them stand the commands of the
/// other nouns, in arrays of the table.
macro_rules! nouns {
    ($($commands:ident then { $($sort:ident = $noun:path;)* })*) => {
        /// The noun for a sort of object.
        pub(crate) fn noun(sort: Sort) -> &'static dyn Noun {
            match sort {
                $($(Sort::$sort => &$noun,)*)*
            }
        }

        /// Commands, and the nouns that follow them on the reference page.
        const PARTS: &[(&[Command], &[Sort])] = &[$((table::$commands, &[$(Sort::$sort,)*]),)*];
    };
}

nouns! {
    COMMANDS_OF_QUEUES then {
        Process = process::PROCESS;
        Topic = topic::TOPIC;
        Subscription = subscription::SUBSCRIPTION;
    }
    OTHER_COMMANDS then {}
}

/// Every noun.
pub(crate) fn all() -> impl Iterator<Item = &'static dyn Noun> {
    Sort::ALL.iter().map(|sort| noun(*sort))
}

/// Every command of the language, in the order of the reference page.
pub(crate) fn commands() -> impl Iterator<Item = &'static Command> {
    PARTS
        .iter()
        .flat_map(|(commands, sorts)| commands.iter().chain(sorts.iter().flat_map(|sort| noun(*sort).commands())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::AsText;
    use crate::reply::{EXIT_DONE, Outcome, show};
    use crate::run::Administered;
    use crate::transcripts::Paper;
    use crate::{difference, execute, kept, parse};
    use bulla_catalog::Definitions;
    use std::collections::{BTreeSet, HashSet};
    use std::path::{Path, PathBuf};

    /// What a command shows; it is carried out.
    fn done(command: &str, paper: &mut Paper) -> String {
        let shown = show(&execute(command, paper), false, None);
        assert_eq!(shown.exit_code, EXIT_DONE, "{command}: {}", shown.stderr);
        shown.stdout
    }

    #[test]
    fn each_noun_of_the_list_has_every_verb_and_is_kept() {
        for noun in all() {
            let word = noun.word();
            let mut paper = Paper::new();
            let initial = paper.definitions().clone();
            let define = noun.commands()[0].examples[0];
            let name = parse::statements(define)[0].as_ref().unwrap().name.stem.clone();
            done(define, &mut paper);
            assert!(noun.names(paper.definitions()).any(|known| *known == name), "{define}");
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
            for attribute in noun.commands()[0].attributes {
                let command = format!("DISPLAY {word}({name}) {}", attribute.keyword);
                assert!(done(&command, &mut paper).contains(&format!("{}(", attribute.keyword)), "{command}");
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
            assert!(done(&format!("DISPLAY {word}(COPY) DESCR"), &mut paper).contains("DESCR(quite another)"));
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
            assert_eq!(["DISPLAY", "ALTER", "DELETE"].map(reason), [reason("DELETE"); 3], "{}", noun.word());
            assert!(reason("DELETE").is_some());
        }
    }

    #[test]
    fn no_two_nouns_have_one_place_in_the_file() {
        let places: HashSet<usize> = all().map(Noun::place).collect();
        assert_eq!(places.len(), all().count());
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, found),
                false => found.push(path),
            }
        }
    }

    /// Whether code names processes: the type, their map, or the noun in quotes. Comments, texts and tests don't count.
    fn names_processes(text: &str) -> bool {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
            let code: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
            let mut words = code.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            words.any(|word| word == "Process" || word == "processes")
        })
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
        assert!(found.iter().all(|(file, _)| file.ends_with("attributes/queue.rs")), "{found:?}");
    }

    #[test]
    fn a_noun_stands_in_its_own_files_and_in_the_lists() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for name in ["bulla-catalog", "bulla-mqsc"] {
            sources(&crates.join(name).join("src"), &mut files);
        }
        let found: BTreeSet<String> = files
            .iter()
            .filter(|file| names_processes(&std::fs::read_to_string(file).unwrap()))
            .map(|file| file.strip_prefix(&crates).unwrap().to_string_lossy().into_owned())
            .collect();
        let expected = [
            // What it is, and the list there.
            "bulla-catalog/src/objects/mod.rs",
            "bulla-catalog/src/objects/process.rs",
            "bulla-catalog/src/objects/sorts.rs",
            // Its words, and the list here.
            "bulla-mqsc/src/nouns/mod.rs",
            "bulla-mqsc/src/nouns/process.rs",
            // The attribute PROCESS of queues: a warning where it names none.
            "bulla-mqsc/src/run.rs",
        ];
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}
