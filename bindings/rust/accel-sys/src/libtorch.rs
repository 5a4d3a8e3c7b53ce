// SPDX-License-Identifier: Apache-2.0
//! Where LibTorch is: where `$ACCEL_LIBTORCH` says, else in the `torch` package of python3 where its version fits. Libaccel has the
//! path of another one itself.
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The release that packages of libaccel are built for.
pub const VERSION: &str = "2.13.0";

/// The folder that has `lib/libtorch_cpu.so`, as the package has; none where libaccel shall take its own.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = env::var_os("ACCEL_LIBTORCH").filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    crate::find::python_package("torch").filter(|folder| is_usable(folder))
}

fn is_usable(folder: &Path) -> bool {
    let release = release(folder);
    folder.join("lib/libtorch_cpu.so").is_file() && release.map_or(true, |known| known == minor(VERSION))
}

/// Major and minor version, where a file tells it.
fn release(folder: &Path) -> Option<String> {
    let text =
        fs::read_to_string(folder.join("version.py")).or_else(|_| fs::read_to_string(folder.join("build-version")));
    let text = text.ok()?;
    Some(minor(text.split_once("__version__ = '").map_or(text.as_str(), |(_, rest)| rest)))
}

fn minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_taken_where_its_version_fits() {
        // "" tells none, "-" has no library.
        let cases = [
            ("2.13.0+cpu", true),
            ("2.13.1", true),
            ("2.12.1", false),
            ("2.130.0", false),
            ("1.13.0", false),
            ("", true),
            ("-", false),
        ];
        for (index, (version, fits)) in cases.iter().enumerate() {
            let folder = env::temp_dir().join(format!("accel-libtorch-{index}-{}", std::process::id()));
            fs::create_dir_all(folder.join("lib")).unwrap();
            if *version != "-" {
                fs::write(folder.join("lib/libtorch_cpu.so"), "").unwrap();
            }
            if !version.is_empty() {
                let text = format!("__all__ = ['__version__']\n__version__ = '{version}'\ndebug = False\n");
                fs::write(folder.join("version.py"), text).unwrap();
            }
            assert_eq!(is_usable(&folder), *fits, "{version:?}");
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
