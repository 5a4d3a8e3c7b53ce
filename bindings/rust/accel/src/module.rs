// SPDX-License-Identifier: Apache-2.0
//! Models: trees of modules with parameters.
use crate::call::made;
use crate::callback::CallbackResult;
use crate::dtype::{DType, Device};
use crate::error::{check, Error, ErrorCode, Result};
use crate::flags::{Persistent, RequiresGrad};
use crate::handle::handle;
use crate::memory::{self, Memory};
use crate::tensor::Tensor;
use crate::value::Value;
use accel_sys as sys;
use std::fmt;
use std::ops::Range;

#[rustfmt::skip]
#[path = "generated/module_closures.rs"]
pub(crate) mod closures;

handle! {
    /// A node of a model, with all below it: a layer of [`nn`](crate::nn), a model that was loaded, or a [`Module`] of the
    /// program. One thread at a time uses it.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// use accel::{Bias, DType, Device, Model, Tensor, nn};
    /// let model = nn::sequential(&[&nn::linear(4, 8, Bias::With)?, &nn::activation("relu")?, &nn::linear(8, 2, Bias::With)?])?;
    /// let logits = model.forward(&Tensor::zeros(&[3, 4], DType::Float32, Device::Cpu)?)?;
    /// assert_eq!(logits.shape(), [3, 2]);
    /// assert_eq!(model.num_parameters()?, 4 * 8 + 8 + 8 * 2 + 2);
    /// # Ok(()) }
    /// ```
    Model(accel_module_t), accel_module_release, it has a Debug of its own
}

impl fmt::Debug for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Model({}, {} parameters)", self.kind(), self.num_parameters().unwrap_or_default())
    }
}

/// A module that the program computes. It is composed of models, which it names in [`Module::children`], and of own
/// parameters.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{Bias, DType, Device, Model, Module, Persistent, RequiresGrad, Result, Tensor, nn};
///
/// struct Residual {
///     inner: Model,
/// }
///
/// impl Module for Residual {
///     fn children(&self) -> Vec<(&str, &Model)> {
///         vec![("inner", &self.inner)]
///     }
///
///     fn forward(&self, _node: &Model, input: &Tensor) -> Result<Tensor> {
///         input + &self.inner.forward(input)?
///     }
/// }
///
/// let model = Model::new(Residual { inner: nn::linear(3, 3, Bias::With)? })?;
/// let names: Vec<String> = model.named_parameters()?.into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["inner.weight", "inner.bias"]);
/// model.forward(&Tensor::zeros(&[1, 3], DType::Float32, Device::Cpu)?)?;
/// # Ok(()) }
/// ```
pub trait Module: Send + 'static {
    /// The modules below this one, each with its name.
    fn children(&self) -> Vec<(&str, &Model)> {
        Vec::new()
    }

    /// Parameters of this module itself, each with its name. They are asked for once, when the model is made; in the
    /// forward they come from `node` by [`Model::tensor`].
    fn parameters(&self) -> Result<Vec<(&str, Tensor)>> {
        Ok(Vec::new())
    }

    /// State that is not trained, as the parameters.
    fn buffers(&self) -> Result<Vec<(&str, Tensor)>> {
        Ok(Vec::new())
    }

    /// The output for one tensor. `node` is the model that was made of this module.
    fn forward(&self, node: &Model, input: &Tensor) -> Result<Tensor>;

    /// The output for any inputs; at first for one tensor.
    fn call(&self, node: &Model, inputs: &[Value]) -> Result<Value> {
        match inputs.iter().map(Value::as_tensor).collect::<Vec<_>>()[..] {
            [Some(input)] => Ok(self.forward(node, input)?.into()),
            _ => {
                let message = format!("{} inputs: expected one tensor", inputs.len());
                Err(Error::new(ErrorCode::TypeMismatch, message))
            }
        }
    }

    /// The name of the class, for messages and maps.
    fn kind(&self) -> &str {
        let path = std::any::type_name::<Self>();
        path.rsplit("::").next().unwrap_or(path)
    }
}

/// When a hook runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum When {
    /// It sees the inputs.
    BeforeForward,
    /// It sees the output, as a list of one.
    AfterForward,
    /// It sees the gradients of the output, as a list of one.
    BeforeBackward,
    /// It sees the gradients of the inputs.
    AfterBackward,
}

/// Models that are made.
impl Model {
    /// A model of a module of the program.
    pub fn new<M: Module>(module: M) -> Result<Self> {
        let node = Self::container(module.kind())?;
        for (name, parameter) in module.parameters()? {
            node.add_parameter(name, parameter, RequiresGrad::Yes)?;
        }
        for (name, buffer) in module.buffers()? {
            node.add_buffer(name, buffer, Persistent::Yes)?;
        }
        for (name, child) in module.children() {
            node.add_child(name, child)?;
        }
        node.set_forward(move |node, inputs| Ok(module.call(node, inputs)?))?;
        Ok(node)
    }

    /// Adds a function before or after the forward or the backward. `None` keeps the values, a list takes their place. The number is for
    /// [`remove_hook`](Self::remove_hook).
    pub fn add_hook<F>(&self, when: When, hook: F) -> Result<i64>
    where
        F: Fn(&Model, &Value) -> CallbackResult<Option<Value>> + Send + 'static,
    {
        let when = match when {
            When::BeforeForward => sys::ACCEL_HOOK_FORWARD_PRE,
            When::AfterForward => sys::ACCEL_HOOK_FORWARD,
            When::BeforeBackward => sys::ACCEL_HOOK_BACKWARD_PRE,
            When::AfterBackward => sys::ACCEL_HOOK_BACKWARD,
        };
        let (call, data, destroy) = closures::module_hook(hook);
        made(|out| unsafe { sys::accel_module_add_hook(self.as_raw(), when, call, data, destroy, out) })
    }
}

/// Models that run.
impl Model {
    /// The output for one tensor.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.call(&[input.into()])?.into_tensor()
    }

    /// Moves parameters and buffers in place. A dtype is for the floating ones.
    pub fn to(&self, device: Device, dtype: Option<DType>) -> Result<()> {
        memory::writes(self)?;
        let dtype = dtype.map_or(sys::ACCEL_UNSET, DType::to_raw);
        check(unsafe { sys::accel_module_to(self.as_raw(), dtype, &device.to_raw()) }).map(drop)
    }
}

/// The parts of a model.
impl Model {
    /// All parameters, here and below, each once.
    pub fn named_parameters(&self) -> Result<Vec<(String, Tensor)>> {
        tensors(made(|out| unsafe { sys::accel_module_named_parameters(self.as_raw(), out) })?)
    }

    /// All buffers, here and below.
    pub fn named_buffers(&self) -> Result<Vec<(String, Tensor)>> {
        tensors(made(|out| unsafe { sys::accel_module_named_buffers(self.as_raw(), out) })?)
    }

    /// Paths and classes of all modules; this one first, under "".
    pub fn named_modules(&self) -> Result<Vec<(String, String)>> {
        let map: Value = made(|out| unsafe { sys::accel_module_named_modules(self.as_raw(), out) })?;
        let entries = map.entries().filter_map(|(path, kind)| Some((path.into(), kind.as_str()?.into())));
        Ok(entries.collect())
    }

    /// The modules, children before their parents and this one last.
    pub fn children_bottom_up(&self) -> Result<Vec<(String, String)>> {
        let map: Value = made(|out| unsafe { sys::accel_module_children_bottom_up(self.as_raw(), out) })?;
        let entries = map.entries().filter_map(|(path, kind)| Some((path.into(), kind.as_str()?.into())));
        Ok(entries.collect())
    }
}

/// Parameters, buffers and gradients.
impl Memory for Model {
    fn each(&self, found: &mut dyn FnMut(Range<usize>)) {
        let tensors = [self.named_parameters(), self.named_buffers()];
        for (_, tensor) in tensors.into_iter().flat_map(Result::unwrap_or_default) {
            tensor.each(found);
            tensor.grad().ok().flatten().as_ref().each(found);
        }
    }
}

/// The tensors of a map, each of them owned.
fn tensors(map: Value) -> Result<Vec<(String, Tensor)>> {
    let entries = map.entries().map(|(name, item)| Ok((name.to_string(), item.try_clone()?.into_tensor()?)));
    entries.collect()
}
