//! Which memory of tensors is in use: by slices of the program, and by calls that go on in the background.
//!
//! Tensors can share memory, and the compiler knows only who borrows a tensor. So slices are noted here, and what would
//! break the rule of Rust, one that writes or any number that read, is an error of the call that would.
use crate::dtype::Device;
use crate::error::{Error, ErrorCode, Result};
use crate::module::Model;
use crate::tensor::Tensor;
use crate::value::{Arg, Kind, Value};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a holder does with the memory, or a call wants to do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

struct Entry {
    holder: u64,
    kind: &'static str,
    bytes: Range<usize>,
    access: Use,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// The number of entries, so that calls need not look while there are none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SLICES: Cell<usize> = const { Cell::new(0) };
}

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that is in use as long as this lives.
pub(crate) struct Held(u64);

impl Held {
    /// # Errors
    /// InvalidState when others use it otherwise.
    fn new(kind: &'static str, wanted: Vec<(Range<usize>, Use)>) -> Result<Self> {
        static HOLDERS: AtomicU64 = AtomicU64::new(0);
        let holder = HOLDERS.fetch_add(1, Ordering::Relaxed);
        let mut entries = entries();
        for (bytes, access) in &wanted {
            refuse(&entries, bytes, *access)?;
        }
        entries.extend(wanted.into_iter().map(|(bytes, access)| Entry { holder, kind, bytes, access }));
        COUNT.store(entries.len(), Ordering::Relaxed);
        Ok(Held(holder))
    }

    /// For a call that goes on by itself.
    pub(crate) fn by_call(reads: &Value, writes: Option<&Tensor>) -> Result<Self> {
        let mut wanted = Vec::new();
        collect(reads, &mut |bytes| wanted.push((bytes, Use::Read)));
        wanted.extend(writes.and_then(bytes_of).map(|bytes| (bytes, Use::Write)));
        Held::new("a call that is under way; wait for it", wanted)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut entries = entries();
        entries.retain(|entry| entry.holder != self.0);
        COUNT.store(entries.len(), Ordering::Relaxed);
    }
}

/// What a slice holds. It stays on its thread, which [`writes_anything`] asks for.
pub(crate) struct HeldBySlice {
    _held: Held,
    _on_this_thread: PhantomData<*mut ()>,
}

impl HeldBySlice {
    pub(crate) fn new(tensor: &Tensor, access: Use) -> Result<Self> {
        let wanted = bytes_of(tensor).map(|bytes| (bytes, access)).into_iter().collect();
        let held = Held::new("a slice or view; drop it first, or take to_vec()", wanted)?;
        SLICES.with(|count| count.set(count.get() + 1));
        Ok(HeldBySlice { _held: held, _on_this_thread: PhantomData })
    }
}

impl Drop for HeldBySlice {
    fn drop(&mut self) {
        SLICES.with(|count| count.set(count.get() - 1));
    }
}

/// Before a call that reads these.
#[inline]
pub(crate) fn reads(arguments: &[Arg<'_>]) -> Result<()> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    arguments.iter().try_for_each(|argument| examine(argument.as_value(), Use::Read))
}

/// Before a call that writes this.
#[inline]
pub(crate) fn writes(argument: Arg<'_>) -> Result<()> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    examine(argument.as_value(), Use::Write)
}

/// Before a call that writes the tensors of a model, or gives them other memory.
pub(crate) fn writes_model(model: &Model) -> Result<()> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    for (_, tensor) in model.named_parameters()?.into_iter().chain(model.named_buffers()?) {
        examine_tensor(&tensor, Use::Write)?;
        if let Some(gradient) = tensor.grad()? {
            examine_tensor(&gradient, Use::Write)?;
        }
    }
    Ok(())
}

/// Before a call that writes tensors which it is not given, such as a backward: no slice may be held by this thread.
pub(crate) fn writes_anything() -> Result<()> {
    if SLICES.with(Cell::get) == 0 {
        return Ok(());
    }
    let message = "the call may write what a slice or view of this thread shows: drop it first, or take to_vec()";
    Err(Error::new(ErrorCode::InvalidState, message))
}

fn examine(value: &Value, access: Use) -> Result<()> {
    let mut result = Ok(());
    collect(value, &mut |bytes| {
        if result.is_ok() {
            result = refuse(&entries(), &bytes, access);
        }
    });
    result
}

fn examine_tensor(tensor: &Tensor, access: Use) -> Result<()> {
    bytes_of(tensor).map_or(Ok(()), |bytes| refuse(&entries(), &bytes, access))
}

fn refuse(entries: &[Entry], bytes: &Range<usize>, access: Use) -> Result<()> {
    let meets = |entry: &&Entry| entry.bytes.start < bytes.end && bytes.start < entry.bytes.end;
    let excludes = |entry: &&Entry| access == Use::Write || entry.access == Use::Write;
    match entries.iter().find(|entry| meets(entry) && excludes(entry)) {
        None => Ok(()),
        Some(entry) => {
            let message = format!("the memory of a tensor is used by {}", entry.kind);
            Err(Error::new(ErrorCode::InvalidState, message))
        }
    }
}

/// The memory of the tensors in a value.
fn collect(value: &Value, found: &mut impl FnMut(Range<usize>)) {
    match value.kind() {
        Kind::Tensor => value.as_tensor().and_then(bytes_of).into_iter().for_each(found),
        Kind::List | Kind::Map => value.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

/// From the first to behind the last byte. None where no slice can be: on another device, without elements; and where the
/// tensor cannot be asked, which the call itself will tell.
fn bytes_of(tensor: &Tensor) -> Option<Range<usize>> {
    let numel = usize::try_from(tensor.numel().ok()?).ok().filter(|numel| *numel > 0)?;
    if tensor.device().ok()? != Device::Cpu {
        return None;
    }
    let start = tensor.data_ptr().ok()? as usize;
    let (shape, strides) = (tensor.shape().ok()?, tensor.strides().ok()?);
    let last: i64 = shape.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum();
    Some(start..start + (last as usize + 1) * (tensor.nbytes().ok()? / numel))
}
