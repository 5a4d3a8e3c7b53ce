// SPDX-License-Identifier: Apache-2.0
//! The largest batch that fits into memory.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::{check, check_callback_of_numbers, text, Result};
use crate::state::State;
use accel_sys as sys;
use std::ffi::c_void;
use std::os::raw::c_char;

impl State {
    /// Calls a function with smaller and smaller batch sizes until one fits into memory, and tells that size. A function
    /// fails with [`OutOfMemory`](crate::ErrorCode::OutOfMemory) when it does not fit; another error ends the search.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{Error, ErrorCode, StateOptions};
    /// let state = StateOptions::new().cpu(true).build()?;
    /// let size = state.find_executable_batch_size(128, |size| match size {
    ///     101.. => Err(Error::new(ErrorCode::OutOfMemory, "too many rows").into()),
    ///     _ => Ok(()),
    /// })?;
    /// assert_eq!(size, 92); // 128, 115, 103, 92
    /// # state.end_training() }
    /// ```
    pub fn find_executable_batch_size<F>(&self, starting_batch_size: i64, function: F) -> Result<i64>
    where
        F: FnMut(i64) -> CallbackResult + Send + 'static,
    {
        let (data, destroy) = hand_over(Exclusive::new(function));
        self.search(starting_batch_size, try_size::<F>, None, data, destroy)
    }

    /// A search that chooses the next size itself: the function `reduce` gets the size that did not fit, what would be
    /// tried next, and why it did not fit. It must give the same size on all ranks; 0 gives up.
    pub fn find_executable_batch_size_with<F, R>(&self, starting_batch_size: i64, function: F, reduce: R) -> Result<i64>
    where
        F: FnMut(i64) -> CallbackResult + Send + 'static,
        R: FnMut(i64, i64, &str) -> CallbackResult<i64> + Send + 'static,
    {
        let (data, destroy) = hand_over((Exclusive::new(function), Exclusive::new(reduce)));
        self.search(starting_batch_size, try_size_of_two::<F, R>, Some(choose_size::<F, R>), data, destroy)
    }

    fn search(
        &self,
        starting_batch_size: i64,
        function: sys::accel_batch_size_fn,
        reduce: Option<sys::accel_reduce_batch_size_fn>,
        data: *mut c_void,
        destroy: Option<sys::accel_destroy_fn>,
    ) -> Result<i64> {
        let (state, mut found) = (self.as_raw(), 0);
        // SAFETY: the closures are of the kind that both callbacks take.
        let mut call = || unsafe {
            let start = starting_batch_size;
            sys::accel_find_executable_batch_size(state, Some(function), reduce, data, destroy, start, &mut found)
        };
        if reduce.is_some() {
            check_callback_of_numbers(call)?;
        } else {
            check(call())?;
        }
        Ok(found)
    }
}

unsafe extern "C" fn try_size<F>(size: i64, data: *mut c_void) -> i32
where
    F: FnMut(i64) -> CallbackResult,
{
    callback::run(|| closure::<Exclusive<F>>(data).with(|function| function(size)))
}

unsafe extern "C" fn try_size_of_two<F, R>(size: i64, data: *mut c_void) -> i32
where
    F: FnMut(i64) -> CallbackResult,
{
    callback::run(|| closure::<(Exclusive<F>, Exclusive<R>)>(data).0.with(|function| function(size)))
}

/// 0 gives up: also when the function fails.
unsafe extern "C" fn choose_size<F, R>(size: i64, next: i64, reason: *const c_char, data: *mut c_void) -> i64
where
    R: FnMut(i64, i64, &str) -> CallbackResult<i64>,
{
    callback::run_for(0, || {
        closure::<(Exclusive<F>, Exclusive<R>)>(data).1.with(|reduce| reduce(size, next, &text(reason)))
    })
}
