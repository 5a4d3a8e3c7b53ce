//! What the builders for the library's structs of options are made of. Their functions are generated from the header.
use crate::error::Result;
use crate::strings::c_string;
use accel_sys as sys;
use std::any::Any;
use std::ffi::CString;
use std::os::raw::c_char;
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

/// What the pointers of a struct lead to. It stays in its place, and clones of the options share it.
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

/// What a builder keeps besides the struct.
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

/// A field that may be unset.
pub(crate) trait Field {
    /// What it shows, where it is set.
    fn shown(&self) -> Option<&dyn std::fmt::Debug>;
}

macro_rules! fields {
    ($($kind:ty = $unset:expr),*) => {$(
        impl Field for $kind {
            fn shown(&self) -> Option<&dyn std::fmt::Debug> {
                (*self != $unset).then_some(self)
            }
        }
    )*};
}

fields!(i32 = sys::ACCEL_UNSET, i64 = sys::ACCEL_UNSET_INT64, f64 = sys::ACCEL_UNSET_DOUBLE, usize = 0, c_char = 0);

impl<T> Field for *const T {
    fn shown(&self) -> Option<&dyn std::fmt::Debug> {
        (!self.is_null()).then_some(&"...")
    }
}

impl<T> Field for *mut T {
    fn shown(&self) -> Option<&dyn std::fmt::Debug> {
        (!self.is_null()).then_some(&"...")
    }
}

impl Field for sys::accel_device_t {
    fn shown(&self) -> Option<&dyn std::fmt::Debug> {
        (self.r#type != sys::ACCEL_UNSET).then_some(&self.r#type)
    }
}

pub(crate) fn show(shown: &mut std::fmt::DebugStruct<'_, '_>, name: &str, field: &dyn Field) {
    if let Some(value) = field.shown() {
        shown.field(name.trim_start_matches("r#"), value);
    }
}

/// A duration in the library's terms.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    duration.as_millis().try_into().unwrap_or(i64::MAX)
}

/// A builder: what is not set comes from the environment or has the default that its function names. One with pointers keeps what
/// they lead to, the others nothing.
macro_rules! builder {
    ($(#[$text:meta])* $name:ident($raw:ident = $unset:ident), $kept:ty, $($field:ident)*) => {
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

        /// What is set.
        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = formatter.debug_struct(stringify!($name));
                $($crate::options::show(&mut shown, stringify!($field), &self.0.$field);)*
                shown.finish()
            }
        }
    };
}

pub(crate) use builder;

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
