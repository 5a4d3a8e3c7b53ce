// SPDX-License-Identifier: Apache-2.0
//! Trees of tensors.
use crate::call::made;
use crate::dtype::Device;
use crate::error::{Error, ErrorCode, Result};
use crate::memory::{self, Memory};
use crate::strings::Texts;
use crate::tensor::Tensor;
use crate::value::{Arg, Kind, Value};
use accel_sys as sys;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

#[rustfmt::skip]
#[path = "generated/tree_closures.rs"]
pub(crate) mod closures;

/// A tensor, a value, or a structure of them: what collectives take and give back, and what a batch is turned into.
///
/// Tuples, vectors, arrays and maps of such are one, and so is a struct that derives it:
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::prelude::*;
///
/// #[derive(Tree)]
/// struct Scores {
///     loss: Tensor,
///     hits: Tensor,
/// }
///
/// let state = StateOptions::new().cpu(true).build()?;
/// let scores = Scores { loss: Tensor::scalar(0.5f32)?, hits: Tensor::scalar(3i64)? };
/// let all = state.gather(&scores)?;
/// assert_eq!(all.loss.numel(), i64::from(state.num_processes()));
/// let (loss, hits) = state.reduce(&(all.loss, all.hits), Reduction::Sum, 1.0)?;
/// assert!(loss.item()? > 0.0 && hits.item_int()? > 0);
/// # state.end_training() }
/// ```
///
/// Enumerations and structs with type parameters are none:
///
/// ```compile_fail
/// #[derive(accel::Tree)]
/// struct Generic<T>(T);
/// ```
pub trait Tree: Sized {
    /// A value that shares its tensors.
    fn to_value(&self) -> Result<Value>;

    /// It from what a call gave.
    ///
    /// # Errors
    /// TypeMismatch for another kind of value.
    fn from_value(value: Value) -> Result<Self>;

    /// It as an argument.
    fn as_arg(&self) -> Result<TreeArg<'_>> {
        self.to_value().map(TreeArg::Made)
    }
}

/// An argument that is borrowed, or made for the call.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeArg<'a> {
    /// The caller's value.
    Borrowed(Arg<'a>),
    /// A value that was made of it.
    Made(Value),
}

impl TreeArg<'_> {
    pub(crate) fn as_raw(&self) -> *const sys::accel_value_t {
        match self {
            TreeArg::Borrowed(argument) => argument.as_raw(),
            TreeArg::Made(value) => value.as_raw(),
        }
    }
}

impl Memory for TreeArg<'_> {
    fn each(&self, found: &mut dyn FnMut(Range<usize>)) {
        match self {
            TreeArg::Borrowed(argument) => argument.each(found),
            TreeArg::Made(value) => value.each(found),
        }
    }
}

impl Tree for Tensor {
    fn to_value(&self) -> Result<Value> {
        Ok(self.shallow_clone().into())
    }

    fn from_value(value: Value) -> Result<Self> {
        value.into_tensor()
    }

    fn as_arg(&self) -> Result<TreeArg<'_>> {
        Ok(TreeArg::Borrowed(self.into()))
    }
}

impl Tree for Value {
    fn to_value(&self) -> Result<Value> {
        self.try_clone()
    }

    fn from_value(value: Value) -> Result<Self> {
        Ok(value)
    }

    fn as_arg(&self) -> Result<TreeArg<'_>> {
        Ok(TreeArg::Borrowed(self.into()))
    }
}

/// The parts of a tree besides tensors: of calls without a result, and items of batches.
macro_rules! leaves {
    ($($kind:ty, $name:literal: $to:expr, $from:expr;)*) => {$(
        impl Tree for $kind {
            fn to_value(&self) -> Result<Value> {
                #[allow(clippy::redundant_closure_call)]
                ($to)(self)
            }

            fn from_value(value: Value) -> Result<Self> {
                #[allow(clippy::redundant_closure_call)]
                ($from)(&value).ok_or_else(|| expected(&value, $name))
            }
        }
    )*};
}

leaves! {
    (), "none": |_| Ok(Value::none()), |value: &Value| value.is_none().then_some(());
    bool, "a truth": |leaf: &bool| Ok((*leaf).into()), Value::as_bool;
    i64, "an integer": |leaf: &i64| Ok((*leaf).into()), Value::as_int;
    f64, "a number": |leaf: &f64| Ok((*leaf).into()), Value::as_f64;
    f32, "a number": |leaf: &f32| Ok(f64::from(*leaf).into()), |value: &Value| value.as_f64().map(|number| number as f32);
    i32, "an integer of 32 bits": |leaf: &i32| Ok((*leaf).into()), |value: &Value| i32::try_from(value.as_int()?).ok();
    usize, "an integer from 0": |leaf: &usize| Ok((*leaf as i64).into()), |value: &Value| usize::try_from(value.as_int()?).ok();
    String, "a text": Value::string, |value: &Value| value.as_str().map(String::from);
}

fn expected(value: &Value, what: &str) -> Error {
    Error::new(ErrorCode::TypeMismatch, format!("value {value:?}: expected {what}"))
}

impl<T: Tree> Tree for Vec<T> {
    fn to_value(&self) -> Result<Value> {
        Value::list(self.iter().map(Tree::to_value).collect::<Result<Vec<_>>>()?)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value.kind() {
            Kind::List | Kind::Tuple => value.iter().map(|item| T::from_value(item.try_clone()?)).collect(),
            _ => Err(expected(&value, "a list or tuple")),
        }
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn to_value(&self) -> Result<Value> {
        Value::list(self.iter().map(Tree::to_value).collect::<Result<Vec<_>>>()?)
    }

    fn from_value(value: Value) -> Result<Self> {
        let wrong = expected(&value, &format!("a list or tuple of {N}"));
        Vec::from_value(value)?.try_into().map_err(|_: Vec<T>| wrong)
    }
}

macro_rules! maps {
    ($($map:ident)*) => {$(
        impl<T: Tree> Tree for $map<String, T> {
            fn to_value(&self) -> Result<Value> {
                let entries = self.iter().map(|(key, item)| Ok((key, item.to_value()?)));
                Value::map(entries.collect::<Result<Vec<_>>>()?)
            }

            fn from_value(value: Value) -> Result<Self> {
                match value.kind() {
                    Kind::Map => {
                        value.entries().map(|(key, item)| Ok((key.into(), T::from_value(item.try_clone()?)?))).collect()
                    }
                    _ => Err(expected(&value, "a map")),
                }
            }
        }
    )*};
}

maps!(BTreeMap HashMap);

impl<T: Tree> Tree for Option<T> {
    fn to_value(&self) -> Result<Value> {
        self.as_ref().map_or(Ok(Value::none()), Tree::to_value)
    }

    fn from_value(value: Value) -> Result<Self> {
        if value.is_none() {
            return Ok(None);
        }
        T::from_value(value).map(Some)
    }
}

macro_rules! tuples {
    ($($number:literal: $($name:ident)*;)*) => {$(
        impl<$($name: Tree),*> Tree for ($($name,)*) {
            fn to_value(&self) -> Result<Value> {
                #[allow(non_snake_case)]
                let ($($name,)*) = self;
                Value::tuple([$($name.to_value()?),*])
            }

            fn from_value(value: Value) -> Result<Self> {
                let mut fields = Fields::of("a tuple", &value, $number)?;
                Ok(($(fields.next::<$name>()?,)*))
            }
        }
    )*};
}

tuples! {
    1: A; 2: A B; 3: A B C; 4: A B C D; 5: A B C D E; 6: A B C D E F; 7: A B C D E F G; 8: A B C D E F G H;
}

/// The fields of a struct on their way out of a value, for `derive(Tree)`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Fields<'a> {
    of: &'static str,
    value: &'a Value,
    next: usize,
}

impl<'a> Fields<'a> {
    pub fn of(of: &'static str, value: &'a Value, number: usize) -> Result<Self> {
        let fits = match value.kind() {
            Kind::Map => of != "a tuple" || value.len() == number,
            Kind::List | Kind::Tuple => value.len() == number,
            _ => false,
        };
        if !fits {
            return Err(expected(value, &format!("a map, list or tuple with the {number} fields of {of}")));
        }
        Ok(Fields { of, value, next: 0 })
    }

    /// By its place.
    #[allow(clippy::should_implement_trait)] // its items have types of their own
    pub fn next<T: Tree>(&mut self) -> Result<T> {
        let place = self.next;
        self.next += 1;
        self.take(self.value.at(place), &place.to_string())
    }

    /// By its key in a map, else by its place.
    pub fn named<T: Tree>(&mut self, name: &str) -> Result<T> {
        match self.value.kind() {
            Kind::Map => self.take(self.value.get(name), name),
            _ => self.next(),
        }
    }

    fn take<T: Tree>(&self, item: Option<&Value>, name: &str) -> Result<T> {
        let missing = || {
            let keys: Vec<&str> = self.value.entries().map(|(key, _)| key).collect();
            Error::new(ErrorCode::NotFound, format!("field {name} of {}: not among the keys {keys:?}", self.of))
        };
        let of_field =
            |error: Error| Error::new(error.code(), format!("field {name} of {}: {}", self.of, error.message()));
        T::from_value(item.ok_or_else(missing)?.try_clone()?).map_err(of_field)
    }
}

impl Value {
    /// A structure of it: a tensor, a tuple, a struct that derives [`Tree`]. Batches become one so.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::prelude::*;
    /// let batch = Value::list([Tensor::scalar(1.0f32)?, Tensor::scalar(2.0f32)?])?;
    /// let (x, y): (Tensor, Tensor) = batch.into_tree()?;
    /// assert_eq!((x + y)?.item()?, 3.0);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// TypeMismatch for another structure; NotFound for a key that is not there.
    pub fn into_tree<T: Tree>(self) -> Result<T> {
        T::from_value(self)
    }

    /// Views of these rows of each tensor; negative numbers count from the end.
    pub fn slice_rows(&self, rows: Range<i64>) -> Result<Value> {
        made(|out| unsafe { sys::accel_slice_tensors(self.as_raw(), rows.start, rows.end, out) })
    }

    /// Each tensor on a device; the values of `skip_keys` stay.
    pub fn to_device(&self, device: Device, skip_keys: &[&str]) -> Result<Value> {
        memory::reads(self)?;
        let (keys, device) = (Texts::new(skip_keys)?, device.to_raw());
        made(|out| unsafe { sys::accel_send_to_device(self.as_raw(), &device, 0, keys.as_ptr(), keys.len(), out) })
    }
}
