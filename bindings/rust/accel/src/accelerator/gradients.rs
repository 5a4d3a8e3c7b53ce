//! Between a forward and a step: backward, accumulation, clipping.
use crate::error::{check, Result};
use crate::generated::{AutocastOptions, BackwardOptions};
use crate::handle::array;
use crate::memory;
use crate::module::Model;
use crate::optimizer::{Optimizer, Step};
use crate::scope::Scope;
use crate::state::State;
use crate::tensor::Tensor;
use accel_sys as sys;
use std::ptr;

/// Gradients.
impl State {
    /// Back-propagates a loss, divided by the accumulation steps; gradients are averaged over the ranks in the last
    /// micro-batch of a group.
    pub fn backward(&self, loss: &mut Tensor) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_backward(self.as_raw(), loss.as_raw(), ptr::null()) }).map(drop)
    }

    /// The same with options.
    pub fn backward_with(&self, loss: &mut Tensor, options: BackwardOptions) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_backward(self.as_raw(), loss.as_raw(), &options.0) }).map(drop)
    }

    /// Back-propagates a sum of losses of `count` items. The gradients of a group are those of the mean over all items
    /// on all ranks.
    pub fn backward_sum(&self, loss_sum: &mut Tensor, count: i64) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_backward_sum(self.as_raw(), loss_sum.as_raw(), count, ptr::null()) }).map(drop)
    }

    /// The same with options.
    pub fn backward_sum_with(&self, loss_sum: &mut Tensor, count: i64, options: BackwardOptions) -> Result<()> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_backward_sum(self.as_raw(), loss_sum.as_raw(), count, &options.0) }).map(drop)
    }

    /// Backward that updates the parameters of the prepared LOMO optimizers; `lr` instead of that of each group.
    pub fn lomo_backward(&self, loss: &mut Tensor, lr: Option<f64>) -> Result<()> {
        memory::writes_anything()?;
        let lr = crate::nn::unset_or(lr);
        check(unsafe { sys::accel_lomo_backward(self.as_raw(), loss.as_raw(), lr) }).map(drop)
    }

    /// Takes the loss scale out of gradients, of one prepared optimizer or of all.
    pub fn unscale_gradients(&self, optimizer: Option<&Optimizer>) -> Result<Step> {
        memory::writes_anything()?;
        let optimizer = optimizer.map_or(ptr::null_mut(), Optimizer::as_raw);
        check(unsafe { sys::accel_unscale_gradients(self.as_raw(), optimizer) }).map(done)
    }

    /// Scales all gradients so that their joint norm is at most `max_norm`, and tells the norm before; nothing while
    /// gradients accumulate. `norm_type` is 2 for the Euclidean norm, infinity for the largest element.
    pub fn clip_grad_norm(&self, model: &Model, max_norm: f64, norm_type: f64) -> Result<Option<f64>> {
        memory::writes_anything()?;
        let mut norm = 0.0;
        let status =
            check(unsafe { sys::accel_clip_grad_norm(self.as_raw(), model.as_raw(), max_norm, norm_type, &mut norm) })?;
        Ok((status == sys::ACCEL_OK).then_some(norm))
    }

    /// Cuts each element of the gradients to `[-clip_value, clip_value]`; nothing while gradients accumulate.
    pub fn clip_grad_value(&self, model: &Model, clip_value: f64) -> Result<Step> {
        memory::writes_anything()?;
        check(unsafe { sys::accel_clip_grad_value(self.as_raw(), model.as_raw(), clip_value) }).map(done)
    }
}

fn done(status: i32) -> Step {
    if status == sys::ACCEL_STEP_SKIPPED {
        Step::Skipped
    } else {
        Step::Updated
    }
}

/// Regions of the loop. They end with the value, or with [`Scope::end`]; [`Scope::run`] puts them around a closure.
impl State {
    /// One micro-batch of these prepared models: counts it, and holds back the exchange of gradients until the group is
    /// complete.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// # use accel::*;
    /// # let state = StateOptions::new().cpu(true).gradient_accumulation_steps(2).build()?;
    /// # let model = state.prepare_model(&nn::linear(2, 1, true)?, DdpOptions::new())?;
    /// # let optimizer = state.prepare_optimizer(&Optimizer::sgd(&model, SgdOptions::new())?)?;
    /// # let input = Tensor::zeros(&[4, 2], DType::Float32, Device::Cpu)?;
    /// let mut updates = 0;
    /// for _ in 0..4 {
    ///     state.accumulate(&[&model])?.run(|| {
    ///         let mut loss = model.forward(&input)?.mean()?;
    ///         state.backward(&mut loss)?;
    ///         updates += i32::from(optimizer.step()? == Step::Updated);
    ///         optimizer.zero_grad()
    ///     })?;
    /// }
    /// assert_eq!(updates, 2);
    /// # drop((model, optimizer)); state.end_training() }
    /// ```
    pub fn accumulate(&self, models: &[&Model]) -> Result<Scope<'_>> {
        let handles: Vec<_> = models.iter().map(|model| model.as_raw()).collect();
        let (first, length) = array(&handles);
        Scope::begin(|out| unsafe { sys::accel_accumulate_begin(self.as_raw(), first, length, out) })
    }

    /// Gradients of this model are not exchanged inside.
    pub fn no_sync(&self, model: &Model) -> Result<Scope<'_>> {
        Scope::begin(|out| unsafe { sys::accel_no_sync_begin(self.as_raw(), model.as_raw(), out) })
    }

    /// Gradients of this model are exchanged by a backward inside, although the forward was made where they are not.
    pub fn trigger_sync_in_backward(&self, model: &Model) -> Result<Scope<'_>> {
        Scope::begin(|out| unsafe { sys::accel_trigger_sync_in_backward_begin(self.as_raw(), model.as_raw(), out) })
    }

    /// The ranks may have different numbers of batches inside. It ends only when all ranks have come to the end.
    pub fn join_uneven_inputs(&self, models: &[&Model], even_batches: Option<bool>) -> Result<Scope<'_>> {
        let handles: Vec<_> = models.iter().map(|model| model.as_raw()).collect();
        let ((first, length), even) = (array(&handles), even_batches.map_or(sys::ACCEL_UNSET, i32::from));
        Scope::begin_writing(|out| unsafe {
            sys::accel_join_uneven_inputs_begin(self.as_raw(), first, length, even, out)
        })
    }

    /// Operators inside run in the state's precision.
    pub fn autocast(&self, options: Option<AutocastOptions>) -> Result<Scope<'_>> {
        let options = options.as_ref().map_or(ptr::null(), |options| &options.0 as *const _);
        Scope::begin(|out| unsafe { sys::accel_autocast_begin(self.as_raw(), options, out) })
    }
}
