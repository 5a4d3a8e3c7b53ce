// SPDX-License-Identifier: Apache-2.0
//! Regions in which something else holds: no gradients, another precision, gradients that stay on their rank.
use crate::error::{check, Error, ErrorCode, Result};
use crate::memory;
use accel_sys as sys;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// An open region. It ends when it is dropped, or with [`Scope::end`], which tells errors; it belongs to its thread, and
/// regions end in the reverse order of their beginning. [`Scope::run`] does all of it around a closure.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{no_grad, DType, Device, Tensor};
/// let mut weight = Tensor::full(&[2], 3.0, DType::Float32, Device::Cpu)?;
/// weight.set_requires_grad(true)?;
/// let doubled = no_grad()?.run(|| &weight * 2.0)?;
/// assert!(!doubled.requires_grad()?);
/// # Ok(()) }
/// ```
/// Regions of a training loop are functions of a state, for example one micro-batch of an accumulated update:
///
/// ```
/// # fn main() -> accel::Result<()> {
/// # use accel::*;
/// # let state = StateOptions::new().cpu(true).gradient_accumulation_steps(2).build()?;
/// # let model = state.prepare_model(&nn::linear(2, 1, Bias::With)?, PrepareModelOptions::new())?;
/// # let optimizer = state.prepare_optimizer(&Optimizer::sgd(&model, SgdOptions::new())?)?;
/// # let input = Tensor::zeros(&[4, 2], DType::Float32, Device::Cpu)?;
/// let mut updates = 0;
/// for _ in 0..4 {
///     state.accumulate(&[&model])?.run(|| {
///         let mut loss = model.forward(&input)?.mean()?;
///         state.backward(&mut loss)?;
///         updates += i32::from(optimizer.step()? == Step::Updated);
///         optimizer.zero_grad()
///     })?;
/// }
/// assert_eq!(updates, 2);
/// # drop((model, optimizer)); state.end_training() }
/// ```
///
/// It cannot go to another thread:
///
/// ```compile_fail,E0277
/// let scope = accel::no_grad().unwrap();
/// std::thread::spawn(move || drop(scope));
/// ```
#[must_use = "the region ends at once when nothing holds it"]
#[derive(Debug)]
pub struct Scope<'a> {
    raw: NonNull<sys::accel_scope_t>,
    // Of one thread, and not longer than what it is a region of.
    _lifetime: PhantomData<(&'a (), *mut ())>,
}

/// A region that has not ended.
struct Open {
    raw: NonNull<sys::accel_scope_t>,
    /// Its end writes parameters.
    writes: bool,
    /// Nobody holds it any more: it ends as soon as it can.
    let_go: bool,
}

impl Open {
    fn check(&self) -> Result<()> {
        if self.writes {
            memory::writes_anything()?;
        }
        Ok(())
    }
}

thread_local! {
    /// The open regions of this thread, the innermost one last.
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

impl<'a> Scope<'a> {
    pub(crate) fn begin(call: impl FnOnce(*mut *mut sys::accel_scope_t) -> i32) -> Result<Self> {
        Self::open(call, false)
    }

    /// A region whose end writes parameters.
    pub(crate) fn begin_writing(call: impl FnOnce(*mut *mut sys::accel_scope_t) -> i32) -> Result<Self> {
        Self::open(call, true)
    }

    fn open(call: impl FnOnce(*mut *mut sys::accel_scope_t) -> i32, writes: bool) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(call(&mut raw))?;
        let raw = NonNull::new(raw).expect("a call that succeeded gives a scope");
        OPEN.with(|open| open.borrow_mut().push(Open { raw, writes, let_go: false }));
        Ok(Scope { raw, _lifetime: PhantomData })
    }

    pub(crate) fn as_raw(&self) -> *mut sys::accel_scope_t {
        self.raw.as_ptr()
    }

    /// Ends it.
    ///
    /// # Errors
    /// InvalidState when a later one of this thread is open; it then ends with that one. InvalidState when its end writes
    /// parameters while a slice is held; it then ends with the next region. The error of what the end does, for example of
    /// waiting for the other ranks.
    pub fn end(self) -> Result<()> {
        let raw = self.raw;
        std::mem::forget(self);
        end(raw)
    }

    /// Calls a function inside, and ends the region. The function's own error comes first.
    pub fn run<T, E: From<Error>>(self, body: impl FnOnce() -> std::result::Result<T, E>) -> std::result::Result<T, E> {
        let result = body()?;
        self.end()?;
        Ok(result)
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        // There is nobody to tell; whoever wants to know calls end().
        let _ = end(self.raw);
    }
}

fn end(raw: NonNull<sys::accel_scope_t>) -> Result<()> {
    OPEN.with(|open| {
        let mut open = open.borrow_mut();
        if let Some(own) = open.iter_mut().find(|scope| scope.raw == raw) {
            own.let_go = true;
        }
        match open.last() {
            Some(innermost) if innermost.raw == raw => innermost.check(),
            _ => {
                let message =
                    "a scope that is not this thread's innermost open one: end those that were opened after it first";
                Err(Error::new(ErrorCode::InvalidState, message))
            }
        }
    })?;
    let mut result = Ok(());
    while let Some(scope) = take_innermost_let_go() {
        // SAFETY: it was open, belongs to this thread, and is the innermost one.
        let ended = check(unsafe { sys::accel_scope_end(scope.as_ptr()) }).map(drop);
        result = result.and(ended);
    }
    result
}

fn take_innermost_let_go() -> Option<NonNull<sys::accel_scope_t>> {
    OPEN.with(|open| {
        let mut open = open.borrow_mut();
        let ends = open.last().map_or(false, |innermost| innermost.let_go && innermost.check().is_ok());
        if ends {
            open.pop().map(|scope| scope.raw)
        } else {
            None
        }
    })
}
