//! The library is loaded when the program asks for it. One test: a process loads it once.
#![cfg(feature = "dlopen")]

use accel::{load_library, ErrorCode, Tensor};
use std::fs;
use std::path::Path;

#[test]
fn the_library_is_loaded_from_where_the_program_says() {
    let error = load_library(Some(Path::new("/nowhere/libaccel.so"))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(error.message().contains("/nowhere/libaccel.so") && error.message().contains("ACCEL_LIBRARY"), "{error:?}");

    load_library(None).unwrap();
    assert_eq!(Tensor::scalar(2.0f32).unwrap().item().unwrap(), 2.0);
    // It stays what it is.
    load_library(Some(Path::new("/nowhere/libaccel.so"))).unwrap();

    let torch = fs::canonicalize(accel_sys::libtorch::find().expect("a LibTorch").join("lib/libtorch_cpu.so")).unwrap();
    let loaded = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(loaded.contains(torch.to_str().unwrap()), "{torch:?} is not loaded");
}
