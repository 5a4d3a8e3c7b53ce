// SPDX-License-Identifier: Apache-2.0
//! Enums of arguments for which C has 1 and 0.
use crate::call::Optional;
use crate::value::Arg;
use accel_sys as sys;

macro_rules! flags {
    ($($(#[$text:meta])* $name:ident: $yes:ident, $no:ident;)*) => {$(
        $(#[$text])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum $name {
            $yes,
            $no,
        }

        impl From<bool> for $name {
            fn from(truth: bool) -> Self {
                if truth {
                    $name::$yes
                } else {
                    $name::$no
                }
            }
        }

        impl From<$name> for bool {
            #[inline]
            fn from(flag: $name) -> bool {
                flag == $name::$yes
            }
        }

        impl From<$name> for i32 {
            #[inline]
            fn from(flag: $name) -> i32 {
                bool::from(flag).into()
            }
        }

        impl From<$name> for Arg<'_> {
            #[inline]
            fn from(flag: $name) -> Self {
                bool::from(flag).into()
            }
        }

        impl Optional for $name {
            type Raw = i32;
            const UNSET: i32 = sys::ACCEL_UNSET;

            #[inline]
            fn to_raw(self) -> i32 {
                self.into()
            }
        }
    )*};
}

include!("generated/flags.rs");
