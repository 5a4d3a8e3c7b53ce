// SPDX-License-Identifier: Apache-2.0
//! The failure of the latest callback of a thread, on its way to the outer call.
use std::any::Any;
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// How a callback failed.
pub(crate) enum Failure {
    Panic(Box<dyn Any + Send>),
    Error(Box<dyn std::error::Error + Send + Sync>),
}

/// A failure with the status and the message that it left in the library.
struct Left {
    status: i32,
    message: String,
    failure: Failure,
}

thread_local! {
    static FAILURE: RefCell<Option<Left>> = const { RefCell::new(None) };
}

/// Leaves it for the outer call.
pub(crate) fn leave(status: i32, message: String, failure: Failure) {
    let left = Left { status, message, failure };
    // At the end of a thread there is no place for it any more; and a former one may panic when it is dropped.
    let former = FAILURE.try_with(|slot| slot.borrow_mut().replace(left));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(former)));
}

/// The failure of the latest callback of this thread, if it is the reason of this error of the outer call.
pub(crate) fn take_failure(status: i32, message: &str) -> Option<Failure> {
    let left = FAILURE.with(|slot| slot.borrow_mut().take())?;
    let is_reason = status == left.status && !left.message.is_empty() && message.contains(&left.message);
    is_reason.then_some(left.failure)
}

/// Same as [`take_failure`], for callbacks that answer a number: the library knows nothing of their failure.
pub(crate) fn take_any_failure() -> Option<Failure> {
    FAILURE.with(|slot| slot.borrow_mut().take()).map(|left| left.failure)
}
