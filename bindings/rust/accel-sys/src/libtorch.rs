//! Where LibTorch is: in an installed `torch` package of Python, in `$ACCEL_LIBTORCH`, or in the build's own folder.
//! The build script and the loader share this file.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const ASK_PYTHON: &str = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";

/// The first folder that has `lib/libtorch_cpu.so`, as the package has.
pub fn find() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../build/deps/torch");
    let named = env::var_os("ACCEL_LIBTORCH").map(PathBuf::from);
    first(vec![installed_package(), named, Some(own)])
}

fn first(candidates: Vec<Option<PathBuf>>) -> Option<PathBuf> {
    candidates.into_iter().flatten().find(|folder| folder.join("lib/libtorch_cpu.so").is_file())
}

fn installed_package() -> Option<PathBuf> {
    let output = Command::new("python3").args(["-c", ASK_PYTHON]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_with_the_library_is_taken() {
        let folder = env::temp_dir().join(format!("accel-libtorch-{}", std::process::id()));
        let (one, two) = (folder.join("one"), folder.join("two"));
        for candidate in [&one, &two] {
            std::fs::create_dir_all(candidate.join("lib")).unwrap();
        }
        std::fs::write(two.join("lib/libtorch_cpu.so"), "").unwrap();
        let order = || vec![None, Some(one.clone()), Some(two.clone())];
        assert_eq!(first(order()), Some(two.clone()));
        std::fs::write(one.join("lib/libtorch_cpu.so"), "").unwrap();
        assert_eq!(first(order()), Some(one.clone()));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
