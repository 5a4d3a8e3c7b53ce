//! The program finds the LibTorch that tch was built with, and libaccel takes the same one.
fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if let Some(folder) = std::env::var_os("LIBTORCH") {
        println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{}/lib", folder.to_string_lossy());
    }
}
