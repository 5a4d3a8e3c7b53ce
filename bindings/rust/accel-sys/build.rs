//! Finds libaccel: in `$ACCEL_LIB_DIR` if that is set, else where pkg-config says.
use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ACCEL_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rustc-link-lib=dylib=accel");
    if let Ok(folder) = env::var("ACCEL_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        return;
    }
    let found = Command::new("pkg-config").args(["--variable=libdir", "accel"]).output();
    match found {
        Ok(output) if output.status.success() => {
            let folder = String::from_utf8_lossy(&output.stdout).trim().to_string();
            println!("cargo:rustc-link-search=native={folder}");
        }
        _ => panic!("libaccel was not found: set ACCEL_LIB_DIR to its folder, or PKG_CONFIG_PATH to that of accel.pc"),
    }
}
