//! How models are trained: exchange of gradients, loss scale, precision.
use crate::error::{check, Result};
use crate::options::{constants, options};
use crate::state::State;
use crate::value::Value;
use accel_sys as sys;

constants! {
    /// How the gradients of a bucket travel between the ranks.
    DdpCommHook {
        /// As they are.
        No = ACCEL_DDP_COMM_HOOK_NO,
        /// Rounded to float16.
        Fp16 = ACCEL_DDP_COMM_HOOK_FP16,
        /// Rounded to bfloat16.
        Bf16 = ACCEL_DDP_COMM_HOOK_BF16,
        /// Each matrix as a product of two thin ones.
        PowerSgd = ACCEL_DDP_COMM_HOOK_POWER_SGD,
        /// The whole bucket as one square matrix.
        BatchedPowerSgd = ACCEL_DDP_COMM_HOOK_BATCHED_POWER_SGD,
    }
}

options! {
    /// Of PowerSGD (Vogels, Karimireddy, Jaggi, 2019).
    PowerSgdOptions(accel_power_sgd_options_t = ACCEL_POWER_SGD_OPTIONS_INIT) {
        /// Columns of the thin matrices. Default 1.
        matrix_approximation_rank: i64,
        /// Backwards that are averaged exactly before. Default 1000.
        start_power_sgd_iter: i64,
        /// What saves less than this factor travels as it is. Default 2.
        min_compression_rate: f64,
        /// Added to norms. Default 0.
        orthogonalization_epsilon: f64,
        /// Of the first thin matrices. Default 0.
        random_seed: i64,
        /// What was lost is added to the next gradients. Default true.
        use_error_feedback: bool,
        /// Begins with the former thin matrices. Default true.
        warm_start: bool,
        /// Equal shapes are multiplied together. Default false.
        batch_tensors_with_same_shape: bool,
    }
}

options! {
    /// How gradients are averaged.
    DdpOptions(accel_ddp_options_t = ACCEL_DDP_OPTIONS_INIT) {
        /// Rank 0's buffers are sent before each forward. Default true.
        broadcast_buffers: bool,
        /// Parameters may be without a gradient. Default false.
        find_unused_parameters: bool,
        /// Gradients live in the buckets. Default true.
        gradient_as_bucket_view: bool,
        /// The same parameters are used in every step. Default false.
        static_graph: bool,
        /// The size of a bucket. Default 25.
        bucket_cap_mb: f64,
        /// How gradients travel. Default `No`. PowerSGD with settings of its own: [`State::prepare_model_with_power_sgd`].
        comm_hook: DdpCommHook,
        /// `Fp16` or `Bf16`: gradients are rounded before `comm_hook` sees them. Default `No`.
        comm_wrapper: DdpCommHook,
    }
}

options! {
    /// How one model is prepared.
    PrepareModelOptions(accel_prepare_model_options_t = ACCEL_PREPARE_MODEL_OPTIONS_INIT) {
        /// On the state's device. Default: as the state.
        device_placement: bool,
        /// The model is only evaluated: each rank has its own weights, and nothing is exchanged. Default false.
        evaluation_mode: bool,
    }
}

options! {
    /// How losses are scaled so that float16 gradients do not vanish.
    GradScalerOptions(accel_grad_scaler_options_t = ACCEL_GRAD_SCALER_OPTIONS_INIT) {
        /// The first scale. Default 65536.
        init_scale: f64,
        /// By which the scale grows. Default 2.
        growth_factor: f64,
        /// By which it shrinks after an overflow. Default 0.5.
        backoff_factor: f64,
        /// Steps without overflow until it grows. Default 2000.
        growth_interval: i64,
        /// In every precision, or never. Default: under fp16.
        enabled: bool,
    }
}

options! {
    /// How micro-batches are put together; what is not set stays as it is.
    GradientAccumulationOptions(accel_gradient_accumulation_options_t = ACCEL_GRADIENT_ACCUMULATION_OPTIONS_INIT) {
        /// Micro-batches of an update, at least 1.
        num_steps: i64,
        /// Prepared schedulers count accumulating steps too.
        adjust_scheduler: bool,
        /// The end of a loader ends the group.
        sync_with_dataloader: bool,
        /// Gradients are exchanged in each micro-batch.
        sync_each_batch: bool,
        /// A short last group is divided by its own length.
        true_divisor: bool,
    }
}

options! {
    /// In which regions operators choose their precision.
    AutocastOptions(accel_autocast_options_t = ACCEL_AUTOCAST_OPTIONS_INIT) {
        /// Operators inside do not keep the dtypes of their inputs. Default true.
        enabled: bool,
        /// Weights are cast once for a region. Default true.
        cache_enabled: bool,
    }
}

options! {
    /// Of parameters whose gradients the program computes.
    ParametersOptions(accel_parameters_options_t = ACCEL_PARAMETERS_OPTIONS_INIT) {
        /// Gradients travel in buckets of this size. Default 25.
        bucket_cap_mb: f64,
    }
}

/// Accumulation, at any time.
impl State {
    /// Changes how micro-batches are put together, from the next one on; the same on all ranks.
    pub fn set_gradient_accumulation(&self, options: GradientAccumulationOptions) -> Result<()> {
        check(unsafe { sys::accel_set_gradient_accumulation(self.as_raw(), &options.0) }).map(drop)
    }

    /// How they are put together now: a map with the settings by name.
    pub fn gradient_accumulation(&self) -> Result<Value> {
        Value::made(|out| unsafe { sys::accel_gradient_accumulation(self.as_raw(), out) })
    }
}

/// Settings for all that is prepared; before anything is.
impl State {
    /// Sets how losses are scaled.
    pub fn set_grad_scaler(&self, options: GradScalerOptions) -> Result<()> {
        check(unsafe { sys::accel_set_grad_scaler(self.as_raw(), &options.0) }).map(drop)
    }

    /// Sets the autocast of prepared models, and of regions that give no options.
    pub fn set_autocast(&self, options: AutocastOptions) -> Result<()> {
        check(unsafe { sys::accel_set_autocast(self.as_raw(), &options.0) }).map(drop)
    }
}
