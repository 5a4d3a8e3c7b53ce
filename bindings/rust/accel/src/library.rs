// SPDX-License-Identifier: Apache-2.0
//! The library itself: its version, its parts, its log.
use crate::callback::{closure, hand_over};
use crate::error::{check, text, Result};
use crate::options::constants;
use crate::strings::c_string;
use accel_sys as sys;
use std::ffi::c_void;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

/// The version of the library: major, minor, patch.
///
/// # Errors
/// LibraryNotFound.
pub fn version() -> Result<(i32, i32, i32)> {
    load_library(None)?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    unsafe { sys::accel_version(&mut major, &mut minor, &mut patch) };
    Ok((major, minor, patch))
}

/// Whether a part is there: "ucx", "nccl", "cuda", "torchscript".
pub fn is_available(feature: &str) -> bool {
    c_string(feature).map_or(false, |feature| unsafe { sys::accel_is_available(feature.as_ptr()) } == 1)
}

/// Loads the library from a file, or from where it is found: `$LIBACCEL`, what the build found, the wheel of python3, the dynamic
/// linker. The first call of the library does the same, so this only tells early whether it is there, or that another one is wanted.
/// Nothing is to do where it is loaded, or linked.
///
/// # Errors
/// LibraryNotFound, with what is missing and the commands that get it.
pub fn load_library(file: Option<&std::path::Path>) -> Result<()> {
    #[cfg(not(feature = "linked"))]
    {
        use crate::error::{Error, ErrorCode};
        sys::load(file).map_err(|reason| Error::new(ErrorCode::LibraryNotFound, reason))
    }
    #[cfg(feature = "linked")]
    {
        let _ = file;
        Ok(())
    }
}

constants! {
    /// How urgent a log message is.
    #[derive(PartialOrd, Ord)]
    LogLevel {
        /// For whoever looks for a defect.
        Debug = ACCEL_LOG_DEBUG,
        /// Events.
        Info = ACCEL_LOG_INFO,
        /// Possible faults.
        Warning = ACCEL_LOG_WARNING,
        /// Failures.
        Error = ACCEL_LOG_ERROR,
    }
}

/// Sets where log messages from `level` on go. The function is called on any thread, and must not call the library.
pub fn set_log<F>(level: LogLevel, receive: F) -> Result<()>
where
    F: Fn(LogLevel, &str) + Send + Sync + 'static,
{
    let (data, destroy) = hand_over(receive);
    check(unsafe { sys::accel_set_log_callback(Some(receive_message::<F>), data, destroy) })?;
    check(unsafe { sys::accel_set_log_level(level.into()) }).map(drop)
}

/// Messages go nowhere from now on, as at first.
pub fn unset_log() -> Result<()> {
    check(unsafe { sys::accel_set_log_callback(None, ptr::null_mut(), None) }).map(drop)
}

unsafe extern "C" fn receive_message<F: Fn(LogLevel, &str)>(level: i32, message: *const c_char, data: *mut c_void) {
    // Nobody hears of a panic here: the message is lost, and that is all.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        closure::<F>(data)(LogLevel::from_raw(level).unwrap_or(LogLevel::Error), &text(message))
    }));
}

/// The library's own messages from `level` on become events of the crate `tracing`, with the target `accel`.
///
/// # Errors
/// LibraryNotFound.
#[cfg(feature = "tracing")]
#[cfg_attr(docsrs, doc(cfg(feature = "tracing")))]
pub fn log_to_tracing(level: LogLevel) -> Result<()> {
    set_log(level, |level, message| match level {
        LogLevel::Debug => tracing::debug!(target: "accel", "{message}"),
        LogLevel::Info => tracing::info!(target: "accel", "{message}"),
        LogLevel::Warning => tracing::warn!(target: "accel", "{message}"),
        LogLevel::Error => tracing::error!(target: "accel", "{message}"),
    })
}

/// The library's own messages from `level` on go to the crate `log`, with the target `accel`.
///
/// # Errors
/// LibraryNotFound.
#[cfg(feature = "log")]
#[cfg_attr(docsrs, doc(cfg(feature = "log")))]
pub fn log_to_log(level: LogLevel) -> Result<()> {
    set_log(level, |level, message| match level {
        LogLevel::Debug => log::debug!(target: "accel", "{message}"),
        LogLevel::Info => log::info!(target: "accel", "{message}"),
        LogLevel::Warning => log::warn!(target: "accel", "{message}"),
        LogLevel::Error => log::error!(target: "accel", "{message}"),
    })
}
