// SPDX-License-Identifier: Apache-2.0
//! Errors, and what keeps panics inside.

use crate::Text;
use std::fmt;
use std::os::raw::{c_char, c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};

/// What a function returns if it fails.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(i32)]
pub enum Failure {
    /// The caller's input is wrong.
    Invalid = 1,
    /// A defect of this plugin or its crates.
    Panic = 2,
}

#[derive(Debug)]
pub struct Error {
    pub failure: Failure,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

pub fn fail<T>(failure: Failure, message: impl fmt::Display) -> Result<T> {
    Err(Error { failure, message: message.to_string() })
}

pub fn invalid(message: impl fmt::Display) -> Error {
    Error { failure: Failure::Invalid, message: message.to_string() }
}

/// A function of the caller that takes text. It throws nothing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sink {
    write: Option<unsafe extern "C" fn(context: *mut c_void, data: *const c_char, size: usize)>,
    context: *mut c_void,
}

impl Sink {
    pub fn none() -> Sink {
        Sink { write: None, context: std::ptr::null_mut() }
    }

    pub fn write(&self, text: &str) {
        if let Some(write) = self.write {
            // SAFETY: the context is the caller's, for this function.
            unsafe { write(self.context, text.as_ptr().cast(), text.len()) }
        }
    }
}

/// The caller's text. `name` says in errors which one.
///
/// # Safety
/// The text lives as long as the call.
pub unsafe fn text_of<'a>(text: Text, name: &str) -> Result<&'a str> {
    let bytes = if text.size == 0 { &[] } else { std::slice::from_raw_parts(text.data.cast::<u8>(), text.size) };
    std::str::from_utf8(bytes)
        .map_err(|error| invalid(format_args!("{name} is not UTF-8 at byte {}", error.valid_up_to())))
}

/// Runs a function; 0, or the failure.
pub fn guarded(error: Sink, run: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(found)) => {
            error.write(&one_line(&found.message));
            found.failure as c_int
        }
        Err(panic) => {
            error.write(&one_line(&panic_message(&*panic)));
            Failure::Panic as c_int
        }
    }
}

/// Errors quote parts of what was given.
fn one_line(message: &str) -> String {
    message.replace(['\n', '\r'], " ")
}

pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().copied();
    said.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic").to_string()
}

/// A library prints nothing. The hook is that of this shared library's own copy of std.
pub fn silence_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}
