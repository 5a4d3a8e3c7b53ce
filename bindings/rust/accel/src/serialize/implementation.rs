// SPDX-License-Identifier: Apache-2.0
use crate::dtype::{DType, Device};
use crate::value::{Kind, Value};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, SerializeMap, SerializeSeq, Serializer};
use std::fmt;
use std::str::FromStr;

/// A choice, whose names are those of its variants.
pub(crate) trait Named: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }

    fn of_name<E: serde::de::Error>(name: &str) -> Result<Self, E> {
        // "FullShard" is also "full_shard" and "FULL_SHARD", as in other languages and in variables.
        let given = name.replace('_', "");
        let found = Self::NAMES.iter().find(|(one, _)| one.eq_ignore_ascii_case(&given)).map(|(_, one)| *one);
        let known = || Self::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        found.ok_or_else(|| E::custom(format!("{name:?}: expected one of {:?}", known())))
    }
}

macro_rules! by_text {
    ($($kind:ty),*) => {$(
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }
    )*};
}

by_text!(DType, Device);

/// Tensors are nested lists, as in [`Value::to_json`], and are read as such; dtypes and devices are texts.
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.kind() {
            Kind::None => serializer.serialize_unit(),
            Kind::Bool => serializer.serialize_bool(self.as_bool() == Some(true)),
            Kind::Int => serializer.serialize_i64(self.as_int().unwrap_or_default()),
            Kind::Double => serializer.serialize_f64(self.as_f64().unwrap_or_default()),
            Kind::String => {
                serializer.serialize_str(self.as_str().ok_or_else(|| S::Error::custom("a text that is not UTF-8"))?)
            }
            Kind::Bytes => serializer.serialize_bytes(self.as_bytes().unwrap_or_default()),
            Kind::DType => self.as_dtype().serialize(serializer),
            Kind::Device => self.as_device().serialize(serializer),
            Kind::Tensor => {
                let nested = self.to_json().and_then(|json| Value::from_json(&json)).map_err(S::Error::custom)?;
                nested.serialize(serializer)
            }
            Kind::List | Kind::Tuple => {
                let mut items = serializer.serialize_seq(Some(self.len()))?;
                self.iter().try_for_each(|item| items.serialize_element(item))?;
                items.end()
            }
            Kind::Map => {
                let mut items = serializer.serialize_map(Some(self.len()))?;
                let keys = (0..self.len()).filter_map(|place| self.key_at(place));
                keys.zip(self.iter()).try_for_each(|(key, item)| items.serialize_entry(key, item))?;
                items.end()
            }
        }
    }
}

#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Read)
    }
}

struct Read;

macro_rules! visit {
    ($($method:ident($kind:ty) = $made:expr;)*) => {$(
        fn $method<E: serde::de::Error>(self, given: $kind) -> Result<Value, E> {
            #[allow(clippy::redundant_closure_call)]
            ($made)(given).map_err(E::custom)
        }
    )*};
}

impl<'de> Visitor<'de> for Read {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a truth, a number, a text, bytes, a list or a map")
    }

    visit! {
        visit_bool(bool) = |truth: bool| crate::Result::Ok(Value::from(truth));
        visit_i64(i64) = |number: i64| crate::Result::Ok(Value::from(number));
        visit_f64(f64) = |number: f64| crate::Result::Ok(Value::from(number));
        visit_str(&str) = |text: &str| Value::string(text);
        visit_bytes(&[u8]) = |bytes: &[u8]| Value::bytes(bytes, None);
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Value, E> {
        // What is larger than any integer of a value becomes a number, as in JSON.
        Ok(i64::try_from(number).map_or_else(|_| Value::from(number as f64), Value::from))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::none())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        Ok(Value::none())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read: Vec<Value> = Vec::new();
        while let Some(item) = items.next_element()? {
            read.push(item);
        }
        Value::list(read).map_err(A::Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Value::map::<&str>([]).map_err(A::Error::custom)?;
        while let Some((key, item)) = items.next_entry::<Value, Value>()? {
            read.put(&key, &item).map_err(A::Error::custom)?;
        }
        Ok(read)
    }
}
