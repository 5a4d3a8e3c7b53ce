# SPDX-License-Identifier: Apache-2.0
"""The packages of sources: crates, and the package of Julia."""

import json
import shutil

from archive import write_tar
from project import ROOT, VERSION
from tree import output


def make_crates(target, work):
    """`cargo package` of the crates of the workspace that may be published; returns the files."""
    workspace = ROOT / "bindings/rust/Cargo.toml"
    described = json.loads(output("cargo", "metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path", workspace))
    private = [word for package in described["packages"] if package["publish"] == [] for word in ("--exclude", package["name"])]
    # All at once: one needs another that is in no registry yet. Not built here; the tests of the binding do that.
    shutil.rmtree(work / "crates", ignore_errors=True)
    output("cargo", "package", "--workspace", *private, "--quiet", "--offline", "--no-verify", "--allow-dirty", "--manifest-path", workspace,
           "--target-dir", work / "crates")
    return [shutil.copy2(file, target / file.name) for file in sorted((work / "crates/package").glob("*.crate"))]


def make_julia_package(target, work, artifacts, time):
    """The package `Accel` with its Artifacts.toml, as `Pkg.add(path)` takes it."""
    folder = work / "julia/Accel"
    shutil.rmtree(folder, ignore_errors=True)
    for name in output("git", "-C", ROOT, "ls-files", "bindings/julia").split():
        place = folder / name.removeprefix("bindings/julia/")
        if place.name != "meson.build":
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    shutil.copyfile(artifacts, folder / "Artifacts.toml")
    file = target / f"Accel-{VERSION}.tar.gz"
    write_tar(file, folder, "Accel", time)
    return file
