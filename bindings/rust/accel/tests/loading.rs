// SPDX-License-Identifier: Apache-2.0
//! The library is loaded when the program asks for it, or by its first call. Each test is a process of its own, which loads it once.
#![cfg(not(feature = "linked"))]

use accel::{load_library, version, DType, ErrorCode, StateOptions, Tensor};
use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

/// Runs a part of this program with other settings.
fn run(part: &str, settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", part, "--nocapture"]).env("ACCEL_TEST_PART", part).envs(settings.iter().copied());
    command.output().unwrap()
}

fn is_part(name: &str) -> bool {
    env::var("ACCEL_TEST_PART").map_or(false, |part| part == name)
}

fn assert_passes(part: &str, settings: &[(&str, &str)]) {
    let output = run(part, settings);
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn the_library_is_loaded_from_where_the_program_says() {
    let error = load_library(Some(Path::new("/nowhere/libaccel.so"))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LibraryNotFound);
    assert!(error.message().contains("/nowhere/libaccel.so") && error.message().contains("LIBACCEL"), "{error:?}");
    assert_eq!(error.to_string().lines().count(), 1);

    load_library(None).unwrap();
    assert_eq!(Tensor::scalar(2.0f32).unwrap().item().unwrap(), 2.0);
    assert_eq!(version().unwrap().0, 0);
    // It stays what it is.
    load_library(Some(Path::new("/nowhere/libaccel.so"))).unwrap();
}

#[test]
fn without_a_library_the_first_call_says_so() {
    if !is_part("without_a_library_the_first_call_says_so") {
        return assert_passes("without_a_library_the_first_call_says_so", &[("LIBACCEL", "/nowhere")]);
    }
    let error = StateOptions::new().cpu(true).build().unwrap_err();
    assert_eq!(error.code(), ErrorCode::LibraryNotFound);
    assert!(error.message().contains("LIBACCEL is \"/nowhere\""), "{error:?}");
    // No other call panics either.
    let error = Tensor::scalar(1.0f32).unwrap_err();
    assert_eq!(
        (error.code(), error.to_string().starts_with("LIBRARY_NOT_FOUND: ")),
        (ErrorCode::LibraryNotFound, true)
    );
    assert_eq!(version().unwrap_err().code(), ErrorCode::LibraryNotFound);
    assert_eq!(accel::Value::from_json("[1]").unwrap_err().code(), ErrorCode::LibraryNotFound);
    assert_eq!(DType::Float32.to_string(), "Float32");
    assert!(!accel::is_available("ucx") && accel::Value::none().is_empty());
    // The program can get it afterwards.
    env::remove_var("LIBACCEL");
    load_library(None).unwrap();
    assert!(Tensor::scalar(1.0f32).is_ok());
}

#[test]
fn libtorch_comes_from_where_it_is_named() {
    if !is_part("libtorch_comes_from_where_it_is_named") {
        let folder = env::temp_dir().join(format!("accel_loading_{}", std::process::id()));
        fs::create_dir_all(folder.join("lib")).unwrap();
        fs::write(folder.join("lib/libc10.so"), "no library").unwrap();
        assert_passes("libtorch_comes_from_where_it_is_named", &[("ACCEL_LIBTORCH", folder.to_str().unwrap())]);
        return fs::remove_dir_all(folder).unwrap();
    }
    let error = load_library(None).unwrap_err();
    let named = env::var("ACCEL_LIBTORCH").unwrap();
    assert_eq!(error.code(), ErrorCode::LibraryNotFound);
    assert!(error.message().contains(&named) && error.message().contains("pip install torch=="), "{error:?}");
}
