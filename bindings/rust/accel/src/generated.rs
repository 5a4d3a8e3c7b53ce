//! What tools/apigen writes from the header: builders, enumerations and regular functions.
#![allow(unused_imports)]
use crate::tensor::Tensor;
use crate::value::Value;
use std::time::Duration;

macro_rules! topics {
    ($($(#[$attribute:meta])* $topic:ident,)*) => {$(
        #[rustfmt::skip]
        mod $topic;
        pub use $topic::*;
    )*};
}

topics! {
    accelerator_options,
    choices,
    data_options,
    optimizers_options,
    state_options,
    tensors_options,
}
