//! What is said where the libraries are not, when a program is built, and when a linked one starts.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("accel_linking_{name}_{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
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

#[test]
fn the_build_says_where_it_looked_for_libaccel() {
    let folder = Folder::new("build");
    let script = folder.0.join("script");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    assert!(Command::new(compiler).args(["--edition=2021", "-o"]).args([&script, &source]).status().unwrap().success());
    let run = |settings: &[(&str, &Path)]| -> Output {
        let mut command = Command::new(&script);
        command.env_remove("ACCEL_LIB_DIR").env_remove("CARGO_FEATURE_DLOPEN").env("PKG_CONFIG_LIBDIR", &folder.0);
        command.env_remove("PKG_CONFIG_PATH").envs(settings.iter().copied()).output().unwrap()
    };

    let output = run(&[("ACCEL_LIB_DIR", &folder.0)]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("ACCEL_LIB_DIR") && said.contains("libaccel.so"), "{said}");
    let output = run(&[]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("accel.pc") && said.contains("dlopen"), "{said}");

    fs::write(folder.0.join("libaccel.so"), "").unwrap();
    let found = format!("cargo:rustc-link-search=native={}\n", folder.0.display());
    assert!(text(&run(&[("ACCEL_LIB_DIR", &folder.0)]).stdout).ends_with(&found));
    let installed = Folder::new("pkg-config");
    let description = format!("libdir={}\nName: accel\nDescription: -\nVersion: 0.1.0\n", folder.0.display());
    fs::write(installed.0.join("accel.pc"), description).unwrap();
    if Command::new("pkg-config").arg("--version").output().is_ok() {
        assert!(text(&run(&[("PKG_CONFIG_PATH", &installed.0)]).stdout).ends_with(&found));
    }
    assert!(run(&[("CARGO_FEATURE_DLOPEN", Path::new("1"))]).status.success());
}

/// `$LD_LIBRARY_PATH` comes before the path that libaccel has of its LibTorch.
#[cfg(not(feature = "dlopen"))]
#[test]
fn a_linked_program_takes_libtorch_from_the_path_of_the_dynamic_linker() {
    let folder = Folder::new("start");
    let start = |torch: &Path| {
        let paths = [Some(torch.into()), env::var_os("LD_LIBRARY_PATH").map(PathBuf::from)];
        let paths: Vec<String> = paths.iter().flatten().map(|path| path.display().to_string()).collect();
        // This program, which does nothing but to start.
        let program = env::current_exe().unwrap();
        Command::new(program).arg("--list").env("LD_LIBRARY_PATH", paths.join(":")).output().unwrap()
    };
    let wrong = folder.0.join("libtorch_cpu.so");
    fs::write(&wrong, "no library").unwrap();
    let output = start(&folder.0);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains(wrong.to_str().unwrap()), "{said}");
    let torch = accel_sys::libtorch::find().expect("a LibTorch");
    assert!(start(&torch.join("lib")).status.success());
    // Without this the linker would leave libaccel out of a program that calls nothing of it.
    assert_eq!(unsafe { accel_sys::accel_debug_live_objects() }, 0);
}
