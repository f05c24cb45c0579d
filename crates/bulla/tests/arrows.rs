//! Which parts of the program may know which: what the crates' dependencies don't settle, between folders and files.

#![allow(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Parts, and what names them although it must not. A part is a folder or a file of `src/`, without `.rs`.
const KNOWN_TO_NONE_BUT: &[(&str, &[&str])] = &[("cli", &["main"]), ("json_names", &["cli"])];

/// Parts that know nothing of dispatchers, channels, the queue manager as a whole, and what starts it.
const BELOW: &[&str] = &[
    "accounting",
    "activity",
    "admin",
    "arriving",
    "asker",
    "audit",
    "audit_log",
    "average",
    "clock",
    "connections",
    "cost_activity",
    "dead_letters",
    "devices",
    "folders",
    "json_names",
    "limits",
    "log",
    "log_lines",
    "maps",
    "message_groups",
    "ordered_line",
    "outgoing",
    "random",
    "report_options",
    "sign_in",
    "task",
    "task_activity",
    "tls",
    "traffic_activity",
    "traffic_history",
    "users",
    "wall_clock",
    "whole_file",
];

/// What they do not name.
const ABOVE: &[&str] = &["channel", "channel_ends", "cli", "core", "dispatcher", "manager", "serve", "turn"];

/// What the queue manager is made of. It knows no dispatcher and nothing that starts it.
const STATE: &[&str] = &[
    "adapter",
    "channel",
    "dynamic",
    "envelope",
    "events",
    "mailbox",
    "manager",
    "noted",
    "refusals",
    "resumable",
    "rights",
    "route",
    "topics",
    "triggering",
];

/// What it does not name.
const ABOVE_STATE: &[&str] = &["channel_ends", "cli", "core", "dispatcher", "serve", "turn"];

/// What a dispatcher's connections and their links are. The ends of channels and a dispatcher's turn use it; it does
/// not name them.
const CONNECTIONS: &[&str] = &["dispatcher"];

/// What it does not name.
const ABOVE_CONNECTIONS: &[&str] = &["channel_ends", "cli", "core", "serve", "turn"];

/// Most files that import one another in a circle. It only ever falls.
const CIRCLE_FILES_MAX: usize = 3;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_name().is_some_and(|name| name.to_string_lossy().contains("test"));
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            found.push(path);
        }
    }
}

/// The module of a file: `channel/sender.rs` is `channel`, `sender`; `tls/mod.rs` is `tls`.
fn module(file: &Path, root: &Path) -> Vec<String> {
    let below = file.strip_prefix(root).unwrap().with_extension("");
    let mut names: Vec<_> = below.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|last| last == "mod" || last == "lib") {
        names.pop();
    }
    names
}

/// The paths that a use declaration names: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn named(tree: &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let (path, group) = match tree.split_once('{') {
        Some((path, rest)) => (path.trim_end_matches("::"), rest.rsplit_once('}').map(|(inner, _)| inner)),
        None => (tree, None),
    };
    let path = path.split(" as ").next().unwrap_or(path);
    let mut whole = before.to_vec();
    whole.extend(path.split("::").map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
    let Some(group) = group else { return found.push(whole) };
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if let Some(part) = group.get(begin..at).map(str::trim).filter(|part| !part.is_empty()) {
                    named(part, &whole, found);
                }
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// What a file names of this crate, in `use` declarations and in paths that begin with `crate` or `super`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n");
    let mut found = Vec::new();
    for declaration in code.split("use ").skip(1) {
        if let Some((tree, _)) = declaration.split_once(';')
            && ["crate", "super", "self"].iter().any(|start| tree.starts_with(start))
        {
            named(tree, &[], &mut found);
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let rest = code.get(at..).unwrap_or_default();
            let end = rest
                .find(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':')
                .unwrap_or(rest.len());
            if rest.get(end..).is_some_and(|after| after.starts_with('{')) {
                continue; // the paths of a group were found above
            }
            let path = rest.get(..end).unwrap_or_default();
            found.push(path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect());
        }
    }
    found
}

/// Each file by its module, with the modules of other files that it names.
fn imports(root: &Path) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let mut files = Vec::new();
    sources(root, &mut files);
    let modules: BTreeSet<Vec<String>> = files.iter().map(|file| module(file, root)).collect();
    let of = |file: &PathBuf| {
        let me = module(file, root);
        let absolute = |path: Vec<String>| {
            let mut base = if path.first().is_some_and(|first| first == "crate") { Vec::new() } else { me.clone() };
            for name in path {
                match name.as_str() {
                    "crate" | "self" => {}
                    "super" => drop(base.pop()),
                    _ => base.push(name),
                }
            }
            base
        };
        let longest = |path: Vec<String>| {
            (1..=path.len())
                .rev()
                .filter_map(|length| path.get(..length))
                .find(|part| modules.contains(*part))
                .map(<[_]>::to_vec)
        };
        let named = paths(&fs::read_to_string(file).unwrap());
        let named: BTreeSet<_> =
            named.into_iter().map(absolute).filter_map(longest).filter(|found| *found != me).collect();
        (me, named)
    };
    files.iter().map(of).filter(|(me, _)| !me.is_empty()).collect()
}

/// The program's files.
fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The core's files.
fn core() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bulla-core/src")
}

fn part(module: &[String]) -> &str {
    module.first().map_or("", String::as_str)
}

#[test]
fn no_part_names_what_stands_above_it() {
    let mut wrong = Vec::new();
    let all = [program(), core()].map(|root| imports(&root));
    for (me, named) in all.into_iter().flatten() {
        for other in named {
            let (from, to) = (part(&me), part(&other));
            let hidden =
                KNOWN_TO_NONE_BUT.iter().any(|(hidden, users)| *hidden == to && from != to && !users.contains(&from));
            let layers = [(BELOW, ABOVE), (STATE, ABOVE_STATE), (CONNECTIONS, ABOVE_CONNECTIONS)];
            let above = layers.iter().any(|(below, above)| below.contains(&from) && above.contains(&to));
            if hidden || above {
                wrong.push(format!("{} names {}", me.join("/"), other.join("/")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_folders_name_one_another_in_a_circle() {
    for root in [program(), core()] {
        // `envelope.rs` lies beside the folder of its parts, not in it.
        let folder = |module: &[String]| {
            let is_in_one = module.len() > 1 || root.join(part(module)).join("mod.rs").exists();
            is_in_one.then(|| vec![part(module).to_owned()])
        };
        let mut folders: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
        for (me, named) in imports(&root) {
            let Some(from) = folder(&me) else { continue };
            let others = named.iter().filter_map(|other| folder(other)).filter(|other| *other != from);
            folders.entry(from.clone()).or_default().extend(others);
        }
        let circle = largest_circle(&folders);
        assert!(circle.is_empty(), "of {}: {circle:?}", root.display());
    }
}

/// Whether a `use` of the AMQP engine brings its connection.
fn imports_connection(text: &str) -> bool {
    let uses = text.split("use bulla_amqp::{").skip(1).filter_map(|rest| rest.split('}').next());
    uses.flat_map(|names| names.split(',')).any(|name| name.trim() == "Connection")
}

#[test]
fn the_core_names_neither_sockets_nor_the_connection_of_a_protocol() {
    let root = core();
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in &files {
        let me = module(file, &root).join("/");
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words: BTreeSet<&str> =
            code.flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_')).collect();
        let sockets = ["mio", "TcpStream", "TcpListener"].iter();
        wrong.extend(sockets.filter(|name| words.contains(**name)).map(|name| format!("{me} names {name}")));
        if text.contains("bulla_amqp::Connection") || imports_connection(text) {
            wrong.push(format!("{me} names an AMQP connection"));
        }
    }
    assert!(files.len() > 100, "{} files are looked at", files.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_that_import_one_another_become_fewer() {
    for all in [imports(&program()), imports(&core())] {
        assert!(all.len() > 70, "{} files are looked at", all.len());
        let largest = largest_circle(&all);
        assert!(largest.len() <= CIRCLE_FILES_MAX, "{} files import one another: {largest:?}", largest.len());
    }
}

/// The most files that import one another.
fn largest_circle(imports: &BTreeMap<Vec<String>, BTreeSet<Vec<String>>>) -> BTreeSet<String> {
    let reached_from = |start: &Vec<String>| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(one) = next.pop() {
            next.extend(imports.get(one).into_iter().flatten().filter(|other| reached.insert((*other).clone())));
        }
        reached
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|module| (module, reached_from(module))).collect();
    let circle_of = |module: &Vec<String>| -> BTreeSet<String> {
        let others =
            reached[module].iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(module)));
        others.map(|other| other.join("/")).collect()
    };
    imports.keys().map(circle_of).max_by_key(BTreeSet::len).unwrap()
}
