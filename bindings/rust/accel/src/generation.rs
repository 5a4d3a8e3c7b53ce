//! Sequences that get their tokens together.
use crate::handle::handle;

handle! {
    /// Sequences that get their tokens together, and join and leave while others go on. Added, ended and asked on any thread; one
    /// at a time runs a step.
    GenerationBatch(accel_generation_batch_t), accel_generation_batch_release
}
