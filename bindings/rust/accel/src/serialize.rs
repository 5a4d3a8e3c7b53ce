// SPDX-License-Identifier: Apache-2.0
//! The crate `serde`: values, dtypes, devices, choices, and options.
#[cfg(feature = "serde")]
mod implementation;
#[cfg(feature = "serde")]
mod options;
#[cfg(feature = "serde")]
pub(crate) use implementation::Named;
#[cfg(feature = "serde")]
pub(crate) use options::{next, read_settings, written_as_it_is, Form, Known, Written};

/// A choice by its name.
#[cfg(feature = "serde")]
macro_rules! named {
    ($name:ident { $($item:ident)* }) => {
        impl $crate::serialize::Named for $name {
            const NAMES: &'static [(&'static str, Self)] = &[$((stringify!($item), $name::$item)),*];
        }

        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(<Self as $crate::serialize::Named>::name(*self))
            }
        }

        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                <Self as $crate::serialize::Named>::of_name(&name)
            }
        }

        $crate::serialize::written_as_it_is!($name);
    };
}

#[cfg(not(feature = "serde"))]
macro_rules! named {
    ($name:ident { $($item:ident)* }) => {};
}

pub(crate) use named;
