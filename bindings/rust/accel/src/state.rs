//! The program's seat in the job.
use crate::dtype::Device;
use crate::error::{check, text, Result};
use crate::generated::{DistributedType, Precision, StateOptions};
use crate::handle::{buffer_text, c_string, handle};
use crate::memory;
use crate::options::Options;
use crate::scope::Scope;
use crate::tree::Tree;
use crate::value::Value;
use accel_sys as sys;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

impl StateOptions {
    /// Joins the job.
    pub fn build(&self) -> Result<State> {
        #[cfg(feature = "dlopen")]
        crate::library::load_library(None)?;
        let options = self.as_raw()?;
        StateReader::made(|out| unsafe { sys::accel_state_create(options, out) }).map(State::new)
    }
}

handle! {
    /// What a state is: reading it is safe on any thread at any time. [`State::reader`] gives one to other threads.
    StateReader(accel_state_t), accel_state_release
}

// SAFETY: it has only functions of the kind `any`.
unsafe impl Sync for StateReader {}

impl Clone for StateReader {
    fn clone(&self) -> Self {
        // SAFETY: the handle is alive, and the reference that is added belongs to the new owner.
        unsafe { Self::from_raw(sys::accel_state_retain(self.as_raw())) }
    }
}

macro_rules! questions {
    ($($(#[$text:meta])* $name:ident -> bool = $function:ident;)*) => {$(
        $(#[$text])*
        pub fn $name(&self) -> bool {
            // SAFETY: the handle is alive.
            unsafe { sys::$function(self.as_raw()) == 1 }
        }
    )*};
}

impl StateReader {
    /// The rank of this process, from 0.
    pub fn process_index(&self) -> i32 {
        unsafe { sys::accel_process_index(self.as_raw()) }
    }

    /// The number of ranks.
    pub fn num_processes(&self) -> i32 {
        unsafe { sys::accel_num_processes(self.as_raw()) }
    }

    /// This rank among those of its host, from 0.
    pub fn local_process_index(&self) -> i32 {
        unsafe { sys::accel_local_process_index(self.as_raw()) }
    }

    /// The number of ranks of this host.
    pub fn local_num_processes(&self) -> i32 {
        unsafe { sys::accel_local_num_processes(self.as_raw()) }
    }

    questions! {
        /// Whether this is rank 0.
        is_main_process -> bool = accel_is_main_process;
        /// Whether this is the first rank of its host.
        is_local_main_process -> bool = accel_is_local_main_process;
        /// Whether this is the last rank.
        is_last_process -> bool = accel_is_last_process;
        /// Whether there are several ranks.
        use_distributed -> bool = accel_use_distributed;
        /// Whether collectives are checked.
        debug -> bool = accel_debug;
        /// Whether the current micro-batch ends a group and gradients are exchanged.
        sync_gradients -> bool = accel_sync_gradients;
        /// Whether the batch in hand is the last one of its loader.
        end_of_dataloader -> bool = accel_end_of_dataloader;
        /// Whether a loop over a prepared loader is under way.
        in_dataloader -> bool = accel_in_dataloader;
        /// Whether a launcher of notebooks forked this process.
        fork_launched -> bool = accel_fork_launched;
    }

    /// Whether code for one rank runs here; everywhere when there is one process.
    pub fn on_process(&self, process_index: i32) -> bool {
        unsafe { sys::accel_on_process(self.as_raw(), process_index) == 1 }
    }

    /// The same by the rank within the host.
    pub fn on_local_process(&self, local_process_index: i32) -> bool {
        unsafe { sys::accel_on_local_process(self.as_raw(), local_process_index) == 1 }
    }

    /// How the ranks work together.
    pub fn distributed_type(&self) -> DistributedType {
        let number = unsafe { sys::accel_distributed_type(self.as_raw()) };
        DistributedType::from_raw(number).unwrap_or(DistributedType::No)
    }

    /// What carries the collectives: "ucx", "nccl", or "" for one process.
    pub fn backend(&self) -> String {
        unsafe { text(sys::accel_backend(self.as_raw())) }
    }

    /// The precision of the forward.
    pub fn mixed_precision(&self) -> Precision {
        let number = unsafe { sys::accel_mixed_precision(self.as_raw()) };
        Precision::from_raw(number).unwrap_or(Precision::No)
    }

    /// The device that prepared models and batches are put on.
    pub fn device(&self) -> Device {
        Device::from_raw(unsafe { sys::accel_device(self.as_raw()) })
    }

    /// Makes the state's device the current one of this thread.
    pub fn set_device(&self) -> Result<()> {
        check(unsafe { sys::accel_set_device(self.as_raw()) }).map(drop)
    }

    /// The factor of the next backward; 1 when losses are not scaled.
    pub fn loss_scale(&self) -> f64 {
        unsafe { sys::accel_loss_scale(self.as_raw()) }
    }

    /// Rows of the last global batch that are no repetition: 0 when it is full, nothing when it is not known.
    pub fn remainder(&self) -> Option<i64> {
        Some(unsafe { sys::accel_remainder(self.as_raw()) }).filter(|rows| *rows >= 0)
    }

    /// Micro-batches of an update.
    pub fn gradient_accumulation_steps(&self) -> i64 {
        unsafe { sys::accel_gradient_accumulation_steps(self.as_raw()) }
    }

    /// This rank's share of a number of things: the first `length % n` ranks get one more.
    pub fn split_range(&self, length: i64) -> Result<Range<i64>> {
        let (mut begin, mut end) = (0, 0);
        check(unsafe { sys::accel_split_range(self.as_raw(), length, &mut begin, &mut end) })?;
        Ok(begin..end)
    }

    /// This rank's share of a list, of the rows of a tensor, or of each member of a map. With `apply_padding` short shares
    /// repeat the last element.
    pub fn split_between_processes<T: Tree>(&self, inputs: &T, apply_padding: bool) -> Result<T> {
        let (inputs, pad) = (inputs.as_arg(), apply_padding.into());
        memory::reads(&[inputs])?;
        T::from_value(Value::made(|out| unsafe {
            sys::accel_split_between_processes(self.as_raw(), inputs.as_raw(), pad, out)
        })?)
    }

    /// Writes a line to standard output on the first rank of each host, and nothing elsewhere.
    pub fn print(&self, line: &str) -> Result<()> {
        let line = c_string(line)?;
        check(unsafe { sys::accel_print(self.as_raw(), line.as_ptr()) }).map(drop)
    }

    /// Every setting with its value and where it came from, one a line.
    pub fn settings(&self) -> Result<String> {
        buffer_text(|out| unsafe { sys::accel_state_describe(self.as_raw(), out) })
    }

    /// What this rank did last: the latest 2,000 operations as a JSON object.
    pub fn flight_record(&self) -> Result<String> {
        buffer_text(|out| unsafe { sys::accel_flight_record(self.as_raw(), out) })
    }
}

/// The program's seat in the job: its rank, its device, its precision, and everything that ranks do together.
///
/// One thread at a time uses it, so it can move between threads and not be shared; a [`StateReader`] can. All ranks must
/// make the same collective calls in the same order.
///
/// ```
/// # fn main() -> accel::Result<()> {
/// use accel::StateOptions;
/// let state = StateOptions::new().cpu(true).build()?;
/// assert!(state.is_main_process());
/// state.end_training()?;
/// # Ok(()) }
/// ```
///
/// After [`State::end_training`] it is gone, which the compiler knows:
///
/// ```compile_fail,E0382
/// let state = accel::StateOptions::new().cpu(true).build().unwrap();
/// state.end_training().unwrap();
/// state.wait_for_everyone().unwrap();
/// ```
///
/// Another thread cannot use it at the same time:
///
/// ```compile_fail,E0277
/// let state = accel::StateOptions::new().cpu(true).build().unwrap();
/// std::thread::scope(|threads| {
///     threads.spawn(|| state.wait_for_everyone());
/// });
/// ```
pub struct State {
    reader: StateReader,
    weak: WeakState,
    // Its functions are of the kind `object`: Send, and not Sync.
    _one_thread_at_a_time: PhantomData<Cell<()>>,
}

impl Deref for State {
    type Target = StateReader;

    fn deref(&self) -> &StateReader {
        &self.reader
    }
}

/// A state for callbacks that are kept by what the state owns: it does not keep the state alive.
#[derive(Clone)]
pub(crate) struct WeakState(Arc<Mutex<Option<StateReader>>>);

impl WeakState {
    /// The state, while it is there.
    pub(crate) fn upgrade(&self) -> Option<State> {
        let reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reader.as_ref().map(|reader| State::new(reader.clone()))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.weak.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl State {
    pub(crate) fn new(reader: StateReader) -> Self {
        let weak = WeakState(Arc::new(Mutex::new(Some(reader.clone()))));
        State { reader, weak, _one_thread_at_a_time: PhantomData }
    }

    pub(crate) fn weak(&self) -> WeakState {
        self.weak.clone()
    }

    /// A state from the environment.
    pub fn from_environment() -> Result<Self> {
        StateOptions::new().build()
    }

    /// What other threads may use.
    pub fn reader(&self) -> StateReader {
        self.reader.clone()
    }

    /// Waits until all ranks are here.
    pub fn wait_for_everyone(&self) -> Result<()> {
        check(unsafe { sys::accel_wait_for_everyone(self.as_raw()) }).map(drop)
    }

    /// The main process runs the scope's body first, the others after it.
    pub fn main_process_first(&self) -> Result<Scope<'_>> {
        Scope::begin(|out| unsafe { sys::accel_main_process_first_begin(self.as_raw(), out) })
    }

    /// The same for the first rank of each host.
    pub fn local_main_process_first(&self) -> Result<Scope<'_>> {
        Scope::begin(|out| unsafe { sys::accel_local_main_process_first_begin(self.as_raw(), out) })
    }

    /// Raises a flag that [`State::check_trigger`] will see on all ranks.
    pub fn set_trigger(&self) -> Result<()> {
        check(unsafe { sys::accel_set_trigger(self.as_raw()) }).map(drop)
    }

    /// Whether any rank raised the flag; lowers it then. All ranks must call.
    pub fn check_trigger(&self) -> Result<bool> {
        let mut out = 0;
        check(unsafe { sys::accel_check_trigger(self.as_raw(), &mut out) })?;
        Ok(out == 1)
    }

    /// Says whether gradients are exchanged from here on, for loops that count for themselves.
    pub fn set_sync_gradients(&self, sync: bool) -> Result<()> {
        check(unsafe { sys::accel_set_sync_gradients(self.as_raw(), sync.into()) }).map(drop)
    }

    /// Sets the number of micro-batches of an update.
    pub fn set_gradient_accumulation_steps(&self, steps: i64) -> Result<()> {
        check(unsafe { sys::accel_set_gradient_accumulation_steps(self.as_raw(), steps) }).map(drop)
    }

    /// Leaves the process group in good order; collectives fail afterwards with InvalidState.
    pub fn destroy_process_group(&self) -> Result<()> {
        check(unsafe { sys::accel_destroy_process_group(self.as_raw()) }).map(drop)
    }

    /// Waits for all ranks, then leaves the group.
    pub fn end_training(self) -> Result<()> {
        check(unsafe { sys::accel_end_training(self.as_raw()) }).map(drop)
    }
}
