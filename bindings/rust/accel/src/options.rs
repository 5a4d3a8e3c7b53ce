// SPDX-License-Identifier: Apache-2.0
//! The parts of the builders for the library's structs of options. Their functions are generated from the header.
use crate::dtype::{DType, Device};
use crate::error::{text, Result};
use crate::strings::c_string;
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::any::Any;
use std::ffi::CString;
use std::os::raw::c_char;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// Options that a call takes.
pub(crate) trait Options {
    /// The struct of the library.
    type Raw;

    /// The struct, for a call while `self` lives.
    ///
    /// # Errors
    /// InvalidArgument where a text was set that has a NUL inside.
    fn as_raw(&self) -> Result<*const Self::Raw>;
}

/// Options that may be left out: NULL without them.
pub(crate) fn optional<O: Options>(options: &Option<O>) -> Result<*const O::Raw> {
    options.as_ref().map_or(Ok(std::ptr::null()), Options::as_raw)
}

/// The memory that the pointers of a struct lead to. It stays in its place, and clones of the options share it.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    objects: Vec<Arc<dyn Any + Send + Sync>>,
    wrong_text: Option<String>,
}

impl Kept {
    pub(crate) fn keep<T: Send + Sync + 'static, P>(&mut self, object: T, pointer: impl FnOnce(&T) -> P) -> P {
        let object = Arc::new(object);
        let pointer = pointer(&object);
        self.objects.push(object);
        pointer
    }

    /// A text with a NUL inside is an error of the call that takes the options.
    pub(crate) fn text(&mut self, text: &str) -> *const c_char {
        match CString::new(text) {
            Ok(text) => self.keep(text, |text| text.as_ptr()),
            Err(_) => {
                self.wrong_text = Some(text.into());
                std::ptr::null()
            }
        }
    }
}

/// The fields of a builder besides the struct.
pub(crate) trait Keeps: Default {
    /// # Errors
    /// InvalidArgument where a text was set that has a NUL inside.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Keeps for () {}

impl Keeps for Kept {
    fn check(&self) -> Result<()> {
        self.wrong_text.as_ref().map_or(Ok(()), |text| c_string(text).map(drop))
    }
}

/// The type of a setting in Rust; `Raw` is its type in the library's struct.
pub(crate) trait Setting<Raw>: Sized {
    /// None where it is unset.
    ///
    /// # Safety
    /// A pointer leads to what lives. The setting that is made of it is dropped before that is.
    unsafe fn read(raw: &Raw) -> Option<Self>;
}

macro_rules! settings {
    ($($kind:ty: $raw:ty, $unset:expr, $name:ident => $value:expr;)*) => {$(
        impl Setting<$raw> for $kind {
            #[allow(clippy::cmp_null)] // as of numbers
            unsafe fn read($name: &$raw) -> Option<Self> {
                if *$name == $unset {
                    None
                } else {
                    $value
                }
            }
        }
    )*};
}

settings! {
    bool: i32, sys::ACCEL_UNSET, truth => Some(*truth != 0);
    i32: i32, sys::ACCEL_UNSET, number => Some(*number);
    u8: i32, sys::ACCEL_UNSET, number => u8::try_from(*number).ok();
    DType: i32, sys::ACCEL_UNSET, number => DType::from_raw(*number);
    i64: i64, sys::ACCEL_UNSET_INT64, number => Some(*number);
    Duration: i64, sys::ACCEL_UNSET_INT64, number => u64::try_from(*number).ok().map(Duration::from_millis);
    usize: usize, 0, number => Some(*number);
    f64: f64, sys::ACCEL_UNSET_DOUBLE, number => Some(*number);
    String: *const c_char, ptr::null(), pointer => Some(text(*pointer));
    Value: *const sys::accel_value_t, ptr::null(), pointer => (*pointer.cast::<Value>()).try_clone().ok();
    Tensor: *mut sys::accel_tensor_t, ptr::null_mut(), pointer => Some(Tensor::shared_from_raw(*pointer));
    Tensor: *const sys::accel_tensor_t, ptr::null(), pointer => Some(Tensor::shared_from_raw(*pointer as *mut _));
}

impl Setting<sys::accel_device_t> for Device {
    unsafe fn read(raw: &sys::accel_device_t) -> Option<Self> {
        (raw.r#type != sys::ACCEL_UNSET).then(|| Device::from_raw(*raw))
    }
}

/// A duration in the library's terms.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    duration.as_millis().try_into().unwrap_or(i64::MAX)
}

/// A builder: what is not set comes from the environment or has the default that its function names. One with pointers keeps what
/// they lead to, the others nothing.
macro_rules! call_options {
    ($(#[$text:meta])* $name:ident($raw:ident = $unset:ident), $kept:ty,
     $($field:ident: $kind:ty = $method:ident,)*) => {
        $(#[$text])*
        pub struct $name(pub(crate) accel_sys::$raw, $kept);

        // SAFETY: a pointer inside is set only while a call is made, or leads to what is kept, may be shared between threads, and is
        // read by calls alone.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $crate::options::Options for $name {
            type Raw = accel_sys::$raw;

            fn as_raw(&self) -> $crate::error::Result<*const Self::Raw> {
                $crate::options::Keeps::check(&self.1)?;
                Ok(&self.0)
            }
        }

        impl $crate::options::Setting<*const accel_sys::$raw> for $name {
            unsafe fn read(raw: &*const accel_sys::$raw) -> Option<Self> {
                raw.as_ref().map(|raw| $name(*raw, <$kept>::default()))
            }
        }

        impl $name {
            /// Nothing is set.
            pub fn new() -> Self {
                $name(accel_sys::$unset, <$kept>::default())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        /// Shows the fields that are set.
        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = formatter.debug_struct(stringify!($name));
                // SAFETY: what pointers lead to is kept.
                $(if let Some(setting) = unsafe { <$kind as $crate::options::Setting<_>>::read(&self.0.$field) } {
                    shown.field(stringify!($method), &setting);
                })*
                shown.finish()
            }
        }
    };
}

pub(crate) use call_options;

/// A number of the C API that has a name in Rust.
macro_rules! constants {
    ($(#[$text:meta])* $name:ident { $($(#[$item_text:meta])* $item:ident = $number:ident,)* }) => {
        $(#[$text])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$item_text])* $item,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self, formatter)
            }
        }

        $crate::serialize::named!($name { $($item)* });

        impl From<$name> for i32 {
            fn from(name: $name) -> i32 {
                match name {
                    $($name::$item => accel_sys::$number,)*
                }
            }
        }

        impl $crate::options::Setting<i32> for $name {
            unsafe fn read(number: &i32) -> Option<Self> {
                Self::from_raw(*number)
            }
        }

        impl $crate::call::Made for $name {
            type Raw = i32;
            const EMPTY: i32 = 0;

            unsafe fn of(number: i32) -> $crate::error::Result<Self> {
                let message = || format!("{} {number}: not known here", stringify!($name));
                let code = $crate::error::ErrorCode::Unsupported;
                Self::from_raw(number).ok_or_else(|| $crate::error::Error::new(code, message()))
            }
        }

        impl $name {
            #[allow(dead_code)]
            pub(crate) fn from_raw(number: i32) -> Option<Self> {
                match number {
                    $(accel_sys::$number => Some(Self::$item),)*
                    _ => None,
                }
            }
        }
    };
}

pub(crate) use constants;
