//! Prints the LibTorch that the search order gives. A linked program takes it with
//! `LD_LIBRARY_PATH=$ACCEL_LIB_DIR:$(cargo run --quiet -p accel-sys --example libtorch)/lib`.
fn main() {
    match accel_sys::libtorch::find() {
        Some(folder) => println!("{}", folder.display()),
        None => {
            eprintln!(
                "no LibTorch from 2.11 to 2.15 in the torch package of python3, $ACCEL_LIBTORCH, build/deps/torch"
            );
            std::process::exit(1);
        }
    }
}
