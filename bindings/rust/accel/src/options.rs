//! Builders for the library's structs of options.

/// A builder: what is not set comes from the environment or has the default that is named here.
macro_rules! options {
    (
        $(#[$text:meta])*
        $name:ident($raw:ident = $unset:ident) {
            $($(#[$field_text:meta])* $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$text])*
        #[derive(Clone, Copy)]
        pub struct $name(pub(crate) accel_sys::$raw);

        impl $name {
            /// Nothing is set.
            pub fn new() -> Self {
                $name(accel_sys::$unset)
            }

            $(
                $(#[$field_text])*
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.0.$field = $field.into();
                    self
                }
            )*
        }

        // SAFETY: pointers inside are set only while a call is made.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }
    };
}

pub(crate) use options;

/// A number of the C API that has a name in Rust.
macro_rules! constants {
    ($(#[$text:meta])* $name:ident { $($(#[$item_text:meta])* $item:ident = $number:ident,)* }) => {
        $(#[$text])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$item_text])* $item,)*
        }

        impl From<$name> for i32 {
            fn from(name: $name) -> i32 {
                match name {
                    $($name::$item => accel_sys::$number,)*
                }
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
