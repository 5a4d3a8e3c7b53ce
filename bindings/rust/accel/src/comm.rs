//! What ranks do together: collectives, groups, messages between two ranks.
//!
//! All ranks must make the same calls in the same order. Every wait ends by the timeout of the state, with `PeerLost` when
//! a rank has died, and with `CollectiveMismatch` on every rank when they disagree.
use crate::error::{check, Error, ErrorCode, Result};
use crate::generated::Reduction;
use crate::handle::array;
use crate::memory;
use crate::state::{State, StateReader};
use crate::tensor::Tensor;
use crate::tree::Tree;
use crate::value::{Arg, Value};
use crate::work::Work;
use accel_sys as sys;
use std::ptr;
use std::time::Duration;

/// Of trees of tensors.
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
    /// Every rank gets each tensor of all ranks, joined along dimension 0 in rank order.
    pub fn gather<T: Tree>(&self, value: &T) -> Result<T> {
        self.joined(value, |state, value, out| unsafe { sys::accel_gather(state, value, out) })
    }

    /// The same for tensors whose dimension 0 differs by rank.
    pub fn gather_uneven<T: Tree>(&self, value: &T) -> Result<T> {
        self.joined(value, |state, value, out| unsafe { sys::accel_gather_uneven(state, value, out) })
    }

    /// As [`State::gather`], without what the loader repeated to fill the last batch.
    pub fn gather_for_metrics<T: Tree>(&self, value: &T) -> Result<T> {
        self.joined(value, |state, value, out| unsafe { sys::accel_gather_for_metrics(state, value, out) })
    }

    /// A list of the values of all ranks, whatever they are.
    pub fn gather_object(&self, object: &Value) -> Result<Value> {
        self.joined(object, |state, value, out| unsafe { sys::accel_gather_object(state, value, out) })
    }

    /// Every rank gets the reduction of each tensor, times `scale`.
    pub fn reduce<T: Tree>(&self, value: &T, reduction: Reduction, scale: f64) -> Result<T> {
        self.joined(value, |state, value, out| unsafe { sys::accel_reduce(state, value, reduction.into(), scale, out) })
    }

    /// Every rank gets one rank's list of values.
    pub fn broadcast_object_list(&self, objects: &Value, from_process: i32) -> Result<Value> {
        self.joined(objects, |state, value, out| unsafe {
            sys::accel_broadcast_object_list(state, value, from_process, out)
        })
    }

    /// Pads one dimension of each tensor to its largest size over all ranks.
    pub fn pad_across_processes<T: Tree>(&self, value: &T, dim: i64, pad_index: f64, pad_first: bool) -> Result<T> {
        self.joined(value, |state, value, out| unsafe {
            sys::accel_pad_across_processes(state, value, dim, pad_index, pad_first.into(), out)
        })
    }

    /// Every rank gets one rank's tensors, written into its own.
    pub fn broadcast<T: Tree>(&self, value: &mut T, from_process: i32) -> Result<()> {
        memory::writes(value.as_arg())?;
        check(unsafe { sys::accel_broadcast(self.as_raw(), value.as_arg().as_raw(), from_process) }).map(drop)
    }

    fn joined<T: Tree>(
        &self,
        value: &T,
        call: impl FnOnce(*mut sys::accel_state_t, *const sys::accel_value_t, *mut sys::accel_value_t) -> i32,
    ) -> Result<T> {
        let value: Arg<'_> = value.as_arg();
        memory::reads(&[value])?;
        T::from_value(Value::made(|out| call(self.as_raw(), value.as_raw(), out))?)
    }
}

/// Of bare tensors, which must be contiguous: no allocation, for the innermost loops.
impl State {
    /// Reduces a tensor over the ranks, in place.
    pub fn all_reduce(&self, tensor: &mut Tensor, reduction: Reduction) -> Result<()> {
        memory::writes((&*tensor).into())?;
        check(unsafe { sys::accel_all_reduce(self.as_raw(), tensor.as_raw(), reduction.into()) }).map(drop)
    }

    /// Joins the parts of all ranks in rank order.
    pub fn all_gather(&self, input: &Tensor, output: &mut Tensor) -> Result<()> {
        memory::reads(&[input.into()])?;
        memory::writes((&*output).into())?;
        check(unsafe { sys::accel_all_gather(self.as_raw(), input.as_raw(), output.as_raw()) }).map(drop)
    }

    /// Reduces over the ranks and leaves each rank its part.
    pub fn reduce_scatter(&self, input: &Tensor, reduction: Reduction, output: &mut Tensor) -> Result<()> {
        memory::reads(&[input.into()])?;
        memory::writes((&*output).into())?;
        let (input, output) = (input.as_raw(), output.as_raw());
        check(unsafe { sys::accel_reduce_scatter(self.as_raw(), input, reduction.into(), output) }).map(drop)
    }

    /// Part i of the input goes to rank i.
    pub fn all_to_all(&self, input: &Tensor, output: &mut Tensor) -> Result<()> {
        memory::reads(&[input.into()])?;
        memory::writes((&*output).into())?;
        check(unsafe { sys::accel_all_to_all(self.as_raw(), input.as_raw(), output.as_raw()) }).map(drop)
    }

    /// Part i of the source rank's input goes to rank i; the others give none.
    pub fn scatter(&self, input: Option<&Tensor>, from_process: i32, output: &mut Tensor) -> Result<()> {
        memory::reads(&[input.into()])?;
        memory::writes((&*output).into())?;
        let input = input.map_or(ptr::null(), |input| input.as_raw() as *const _);
        check(unsafe { sys::accel_scatter(self.as_raw(), input, from_process, output.as_raw()) }).map(drop)
    }

    /// Sends a tensor to one rank; the tag pairs it with a receive.
    pub fn send(&self, tensor: &Tensor, to_process: i32, tag: i32) -> Result<()> {
        memory::reads(&[tensor.into()])?;
        check(unsafe { sys::accel_send(self.as_raw(), tensor.as_raw(), to_process, tag) }).map(drop)
    }

    /// Receives a tensor from one rank.
    pub fn recv(&self, tensor: &mut Tensor, from_process: i32, tag: i32) -> Result<()> {
        memory::writes((&*tensor).into())?;
        check(unsafe { sys::accel_recv(self.as_raw(), tensor.as_raw(), from_process, tag) }).map(drop)
    }
}

/// Calls that are started and go on by themselves. They own their tensors until they have ended, and give them back.
impl State {
    /// Starts [`State::gather`].
    pub fn gather_async<T: Tree>(&self, value: T) -> Result<Work<T>> {
        Work::of_tree(value, |value, out| unsafe { sys::accel_gather_async(self.as_raw(), value, out) })
    }

    /// Starts [`State::gather_uneven`].
    pub fn gather_uneven_async<T: Tree>(&self, value: T) -> Result<Work<T>> {
        Work::of_tree(value, |value, out| unsafe { sys::accel_gather_uneven_async(self.as_raw(), value, out) })
    }

    /// Starts [`State::gather_for_metrics`], for the batch that the loader gave last.
    pub fn gather_for_metrics_async<T: Tree>(&self, value: T) -> Result<Work<T>> {
        Work::of_tree(value, |value, out| unsafe { sys::accel_gather_for_metrics_async(self.as_raw(), value, out) })
    }

    /// Starts [`State::gather_object`].
    pub fn gather_object_async(&self, object: Value) -> Result<Work<Value>> {
        Work::of_tree(object, |value, out| unsafe { sys::accel_gather_object_async(self.as_raw(), value, out) })
    }

    /// Starts [`State::reduce`].
    pub fn reduce_async<T: Tree>(&self, value: T, reduction: Reduction, scale: f64) -> Result<Work<T>> {
        Work::of_tree(value, |value, out| unsafe {
            sys::accel_reduce_async(self.as_raw(), value, reduction.into(), scale, out)
        })
    }

    /// Starts [`State::all_reduce`]. Its result is the tensor.
    pub fn all_reduce_async(&self, tensor: Tensor, reduction: Reduction) -> Result<Work<Tensor>> {
        Work::of_tensors(tensor, Value::none(), |tensor, out| unsafe {
            sys::accel_all_reduce_async(self.as_raw(), tensor, reduction.into(), out)
        })
    }

    /// Starts [`State::all_gather`]. Its result is the output.
    pub fn all_gather_async(&self, input: Tensor, output: Tensor) -> Result<Work<Tensor>> {
        let from = input.as_raw();
        Work::of_tensors(output, input.into(), |output, out| unsafe {
            sys::accel_all_gather_async(self.as_raw(), from, output, out)
        })
    }

    /// Starts [`State::reduce_scatter`]. Its result is the output.
    pub fn reduce_scatter_async(&self, input: Tensor, reduction: Reduction, output: Tensor) -> Result<Work<Tensor>> {
        let from = input.as_raw();
        Work::of_tensors(output, input.into(), |output, out| unsafe {
            sys::accel_reduce_scatter_async(self.as_raw(), from, reduction.into(), output, out)
        })
    }

    /// Starts [`State::all_to_all`]. Its result is the output.
    pub fn all_to_all_async(&self, input: Tensor, output: Tensor) -> Result<Work<Tensor>> {
        let from = input.as_raw();
        Work::of_tensors(output, input.into(), |output, out| unsafe {
            sys::accel_all_to_all_async(self.as_raw(), from, output, out)
        })
    }

    /// Starts [`State::scatter`]. Its result is the output.
    pub fn scatter_async(&self, input: Option<Tensor>, from_process: i32, output: Tensor) -> Result<Work<Tensor>> {
        let from = input.as_ref().map_or(ptr::null(), |input| input.as_raw() as *const _);
        Work::of_tensors(output, input.map_or(Value::none(), Value::from), |output, out| unsafe {
            sys::accel_scatter_async(self.as_raw(), from, from_process, output, out)
        })
    }

    /// Starts [`State::broadcast`] of a tensor. Its result is the tensor.
    pub fn broadcast_async(&self, tensor: Tensor, from_process: i32) -> Result<Work<Tensor>> {
        Work::of_tensors(tensor, Value::none(), |tensor, out| unsafe {
            sys::accel_broadcast_async(self.as_raw(), &sys::accel_value_t::tensor(tensor), from_process, out)
        })
    }

    /// Starts [`State::broadcast_object_list`].
    pub fn broadcast_object_list_async(&self, objects: Value, from_process: i32) -> Result<Work<Value>> {
        Work::of_tree(objects, |value, out| unsafe {
            sys::accel_broadcast_object_list_async(self.as_raw(), value, from_process, out)
        })
    }

    /// Starts [`State::pad_across_processes`].
    pub fn pad_across_processes_async<T: Tree>(
        &self,
        value: T,
        dim: i64,
        pad_index: f64,
        pad_first: bool,
    ) -> Result<Work<T>> {
        Work::of_tree(value, |value, out| unsafe {
            sys::accel_pad_across_processes_async(self.as_raw(), value, dim, pad_index, pad_first.into(), out)
        })
    }

    /// Starts [`State::send`]. Its result is the tensor.
    pub fn send_async(&self, tensor: Tensor, to_process: i32, tag: i32) -> Result<Work<Tensor>> {
        Work::of_tensors(tensor, Value::none(), |tensor, out| unsafe {
            sys::accel_send_async(self.as_raw(), tensor, to_process, tag, out)
        })
    }

    /// Starts [`State::recv`]. Its result is the tensor.
    pub fn recv_async(&self, tensor: Tensor, from_process: i32, tag: i32) -> Result<Work<Tensor>> {
        Work::of_tensors(tensor, Value::none(), |tensor, out| unsafe {
            sys::accel_recv_async(self.as_raw(), tensor, from_process, tag, out)
        })
    }

    /// Starts [`State::wait_for_everyone`].
    pub fn wait_for_everyone_async(&self) -> Result<Work<()>> {
        Work::of_tree((), |_, out| unsafe { sys::accel_wait_for_everyone_async(self.as_raw(), out) })
    }

    /// For programs with a loop of their own: runs the callbacks of works that have ended, and waits at most so long for
    /// one. True when no work is under way.
    pub fn progress(&self, longest: Duration) -> Result<bool> {
        let longest = longest.as_micros().try_into().unwrap_or(i64::MAX);
        Ok(check(unsafe { sys::accel_progress(self.as_raw(), longest) })? == sys::ACCEL_OK)
    }
}

/// Groups: states whose job is a part of another one's.
impl State {
    /// A group of these ranks. They call this, the other ranks do not.
    pub fn group(&self, ranks: &[i64]) -> Result<State> {
        let (first, length) = array(ranks);
        if length == 0 {
            return Err(Error::new(ErrorCode::InvalidArgument, "no ranks for a group: expected at least this one"));
        }
        StateReader::made(|out| unsafe { sys::accel_group_create(self.as_raw(), first, length, out) }).map(State::new)
    }

    /// Cuts the ranks into groups of one color each, ordered by key. All ranks call this.
    pub fn split_group(&self, color: i32, key: i32) -> Result<State> {
        StateReader::made(|out| unsafe { sys::accel_group_split(self.as_raw(), color, key, out) }).map(State::new)
    }

    /// After a rank was lost: a new group of the ranks that call this.
    pub fn shrink_group(&self, wait: Duration) -> Result<State> {
        let wait = wait.as_millis().try_into().unwrap_or(i64::MAX);
        StateReader::made(|out| unsafe { sys::accel_group_shrink(self.as_raw(), wait, out) }).map(State::new)
    }
}
