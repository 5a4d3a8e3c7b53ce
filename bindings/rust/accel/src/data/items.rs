// SPDX-License-Identifier: Apache-2.0
//! The program's own map-style datasets.
use super::Dataset;
use crate::call::made;
use crate::callback::{self, closure, hand_over, CallbackResult};
use crate::error::Result;
use crate::tree::Tree;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;

/// A map-style dataset of the program. Its items are made on the thread that asks for a batch; a loader with workers asks
/// on several threads at once.
pub trait Items: Send + Sync + 'static {
    /// The number of items. It is asked again for each batch and epoch.
    fn length(&self) -> CallbackResult<i64>;

    /// Called when a loader begins an epoch, before it asks for the length and for items of it.
    fn set_epoch(&self, _epoch: i64) -> CallbackResult<()> {
        Ok(())
    }

    /// One item.
    fn item(&self, index: i64) -> CallbackResult<Value>;

    /// The items of a batch as a list, in the order of their numbers. Unless it is written, they are made one by one.
    fn items(&self, indices: &[i64]) -> CallbackResult<Value> {
        let items = indices.iter().map(|index| self.item(*index)).collect::<CallbackResult<Vec<Value>>>()?;
        Ok(Value::list(items)?)
    }
}

impl Dataset {
    /// The program's own items.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{CallbackResult, Dataset, Items, Value};
    /// struct Squares;
    /// impl Items for Squares {
    ///     fn length(&self) -> CallbackResult<i64> {
    ///         Ok(10)
    ///     }
    ///     fn item(&self, index: i64) -> CallbackResult<Value> {
    ///         Ok(Value::from(index * index))
    ///     }
    /// }
    /// assert_eq!(Dataset::custom(Squares)?.item(3)?.as_int(), Some(9));
    /// # Ok(()) }
    /// ```
    pub fn custom<I: Items>(items: I) -> Result<Self> {
        let (data, destroy) = hand_over(items);
        // SAFETY: the items are of the kind that the callbacks take.
        made(|out| unsafe {
            let (length, item, items) = (Some(call_length::<I> as _), Some(call_item::<I> as _), call_items::<I> as _);
            sys::accel_dataset_create(length, item, Some(items), Some(call_set_epoch::<I>), data, destroy, out)
        })
    }

    /// So many items that a function makes: a tensor, a tuple, a struct that derives [`Tree`].
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::prelude::*;
    /// let squares = Dataset::from_fn(10, |index| Ok((Tensor::scalar(index)?, Tensor::scalar(index * index)?)))?;
    /// let (_, square): (Tensor, Tensor) = squares.item(3)?.into_tree()?;
    /// assert_eq!(square.item_int()?, 9);
    /// # Ok(()) }
    /// ```
    pub fn from_fn<T: Tree, F>(length: i64, item: F) -> Result<Self>
    where
        F: Fn(i64) -> CallbackResult<T> + Send + Sync + 'static,
    {
        Self::custom(Function { length, item })
    }
}

struct Function<F> {
    length: i64,
    item: F,
}

impl<T: Tree, F> Items for Function<F>
where
    F: Fn(i64) -> CallbackResult<T> + Send + Sync + 'static,
{
    fn length(&self) -> CallbackResult<i64> {
        Ok(self.length)
    }

    fn item(&self, index: i64) -> CallbackResult<Value> {
        Ok((self.item)(index)?.to_value()?)
    }
}

unsafe extern "C" fn call_length<I: Items>(data: *mut c_void) -> i64 {
    callback::run_number(|| closure::<I>(data).length())
}

unsafe extern "C" fn call_set_epoch<I: Items>(epoch: i64, data: *mut c_void) -> i32 {
    callback::run(|| closure::<I>(data).set_epoch(epoch))
}

unsafe extern "C" fn call_item<I: Items>(index: i64, out: *mut sys::accel_value_t, data: *mut c_void) -> i32 {
    callback::run(|| {
        *out = closure::<I>(data).item(index)?.into_raw();
        Ok(())
    })
}

unsafe extern "C" fn call_items<I: Items>(
    indices: *const i64,
    n_indices: usize,
    out: *mut sys::accel_value_t,
    data: *mut c_void,
) -> i32 {
    callback::run(|| {
        let indices = if n_indices == 0 { &[] } else { std::slice::from_raw_parts(indices, n_indices) };
        *out = closure::<I>(data).items(indices)?.into_raw();
        Ok(())
    })
}
