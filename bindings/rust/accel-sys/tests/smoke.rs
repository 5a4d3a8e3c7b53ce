// SPDX-License-Identifier: Apache-2.0
//! The raw layer at work: two ranks as threads, each with a state, a tensor, an operator and a gather.
use accel_sys::*;
use std::ffi::{CStr, CString};
use std::net::TcpListener;
use std::os::raw::c_char;
use std::sync::atomic::{AtomicU16, Ordering};
use std::{ptr, slice, thread};

fn last_error() -> String {
    unsafe { CStr::from_ptr(accel_last_error()) }.to_string_lossy().into_owned()
}

fn check(status: accel_status_t) {
    assert!(status >= 0, "{status}: {}", last_error());
}

/// Below the ports that the system gives to programs that connect, which would take it before a rank listens.
fn free_port() -> i32 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 16384
            + (std::process::id() as u16).wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 13000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port.into();
        }
    }
}

unsafe fn new_state(rank: i32, port: i32) -> *mut accel_state_t {
    let options = accel_state_options_t {
        cpu: 1,
        process_index: rank,
        num_processes: 2,
        local_process_index: rank,
        local_num_processes: 2,
        main_process_port: port,
        timeout_ms: 30000,
        ..Default::default()
    };
    let mut state = ptr::null_mut();
    check(accel_state_create(&options, &mut state));
    state
}

unsafe fn find(name: &str, overload: &str) -> *const accel_op_t {
    let (name, overload) = (CString::new(name).unwrap(), CString::new(overload).unwrap());
    let mut op = ptr::null();
    check(accel_op_find(name.as_ptr(), overload.as_ptr(), &mut op));
    op
}

unsafe fn elements(tensor: *const accel_tensor_t) -> Vec<f32> {
    let (mut data, mut count) = (ptr::null_mut(), 0);
    check(accel_tensor_data(tensor, &mut data));
    check(accel_tensor_numel(tensor, &mut count));
    slice::from_raw_parts(data as *const f32, count as usize).to_vec()
}

unsafe fn run_rank(rank: i32, port: i32) -> Vec<f32> {
    let state = new_state(rank, port);
    let numbers = [rank as f32, 10.0 + rank as f32];
    let shape = [2i64];
    let mut tensor = ptr::null_mut();
    check(accel_tensor_from_data(numbers.as_ptr().cast(), shape.as_ptr(), 1, ACCEL_DTYPE_FLOAT32, &mut tensor));

    let arguments = [accel_value_t::tensor(tensor), accel_value_t::tensor(tensor)];
    let (mut doubled, mut count) = (accel_value_t::none(), 0);
    check(accel_op_call(find("aten::add", "Tensor"), arguments.as_ptr(), 2, &mut doubled, 1, &mut count));
    assert_eq!(count, 1);

    let mut gathered = accel_value_t::none();
    check(accel_gather(state, &doubled, &mut gathered));
    let result = elements(gathered.r#as.tensor);

    accel_value_dispose(&mut gathered);
    accel_value_dispose(&mut doubled);
    accel_tensor_release(tensor);
    check(accel_end_training(state));
    accel_state_release(state);
    result
}

#[test]
fn two_ranks_gather() {
    let port = free_port();
    let ranks: Vec<_> = (0..2).map(|rank| thread::spawn(move || unsafe { run_rank(rank, port) })).collect();
    for rank in ranks {
        assert_eq!(rank.join().unwrap(), [0.0, 20.0, 2.0, 22.0]);
    }
    assert_eq!(unsafe { accel_debug_live_objects() }, 0);
    wrong_calls_give_a_status();
    constants_are_those_of_the_header();
}

fn wrong_calls_give_a_status() {
    unsafe {
        let mut count = 0;
        assert_eq!(accel_tensor_numel(ptr::null(), &mut count), ACCEL_ERROR_INVALID_ARGUMENT);
        assert!(last_error().contains("tensor is NULL"));
        let mut op = ptr::null();
        let name = CString::new("aten::no_such_operator").unwrap();
        assert_eq!(accel_op_find(name.as_ptr(), b"\0".as_ptr() as *const c_char, &mut op), ACCEL_ERROR_NOT_FOUND);
    }
}

fn constants_are_those_of_the_header() {
    assert_eq!(accel_sgd_options_t::default().lr, ACCEL_UNSET_DOUBLE);
    let (mut major, mut minor, mut patch) = (-1, -1, -1);
    unsafe { accel_version(&mut major, &mut minor, &mut patch) };
    assert_eq!([major, minor, patch], [ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR, ACCEL_VERSION_PATCH]);
}
