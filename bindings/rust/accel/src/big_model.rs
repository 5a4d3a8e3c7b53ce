//! Models that are larger than a device: what the regular functions leave over.
use crate::handle::handle;

handle! {
    /// A whole model that is on a device only from its forward until another one of a chain needs the device
    /// ([`cpu_offload_with_hook`](crate::cpu_offload_with_hook)).
    OffloadHook(accel_offload_hook_t), accel_offload_hook_release
}

handle! {
    /// Weights that come to a device ahead of their use.
    WeightStream(accel_weight_stream_t), accel_weight_stream_release
}
