# SPDX-License-Identifier: Apache-2.0
"""No library of the bundle lacks another one: what the dynamic linker says of every file."""

import os
import pathlib
import re
import subprocess
import sys

from result import require

CUDA_PART = re.compile(r"lib(torch|c10)_cuda\.so")
BUNDLE = pathlib.Path(os.environ["BUNDLE"])


def is_elf(file):
    with file.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


without_cuda = not any(pathlib.Path(folder, "libtorch_cuda.so").exists() for folder in os.environ["LD_LIBRARY_PATH"].split(":"))
unpacked = pathlib.Path(os.environ["SCRATCH"], "bin")
files = sorted(file for file in [*BUNDLE.rglob("*"), *unpacked.iterdir()] if file.is_file() and not file.is_symlink() and is_elf(file))
missing = []
for file in files:
    done = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    # A LibTorch for the CPU has no CUDA part, which only the plugins for CUDA need.
    missing += [f"{file.name}: {line}" for line in said if "not found" in line and not (without_cuda and CUDA_PART.search(line))]
    if done.returncode != 0:
        missing.append(f"{file.name}: ldd has status {done.returncode}: {' '.join(said)[:200]}")
print("\n".join(missing), file=sys.stderr)
require(len(files) > 10, f"{BUNDLE} has {len(files)} programs and libraries")
require(not missing, f"{len(missing)} of {len(files)} files cannot be loaded: {'; '.join(missing)[:600]}")
print(len(files), "programs and libraries have all that they need")
