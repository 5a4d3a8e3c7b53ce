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

/// With the library and its launcher as after an installation.
fn run(line: &str, folder: &Path, library: &Path) -> String {
    let path = format!("{}:{}", library.join("cli").display(), env::var("PATH").unwrap());
    // The program has a target folder of its own, as at its reader's.
    let mut shell = Command::new("sh");
    shell.args(["-ec", line]).current_dir(folder).env_remove("CARGO_TARGET_DIR").env_remove("LD_LIBRARY_PATH");
    let source = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    shell.env("CARGO_NET_OFFLINE", "true").env("ACCEL_SOURCE", source).env("PATH", path);
    let output = shell.output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A new package whose only crates are those of this repository and the vendored ones.
fn package(folder: &Path, root: &Path, library: &Path, add: &str) -> PathBuf {
    fs::create_dir_all(folder.join(".cargo")).unwrap();
    let crates = root.join("build/deps/crates");
    if crates.is_dir() {
        let settings = format!(
            "[source.crates-io]\nreplace-with = 'vendored'\n[source.vendored]\ndirectory = {:?}\n",
            crates.display().to_string()
        );
        fs::write(folder.join(".cargo/config.toml"), settings).unwrap();
    }
    run("cargo new --quiet hello", folder, library);
    let program = folder.join("hello");
    run(&add.replace("cargo add", "cargo add --quiet"), &program, library);
    program
}

fn places() -> Option<(PathBuf, PathBuf, String)> {
    let library = PathBuf::from(env::var_os("LIBACCEL")?);
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    let readme = fs::read_to_string(root.join("bindings/rust/accel/README.md")).unwrap();
    Some((root, library, readme))
}

#[test]
fn the_first_program_comes_from_nothing() {
    let (root, library, readme) = match places() {
        Some(places) => places,
        None => return eprintln!("skipped: LIBACCEL is not set to the folder of the library"),
    };
    let folder = Folder(env::temp_dir().join(format!("accel_rust_readme_{}", std::process::id())));
    let add = format!("cargo add{}", between(&readme, "\ncargo add", "\n"));
    let program = package(&folder.0, &root, &library, &add);
    fs::write(program.join("src/main.rs"), between(&readme, "of `cargo new hello`:\n\n```rust\n", "```")).unwrap();
    let (launch, expected) = between(&readme, "\ncargo build && ", "\n```").split_once('\n').unwrap();
    assert_eq!(run(&format!("cargo build --quiet && {launch}"), &program, &library).trim_end(), expected);
    assert_eq!(run("cargo run --quiet", &program, &library).trim_end(), "ranks: [0]");
}

/// Under `cargo run`, and started by itself with the run path of its build script.
#[test]
fn a_linked_program_finds_the_library() {
    let (root, library, readme) = match places() {
        Some(places) => places,
        None => return eprintln!("skipped: LIBACCEL is not set to the folder of the library"),
    };
    let folder = Folder(env::temp_dir().join(format!("accel_rust_linked_{}", std::process::id())));
    let add = format!(
        "cargo add --path $ACCEL_SOURCE/bindings/rust/accel --features linked{}",
        between(&readme, "\ncargo add --path $ACCEL_SOURCE/bindings/rust/accel --features linked", "\n```")
    );
    let program = package(&folder.0, &root, &library, &add);
    let source = "fn main() { println!(\"{:?}\", accel::version().unwrap()) }";
    fs::write(program.join("src/main.rs"), source).unwrap();
    assert_eq!(run("cargo run --quiet", &program, &library).trim_end(), "(0, 1, 0)");
    assert_eq!(run("target/debug/hello", &program, &library).trim_end(), "(0, 1, 0)");
    fs::remove_file(program.join("build.rs")).unwrap();
    assert_eq!(run("cargo run --quiet", &program, &library).trim_end(), "(0, 1, 0)");
    let source = format!("{source}\n#[test]\nfn one() {{ accel::Tensor::scalar(1.0f32).unwrap(); }}");
    fs::write(program.join("src/main.rs"), source).unwrap();
    assert!(run("cargo test --quiet", &program, &library).contains("1 passed"));
}
