# SPDX-License-Identifier: Apache-2.0
"""Names the machine: card, driver, memory and capability, processor, versions."""

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess

from result import DEVICE, figure, require

FIELDS = ("name", "driver_version", "memory.total", "compute_cap", "pstate", "clocks.max.sm")
PACKAGES = ("torch", "accelerate", "transformers", "pytest", "numpy")


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor():
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def system():
    found = re.search(r'PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text())
    return found[1] if found else platform.platform()


def cards():
    """What the driver says of each card; a container may lack the program."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = subprocess.run([program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    return [dict(zip(FIELDS, map(str.strip, line.split(",")))) for line in done.stdout.splitlines() if done.returncode == 0]


found = cards() if DEVICE == "cuda" else []
figure("machine", device=DEVICE, cards=found, processor=processor(), cores=len(os.sched_getaffinity(0)), system=system(), kernel=platform.release(),
       libc=" ".join(platform.libc_ver()), python=platform.python_version(), **{name: version_of(name) for name in PACKAGES})
print(sorted(path.name for path in pathlib.Path("/dev").glob("nvidia*")), "/proc/driver/nvidia:", pathlib.Path("/proc/driver/nvidia").exists())
require(DEVICE != "cuda" or found, "nvidia-smi names no card")
