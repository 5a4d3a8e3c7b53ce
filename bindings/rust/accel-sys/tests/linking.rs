// SPDX-License-Identifier: Apache-2.0
//! What the build script finds, and what it says where nothing is.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("accel linking {name} {}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A file with its folders.
    fn add(&self, name: &str, content: &str) -> PathBuf {
        let file = self.0.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Script {
    program: PathBuf,
    folder: Folder,
}

impl Script {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let program = folder.0.join("script");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
        let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(compiler);
        command.env("CARGO_PKG_VERSION", "0.1.0").args(["--edition=2021", "-o"]).args([&program, &source]);
        assert!(command.status().unwrap().success());
        Script { program, folder }
    }

    /// With an empty folder where pkg-config and python3 look.
    fn run(&self, settings: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(&self.program);
        for name in ["LIBACCEL", "PKG_CONFIG_PATH", "PYTHONPATH", "CARGO_FEATURE_LINKED", "DOCS_RS"] {
            command.env_remove(name);
        }
        command.env("PKG_CONFIG_LIBDIR", &self.folder.0).env("PYTHONNOUSERSITE", "1");
        command.env("OUT_DIR", self.folder.0.join("out")).envs(settings.iter().copied()).output().unwrap()
    }

    /// The file that it names for the program.
    fn found(&self, settings: &[(&str, &Path)]) -> PathBuf {
        let output = self.run(settings);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{said}{}", text(&output.stderr));
        let line = said.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=ACCEL_FOUND_LIBRARY="));
        PathBuf::from(line.unwrap_or_default())
    }
}

#[test]
fn the_build_finds_the_library_where_the_page_says() {
    let script = Script::new("found");
    let prefix = Folder::new("prefix");
    let file = prefix.add("lib/libaccel.so.0.1", "");
    let header = prefix.add("include/accel.h", "");
    // An archive or installation, the folder, the file.
    let script_of_linker = prefix.add("lib/libaccel.so", "INPUT(libaccel.so.0.1)");
    for place in [&prefix.0, &prefix.0.join("lib"), &file, &script_of_linker] {
        assert_eq!(script.found(&[("LIBACCEL", place)]), file, "{place:?}");
    }
    // What dependents get.
    let said = text(&script.run(&[("LIBACCEL", &prefix.0)]).stdout);
    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        format!("cargo:lib={}", file.parent().unwrap().display()),
        format!("cargo:include={}", header.parent().unwrap().display()),
    ];
    assert!(
        expected.iter().all(|line| lines.contains(&line.as_str())) && lines.contains(&"cargo:version=0.1.0"),
        "{said}"
    );

    // The wheel, which is not imported, comes before pkg-config.
    let wheel = Folder::new("wheel");
    wheel.add("accel/__init__.py", "raise SystemExit('imported')");
    let in_wheel = wheel.add("accel/lib/libaccel.so.0.1", "");
    let installed = Folder::new("installed");
    let description = "libdir=${pcfiledir}/lib\nName: accel\nDescription: -\nVersion: 0.1.0\n";
    installed.add("accel.pc", description);
    let in_installation = installed.add("lib/libaccel.so", "");
    if Command::new("python3").arg("--version").output().is_ok() {
        let both = [("PYTHONPATH", wheel.0.as_path()), ("PKG_CONFIG_PATH", installed.0.as_path())];
        assert_eq!(script.found(&both), in_wheel);
    }
    if Command::new("pkg-config").arg("--version").output().is_ok() {
        assert_eq!(script.found(&[("PKG_CONFIG_PATH", &installed.0)]), in_installation);
    }
}

#[test]
fn without_the_library_only_linking_fails() {
    let script = Script::new("missing");
    let (empty, one) = (Folder::new("empty"), Path::new("1"));
    assert!(script.run(&[]).status.success() && script.run(&[("LIBACCEL", &empty.0)]).status.success());
    assert!(script.run(&[("CARGO_FEATURE_LINKED", one), ("DOCS_RS", one)]).status.success());

    let output = script.run(&[("CARGO_FEATURE_LINKED", one)]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("install its wheel") && said.contains("LIBACCEL"), "{said}");
    let output = script.run(&[("CARGO_FEATURE_LINKED", one), ("LIBACCEL", &empty.0)]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains(empty.0.to_str().unwrap()), "{said}");
}
