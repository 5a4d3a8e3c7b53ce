// SPDX-License-Identifier: Apache-2.0
//! Which memory of tensors is in use: lent to closures of the program, and used by calls in the background.
//!
//! Tensors can share memory, and the compiler knows only who borrows a tensor. So what would break the rule of Rust, one
//! that writes or any number that read, is an error of the call that would. A closure occupies a slot while it runs.
use crate::error::{Error, ErrorCode, Result};
use std::cell::Cell;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An object with memory that calls read and write.
pub(crate) trait Memory {
    /// Calls a function with the bytes of each tensor. A tensor that cannot be asked for them is left out: the call itself
    /// will fail.
    fn each(&self, found: &mut dyn FnMut(Range<usize>));
}

impl<M: Memory> Memory for Option<&M> {
    fn each(&self, found: &mut dyn FnMut(Range<usize>)) {
        self.iter().for_each(|memory| memory.each(found));
    }
}

/// The access to the memory of a closure or a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read = 2,
    Write = 3,
}

/// Each loan of memory is in one of these; fewer are needed than closures run inside of each other, in all threads.
struct Slot {
    state: AtomicU8,
    start: AtomicUsize,
    end: AtomicUsize,
}

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const MOST_LENT: usize = 256;

#[allow(clippy::declare_interior_mutable_const)] // it is what the array begins with
const NOTHING: Slot = Slot { state: AtomicU8::new(FREE), start: AtomicUsize::new(0), end: AtomicUsize::new(0) };
static LENT: [Slot; MOST_LENT] = [NOTHING; MOST_LENT];

/// Memory of calls under way.
static UNDER_WAY: Mutex<Vec<(usize, Range<usize>, Access)>> = Mutex::new(Vec::new());
/// How many places are taken, and how much is in use in all, so that calls need not look while nothing is.
static TAKEN_SLOTS: AtomicUsize = AtomicUsize::new(0);
static IN_USE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many closures of this thread something is lent to.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

impl Slot {
    fn take() -> Result<&'static Slot> {
        let slot = LENT.iter().find(|slot| slot.state.compare_exchange(FREE, TAKEN, SeqCst, SeqCst).is_ok());
        slot.ok_or_else(|| {
            let message =
                format!("more than {MOST_LENT} slices and views at once: expected fewer closures inside of closures");
            Error::new(ErrorCode::InvalidState, message)
        })
    }

    fn excludes(&self, bytes: &Range<usize>, access: Access) -> bool {
        let state = self.state.load(SeqCst);
        (state == Access::Write as u8 || state == Access::Read as u8 && access == Access::Write)
            && self.start.load(SeqCst) < bytes.end
            && bytes.start < self.end.load(SeqCst)
    }
}

/// The loan of a closure, which ends with it, also by a panic.
struct Lent(&'static Slot);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.state.store(FREE, SeqCst);
        TAKEN_SLOTS.fetch_sub(1, SeqCst);
        IN_USE.fetch_sub(1, SeqCst);
        HERE.with(|here| here.set(here.get() - 1));
    }
}

/// Calls a function with memory that nobody else uses otherwise meanwhile.
///
/// # Errors
/// InvalidState when somebody does.
pub(crate) fn lend<R>(
    memory: impl IntoIterator<Item = Range<usize>>,
    access: Access,
    body: impl FnOnce() -> R,
) -> Result<R> {
    let _lent = memory.into_iter().map(|bytes| lend_one(&bytes, access)).collect::<Result<Vec<_>>>()?;
    Ok(body())
}

fn lend_one(bytes: &Range<usize>, access: Access) -> Result<Lent> {
    let lent = Lent(Slot::take()?);
    TAKEN_SLOTS.fetch_add(1, SeqCst);
    IN_USE.fetch_add(1, SeqCst);
    HERE.with(|here| here.set(here.get() + 1));
    lent.0.start.store(bytes.start, SeqCst);
    lent.0.end.store(bytes.end, SeqCst);
    lent.0.state.store(access as u8, SeqCst);
    // Of two threads that come here at once, the later one at least sees the other.
    refuse(&under_way(), bytes, access, Some(lent.0))?;
    Ok(lent)
}

fn under_way() -> MutexGuard<'static, Vec<(usize, Range<usize>, Access)>> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse(
    under_way: &[(usize, Range<usize>, Access)],
    bytes: &Range<usize>,
    access: Access,
    own: Option<&Slot>,
) -> Result<()> {
    let is_own = |slot: &Slot| own.map_or(false, |own| ptr::eq(own, slot));
    let is_lent = || LENT.iter().any(|slot| !is_own(slot) && slot.excludes(bytes, access));
    let user = if TAKEN_SLOTS.load(SeqCst) > 0 && is_lent() {
        "a slice or view; end its closure first, or take to_vec()"
    } else if under_way.iter().any(|(_, used, other)| {
        let meets = used.start < bytes.end && bytes.start < used.end;
        meets && (access == Access::Write || *other == Access::Write)
    }) {
        "a call that is under way; wait for it"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorCode::InvalidState, format!("the memory of a tensor is used by {user}")))
}

/// Memory that a call uses as long as this lives.
#[derive(Debug)]
pub(crate) struct Reserved(usize);

impl Reserved {
    /// For a call that runs in the background.
    ///
    /// # Errors
    /// InvalidState when others use it otherwise.
    pub(crate) fn by_call(reads: &dyn Memory, writes: &dyn Memory) -> Result<Self> {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let call = CALLS.fetch_add(1, SeqCst);
        let mut wanted = Vec::new();
        reads.each(&mut |bytes| wanted.push((call, bytes, Access::Read)));
        writes.each(&mut |bytes| wanted.push((call, bytes, Access::Write)));
        let mut under_way = under_way();
        wanted.iter().try_for_each(|(_, bytes, access)| refuse(&under_way, bytes, *access, None))?;
        IN_USE.fetch_add(1, SeqCst);
        under_way.extend(wanted);
        Ok(Reserved(call))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        under_way().retain(|(call, ..)| *call != self.0);
        IN_USE.fetch_sub(1, SeqCst);
    }
}

/// Before a call that reads this.
#[inline]
pub(crate) fn reads<M: Memory + ?Sized>(memory: &M) -> Result<()> {
    if IN_USE.load(SeqCst) == 0 {
        return Ok(());
    }
    examine(|found| memory.each(found), Access::Read)
}

/// Before a call that writes this, or gives it other memory.
#[inline]
pub(crate) fn writes<M: Memory + ?Sized>(memory: &M) -> Result<()> {
    if IN_USE.load(SeqCst) == 0 {
        return Ok(());
    }
    examine(|found| memory.each(found), Access::Write)
}

#[cold]
fn examine(each: impl FnOnce(&mut dyn FnMut(Range<usize>)), access: Access) -> Result<()> {
    let mut all = Vec::new();
    each(&mut |bytes| all.push(bytes));
    let under_way = under_way();
    all.iter().try_for_each(|bytes| refuse(&under_way, bytes, access, None))
}

/// Before a call that writes tensors which it is not given, such as a backward: nothing may be lent by this thread.
pub(crate) fn writes_anything() -> Result<()> {
    if HERE.with(Cell::get) == 0 {
        return Ok(());
    }
    let message =
        "the call may write what a slice or view of this thread shows: end its closure first, or take to_vec()";
    Err(Error::new(ErrorCode::InvalidState, message))
}
