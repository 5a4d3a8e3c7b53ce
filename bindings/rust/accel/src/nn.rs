//! Layers, with the names, shapes and initial distributions of `torch.nn`. Each takes one tensor and gives one.
use crate::error::Result;
use crate::handle::{array, c_string};
use crate::module::Model;
use accel_sys as sys;

/// `weight [out_features, in_features]`, and a bias.
pub fn linear(in_features: i64, out_features: i64, bias: bool) -> Result<Model> {
    Model::made(|out| unsafe { sys::accel_module_linear(in_features, out_features, bias.into(), out) })
}

/// `weight [num_embeddings, embedding_dim]`; the input is int64.
pub fn embedding(num_embeddings: i64, embedding_dim: i64) -> Result<Model> {
    Model::made(|out| unsafe { sys::accel_module_embedding(num_embeddings, embedding_dim, out) })
}

/// Layer normalization over the last dimension; eps is 1e-5 if it is not given.
pub fn layer_norm(normalized_size: i64, eps: Option<f64>) -> Result<Model> {
    Model::made(|out| unsafe { sys::accel_module_layer_norm(normalized_size, unset_or(eps), out) })
}

/// Normalization by the root mean square over the last dimension; eps is that of the dtype if it is not given.
pub fn rms_norm(normalized_size: i64, eps: Option<f64>) -> Result<Model> {
    Model::made(|out| unsafe { sys::accel_module_rms_norm(normalized_size, unset_or(eps), out) })
}

/// Zeroes elements at random while training, and scales the others up.
pub fn dropout(probability: f64) -> Result<Model> {
    Model::made(|out| unsafe { sys::accel_module_dropout(probability, out) })
}

/// "relu", "gelu", "gelu_new", "silu", "tanh" or "sigmoid" of each element.
pub fn activation(name: &str) -> Result<Model> {
    let name = c_string(name)?;
    Model::made(|out| unsafe { sys::accel_module_activation(name.as_ptr(), out) })
}

/// Self-attention of `[batch, length, embed_dim]`; with `causal` a position sees only earlier ones.
pub fn attention(embed_dim: i64, num_heads: i64, causal: bool, bias: bool, dropout: f64) -> Result<Model> {
    Model::made(|out| unsafe {
        sys::accel_module_attention(embed_dim, num_heads, causal.into(), bias.into(), dropout, out)
    })
}

/// A convolution in two dimensions, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d {
    /// Channels of the input.
    pub in_channels: i64,
    /// Channels of the output.
    pub out_channels: i64,
    /// The size of the kernel.
    pub kernel: i64,
    /// The distance between its places.
    pub stride: i64,
    /// Zeros around the input.
    pub padding: i64,
    /// Groups of channels.
    pub groups: i64,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Conv2d {
    /// Stride 1, no padding, one group, a bias.
    pub fn new(in_channels: i64, out_channels: i64, kernel: i64) -> Self {
        Conv2d { in_channels, out_channels, kernel, stride: 1, padding: 0, groups: 1, bias: true }
    }

    /// The layer.
    pub fn build(self) -> Result<Model> {
        let Conv2d { in_channels, out_channels, kernel, stride, padding, groups, bias } = self;
        let bias = bias.into();
        Model::made(|out| unsafe {
            sys::accel_module_conv2d(in_channels, out_channels, kernel, stride, padding, groups, bias, out)
        })
    }
}

/// Of `[batch, features, ...]`, with running statistics; eps 1e-5 and momentum 0.1 if they are not given.
pub fn batch_norm(num_features: i64, eps: Option<f64>, momentum: Option<f64>) -> Result<Model> {
    let (eps, momentum) = (unset_or(eps), unset_or(momentum));
    Model::made(|out| unsafe { sys::accel_module_batch_norm(num_features, eps, momentum, out) })
}

/// Modules one after the other, as children "0", "1", ...
pub fn sequential(modules: &[&Model]) -> Result<Model> {
    let handles: Vec<_> = modules.iter().map(|module| module.as_raw()).collect();
    let (first, length) = array(&handles);
    Model::made(|out| unsafe { sys::accel_module_sequential(first, length, out) })
}

pub(crate) fn unset_or(number: Option<f64>) -> f64 {
    number.unwrap_or(sys::ACCEL_UNSET_DOUBLE)
}
