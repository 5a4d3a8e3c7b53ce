// SPDX-License-Identifier: Apache-2.0
//! Builders for options and the enumerations of choices, which tools/apigen writes from the header.
use crate::dtype::DType;
use crate::tensor::Tensor;
use crate::value::Value;
use std::time::Duration;

macro_rules! topics {
    ($($topic:ident = $file:literal,)*) => {$(
        #[rustfmt::skip]
        #[path = $file]
        mod $topic;
        pub use $topic::*;
    )*};
}

topics! {
    accelerator = "generated/accelerator_options.rs",
    big = "generated/big_options.rs",
    checkpoints = "generated/checkpoints_options.rs",
    choices = "generated/choices.rs",
    configuration = "generated/configuration_options.rs",
    data = "generated/data_options.rs",
    modules = "generated/modules_options.rs",
    optimizers = "generated/optimizers_options.rs",
    state = "generated/state_options.rs",
    tensors = "generated/tensors_options.rs",
    tracking = "generated/tracking_options.rs",
}
