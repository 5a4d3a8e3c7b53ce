//! The training loop: what a state prepares, and what happens between a forward and a step.
mod backward_options;
mod batch_size;
mod gradients;
mod local_sgd;
mod prepare;
mod settings;

pub use backward_options::BackwardOptions;
pub use local_sgd::{LocalSgd, LocalSgdOptions};
pub use prepare::Prepare;
pub use settings::{
    AutocastOptions, DdpCommHook, DdpOptions, GradScalerOptions, GradientAccumulationOptions, ParametersOptions,
    PowerSgdOptions, PrepareModelOptions,
};
