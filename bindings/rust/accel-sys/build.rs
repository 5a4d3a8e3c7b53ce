// SPDX-License-Identifier: Apache-2.0
//! Finds libaccel, for the feature `linked` and as the program's first guess otherwise: where `$LIBACCEL` says, else in the wheel of
//! python3, else where pkg-config says. Without the feature it never fails, because the program looks again when it runs.
use std::path::{Path, PathBuf};
use std::process::{exit, Command};
use std::{env, fs};

#[path = "src/find.rs"]
mod find;
#[path = "src/libtorch.rs"]
#[allow(dead_code)] // what only programs need
mod libtorch;

fn main() {
    for name in ["LIBACCEL", "PKG_CONFIG_PATH", "VIRTUAL_ENV"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let is_linked = env::var_os("CARGO_FEATURE_LINKED").is_some();
    match library() {
        Ok(file) => {
            describe(&file);
            if is_linked {
                link(&file);
            }
        }
        // Documentation is built where nothing is installed, with all features.
        Err(reason) if is_linked && env::var_os("DOCS_RS").is_none() => {
            eprintln!("error: {reason}");
            exit(1);
        }
        Err(_) => {}
    }
}

fn library() -> Result<PathBuf, String> {
    if let Some(file) = find::named() {
        return file;
    }
    let missing = "libaccel was not found: install its wheel, or set LIBACCEL to an unpacked archive or an installation of it, \
                   or PKG_CONFIG_PATH to the folder of its accel.pc; without the feature `linked` the program looks when it runs";
    find::in_wheel().or_else(installed).ok_or_else(|| missing.into())
}

fn installed() -> Option<PathBuf> {
    let output = Command::new("pkg-config").args(["--variable=libdir", "accel"]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    // It puts a backslash before a blank.
    let folder = folder.trim().replace('\\', "");
    output.status.success().then(|| find::in_place(Path::new(&folder))).flatten()
}

/// What the crate remembers, and what the build scripts of dependents get as `DEP_ACCEL_...`.
fn describe(file: &Path) {
    let folder = file.parent().unwrap_or(Path::new("/"));
    println!("cargo:rustc-env=ACCEL_FOUND_LIBRARY={}", file.display());
    println!("cargo:rerun-if-changed={}", file.display());
    println!("cargo:lib={}\ncargo:version={}", folder.display(), env!("CARGO_PKG_VERSION"));
    let include = folder.ancestors().skip(1).take(2).map(|prefix| prefix.join("include"));
    if let Some(include) = include.into_iter().find(|include| include.join("accel.h").is_file()) {
        println!("cargo:include={}", include.display());
    }
}

/// Cargo gives programs that it starts those folders for the dynamic linker which are in its target folder. So there are links in
/// one: to the library and what lies beside it, and to LibTorch.
fn link(file: &Path) {
    let links = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("lib");
    let _ = fs::remove_dir_all(&links);
    fs::create_dir_all(&links).unwrap_or_else(|error| fail(&links, &error));
    let add = |target: &Path, name: &str| {
        let place = links.join(name);
        if !place.exists() {
            std::os::unix::fs::symlink(target, &place).unwrap_or_else(|error| fail(&place, &error));
        }
    };
    let folder = file.parent().unwrap_or(Path::new("/"));
    add(file, "libaccel.so");
    add(file, "libaccel.so.0.1");
    for name in ["accel", "torch"].iter().filter(|name| folder.join(name).is_dir()) {
        add(&folder.join(name), name);
    }
    for found in libtorch::find().iter().flat_map(|torch| fs::read_dir(torch.join("lib"))).flatten().flatten() {
        match found.file_name().to_str() {
            Some(name) if name.contains(".so") => add(&found.path(), name),
            _ => {}
        }
    }
    println!("cargo:rustc-link-lib=dylib=accel\ncargo:rustc-link-search=native={}", links.display());
}

fn fail(place: &Path, error: &std::io::Error) -> ! {
    eprintln!("error: {}: {error}", place.display());
    exit(1)
}
