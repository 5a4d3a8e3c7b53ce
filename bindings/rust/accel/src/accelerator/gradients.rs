// SPDX-License-Identifier: Apache-2.0
//! Between a forward and a step: backward, accumulation, clipping.
use crate::error::{check, Result};
use crate::memory;
use crate::module::Model;
use crate::optimizer::Step;
use crate::state::State;
use crate::tensor::Tensor;
use accel_sys as sys;

/// Gradients.
impl State {
    /// Back-propagates a loss, divided by the accumulation steps; gradients are averaged over the ranks in the last
    /// micro-batch of a group.
    pub fn backward(&self, loss: &mut Tensor) -> Result<()> {
        self.backward_with(loss, None)
    }

    /// Back-propagates a sum of losses of `count` items. The gradients of a group are those of the mean over all items
    /// on all ranks.
    pub fn backward_sum(&self, loss_sum: &mut Tensor, count: i64) -> Result<()> {
        self.backward_sum_with(loss_sum, count, None)
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
        check(unsafe { sys::accel_clip_grad_value(self.as_raw(), model.as_raw(), clip_value) }).map(Step::from_status)
    }
}
