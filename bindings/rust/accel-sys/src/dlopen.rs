//! Loads the library while the program runs, for programs that must start without it.
use std::env;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Mutex;

const RTLD_NOW: c_int = 2;
const RTLD_GLOBAL: c_int = 0x100;
const FILE_NAME: &str = "libaccel.so.0.1";

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
}

static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static LOADING: Mutex<()> = Mutex::new(());

/// Loads libaccel, if that was not done before: `file`, else `$ACCEL_LIBRARY`, else the one in `$ACCEL_LIB_DIR`, else
/// what the dynamic linker finds. LibTorch is loaded first, from the place that [`crate::libtorch::find`] names.
///
/// # Errors
/// What the dynamic linker says.
pub fn load(file: Option<&Path>) -> Result<(), String> {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !LIBRARY.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    if let Some(torch) = crate::libtorch::find() {
        open(&torch.join("lib/libc10.so"))?;
        open(&torch.join("lib/libtorch_cpu.so"))?;
    }
    let library = open(&file.map_or_else(default_file, Path::to_path_buf))?;
    LIBRARY.store(library, Ordering::Release);
    Ok(())
}

fn default_file() -> PathBuf {
    if let Some(file) = env::var_os("ACCEL_LIBRARY") {
        return file.into();
    }
    env::var_os("ACCEL_LIB_DIR").map_or_else(|| FILE_NAME.into(), |folder| Path::new(&folder).join(FILE_NAME))
}

fn open(file: &Path) -> Result<*mut c_void, String> {
    let name = CString::new(file.to_string_lossy().as_bytes()).map_err(|_| format!("{file:?}: a path with a NUL"))?;
    // SAFETY: the name ends with a NUL.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW | RTLD_GLOBAL) };
    if library.is_null() {
        return Err(format!("{}; set ACCEL_LIBRARY to the file of libaccel", last_error()));
    }
    Ok(library)
}

fn last_error() -> String {
    // SAFETY: it takes nothing.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "the dynamic linker gives no reason".into();
    }
    // SAFETY: a text of the dynamic linker, which this thread keeps until the next call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The address of a function, which `known` remembers.
#[inline]
pub(crate) fn symbol(known: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let address = known.load(Ordering::Relaxed);
    if address.is_null() {
        find_symbol(known, name)
    } else {
        address
    }
}

/// `name` ends with a NUL.
#[cold]
fn find_symbol(known: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    if let Err(reason) = load(None) {
        panic!("libaccel cannot be loaded: {reason}");
    }
    // SAFETY: the library is loaded, and the name ends with a NUL.
    let address = unsafe { dlsym(LIBRARY.load(Ordering::Acquire), name.as_ptr().cast()) };
    assert!(!address.is_null(), "libaccel has no {}: {}", name.trim_end_matches('\0'), last_error());
    known.store(address, Ordering::Relaxed);
    address
}
