//! What the README of the bindings says about a first program: its commands, its source, and what it prints.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What stands between two texts.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let text = text.split_once(before).unwrap_or_else(|| panic!("no {before:?}")).1;
    text.split_once(after).unwrap_or_else(|| panic!("no {after:?}")).0
}

fn run(line: &str, folder: &Path) -> String {
    // The program has a target folder of its own, as at its reader's.
    let mut shell = Command::new("sh");
    shell.args(["-ec", line]).current_dir(folder).env_remove("CARGO_TARGET_DIR").env("CARGO_NET_OFFLINE", "true");
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_first_program_comes_from_nothing() {
    if env::var_os("ACCEL_LIB_DIR").is_none() {
        return eprintln!("skipped: the README names the launcher by $ACCEL_LIB_DIR");
    }
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    let readme = fs::read_to_string(root.join("bindings/rust/README.md")).unwrap();
    let folder = Folder(env::temp_dir().join(format!("accel_rust_readme_{}", std::process::id())));
    fs::create_dir_all(folder.0.join(".cargo")).unwrap();
    std::os::unix::fs::symlink(root.join("bindings"), folder.0.join("bindings")).unwrap();
    let crates = root.join("build/deps/crates");
    if crates.is_dir() {
        let settings = format!(
            "[source.crates-io]\nreplace-with = 'vendored'\n[source.vendored]\ndirectory = {:?}\n",
            crates.display().to_string()
        );
        fs::write(folder.0.join(".cargo/config.toml"), settings).unwrap();
    }

    let make = between(&readme, "\ncargo new", "\n```");
    run(&format!("cargo new{make}"), &folder.0);
    let program = folder.0.join("hello");
    fs::write(program.join("src/main.rs"), between(&readme, "`src/main.rs`:\n\n```rust\n", "```")).unwrap();
    let (launch, expected) = between(&readme, "\ncargo build && ", "\n```").split_once('\n').unwrap();
    assert_eq!(run(&format!("cargo build --quiet && {launch}"), &program).trim_end(), expected);
}
