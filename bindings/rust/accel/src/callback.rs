// SPDX-License-Identifier: Apache-2.0
//! Closures as callbacks of the library.
//!
//! A closure belongs to the object that it was given to, and is dropped with it. Its `Err` comes out of the outer call as
//! an [`Error`] whose source it is; a panic continues in the outer call. Where a callback runs on a thread
//! of the library, the outer call fails with the message of the panic.
use crate::error::{Error, ErrorCode};
use crate::failure::{leave, Failure};
use accel_sys as sys;
use std::any::Any;
use std::ffi::{c_void, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Mutex, TryLockError};

/// The result of callbacks: any error can be passed on with `?`.
pub type CallbackResult<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A callback with its `user_data`, and the function that ends the life of that.
pub(crate) type Callback<F> = (Option<F>, *mut c_void, Option<sys::accel_destroy_fn>);

/// Where the program gives no closure.
pub(crate) fn nothing<F>() -> Callback<F> {
    (None, std::ptr::null_mut(), None)
}

/// Runs the body of a callback: no panic leaves it.
pub(crate) fn run(body: impl FnOnce() -> CallbackResult) -> i32 {
    let body = || {
        body().map_err(|error| {
            let own = error.downcast_ref::<Error>();
            let code = own.map_or(ErrorCode::User, Error::code);
            let message = own.map_or_else(|| error.to_string(), |own| own.message().into());
            (code, message, error)
        })
    };
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => sys::ACCEL_OK,
        Ok(Err((code, message, error))) => fail(code, message, Failure::Error(error)),
        Err(payload) => fail(ErrorCode::User, panic_message(&*payload), Failure::Panic(payload)),
    }
}

/// Same as [`run`], for callbacks that answer a number and not a status.
pub(crate) fn run_for<T>(otherwise: T, body: impl FnOnce() -> CallbackResult<T>) -> T {
    let mut answer = otherwise;
    run(|| body().map(|given| answer = given));
    answer
}

/// Same as [`run`], for callbacks that answer a number or a status below 0.
pub(crate) fn run_number(body: impl FnOnce() -> CallbackResult<i64>) -> i64 {
    let mut answer = 0;
    match run(|| body().map(|given| answer = given)) {
        sys::ACCEL_OK => answer,
        status => status.into(),
    }
}

fn fail(code: ErrorCode, message: String, failure: Failure) -> i32 {
    let line = message.replace(['\0', '\n'], " ");
    if let Ok(line) = CString::new(line.as_str()) {
        unsafe { sys::accel_error_set(code.status(), line.as_ptr()) };
    }
    leave(code.status(), line, failure);
    code.status()
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    format!("a callback panicked: {}", text.unwrap_or_else(|| "without a message".into()))
}

/// Hands a closure over to the library: the pointer for it, and the function that drops it.
pub(crate) fn hand_over<F: Send + 'static>(closure: F) -> (*mut c_void, Option<sys::accel_destroy_fn>) {
    (Box::into_raw(Box::new(closure)).cast(), Some(drop_closure::<F>))
}

pub(crate) unsafe extern "C" fn drop_closure<F>(closure: *mut c_void) {
    let closure = Box::from_raw(closure.cast::<F>());
    // A panic of what the closure owns ends here: nobody waits for it.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(closure)));
}

/// The closure behind a callback's `user_data`.
pub(crate) unsafe fn closure<'a, F>(user_data: *mut c_void) -> &'a F {
    &*user_data.cast::<F>()
}

/// A closure that changes what it owns. One that calls itself through the library, or that another thread calls
/// meanwhile, gets an error.
pub(crate) struct Exclusive<F>(Mutex<F>);

impl<F> Exclusive<F> {
    pub(crate) fn new(closure: F) -> Self {
        Exclusive(Mutex::new(closure))
    }

    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut F) -> CallbackResult<T>) -> CallbackResult<T> {
        match self.0.try_lock() {
            Ok(mut closure) => call(&mut closure),
            // After a panic it continues unchanged.
            Err(TryLockError::Poisoned(closure)) => call(&mut closure.into_inner()),
            Err(TryLockError::WouldBlock) => {
                Err("the callback is running already; it must not call what calls it".into())
            }
        }
    }
}
