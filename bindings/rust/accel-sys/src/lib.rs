//! The C ABI of libaccel, as `include/accel.h` declares it. Everything here is unsafe; the crate `accel` is the safe layer.
//!
//! The library is found through `ACCEL_LIB_DIR` or pkg-config when the crate is built, and by the dynamic linker when
//! the program runs. With the feature `dlopen` nothing is linked: `load()`, or else the first call, loads the library.
#![allow(non_camel_case_types)]
#![cfg_attr(feature = "dlopen", allow(clippy::missing_safety_doc, clippy::too_many_arguments))]

#[cfg(feature = "dlopen")]
mod dlopen;
pub mod libtorch;
#[cfg(feature = "dlopen")]
pub use dlopen::load;

/// Declares the functions of the header: linked, or looked up when they are called first.
macro_rules! functions {
    ($($(#[$text:meta])* pub fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        #[cfg(not(feature = "dlopen"))]
        extern "C" {
            $($(#[$text])* pub fn $name($($argument: $kind),*) $(-> $result)?;)*
        }
        $(
            #[cfg(feature = "dlopen")]
            $(#[$text])*
            #[inline]
            pub unsafe fn $name($($argument: $kind),*) $(-> $result)? {
                use std::sync::atomic::AtomicPtr;
                static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
                let address = crate::dlopen::symbol(&KNOWN, concat!(stringify!($name), "\0"));
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
