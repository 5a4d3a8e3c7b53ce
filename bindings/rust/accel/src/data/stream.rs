// SPDX-License-Identifier: Apache-2.0
//! Items one after another.
use super::Dataset;
use crate::builders::MergeEnd;
use crate::call::made;
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::Result;
use crate::handle::array;
use crate::value::Value;
use accel_sys as sys;
use std::ffi::c_void;
use std::ptr;

/// Reads a stream of the program. Every iterator over such items is one.
pub trait Reader: Send + 'static {
    /// The next item; None: there are no more.
    fn next_item(&mut self) -> CallbackResult<Option<Value>>;

    /// Leaves items out, and says how many: fewer only at the end. Unless it is written, they are made and dropped.
    fn skip_items(&mut self, count: i64) -> CallbackResult<i64> {
        for skipped in 0..count {
            if self.next_item()?.is_none() {
                return Ok(skipped);
            }
        }
        Ok(count)
    }
}

impl<I: Iterator<Item = CallbackResult<Value>> + Send + 'static> Reader for I {
    fn next_item(&mut self) -> CallbackResult<Option<Value>> {
        self.next().transpose()
    }
}

impl Dataset {
    /// The program's own stream. `begin` gets an epoch, a shard and a number of readers: what it makes reads the shards
    /// `shard`, `shard` + readers, ... of that epoch; 0 and 1 mean all of them. For the same arguments there must be the
    /// same items. `length` is the number of items of an epoch, if it is known; the stream has `num_shards` parts that can
    /// be read without the others, at least 1.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{DataLoader, DataLoaderOptions, Dataset, Value};
    /// let stream = Dataset::stream(None, 1, |_epoch, _shard, _readers| Ok((0..3i64).map(|item| Ok(Value::from(item)))))?;
    /// assert_eq!(DataLoader::new(&stream, DataLoaderOptions::new().batch_size(2))?.count(), 2);
    /// # Ok(()) }
    /// ```
    pub fn stream<F, R>(length: Option<i64>, num_shards: i64, begin: F) -> Result<Self>
    where
        F: Fn(i64, i64, i64) -> CallbackResult<R> + Send + Sync + 'static,
        R: Reader,
    {
        let (data, destroy) = hand_over(begin);
        let length = length.unwrap_or(sys::ACCEL_UNSET_INT64);
        made(|out| unsafe {
            sys::accel_dataset_create_stream(
                Some(call_begin::<F, R>),
                Some(call_next::<R>),
                Some(call_skip::<R>),
                Some(call_end::<R>),
                data,
                destroy,
                length,
                num_shards,
                out,
            )
        })
    }

    /// Several datasets as one stream: where each item comes from is drawn by weight (None: all the same), from seed and
    /// epoch alone.
    pub fn merge(sources: &[&Dataset], weights: Option<&[f64]>, seed: i64, end: MergeEnd) -> Result<Self> {
        let handles: Vec<_> = sources.iter().map(|source| source.as_raw()).collect();
        let (first, length) = array(&handles);
        let weights = weights.map(|weights| Value::list(weights.iter().copied())).transpose()?;
        let weights = weights.as_ref().map_or(ptr::null(), Value::as_raw);
        made(|out| unsafe { sys::accel_dataset_merge(first, length, weights, seed, end.into(), out) })
    }
}

/// A reader by its number, which is its index.
unsafe fn reader<'a, R>(number: i64) -> &'a Exclusive<R> {
    closure(number as *mut c_void)
}

unsafe extern "C" fn call_begin<F, R>(epoch: i64, shard: i64, num_readers: i64, data: *mut c_void) -> i64
where
    F: Fn(i64, i64, i64) -> CallbackResult<R>,
    R: Reader,
{
    callback::run_number(|| {
        let reader = closure::<F>(data)(epoch, shard, num_readers)?;
        Ok(Box::into_raw(Box::new(Exclusive::new(reader))) as i64)
    })
}

unsafe extern "C" fn call_next<R: Reader>(number: i64, out: *mut sys::accel_value_t, _: *mut c_void) -> i32 {
    let mut has_ended = false;
    let status = callback::run(|| {
        match reader::<R>(number).with(R::next_item)? {
            Some(item) => *out = item.into_raw(),
            None => has_ended = true,
        }
        Ok(())
    });
    if has_ended {
        sys::ACCEL_ITER_END
    } else {
        status
    }
}

unsafe extern "C" fn call_skip<R: Reader>(number: i64, count: i64, _: *mut c_void) -> i64 {
    callback::run_number(|| reader::<R>(number).with(|reader| reader.skip_items(count)))
}

unsafe extern "C" fn call_end<R: Reader>(number: i64, _: *mut c_void) {
    callback::drop_closure::<Exclusive<R>>(number as *mut c_void);
}
