//! The library itself: its version, its parts, its log.
use crate::callback::{closure, hand_over};
use crate::error::{check, text, Result};
#[cfg(feature = "dlopen")]
use crate::error::{Error, ErrorCode};
use crate::options::constants;
use crate::strings::c_string;
use accel_sys as sys;
use std::ffi::c_void;
use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

/// The version of the loaded library: major, minor, patch.
pub fn version() -> (i32, i32, i32) {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    unsafe { sys::accel_version(&mut major, &mut minor, &mut patch) };
    (major, minor, patch)
}

/// Whether a part is there: "ucx", "nccl", "cuda", "torchscript".
pub fn is_available(feature: &str) -> bool {
    c_string(feature).map_or(false, |feature| unsafe { sys::accel_is_available(feature.as_ptr()) } == 1)
}

/// Loads the library: `file`, else `$ACCEL_LIBRARY`, else the one in `$ACCEL_LIB_DIR`, else what the dynamic linker
/// finds. Without this call the first one that needs the library loads it, and panics when it is not there.
///
/// # Errors
/// NotFound with what the dynamic linker says.
#[cfg(feature = "dlopen")]
pub fn load_library(file: Option<&std::path::Path>) -> Result<()> {
    sys::load(file).map_err(|reason| Error::new(ErrorCode::NotFound, reason))
}

constants! {
    /// How urgent a log message is.
    #[derive(PartialOrd, Ord)]
    LogLevel {
        /// For whoever looks for a defect.
        Debug = ACCEL_LOG_DEBUG,
        /// What happens.
        Info = ACCEL_LOG_INFO,
        /// What may be wrong.
        Warning = ACCEL_LOG_WARNING,
        /// What went wrong.
        Error = ACCEL_LOG_ERROR,
    }
}

/// Sets where log messages from `level` on go. The function is called on any thread, and must not call the library.
pub fn set_log<F>(level: LogLevel, receive: F) -> Result<()>
where
    F: Fn(LogLevel, &str) + Send + Sync + 'static,
{
    let (data, destroy) = hand_over(receive);
    check(unsafe { sys::accel_set_log_callback(Some(log::<F>), data, destroy) })?;
    check(unsafe { sys::accel_set_log_level(level.into()) }).map(drop)
}

/// Messages go nowhere from now on, as at first.
pub fn unset_log() -> Result<()> {
    check(unsafe { sys::accel_set_log_callback(None, ptr::null_mut(), None) }).map(drop)
}

unsafe extern "C" fn log<F: Fn(LogLevel, &str)>(level: i32, message: *const c_char, data: *mut c_void) {
    // Nobody hears of a panic here: the message is lost, and that is all.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        closure::<F>(data)(LogLevel::from_raw(level).unwrap_or(LogLevel::Error), &text(message))
    }));
}
