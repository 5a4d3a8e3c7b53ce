//! Finds libaccel: in `$ACCEL_LIB_DIR` if that is set, else where pkg-config says. It has the path of its LibTorch itself.
use std::env;
use std::process::Command;

fn main() {
    for name in ["ACCEL_LIB_DIR", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_DLOPEN").is_some() {
        return; // the loader looks for both when the program runs
    }
    println!("cargo:rustc-link-lib=dylib=accel");
    println!("cargo:rustc-link-search=native={}", library_folder());
}

fn library_folder() -> String {
    if let Ok(folder) = env::var("ACCEL_LIB_DIR") {
        return folder;
    }
    let found = Command::new("pkg-config").args(["--variable=libdir", "accel"]).output();
    match found {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_string(),
        _ => panic!("libaccel was not found: set ACCEL_LIB_DIR to its folder, or PKG_CONFIG_PATH to that of accel.pc"),
    }
}
