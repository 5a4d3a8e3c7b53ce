// SPDX-License-Identifier: Apache-2.0
//! Where libaccel is: for the build script, which includes this file, and for the program while it runs.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name that the dynamic linker knows, and the one for building.
const FILE_NAMES: [&str; 2] = ["libaccel.so.0.1", "libaccel.so"];

/// The file in a place: an unpacked archive or an installation, the folder of the library, or the library itself.
pub fn in_place(place: &Path) -> Option<PathBuf> {
    if place.is_file() {
        // The name for building may be a script for the linker, beside the library.
        let loaded = place.with_file_name(FILE_NAMES[0]);
        return Some(if place.ends_with(FILE_NAMES[1]) && loaded.is_file() { loaded } else { place.to_path_buf() });
    }
    let of_debian = format!("lib/{}-linux-gnu", env::consts::ARCH);
    let folders = ["lib", "lib64", of_debian.as_str(), "", "accel/lib"];
    let files = folders.iter().flat_map(|folder| FILE_NAMES.iter().map(move |name| place.join(folder).join(name)));
    files.into_iter().find(|file| file.is_file())
}

/// What `$LIBACCEL` names, if that is set.
///
/// # Errors
/// A line that says that the library is not there.
pub fn named() -> Option<Result<PathBuf, String>> {
    let place = PathBuf::from(env::var_os("LIBACCEL").filter(|place| !place.is_empty())?);
    Some(in_place(&place).ok_or_else(|| {
        format!(
            "LIBACCEL is {place:?}, where no {} is: expected an unpacked archive or an installation of libaccel, \
             the folder of the library, or its file",
            FILE_NAMES[0]
        )
    }))
}

/// The file in the wheel of python3.
pub fn in_wheel() -> Option<PathBuf> {
    in_place(&python_package("accel")?)
}

/// The folder of a package of python3, which is found without importing it.
pub fn python_package(name: &str) -> Option<PathBuf> {
    // Without the current folder, where another thing may have this name.
    let question = format!(
        "import sys; sys.path[:] = filter(None, sys.path); import importlib.util as u; \
         print(u.find_spec('{name}').submodule_search_locations[0])"
    );
    let output = Command::new("python3").args(["-c", &question]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}
