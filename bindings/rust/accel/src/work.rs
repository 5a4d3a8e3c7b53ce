// SPDX-License-Identifier: Apache-2.0
//! Calls that were started and run in the background.
use crate::call::made;
use crate::callback::CallbackResult;
use crate::error::{check, Error, ErrorCode, Result};
use crate::handle::handle;
use crate::memory::Reserved;
use crate::tensor::Tensor;
use crate::tree::Tree;
use crate::value::Value;
use accel_sys as sys;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

#[rustfmt::skip]
#[path = "generated/work_closures.rs"]
pub(crate) mod closures;

handle! {
    /// The work itself.
    WorkHandle(accel_work_t), accel_work_release
}

/// A call under way. It owns the tensors that it reads and writes; dropping it neither waits nor stops the call.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{Reduction, StateOptions, Tensor};
/// use std::time::Duration;
/// let state = StateOptions::new().cpu(true).build()?;
/// let work = state.all_reduce_async(Tensor::from_slice(&[1.0f32, 2.0], &[2])?, Reduction::Mean)?;
/// // ... something else meanwhile ...
/// let mean = work.wait()?;
/// assert_eq!(mean.to_vec::<f32>()?, [1.0, 2.0]);
/// # state.end_training() }
/// ```
pub struct Work<T> {
    pending: Pending,
    gives: Gives<T>,
    _one_thread_at_a_time: PhantomData<Cell<()>>,
}

/// A call, and the memory that it uses until it has ended.
struct Pending {
    handle: WorkHandle,
    memory: Cell<Vec<Reserved>>,
}

impl Pending {
    fn is_done(&self) -> bool {
        // SAFETY: the handle is alive.
        let is_done = unsafe { sys::accel_work_test(self.handle.as_raw()) == 1 };
        if is_done {
            self.memory.take();
        }
        is_done
    }

    fn then<F>(&self, callback: F) -> Result<()>
    where
        F: FnOnce(Result<()>) -> CallbackResult + Send + 'static,
    {
        let mut callback = Some(callback);
        let (call, data, destroy) = closures::work(move |status| match callback.take() {
            Some(callback) if status >= 0 => callback(Ok(())),
            Some(callback) => callback(Err(Error::of_status(status, "the work failed; waiting for it tells why"))),
            None => Err(Error::new(ErrorCode::Internal, "a work has ended twice").into()),
        });
        check(unsafe { sys::accel_work_then(self.handle.as_raw(), call, data, destroy) }).map(drop)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let memory = self.memory.take();
        if !memory.is_empty() && !self.is_done() {
            // It continues, and keeps its memory. If this fails, the work has failed.
            let _ = self.then(move |_| {
                drop(memory);
                Ok(())
            });
        }
    }
}

/// The result of the call, and the objects that it uses until then.
enum Gives<T> {
    Result { _reads: Value },
    Given { output: T, _reads: Value },
}

impl<T> fmt::Debug for Work<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Work").field(&self.pending.handle).finish()
    }
}

impl<T: Tree> Work<T> {
    /// A call whose result the library makes.
    pub(crate) fn of_tree(
        value: T,
        call: impl FnOnce(*const sys::accel_value_t, *mut *mut sys::accel_work_t) -> i32,
    ) -> Result<Self> {
        let argument = value.as_arg()?;
        // Another owner of what is read: the value itself may go.
        let reads: Value = made(|out| unsafe { sys::accel_value_copy(argument.as_raw(), out) })?;
        let memory = Cell::new(vec![Reserved::by_call(&reads, &Value::none())?]);
        let pending = Pending { handle: made(|out| call(reads.as_raw(), out))?, memory };
        Ok(Work { pending, gives: Gives::Result { _reads: reads }, _one_thread_at_a_time: PhantomData })
    }

    /// Waits for the end, at the longest for the timeout of the state, and gives the result.
    pub fn wait(self) -> Result<T> {
        while !self.wait_for(Duration::from_secs(3600))? {}
        self.result()
    }

    /// Waits at most so long; true when the work has ended. Runs its callbacks then.
    ///
    /// # Errors
    /// The error of the work, or of a callback.
    pub fn wait_for(&self, longest: Duration) -> Result<bool> {
        let longest = longest.as_millis().try_into().unwrap_or(i64::MAX);
        // SAFETY: the handle is alive.
        let has_ended = check(unsafe { sys::accel_work_wait(self.pending.handle.as_raw(), longest) })? == sys::ACCEL_OK;
        if has_ended {
            self.pending.memory.take();
        }
        Ok(has_ended)
    }

    /// Whether it has ended, successfully or not.
    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    /// The result of the work.
    ///
    /// # Errors
    /// InvalidState while it is running; the error of the work.
    pub fn result(self) -> Result<T> {
        let result = made(|out| unsafe { sys::accel_work_result(self.pending.handle.as_raw(), out) })?;
        match self.gives {
            Gives::Result { .. } => T::from_value(result),
            Gives::Given { output, .. } => Ok(output),
        }
    }

    /// Calls a function when the work has ended: in [`Work::wait_for`], or in [`State::progress`](crate::State::progress),
    /// also when the work was dropped.
    pub fn then<F>(&self, callback: F) -> Result<()>
    where
        F: FnOnce(Result<()>) -> CallbackResult + Send + 'static,
    {
        self.pending.then(callback)
    }
}

impl Work<()> {
    /// The call uses this memory besides.
    pub(crate) fn with_memory(self, memory: Vec<Reserved>) -> Self {
        self.pending.memory.set(memory);
        self
    }
}

impl Work<Tensor> {
    /// A call that writes a tensor of the program.
    pub(crate) fn of_tensors(
        output: Tensor,
        reads: Value,
        call: impl FnOnce(*mut sys::accel_tensor_t, *mut *mut sys::accel_work_t) -> i32,
    ) -> Result<Self> {
        let memory = Cell::new(vec![Reserved::by_call(&reads, &output)?]);
        let pending = Pending { handle: made(|out| call(output.as_raw(), out))?, memory };
        Ok(Work { pending, gives: Gives::Given { output, _reads: reads }, _one_thread_at_a_time: PhantomData })
    }
}

/// A tensor for a call that runs in the background, and its owner for that time.
pub(crate) fn raw_and_owner(tensor: impl Into<Option<Tensor>>) -> (*const sys::accel_tensor_t, Value) {
    match tensor.into() {
        Some(tensor) => (tensor.as_raw(), tensor.into()),
        None => (std::ptr::null(), Value::none()),
    }
}
