// SPDX-License-Identifier: Apache-2.0
//! Layers, with the names, shapes and initial distributions of `torch.nn`. Each takes one tensor and gives one.
use crate::call::made;
use crate::error::Result;
pub use crate::generated::nn::*;
use crate::module::Model;
use accel_sys as sys;

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
        made(|out| unsafe {
            sys::accel_module_conv2d(in_channels, out_channels, kernel, stride, padding, groups, bias, out)
        })
    }
}
