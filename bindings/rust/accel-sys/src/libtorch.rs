//! Where LibTorch is: in an installed `torch` package of Python, in `$ACCEL_LIBTORCH`, or in the build's own folder.
use std::env;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;

const ASK_PYTHON: &str = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
/// The releases that libaccel can be built for. (Which of them it was built for it says itself, when it is called.)
const RELEASES: RangeInclusive<(u32, u32)> = (2, 11)..=(2, 15);

/// The first folder that has `lib/libtorch_cpu.so` as the package has, of a release that libaccel can work with.
pub fn find() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../build/deps/torch");
    let named = env::var_os("ACCEL_LIBTORCH").map(PathBuf::from);
    first(vec![installed_package(), named, Some(own)])
}

fn first(candidates: Vec<Option<PathBuf>>) -> Option<PathBuf> {
    candidates.into_iter().flatten().find(|folder| is_usable(folder))
}

fn is_usable(folder: &Path) -> bool {
    let known = release(folder);
    folder.join("lib/libtorch_cpu.so").is_file() && known.map_or(true, |known| RELEASES.contains(&known))
}

/// Major and minor version, where a file tells it.
fn release(folder: &Path) -> Option<(u32, u32)> {
    let text =
        fs::read_to_string(folder.join("version.py")).or_else(|_| fs::read_to_string(folder.join("build-version")));
    let text = text.ok()?;
    let version = text.split_once("__version__ = '").map_or(text.as_str(), |(_, rest)| rest);
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn installed_package() -> Option<PathBuf> {
    let output = Command::new("python3").args(["-c", ASK_PYTHON]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders with a library of each of these versions; "" tells none, "-" has no library.
    fn folders(name: &str, versions: &[&str]) -> (PathBuf, Vec<Option<PathBuf>>) {
        let root = env::temp_dir().join(format!("accel-libtorch-{name}-{}", std::process::id()));
        let make = |(index, version): (usize, &&str)| {
            let folder = root.join(index.to_string());
            fs::create_dir_all(folder.join("lib")).unwrap();
            if *version != "-" {
                fs::write(folder.join("lib/libtorch_cpu.so"), "").unwrap();
            }
            if !version.is_empty() {
                let text = format!("__all__ = ['__version__']\n__version__ = '{version}'\ndebug = False\n");
                fs::write(folder.join("version.py"), text).unwrap();
            }
            Some(folder)
        };
        let made = versions.iter().enumerate().map(make).collect();
        (root, made)
    }

    #[test]
    fn the_first_usable_folder_is_taken() {
        let cases = [
            (vec!["2.13.0+cpu", "2.12.1"], Some(0)),
            (vec!["-", "2.12.1"], Some(1)),
            (vec!["2.5.1+cu121", "2.16.0", "2.11.0"], Some(2)),
            (vec!["1.13.0", ""], Some(1)),
            (vec!["-", "1.0.0"], None),
        ];
        for (index, (versions, expected)) in cases.iter().enumerate() {
            let (root, made) = folders(&index.to_string(), versions);
            let mut candidates = vec![None];
            candidates.extend(made.clone());
            assert_eq!(first(candidates), expected.and_then(|place: usize| made[place].clone()), "{versions:?}");
            fs::remove_dir_all(root).unwrap();
        }
    }
}
