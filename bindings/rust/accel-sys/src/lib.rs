// SPDX-License-Identifier: Apache-2.0
//! The C ABI of libaccel, as `include/accel.h` declares it. Everything here is unsafe; the crate `libaccel` is the safe layer.
//!
//! The first call, or `load()`, loads the library. Without one a call answers an error status, NULL or nothing, and
//! `load_failure()` says why. With the feature `linked` the program is linked with it instead.
#![allow(non_camel_case_types)]
#![cfg_attr(not(feature = "linked"), allow(clippy::missing_safety_doc, clippy::too_many_arguments))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(feature = "linked"))]
mod find;
#[cfg(not(feature = "linked"))]
pub mod libtorch;
#[cfg(not(feature = "linked"))]
mod load;
#[cfg(not(feature = "linked"))]
pub use load::{load, load_failure};

/// Declares the functions of the header: linked, or looked up when they are called first.
macro_rules! functions {
    ($($(#[$text:meta])* pub fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        #[cfg(feature = "linked")]
        extern "C" {
            $($(#[$text])* pub fn $name($($argument: $kind),*) $(-> $result)?;)*
        }
        $(
            #[cfg(not(feature = "linked"))]
            $(#[$text])*
            #[inline]
            pub unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                use std::sync::atomic::AtomicPtr;
                static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                let address = crate::load::symbol(&KNOWN, concat!(stringify!($name), "\0"));
                if address.is_null() {
                    return crate::load::Missing::ANSWER;
                }
                let function: unsafe extern "C" fn($($kind),*) $(-> $result)? = core::mem::transmute(address);
                function($($argument),*)
            }
        )*
    };
}

#[rustfmt::skip]
mod generated;
pub use generated::*;

/// Arguments that only borrow, as the functions `accel_arg_*` that the header defines in place.
impl accel_value_t {
    const fn of(kind: i32, content: accel_value_as) -> Self {
        accel_value_t { kind, reserved: 0, r#as: content }
    }
    pub const fn none() -> Self {
        Self::of(ACCEL_VALUE_NONE, accel_value_as { integer: 0 })
    }
    pub const fn bool(truth: bool) -> Self {
        Self::of(ACCEL_VALUE_BOOL, accel_value_as { integer: truth as i64 })
    }
    pub const fn int(integer: i64) -> Self {
        Self::of(ACCEL_VALUE_INT, accel_value_as { integer })
    }
    pub const fn double(number: f64) -> Self {
        Self::of(ACCEL_VALUE_DOUBLE, accel_value_as { number })
    }
    pub const fn string(string: *const std::os::raw::c_char) -> Self {
        Self::of(ACCEL_VALUE_STRING, accel_value_as { string })
    }
    pub const fn tensor(tensor: *mut accel_tensor_t) -> Self {
        Self::of(ACCEL_VALUE_TENSOR, accel_value_as { tensor })
    }
    pub const fn dtype(dtype: accel_dtype_t) -> Self {
        // The whole union is set, so that equal values have equal bytes.
        let mut content = accel_value_as { integer: 0 };
        content.dtype = dtype;
        Self::of(ACCEL_VALUE_DTYPE, content)
    }
    pub const fn device(device: accel_device_t) -> Self {
        Self::of(ACCEL_VALUE_DEVICE, accel_value_as { device })
    }
}
