// SPDX-License-Identifier: Apache-2.0
//! Loads the library while the program runs.
use crate::{find, libtorch, ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR};
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const RTLD_NOW: c_int = 2;
const RTLD_NOLOAD: c_int = 4;
const RTLD_GLOBAL: c_int = 0x100;
const FILE_NAME: &str = "libaccel.so.0.1";

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
}

static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Why there is no library, or not all of it.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Loads libaccel, if that was not done before: `file`, else what `$LIBACCEL` names, else what the build found, else the one in the
/// wheel of python3, else what the dynamic linker finds. LibTorch comes first: the one that the process has already, else that of
/// [`libtorch::find`].
///
/// # Errors
/// A line that says what is missing, and the commands that get it.
pub fn load(file: Option<&Path>) -> Result<(), String> {
    load_once(file, &mut failure())
}

/// Why a call of this thread or another one answered an error without the library: there is none, or it has no such function.
pub fn load_failure() -> Option<String> {
    let mut failure = failure();
    if LIBRARY.load(Ordering::Acquire).is_null() {
        return failure.clone();
    }
    // The next failure of a call is one of the library again.
    failure.take()
}

fn failure() -> MutexGuard<'static, Option<String>> {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load_once(file: Option<&Path>, failure: &mut Option<String>) -> Result<(), String> {
    if !LIBRARY.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let result = try_load(file);
    *failure = result.clone().err();
    result
}

fn try_load(file: Option<&Path>) -> Result<(), String> {
    let file = file.map_or_else(library, |file| Ok(file.to_path_buf()))?;
    if open(Path::new("libtorch_cpu.so"), RTLD_NOLOAD).is_err() {
        let folder = libtorch::find();
        let files =
            folder.iter().flat_map(|folder| ["libc10.so", "libtorch_cpu.so"].map(|name| folder.join("lib").join(name)));
        for library in files {
            open(&library, RTLD_GLOBAL).map_err(|reason| format!("{reason}; {}", how_to_get(&reason, &library)))?;
        }
    }
    let library = open(&file, RTLD_GLOBAL).map_err(|reason| format!("{reason}; {}", how_to_get(&reason, &file)))?;
    examine(library, &file)?;
    LIBRARY.store(library, Ordering::Release);
    Ok(())
}

/// The file, or the name that the dynamic linker knows.
fn library() -> Result<PathBuf, String> {
    if let Some(file) = find::named() {
        return file;
    }
    let found = option_env!("ACCEL_FOUND_LIBRARY").map(PathBuf::from).filter(|file| file.is_file());
    Ok(found.or_else(find::in_wheel).unwrap_or_else(|| FILE_NAME.into()))
}

/// What to do, by what the dynamic linker says.
fn how_to_get(reason: &str, file: &Path) -> String {
    // A symbol that is missing is one of another LibTorch.
    if ["libtorch", "libc10", "undefined symbol"].iter().any(|word| reason.contains(word)) {
        let version = libtorch::VERSION;
        return format!(
            "LibTorch {version} is needed: `pip install torch=={version}`, or bin/accel-libtorch of the archive of libaccel, \
             or set ACCEL_LIBTORCH to a folder with lib/libtorch_cpu.so"
        );
    }
    let looked = match file.to_str() {
        Some(FILE_NAME) => {
            "LIBACCEL is not set, and neither python3's package accel nor the dynamic linker has libaccel: "
        }
        _ => "",
    };
    format!("{looked}install the wheel of libaccel, or set LIBACCEL to an unpacked archive, an installation or a build of it")
}

/// Another version has other functions.
fn examine(library: *mut c_void, file: &Path) -> Result<(), String> {
    // SAFETY: the library is loaded, and the name ends with a NUL.
    let address = unsafe { dlsym(library, "accel_version\0".as_ptr().cast()) };
    if address.is_null() {
        return Err(format!("{}: no library of libaccel, which has a function accel_version", file.display()));
    }
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the function has had this type in every version.
    unsafe {
        let version: unsafe extern "C" fn(*mut i32, *mut i32, *mut i32) = std::mem::transmute(address);
        version(&mut major, &mut minor, &mut patch);
    }
    if (major, minor) == (ACCEL_VERSION_MAJOR, ACCEL_VERSION_MINOR) {
        return Ok(());
    }
    Err(format!(
        "{}: libaccel {major}.{minor}.{patch}, expected {ACCEL_VERSION_MAJOR}.{ACCEL_VERSION_MINOR}; \
         install the wheel of libaccel {}, or set LIBACCEL to an archive of that version",
        file.display(),
        env!("CARGO_PKG_VERSION")
    ))
}

fn open(file: &Path, flags: c_int) -> Result<*mut c_void, String> {
    let name = CString::new(file.to_string_lossy().as_bytes()).map_err(|_| format!("{file:?}: a path with a NUL"))?;
    // SAFETY: the name ends with a NUL.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW | flags) };
    if library.is_null() {
        return Err(last_error());
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

/// The address of a function, which `known` remembers; NULL where the library is not there.
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
    let mut failure = failure();
    let was_tried = LIBRARY.load(Ordering::Acquire).is_null() && failure.is_some();
    if was_tried || load_once(None, &mut failure).is_err() {
        return ptr::null_mut();
    }
    // SAFETY: the library is loaded, and the name ends with a NUL.
    let address = unsafe { dlsym(LIBRARY.load(Ordering::Acquire), name.as_ptr().cast()) };
    if address.is_null() {
        let version = env!("CARGO_PKG_VERSION");
        *failure = Some(format!(
            "{}: expected libaccel {version}; install its wheel, or set LIBACCEL to an archive of it",
            last_error()
        ));
    }
    known.store(address, Ordering::Relaxed);
    address
}

/// What a function answers when there is no library.
pub(crate) trait Missing {
    const ANSWER: Self;
}

macro_rules! missing {
    ($($kind:ty = $answer:expr),* $(,)?) => {$(
        impl Missing for $kind {
            const ANSWER: Self = $answer;
        }
    )*};
}

missing! {
    () = (), i32 = crate::ACCEL_ERROR_NOT_FOUND, i64 = -1, usize = 0, f64 = 0.0,
    crate::accel_device_t = crate::accel_device_t { r#type: crate::ACCEL_DEVICE_CPU, index: -1 },
}

impl<T> Missing for *const T {
    const ANSWER: Self = ptr::null();
}

impl<T> Missing for *mut T {
    const ANSWER: Self = ptr::null_mut();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_is_not_there_is_told_once() {
        static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
        load(None).unwrap();
        assert_eq!(load_failure(), None);
        assert!(symbol(&KNOWN, "accel_of_another_version\0").is_null());
        let said = load_failure().unwrap();
        assert!(said.contains("accel_of_another_version") && said.contains("install its wheel"), "{said}");
        assert_eq!(load_failure(), None);
        assert!(!symbol(&KNOWN, "accel_version\0").is_null());
    }

    #[test]
    fn what_gets_a_library_is_told_by_what_is_missing() {
        let torch = how_to_get("libtorch_cpu.so: cannot open shared object file", Path::new("/x/libaccel.so"));
        assert!(torch.contains("pip install torch==2.13.0") && torch.contains("ACCEL_LIBTORCH"), "{torch}");
        assert!(how_to_get("undefined symbol: _ZN5torch8", Path::new("/x/libaccel.so")).contains("torch=="));
        let accel = how_to_get("no such file", Path::new(FILE_NAME));
        assert!(
            accel.contains("neither python3's package") && accel.contains("install the wheel of libaccel"),
            "{accel}"
        );
    }

    #[test]
    fn another_library_is_refused() {
        let libc = open(Path::new("libc.so.6"), RTLD_GLOBAL).unwrap();
        assert!(examine(libc, Path::new("/x.so")).unwrap_err().contains("accel_version"));
    }
}
