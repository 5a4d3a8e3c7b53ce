//! How to back-propagate.
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::ptr;

/// How to back-propagate. What is not set has the default that is named here.
pub struct BackwardOptions {
    raw: sys::accel_backward_options_t,
    inputs: Option<Value>,
    gradient: Option<Tensor>,
}

impl BackwardOptions {
    /// Nothing is set.
    pub fn new() -> Self {
        BackwardOptions { raw: sys::ACCEL_BACKWARD_OPTIONS_INIT, inputs: None, gradient: None }
    }

    /// The graph stays for another backward. Default: as `create_graph`.
    pub fn retain_graph(mut self, retain_graph: bool) -> Self {
        self.raw.retain_graph = retain_graph.into();
        self
    }

    /// The gradients have a history of their own, from which can be back-propagated again. Default false.
    pub fn create_graph(mut self, create_graph: bool) -> Self {
        self.raw.create_graph = create_graph.into();
        self
    }

    /// The only leaves that get gradients: a tensor, or a list or map of tensors. Default: all leaves.
    pub fn inputs(mut self, inputs: impl Into<Value>) -> Self {
        self.inputs = Some(inputs.into());
        self
    }

    /// The gradient of the tensor, of its shape. Default: 1, for one element.
    pub fn gradient(mut self, gradient: Tensor) -> Self {
        self.gradient = Some(gradient);
        self
    }

    /// For a call while `self` lives.
    pub(crate) fn raw(&self) -> sys::accel_backward_options_t {
        sys::accel_backward_options_t {
            inputs: self.inputs.as_ref().map_or(ptr::null(), Value::as_raw),
            gradient: self.gradient.as_ref().map_or(ptr::null(), |gradient| gradient.as_raw() as *const _),
            ..self.raw
        }
    }
}

impl Default for BackwardOptions {
    fn default() -> Self {
        Self::new()
    }
}
