// SPDX-License-Identifier: Apache-2.0
//! Communication of ranks: collectives, groups, messages between two ranks.
//!
//! All ranks must make the same calls in the same order. Every wait ends by the timeout of the state, with `PeerLost` when
//! a rank has died, and with `CollectiveMismatch` on every rank when they disagree.
use crate::error::{check, Result};
use crate::handle::handle;
use crate::memory;
use crate::state::State;
use crate::tensor::Tensor;
use crate::tree::Tree;
use crate::value::Value;
use crate::work::Work;
use accel_sys as sys;
use std::time::Duration;

handle! {
    /// The ranks as a grid of named axes: [`StateReader::mesh`](crate::StateReader::mesh), or one of the program's own.
    ///
    /// ```
    /// # fn main() -> accel::Result<()> {
    /// let state = accel::StateOptions::new().cpu(true).build()?;
    /// let mesh = accel::Mesh::new(&state, "replicate,expert", &[i64::from(state.num_processes()), 1])?;
    /// assert_eq!(mesh.size("expert")?, 1);
    /// let replicas = mesh.group("replicate")?;
    /// assert_eq!(i64::from(replicas.process_index()), mesh.coordinate("replicate")?);
    /// # state.end_training() }
    /// ```
    Mesh(accel_mesh_t), accel_mesh_release
}

/// Collectives of trees of tensors.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::{Reduction, StateOptions, Tensor};
/// let state = StateOptions::new().cpu(true).build()?;
/// let rank = Tensor::scalar(i64::from(state.process_index()))?;
/// assert_eq!(state.gather(&rank)?.to_vec::<i64>()?.len(), state.num_processes() as usize);
/// let largest = state.reduce(&rank, Reduction::Max, 1.0)?;
/// assert_eq!(largest.item_int()?, i64::from(state.num_processes() - 1));
/// # state.end_training() }
/// ```
impl State {
    /// Every rank gets one rank's tensors, written into its own.
    pub fn broadcast<T: Tree>(&self, value: &mut T, from_process: i32) -> Result<()> {
        let value = value.as_arg()?;
        memory::writes(&value)?;
        check(unsafe { sys::accel_broadcast(self.as_raw(), value.as_raw(), from_process) }).map(drop)
    }
}

/// Calls that are started and run in the background. They own their tensors until they have ended, and return them.
impl State {
    /// Starts [`State::broadcast`] of a tensor. Its result is the tensor.
    pub fn broadcast_async(&self, tensor: Tensor, from_process: i32) -> Result<Work<Tensor>> {
        Work::of_tensors(tensor, Value::none(), |tensor, out| unsafe {
            sys::accel_broadcast_async(self.as_raw(), &sys::accel_value_t::tensor(tensor), from_process, out)
        })
    }

    /// For programs with a loop of their own: runs the callbacks of works that have ended, and waits at most so long for
    /// one. True when no work is under way.
    pub fn progress(&self, longest: Duration) -> Result<bool> {
        let longest = longest.as_micros().try_into().unwrap_or(i64::MAX);
        Ok(check(unsafe { sys::accel_progress(self.as_raw(), longest) })? == sys::ACCEL_OK)
    }
}
