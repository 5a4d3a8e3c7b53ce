// SPDX-License-Identifier: Apache-2.0
//! What the sources must have: a reason for each `unsafe`, and files that do not use each other in a circle.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// All sources below a folder, as one text a file.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(sources(&path));
        } else {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
    texts
}

/// Whether a block or implementation is nothing but a call of the C API.
fn is_plain_call(code: &str) -> bool {
    let inside = code.split_once('{').map_or("", |(_, inside)| inside).trim_start().trim_start_matches('&');
    let called = inside.trim_start_matches("text(");
    called.starts_with("sys::") || called.starts_with("accel_sys::")
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let (mut silent, mut seen) = (Vec::new(), 0);
    for text in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap();
            let is_block = code.contains("unsafe {") || code.contains("unsafe impl");
            if !is_block {
                continue;
            }
            seen += 1;
            let near = lines[index..lines.len().min(index + 3)].join("\n");
            let from = near.find("unsafe").unwrap();
            let reasons = &lines[index.saturating_sub(4)..=index];
            if !is_plain_call(&near[from..]) && !reasons.iter().any(|line| line.contains("// SAFETY: ")) {
                silent.push(line.to_string());
            }
        }
    }
    assert!(seen > 300, "{seen} blocks: are the sources there?");
    assert!(silent.is_empty(), "without `// SAFETY: `: {silent:#?}");
}

/// `let ... else` came with Rust 1.65.
// Regression: the Rust crate claimed Rust 1.63, and used what came with 1.65.
#[test]
fn sources_are_of_the_oldest_rust_that_is_promised() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests", "../accel-sys/src", "../accel-derive/src"].map(|folder| sources(&root.join(folder)));
    let lines: Vec<String> = folders.concat().iter().flat_map(|text| text.lines().map(String::from)).collect();
    assert!(lines.len() > 10_000, "{} lines: are the sources there?", lines.len());
    let is_new =
        |line: &&String| line.trim_start().starts_with("let ") && line.contains(" else {") && !line.contains("= if ");
    let found: Vec<_> = lines.iter().filter(|line| is_new(line) && !line.contains("| if ")).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// The modules of the crate that a source names; words in comments do not count.
fn used_by(text: &str) -> Vec<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let names = code.split("crate::").skip(1);
    names.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect()
}

/// Whether `from` leads to `to`.
fn leads(uses: &BTreeMap<String, Vec<String>>, from: &str, to: &str, seen: &mut Vec<String>) -> bool {
    uses[from].iter().filter(|next| uses.contains_key(*next) && *next != from).any(|next| {
        next == to
            || !seen.contains(next) && {
                seen.push(next.clone());
                leads(uses, next, to, seen)
            }
    })
}

#[test]
fn files_do_not_use_each_other_in_a_circle() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let mut uses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let texts = if path.is_dir() { sources(&path) } else { vec![fs::read_to_string(&path).unwrap()] };
        uses.entry(name).or_default().extend(texts.iter().flat_map(|text| used_by(text)));
    }
    uses.remove("lib");
    assert!(uses.len() > 30 && uses["tensor"].contains(&"memory".to_string()), "{uses:?}");
    let circles: Vec<&String> = uses.keys().filter(|name| leads(&uses, name, name, &mut Vec::new())).collect();
    assert!(circles.is_empty(), "in circles: {circles:?}");
}
