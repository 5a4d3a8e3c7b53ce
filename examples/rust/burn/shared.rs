//! Tensors of libaccel in the memory of Burn's arrays.
use accel::prelude::*;
use burn::backend::ndarray::NdArrayTensor;
use burn::backend::{Autodiff, NdArray};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::Tensor as BurnTensor;

type Backend = Autodiff<NdArray>;
type Named = Vec<(String, Tensor)>;

/// The parameters of a module by their paths, in Burn's own memory.
pub fn parameters(module: &impl Module<Backend>) -> accel::Result<Named> {
    collect(module, None)
}

/// The gradients of the parameters by the same names.
pub fn gradients(
    module: &impl Module<Backend>,
    gradients: &<Backend as AutodiffBackend>::Gradients,
) -> accel::Result<Named> {
    collect(module, Some(gradients))
}

fn collect(module: &impl Module<Backend>, gradients: Option<&Gradients>) -> accel::Result<Named> {
    let mut collector = Collector { path: Vec::new(), gradients, named: Vec::new() };
    module.visit(&mut collector);
    let each = collector.named.into_iter();
    each.map(|(name, array)| Ok((name, tensor(array)?))).collect()
}

type Gradients = <Backend as AutodiffBackend>::Gradients;

struct Collector<'a> {
    path: Vec<String>,
    gradients: Option<&'a Gradients>,
    named: Vec<(String, NdArrayTensor)>,
}

impl ModuleVisitor<Backend> for Collector<'_> {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, parameter: &Param<BurnTensor<Backend, D>>) {
        let value = parameter.val();
        let shown = match self.gradients {
            Some(gradients) => value.grad(gradients),
            None => Some(value.inner()),
        };
        // What the loss does not depend on has no gradient, and the step names it.
        self.named.extend(shown.map(|shown| (self.path.join("."), shown.into_primitive().tensor())));
    }
}

/// A tensor in the memory of an array, which it keeps. Without a copy, with any strides.
fn tensor(of: NdArrayTensor) -> accel::Result<Tensor> {
    let array = match of {
        NdArrayTensor::F32(array) => array,
        _ => return Err(Error::new(ErrorCode::Unsupported, "an array of another type: expected f32")),
    };
    let shape: Vec<i64> = array.shape().iter().map(|size| *size as i64).collect();
    let strides: Vec<i64> = array.strides().iter().map(|stride| *stride as i64).collect();
    let data = array.as_ptr() as *mut std::ffi::c_void;
    // SAFETY: the array is shared with Burn, which does not change what it shares, and stays where it is. Burn and libaccel use it by
    // turns: the program computes between two steps, and waits for each.
    unsafe { Tensor::from_raw_parts(data, &shape, Some(&strides), DType::Float32, Device::Cpu, array) }
}
