// SPDX-License-Identifier: Apache-2.0
//! Calls of the library: how arguments become C's, and results Rust's.
use crate::error::{check, check_callback_of_numbers, Error, ErrorCode, Result};
use accel_sys as sys;
use std::ptr;

/// The output of a call.
pub(crate) trait Made: Sized {
    /// Its form in which the call writes it.
    type Raw;

    /// Its value before the call.
    const EMPTY: Self::Raw;

    /// # Safety
    /// A call that succeeded has written it, and its owner is the caller.
    unsafe fn of(raw: Self::Raw) -> Result<Self>;
}

/// The output of `call`, when it succeeds.
#[inline]
pub(crate) fn made<T: Made>(call: impl FnOnce(*mut T::Raw) -> i32) -> Result<T> {
    let mut raw = T::EMPTY;
    check(call(&mut raw))?;
    // SAFETY: the call succeeded, so it has written what belongs to the caller.
    unsafe { T::of(raw) }
}

/// Same as [`made`], for a call whose callback answers a number and no status.
pub(crate) fn made_by_numbers<T: Made>(call: impl FnOnce(*mut T::Raw) -> i32) -> Result<T> {
    let mut raw = T::EMPTY;
    check_callback_of_numbers(|| call(&mut raw))?;
    // SAFETY: as above.
    unsafe { T::of(raw) }
}

macro_rules! plain {
    ($($kind:ty: $raw:ty = $empty:expr, $name:ident => $value:expr;)*) => {$(
        impl Made for $kind {
            type Raw = $raw;
            const EMPTY: $raw = $empty;

            #[inline]
            unsafe fn of($name: $raw) -> Result<Self> {
                $value
            }
        }
    )*};
}

plain! {
    i32: i32 = 0, number => Ok(number);
    i64: i64 = 0, number => Ok(number);
    usize: usize = 0, number => Ok(number);
    f64: f64 = 0.0, number => Ok(number);
    Option<f64>: f64 = 0.0, number => Ok(Some(number).filter(|number| *number != sys::ACCEL_UNSET_DOUBLE));
    bool: i32 = 0, truth => Ok(truth == 1);
    String: sys::accel_buffer_t = sys::accel_buffer_t { data: ptr::null_mut(), size: 0 }, buffer => Ok(text_of(buffer));
}

/// Two results of a call.
impl<A: Made, B: Made> Made for (A, B) {
    type Raw = (A::Raw, B::Raw);
    const EMPTY: Self::Raw = (A::EMPTY, B::EMPTY);

    unsafe fn of(raw: Self::Raw) -> Result<Self> {
        Ok((A::of(raw.0)?, B::of(raw.1)?))
    }
}

/// Three results of a call.
impl<A: Made, B: Made, C: Made> Made for (A, B, C) {
    type Raw = (A::Raw, B::Raw, C::Raw);
    const EMPTY: Self::Raw = (A::EMPTY, B::EMPTY, C::EMPTY);

    unsafe fn of(raw: Self::Raw) -> Result<Self> {
        Ok((A::of(raw.0)?, B::of(raw.1)?, C::of(raw.2)?))
    }
}

/// # Safety
/// A buffer that a call has written.
unsafe fn text_of(buffer: sys::accel_buffer_t) -> String {
    let mut buffer = buffer;
    let bytes =
        if buffer.data.is_null() { &[][..] } else { std::slice::from_raw_parts(buffer.data.cast(), buffer.size) };
    let text = String::from_utf8_lossy(bytes).into_owned();
    sys::accel_buffer_dispose(&mut buffer);
    text
}

/// An argument that may be left out of a call.
pub(crate) trait Optional {
    /// Its form in which the call takes it.
    type Raw;

    /// The value that says that it was left out.
    const UNSET: Self::Raw;

    /// Its form in which the call takes it.
    fn to_raw(self) -> Self::Raw;
}

macro_rules! optional {
    ($($kind:ty: $raw:ty = $unset:ident, $name:ident => $value:expr;)*) => {$(
        impl Optional for $kind {
            type Raw = $raw;
            const UNSET: $raw = sys::$unset;

            #[inline]
            fn to_raw(self) -> $raw {
                let $name = self;
                $value
            }
        }
    )*};
}

optional! {
    f64: f64 = ACCEL_UNSET_DOUBLE, number => number;
    i64: i64 = ACCEL_UNSET_INT64, number => number;
    i32: i32 = ACCEL_UNSET, number => number;
    bool: i32 = ACCEL_UNSET, truth => truth.into();
}

/// An argument, or what says that there is none.
#[inline]
pub(crate) fn or_unset<T: Optional>(argument: Option<T>) -> T::Raw {
    argument.map_or(T::UNSET, T::to_raw)
}

/// Arrays that one count is for.
///
/// # Errors
/// InvalidArgument for another length than the first has.
#[inline]
pub(crate) fn same_length(expected: usize, found: usize, name: &str) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::new(ErrorCode::InvalidArgument, format!("{name} has {found} items; expected {expected}")))
}

/// The beginning of an array: NULL for an empty one.
#[inline]
pub(crate) fn first<T>(items: &[T]) -> *const T {
    if items.is_empty() {
        ptr::null()
    } else {
        items.as_ptr()
    }
}
