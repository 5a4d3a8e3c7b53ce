//! Finds libaccel: in `$ACCEL_LIB_DIR` if that is set, else where pkg-config says. It has the path of its LibTorch itself.
use std::env;
use std::path::Path;
use std::process::{exit, Command};

fn main() {
    for name in ["ACCEL_LIB_DIR", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_DLOPEN").is_some() {
        return; // the loader looks for both when the program runs
    }
    match library_folder() {
        Ok(folder) => println!("cargo:rustc-link-lib=dylib=accel\ncargo:rustc-link-search=native={folder}"),
        Err(reason) => {
            eprintln!("error: {reason}");
            exit(1);
        }
    }
}

fn library_folder() -> Result<String, String> {
    let (folder, origin) = match env::var("ACCEL_LIB_DIR") {
        Ok(folder) => (folder, "ACCEL_LIB_DIR"),
        Err(_) => (installed_folder()?, "pkg-config"),
    };
    if Path::new(&folder).join("libaccel.so").exists() {
        return Ok(folder);
    }
    Err(format!(
        "{origin} names {folder:?}, where no libaccel.so is: build libaccel, or name its folder by ACCEL_LIB_DIR"
    ))
}

fn installed_folder() -> Result<String, String> {
    match Command::new("pkg-config").args(["--variable=libdir", "accel"]).output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        _ => Err("libaccel was not found: set ACCEL_LIB_DIR to its folder, or PKG_CONFIG_PATH to that of accel.pc, \
                  or take the feature dlopen, which loads it when the program runs"
            .into()),
    }
}
