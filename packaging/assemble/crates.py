# SPDX-License-Identifier: Apache-2.0
"""The licences of the crates inside of libaccel_tokenizers.so: one text, with each licence once and the crates that have it."""

import pathlib
import re

from project import ROOT
from tree import PackageError, output

PLUGIN = "libaccel_tokenizers.so"
FOLDER = ROOT / "src/text/tokenizers"
NAMES = re.compile(r"(un)?licen[cs]e|copying|notice", re.IGNORECASE)
HEAD = f"""\
{PLUGIN} has the standard library of Rust inside, and the crates that are named above each text. Where a crate has several texts,
its users may choose, but for what is said otherwise.
"""


def linked_crates(cargo):
    """NAME-VERSION of each crate whose code is in the plugin: not those that only build it, or expand macros."""
    listed = output(FOLDER / "cargo.sh", cargo, "tree", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", "--target",
                    "x86_64-unknown-linux-gnu")
    found = {"-".join(line.replace(" v", " ", 1).split()[:2]) for line in listed.splitlines()[1:]}  # the first one is the plugin
    return sorted(found)


def texts_of(folder):
    """The licences in a crate's folder, and those of the sources of C that it carries."""
    return sorted(file for part in (folder, *filter(pathlib.Path.is_dir, folder.iterdir())) for file in part.iterdir()
                  if file.is_file() and NAMES.match(file.name))


def licenses_text(crates, vendored, toolchain):
    """`vendored` has a folder for each crate, `toolchain` the licences of Rust."""
    places = {"the standard library of Rust": [toolchain / "share/doc/rust/licenses" / f"{name}.txt" for name in ("Apache-2.0", "MIT")]}
    for crate in crates:
        places[crate] = texts_of(vendored / crate) if (vendored / crate).is_dir() else []
    owners = {}
    for crate, files in places.items():
        if not files or not all(file.is_file() for file in files):
            raise PackageError(f"{crate}, which is in {PLUGIN}, has no licence in {vendored} or the toolchain")
        for file in files:
            owners.setdefault(file.read_text(encoding="utf-8").strip(), []).append(crate)
    line = "-" * 100
    return "\n".join([HEAD, *(f"{line}\n{', '.join(names)}\n{line}\n\n{text}\n" for text, names in owners.items())])


def add_licenses(prefix, crates, vendored, toolchain):
    """Writes them beside the other licences of an installation, which has the plugin."""
    if not (prefix / "lib/accel" / PLUGIN).is_file():
        raise PackageError(f"{PLUGIN} was not built; expected Rust 1.85 or later, and the crates that tools/setup.sh fetches")
    (prefix / "share/accel/licenses/crates.txt").write_text(licenses_text(crates, vendored, toolchain), encoding="utf-8")
