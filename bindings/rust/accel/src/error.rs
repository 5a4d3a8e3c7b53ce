// SPDX-License-Identifier: Apache-2.0
//! The errors of calls.
use crate::failure::{take_any_failure, take_failure, Failure};
use accel_sys as sys;
use std::ffi::CStr;
use std::fmt;
use std::panic::resume_unwind;
use std::ptr;

/// The result of a call of the library.
pub type Result<T> = std::result::Result<T, Error>;

/// Declares the codes once: number, name and meaning.
macro_rules! error_codes {
    ($($(#[$text:meta])* $name:ident = $number:ident),* $(,)?) => {
        /// The kind of a failure.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$text])* $name,)*
            /// Libaccel, or its LibTorch, is not there: the message says what gets it.
            LibraryNotFound,
            /// A number that this version of the crate does not know.
            Other(i32),
        }

        impl ErrorCode {
            fn from_status(status: i32) -> Self {
                match status {
                    $(sys::$number => Self::$name,)*
                    other => Self::Other(other),
                }
            }

            pub(crate) fn status(self) -> i32 {
                match self {
                    $(Self::$name => sys::$number,)*
                    Self::LibraryNotFound => sys::ACCEL_ERROR_NOT_FOUND,
                    Self::Other(number) => number,
                }
            }
        }
    };
}

include!("generated/error_codes.rs");

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == ErrorCode::LibraryNotFound {
            return formatter.write_str("LIBRARY_NOT_FOUND");
        }
        formatter.write_str(unsafe { &text(sys::accel_status_name(self.status())) })
    }
}

/// A failed call: its kind, a line that says what was wrong and what was expected, the function of the C API that
/// failed, and the rank that reported it. An error that a callback returned is its [source](std::error::Error::source).
pub struct Error(Box<Content>);

struct Content {
    code: ErrorCode,
    message: String,
    function: String,
    rank: Option<i32>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error that the program makes itself, for example in a callback.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error(Box::new(Content { code, message: message.into(), function: String::new(), rank: None, source: None }))
    }

    pub(crate) fn of_status(status: i32, message: &str) -> Self {
        Self::new(ErrorCode::from_status(status), message)
    }

    /// The kind of failure.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// One line with the offending value and what was expected.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The function of the C API that failed; "" for errors of this crate and of callbacks.
    pub fn function(&self) -> &str {
        &self.0.function
    }

    /// The rank that reported it, when a process group was involved.
    pub fn rank(&self) -> Option<i32> {
        self.0.rank
    }

    /// The latest error of this thread, moved out of the library; `status` is what the call answered, if it was one.
    fn take(status: Option<i32>) -> Self {
        #[cfg(not(feature = "linked"))]
        if let Some(reason) = sys::load_failure() {
            return Error::new(ErrorCode::LibraryNotFound, reason);
        }
        let mut taken = ptr::null_mut();
        if unsafe { sys::accel_error_take(&mut taken) } != sys::ACCEL_OK {
            // In a process that was forked off this is refused as well, and its message is the same.
            let status = status.unwrap_or(sys::ACCEL_ERROR_INVALID_STATE);
            return Error::of_status(status, unsafe { &text(sys::accel_last_error()) });
        }
        // SAFETY: the error was taken, and its texts are copied before it is released.
        let content = unsafe {
            Content {
                code: ErrorCode::from_status(status.unwrap_or_else(|| sys::accel_error_code(taken))),
                message: text(sys::accel_error_message(taken)),
                function: text(sys::accel_error_function(taken)),
                rank: Some(sys::accel_error_rank(taken)).filter(|rank| *rank >= 0),
                source: None,
            }
        };
        unsafe { sys::accel_error_release(taken) };
        Error(Box::new(content))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code(), self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code(), self.message())?;
        if !self.function().is_empty() {
            write!(formatter, " (in {})", self.function())?;
        }
        match self.rank() {
            Some(rank) => write!(formatter, " (of rank {rank})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as _)
    }
}

/// Turns a status into a result. Positive statuses are results, and are returned. A panic of a callback continues here.
#[inline]
pub(crate) fn check(status: i32) -> Result<i32> {
    if status >= 0 {
        Ok(status)
    } else {
        Err(failed(Some(status)))
    }
}

/// Same as [`check`], for a call that answers a number, below 0 when it fails.
pub(crate) fn check_number(number: i64) -> Result<i64> {
    if number >= 0 {
        Ok(number)
    } else {
        Err(failed(None))
    }
}

/// Same as [`check`], for a call whose callback answers a number and no status: its failure is that of the call.
pub(crate) fn check_callback_of_numbers(call: impl FnOnce() -> i32) -> Result<i32> {
    take_any_failure(); // of another call
    let status = call();
    if status >= 0 {
        return Ok(status);
    }
    let error = Error::take(Some(status));
    Err(with_failure(error, take_any_failure()))
}

#[cold]
fn failed(status: Option<i32>) -> Error {
    let error = Error::take(status);
    let failure = take_failure(error.code().status(), &error.0.message);
    with_failure(error, failure)
}

/// A panic continues; an error of the callback becomes the source.
fn with_failure(mut error: Error, failure: Option<Failure>) -> Error {
    match failure {
        Some(Failure::Panic(payload)) => resume_unwind(payload),
        Some(Failure::Error(source)) => error.0.source = Some(source),
        None => {}
    }
    error
}

/// The text of a C string; "" for NULL.
///
/// # Safety
/// NULL, or a string that ends with a NUL.
pub(crate) unsafe fn text(string: *const std::os::raw::c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    CStr::from_ptr(string).to_string_lossy().into_owned()
}
