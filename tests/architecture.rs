//! Holds the picture of `ARCHITECTURE.md` true: which folder may import which, where `unsafe` may
//! stand, and who may name glommio. It reads the sources; the checker is itself tested below.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders of `src`, lowest first. Each may import those before it, but for the rows below.
const LAYERS: [&str; 16] = [
    "base",
    "config",
    "observability",
    "security",
    "protocol",
    "io",
    "net",
    "storage",
    "cluster",
    "partition",
    "coordinator",
    "shard",
    "broker",
    "admin",
    "client",
    "cli",
];

/// Folders that see less than all below them.
const NARROWER: [(&str, &[&str]); 4] = [
    (
        "net",
        &[
            "base",
            "config",
            "observability",
            "security",
            "protocol",
            "io",
        ],
    ),
    ("coordinator", &["base", "protocol"]),
    (
        "admin",
        &[
            "base",
            "config",
            "observability",
            "security",
            "protocol",
            "cluster",
            "shard",
        ],
    ),
    ("client", &["base", "config", "protocol"]),
];

const UNSAFE_IN: [&str; 1] = ["io"];
const GLOMMIO_IN: [&str; 2] = ["io", "shard"];

fn may_import(from: &str, to: &str) -> bool {
    if from == to {
        return true;
    }
    if let Some((_, allowed)) = NARROWER.iter().find(|(folder, _)| *folder == from) {
        return allowed.contains(&to);
    }
    let rank = |folder| LAYERS.iter().position(|layer| *layer == folder);
    matches!((rank(from), rank(to)), (Some(from), Some(to)) if to < from)
}

/// What is wrong with one file; `path` is relative to `src`.
fn violations(path: &str, source: &str) -> Vec<String> {
    let Some((folder, _)) = path.split_once('/') else {
        return top_level_violations(path, source);
    };
    let mut found = Vec::new();
    if !LAYERS.contains(&folder) {
        found.push(format!(
            "{path}: the folder {folder} has no layer in this test"
        ));
    }
    let tokens = tokens(source);
    for (line, to) in crate_paths(&tokens) {
        // A macro or an item of lib.rs itself is no folder.
        if LAYERS.contains(&to) && !may_import(folder, to) {
            found.push(format!("{path}:{line}: {folder} may not import {to}"));
        }
    }
    for token in &tokens {
        let line = token.line;
        if token.text == "unsafe" && !UNSAFE_IN.contains(&folder) {
            found.push(format!("{path}:{line}: unsafe outside {UNSAFE_IN:?}"));
        }
        // Unit tests may start an executor of their own.
        let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
        if token.text == "glommio" && !is_test && !GLOMMIO_IN.contains(&folder) {
            found.push(format!("{path}:{line}: glommio outside {GLOMMIO_IN:?}"));
        }
    }
    found
}

/// `lib.rs` lists the modules, `main.rs` calls the command line; neither holds code of its own.
fn top_level_violations(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    if path != "lib.rs" && path != "main.rs" {
        found.push(format!(
            "{path}: only lib.rs and main.rs stand beside the folders"
        ));
    }
    for token in tokens(source) {
        if token.text == "unsafe" || token.text == "glommio" {
            found.push(format!("{path}:{}: {}", token.line, token.text));
        }
    }
    found
}

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Words and single characters, without comments, strings and character literals.
fn tokens(source: &str) -> Vec<Token<'_>> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = string(rest) {
            length
        } else if rest.starts_with('\'') {
            character(rest)
        } else if is_word(bytes[at]) {
            let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
            tokens.push(Token {
                text: &rest[..length],
                line,
            });
            length
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            if !bytes[at].is_ascii_whitespace() {
                tokens.push(Token {
                    text: &rest[..length],
                    line,
                });
            }
            length
        };
        line += rest[..skipped].matches('\n').count();
        at += skipped;
    }
    tokens
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest.as_bytes()[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.as_bytes()[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the string literal that begins here: plain, byte, C, or raw.
fn string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(*prefix);
        after.is_some_and(|it| it.starts_with('"') || prefix.ends_with('r') && it.starts_with('#'))
    })?;
    let mut body = &rest[prefix.len()..];
    let hashes = body.len() - body.trim_start_matches('#').len();
    body = body[hashes..].strip_prefix('"')?;
    let opened = prefix.len() + hashes + 1;
    if prefix.ends_with('r') {
        let close = format!("\"{}", "#".repeat(hashes));
        return Some(opened + body.find(&close).map_or(body.len(), |it| it + close.len()));
    }
    let mut escaped = false;
    for (index, byte) in body.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(opened + index + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// A character literal, or the tick of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[2..]
            .bytes()
            .skip(1)
            .position(|it| it == b'\'')
            .map_or(rest.len(), |it| it + 4),
        Some(_) => match chars.next() {
            Some((end, '\'')) => end + 1,
            _ => 1,
        },
        None => 1,
    }
}

/// The folder names right behind each `crate::`, groups included, with their lines.
fn crate_paths<'a>(tokens: &[Token<'a>]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let colons = |at: usize| tokens.get(at).is_some_and(|it| it.text == ":");
        if token.text != "crate" || !colons(index + 1) || !colons(index + 2) {
            continue;
        }
        match tokens.get(index + 3) {
            Some(next) if next.text == "{" => found.extend(group_heads(&tokens[index + 4..])),
            Some(next) => found.push((next.line, next.text)),
            None => {}
        }
    }
    found
}

/// The first word of each branch of a `{…}` group.
fn group_heads<'a>(tokens: &[Token<'a>]) -> Vec<(usize, &'a str)> {
    let mut heads = Vec::new();
    let mut depth = 1;
    let mut at_head = true;
    for token in tokens {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => at_head = true,
            word if at_head => {
                heads.push((token.line, word));
                at_head = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn imports_point_downward_and_unsafe_stays_in_io() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = sources(&root);
    assert!(files.len() > 15, "only {} files were read", files.len());
    let mut found = Vec::new();
    for file in files {
        let path = file.strip_prefix(&root).expect("below src");
        let path = path.to_str().expect("a path in UTF-8");
        let source = fs::read_to_string(&file).expect("a source file");
        found.extend(violations(path, &source));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_library_denies_unsafe_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let source = fs::read_to_string(path).expect("src/lib.rs");
    assert!(source.contains("#![deny(unsafe_code)]"));
}

#[test]
fn planted_violations_are_found() {
    let rows = [
        ("storage/log.rs", "use crate::broker::Handler;"),
        ("storage/log.rs", "use crate::{base::Offset, broker};"),
        (
            "storage/log.rs",
            "use crate::{\n    base::{Offset, NodeId},\n    shard::{self, x},\n};",
        ),
        (
            "base/ids.rs",
            "fn f() -> crate::config::Settings { todo!() }",
        ),
        ("net/connection.rs", "use crate::storage::Log;"),
        ("partition/state.rs", "use crate::shard::Mailbox;"),
        ("coordinator/group.rs", "use crate::storage::Log;"),
        ("client/outbound.rs", "use crate::broker::Table;"),
        ("admin/http.rs", "use crate::storage::Log;"),
        (
            "shard/router.rs",
            "pub(crate) use crate :: broker :: dispatch;",
        ),
        ("storage/log.rs", "fn f() { unsafe { g() } }"),
        ("broker/dispatch.rs", "use glommio::spawn_local;"),
        (
            "net/listener.rs",
            "let s = glommio::net::TcpListener::bind(a);",
        ),
        ("unheard/of.rs", "fn f() {}"),
        ("stray.rs", "fn f() {}"),
        ("main.rs", "fn main() { unsafe { f() } }"),
        (
            "storage/log.rs",
            "let a = '\\''; let b = \"\\\"\"; use crate::cli::run;",
        ),
        (
            "storage/log.rs",
            "let r = r#\"quote \" inside\"#; use crate::cli::run;",
        ),
        (
            "storage/log.rs",
            "fn f<'a>(x: &'a str) {} use crate::cli::run;",
        ),
    ];
    for (path, source) in rows {
        let found = violations(path, source);
        assert_eq!(found.len(), 1, "{path}: {source}: {found:?}");
    }
}

#[test]
fn what_is_allowed_is_not_reported() {
    let rows = [
        (
            "storage/log.rs",
            "use crate::io::disk::Disk; use crate::{base::Offset, config};",
        ),
        ("storage/log.rs", "use crate::storage::index;"),
        (
            "storage/log.rs",
            "// use crate::broker::Handler; unsafe, glommio",
        ),
        (
            "storage/log.rs",
            "/* crate::broker /* nested */ unsafe */ fn f() {}",
        ),
        ("storage/log.rs", "/// See [`crate::shard`].\nfn f() {}"),
        (
            "storage/log.rs",
            "let text = \"crate::broker unsafe glommio\";",
        ),
        (
            "storage/log.rs",
            "let text = r#\"crate::broker \"unsafe\"#;",
        ),
        ("storage/log.rs", "pub(crate) fn f() {}"),
        (
            "io/splice.rs",
            "#![allow(unsafe_code)] fn f() { unsafe { g() } } use glommio::x;",
        ),
        (
            "shard/executor.rs",
            "use glommio::LocalExecutorBuilder; use crate::partition::P;",
        ),
        (
            "cli/serve.rs",
            "use crate::{admin, broker, client, shard, storage};",
        ),
        ("storage/log/tests/real.rs", "use glommio::LocalExecutor;"),
        (
            "broker/dispatch.rs",
            "use crate::{shard::Mailbox, net::Frame, cluster::Image};",
        ),
        ("lib.rs", "#![deny(unsafe_code)] pub mod base;"),
    ];
    for (path, source) in rows {
        assert_eq!(violations(path, source), Vec::<String>::new(), "{source}");
    }
}
