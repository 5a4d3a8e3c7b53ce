#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says whether the NCCL plugin can be built: prints what is missing (an empty line for nothing), then include folders.

usage: find_cuda.py FOLDER TORCH_LIB

Headers are looked for in FOLDER (the Meson option `cuda`, may be empty), $CUDA_HOME, /usr/local/cuda, the system's own
folders, and the nvidia packages beside LibTorch; LibTorch needs its CUDA part in TORCH_LIB.
"""

import os
import pathlib
import sys

HEADERS = ("cuda_runtime_api.h", "crt/host_defines.h", "nv/target", "cublas_v2.h", "nccl.h")
LIBRARY = "libtorch_cuda.so"


def candidates(option, torch_lib):
    """Include folders that may have the headers, the chosen ones first."""
    roots = [option, os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", "/usr"]
    folders = [pathlib.Path(root) / "include" for root in roots if root]
    packages = torch_lib.parent.parent / "nvidia"
    return folders + sorted(packages.glob("*/include"))


def find(option, torch_lib):
    """Returns (what is missing, include folders)."""
    if not (torch_lib / LIBRARY).exists():
        return f"{torch_lib} has no {LIBRARY}: this LibTorch is one without CUDA", []
    folders = candidates(option, torch_lib)
    chosen = []
    for header in HEADERS:
        found = next((folder for folder in folders if (folder / header).exists()), None)
        if found is None:
            return f"{header} is in none of {', '.join(map(str, folders))}: give the CUDA toolkit by -Dcuda=FOLDER or $CUDA_HOME", []
        # The compiler looks there by itself; naming it would reorder the system's headers.
        if found not in chosen and found != pathlib.Path("/usr/include"):
            chosen.append(found)
    return "", chosen


def main():
    if len(sys.argv) != 3:
        print("usage: find_cuda.py FOLDER TORCH_LIB", file=sys.stderr)
        return 2
    missing, folders = find(sys.argv[1], pathlib.Path(sys.argv[2]))
    print(missing)
    print("\n".join(map(str, folders)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
