// SPDX-License-Identifier: Apache-2.0
//! Options of calls: a map of those that are set.
use crate::dtype::{DType, Device};
use crate::value::Value;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// A setting in a file.
pub(crate) trait Written: Sized {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

macro_rules! written_as_it_is {
    ($($kind:ty),*) => {$(
        impl $crate::serialize::Written for $kind {
            fn write<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                serde::Serialize::serialize(self, serializer)
            }

            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }
        }
    )*};
}

pub(crate) use written_as_it_is;

written_as_it_is!(bool, i32, i64, usize, f64, String, Value, DType, Device);

/// In milliseconds, as the names of such settings say.
impl Written for Duration {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.as_millis().try_into().unwrap_or(u64::MAX))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// A character, as the one between the columns of a table.
impl Written for u8 {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_char(char::from(*self))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let character = char::deserialize(deserializer)?;
        u8::try_from(character).map_err(|_| D::Error::custom(format!("{character:?}: expected a character of ASCII")))
    }
}

/// A setting that is being written.
pub(crate) struct Form<'a, T>(pub &'a T);

impl<T: Written> Serialize for Form<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

/// A setting that is being read.
pub(crate) struct Seed<T>(PhantomData<T>);

impl<'de, T: Written> DeserializeSeed<'de> for Seed<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer)
    }
}

/// Options whose settings have names.
pub(crate) trait Known: Default {
    const NAMES: &'static [&'static str];

    /// Takes the next value of a map as a setting.
    fn set<'de, A: MapAccess<'de>>(self, name: &str, map: &mut A) -> Result<Self, A::Error>;
}

/// The next value of a map.
pub(crate) fn next<'de, T: Written, A: MapAccess<'de>>(map: &mut A) -> Result<T, A::Error> {
    map.next_value_seed(Seed(PhantomData))
}

pub(crate) fn read_settings<'de, T: Known, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(Read(PhantomData))
}

struct Read<T>(PhantomData<T>);

impl<'de, T: Known> Visitor<'de> for Read<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a map with some of {}", T::NAMES.join(", "))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut options = T::default();
        while let Some(name) = map.next_key::<String>()? {
            options = options.set(&name, &mut map)?;
        }
        Ok(options)
    }
}
