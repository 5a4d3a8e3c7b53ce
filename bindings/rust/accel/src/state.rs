// SPDX-License-Identifier: Apache-2.0
//! The program's handle to the distributed job.
use crate::builders::StateOptions;
use crate::call::{made, Made};
use crate::dtype::Device;
use crate::error::{check, Result};
use crate::handle::handle;
use crate::options::Options;
use accel_sys as sys;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

impl StateOptions {
    /// Joins the job.
    pub fn build(&self) -> Result<State> {
        let options = self.as_raw()?;
        made(|out| unsafe { sys::accel_state_create(options, out) })
    }
}

handle! {
    /// Properties of a state: reading them is safe on any thread at any time. [`State::reader`] gives one to other threads.
    StateReader(accel_state_t), accel_state_release, shared by accel_state_retain
}

impl StateReader {
    /// The device that prepared models and batches are put on.
    pub fn device(&self) -> Device {
        unsafe { sys::accel_device(self.as_raw()).as_ref() }.map_or(Device::Cpu, |device| Device::from_raw(*device))
    }

    /// Rows of the last global batch that are not repetitions: 0 when it is full, nothing when it is not known.
    pub fn remainder(&self) -> Option<i64> {
        Some(unsafe { sys::accel_remainder(self.as_raw()) }).filter(|rows| *rows >= 0)
    }

    /// This rank's share of a number of things: the first `length % n` ranks get one more.
    pub fn split_range(&self, length: i64) -> Result<Range<i64>> {
        let (mut begin, mut end) = (0, 0);
        check(unsafe { sys::accel_split_range(self.as_raw(), length, &mut begin, &mut end) })?;
        Ok(begin..end)
    }
}

/// The program's handle to the distributed job: its rank, its device, its precision, and everything that ranks do together.
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

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "State(rank {} of {} on {})", self.process_index(), self.num_processes(), self.device())
    }
}

impl Deref for State {
    type Target = StateReader;

    fn deref(&self) -> &StateReader {
        &self.reader
    }
}

impl Made for State {
    type Raw = *mut sys::accel_state_t;
    const EMPTY: Self::Raw = std::ptr::null_mut();

    unsafe fn of(raw: Self::Raw) -> Result<Self> {
        Ok(State::new(StateReader::from_raw(raw)))
    }
}

/// A state for callbacks of objects that the state owns: it does not keep the state alive.
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

    /// A reader that other threads may use.
    pub fn reader(&self) -> StateReader {
        self.reader.clone()
    }

    /// Waits for all ranks, then leaves the group.
    pub fn end_training(self) -> Result<()> {
        check(unsafe { sys::accel_end_training(self.as_raw()) }).map(drop)
    }
}
