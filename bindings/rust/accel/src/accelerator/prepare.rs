// SPDX-License-Identifier: Apache-2.0
//! Preparation by a state: models, optimizers, loaders, schedulers.
use super::closures;
use crate::builders::PrepareModelOptions;
use crate::call::made;
use crate::callback::CallbackResult;
use crate::data::DataLoader;
use crate::error::{check, Result};
use crate::handle::array;
use crate::memory;
use crate::module::Model;
use crate::optimizer::Optimizer;
use crate::options::Options;
use crate::scheduler::Scheduler;
use crate::state::State;
use crate::tensor::Tensor;
use accel_sys as sys;

/// The arguments of [`State::prepare`]: a reference to a model, an optimizer, a loader or a scheduler, or a tuple of such.
pub trait Prepare: private::Sealed {
    /// The prepared ones.
    type Prepared;

    #[doc(hidden)]
    fn put(&self, items: &mut Vec<sys::accel_prepare_item_t>);

    /// # Safety
    /// The items are those that were put, prepared.
    #[doc(hidden)]
    unsafe fn take(items: &mut std::slice::Iter<'_, sys::accel_prepare_item_t>) -> Self::Prepared;
}

mod private {
    pub trait Sealed {}
}

const NOTHING: sys::accel_prepare_item_t = sys::accel_prepare_item_t {
    struct_size: std::mem::size_of::<sys::accel_prepare_item_t>(),
    module: std::ptr::null_mut(),
    optimizer: std::ptr::null_mut(),
    loader: std::ptr::null_mut(),
    scheduler: std::ptr::null_mut(),
    device_placement: sys::ACCEL_UNSET,
    reserved: 0,
    model_options: std::ptr::null(),
};

macro_rules! prepared_objects {
    ($($kind:ident in $field:ident),*) => {$(
        impl private::Sealed for &$kind {}

        impl Prepare for &$kind {
            type Prepared = $kind;

            fn put(&self, items: &mut Vec<sys::accel_prepare_item_t>) {
                items.push(sys::accel_prepare_item_t { $field: self.as_raw(), ..NOTHING });
            }

            unsafe fn take(items: &mut std::slice::Iter<'_, sys::accel_prepare_item_t>) -> $kind {
                $kind::from_raw(items.next().expect("an item for each object").$field)
            }
        }
    )*};
}

prepared_objects! { Model in module, Optimizer in optimizer, DataLoader in loader, Scheduler in scheduler }

macro_rules! prepared_tuples {
    ($(($($name:ident $index:tt),*))*) => {$(
        impl<$($name: Prepare),*> private::Sealed for ($($name,)*) {}

        impl<$($name: Prepare),*> Prepare for ($($name,)*) {
            type Prepared = ($($name::Prepared,)*);

            fn put(&self, items: &mut Vec<sys::accel_prepare_item_t>) {
                $(self.$index.put(items);)*
            }

            unsafe fn take(items: &mut std::slice::Iter<'_, sys::accel_prepare_item_t>) -> Self::Prepared {
                ($($name::take(items),)*)
            }
        }
    )*};
}

prepared_tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

/// Prepared objects take part in the state's training, and in its checkpoints.
impl State {
    /// Prepares objects of any kinds, in any order; all or none of them.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// # use accel::*;
    /// # let state = StateOptions::new().cpu(true).build()?;
    /// # let plain = nn::linear(2, 1, Bias::With)?;
    /// # let adamw = Optimizer::adamw(&plain, AdamOptions::new())?;
    /// # let schedule = Scheduler::exponential(&adamw, 0.9)?;
    /// let (model, optimizer, scheduler) = state.prepare((&plain, &adamw, &schedule))?;
    /// # drop((model, optimizer, scheduler)); state.end_training() }
    /// ```
    pub fn prepare<P: Prepare>(&self, objects: P) -> Result<P::Prepared> {
        memory::writes_anything()?;
        let mut items = Vec::new();
        objects.put(&mut items);
        let mut made = items.clone();
        let (first, length) = array(&items);
        check(unsafe { sys::accel_prepare(self.as_raw(), first, length, made.as_mut_ptr()) })?;
        // SAFETY: the call succeeded, so each item has its prepared object, in the order in which they were put.
        Ok(unsafe { P::take(&mut made.iter()) })
    }

    /// A model on the device, under the precision, and under data parallelism when there are several ranks. It shares its
    /// parameters with the one that was given.
    pub fn prepare_model(&self, model: &Model, options: PrepareModelOptions) -> Result<Model> {
        memory::writes(model)?;
        let raw = options.as_raw()?;
        made(|out| unsafe { sys::accel_prepare_model(self.as_raw(), model.as_raw(), raw, out) })
    }

    /// Puts the exchange of a prepared model's gradients into the program's hands: the function turns the gradients of
    /// several parameters, which lie in a row, into what the optimizer shall see. It gets the number of the bucket, and
    /// whether it is the last one of the backward, and runs on the thread of the backward or on one of LibTorch's.
    pub fn register_comm_hook<F>(&self, model: &Model, hook: F) -> Result<()>
    where
        F: Fn(&State, &mut Tensor, i64, bool) -> CallbackResult + Send + Sync + 'static,
    {
        let state = self.weak();
        let (call, data, destroy) = closures::comm_hook(move |gradients, bucket, is_last| {
            let state = state.upgrade().ok_or("gradients are to be exchanged, but their state is gone")?;
            hook(&state, gradients, bucket, is_last)
        });
        check(unsafe { sys::accel_register_comm_hook(self.as_raw(), model.as_raw(), call, data, destroy) }).map(drop)
    }
}
