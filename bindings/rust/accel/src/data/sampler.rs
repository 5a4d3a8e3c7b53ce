//! An order of items for each epoch.
use crate::callback::{self, closure, hand_over, CallbackResult, Exclusive};
use crate::error::Result;
use crate::handle::{array, handle};
use crate::tensor::Tensor;
use accel_sys as sys;
use std::ffi::c_void;

handle! {
    /// An order of items for each epoch.
    Sampler(accel_sampler_t), accel_sampler_release
}

impl Sampler {
    /// 0, 1, 2, ...
    pub fn sequential(length: i64) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_sampler_sequential(length, out) })
    }

    /// A new order in every epoch, the same in every run and on every rank.
    pub fn seedable_random(length: i64, seed: i64) -> Result<Self> {
        Self::made(|out| unsafe { sys::accel_sampler_seedable_random(length, seed, out) })
    }

    /// Draws of another number than there are items, with or without replacement.
    pub fn random_draws(length: i64, num_samples: i64, replacement: bool, seed: i64) -> Result<Self> {
        let replacement = replacement.into();
        Self::made(|out| unsafe { sys::accel_sampler_random_draws(length, num_samples, replacement, seed, out) })
    }

    /// Draws by weight; an item of weight 0 is never drawn.
    pub fn weighted(weights: &[f64], num_samples: i64, replacement: bool, seed: i64) -> Result<Self> {
        let ((first, length), replacement) = (array(weights), replacement.into());
        Self::made(|out| unsafe { sys::accel_sampler_weighted(first, length, num_samples, replacement, seed, out) })
    }

    /// Some of the items, shuffled or as given.
    pub fn subset(indices: &[i64], shuffle: bool, seed: i64) -> Result<Self> {
        let (first, length) = array(indices);
        Self::made(|out| unsafe { sys::accel_sampler_subset(first, length, shuffle.into(), seed, out) })
    }

    /// Random batches of items of about one length.
    pub fn length_grouped(lengths: &[i64], batch_size: i64, group_batches: Option<i64>, seed: i64) -> Result<Self> {
        let ((first, length), group) = (array(lengths), group_batches.unwrap_or(sys::ACCEL_UNSET_INT64));
        Self::made(|out| unsafe { sys::accel_sampler_length_grouped(first, length, batch_size, group, seed, out) })
    }

    /// The share of one of `num_replicas` ranks, for programs that share items out themselves.
    pub fn distributed(
        length: i64,
        num_replicas: i64,
        rank: i64,
        shuffle: bool,
        seed: i64,
        drop_last: bool,
    ) -> Result<Self> {
        let (shuffle, drop_last) = (shuffle.into(), drop_last.into());
        Self::made(|out| unsafe {
            sys::accel_sampler_distributed(length, num_replicas, rank, shuffle, seed, drop_last, out)
        })
    }

    /// An order that the program makes: it fills in the items of an epoch. For the same epoch it must do the same.
    pub fn custom<F>(length: i64, order: F) -> Result<Self>
    where
        F: FnMut(i64, &mut [i64]) -> CallbackResult + Send + 'static,
    {
        let (data, destroy) = hand_over(Exclusive::new(order));
        Self::made(|out| unsafe { sys::accel_sampler_create(length, Some(call_order::<F>), data, destroy, out) })
    }

    /// The number of draws of an epoch.
    pub fn len(&self) -> i64 {
        unsafe { sys::accel_sampler_length(self.as_raw()) }
    }

    /// Whether nothing is drawn.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The order of an epoch, as an int64 tensor.
    pub fn indices(&self, epoch: i64) -> Result<Tensor> {
        Tensor::made(|out| unsafe { sys::accel_sampler_indices(self.as_raw(), epoch, out) })
    }
}

unsafe extern "C" fn call_order<F>(epoch: i64, indices: *mut i64, n_indices: usize, data: *mut c_void) -> i32
where
    F: FnMut(i64, &mut [i64]) -> CallbackResult,
{
    callback::run(|| {
        let indices = if n_indices == 0 { &mut [] } else { std::slice::from_raw_parts_mut(indices, n_indices) };
        closure::<Exclusive<F>>(data).with(|order| order(epoch, indices))
    })
}
