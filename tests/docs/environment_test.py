#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/environment.md has every environment variable that the sources read or set, and none that is gone: environment_test.py ROOT."""

import pathlib
import re
import subprocess
import sys

# Words in quotes that begin as variables do, and are none.
NO_VARIABLES = {
    "ACCEL_UNSET", "ACCEL_BORROWED", "ACCEL_OWNED", "ACCEL_TAKES", "ACCEL_NULLABLE", "ACCEL_SINCE", "ACCEL_NO_STEP", "ACCEL_H", "ACCEL_PLUGIN_DIR",
    "FSDP_MODEL_NAME", "FSDP_PYTORCH_VERSION", "ACCEL_COMPUTE_POLICY", "CUDA_DISTRIBUTED_TYPES", "TORCH_DISTRIBUTED_OPERATION_TYPES", "TORCH_LAUNCH_PARAMS",
    "LOCAL_MACHINE", "LOCAL_SIZE", "LOCAL_STATE_DICT", "ACCEL_LIBRARY", "ACCEL_LIB_DIR", "ACCEL_EXAMPLE_PACKAGE", "ACCEL_FOUND_LIBRARY", "DOCS_RS", "OUT_DIR", "CARGO_FEATURE_DLOPEN", "CARGO_FEATURE_LINKED", "TORCH_SAFE_GLOBALS", "TORCH_VERSION", "TORCH_VERSION_MAJOR", "TORCH_VERSION_MINOR", "SLURM_CONF"}
PREFIX = r"(?:LIBACCEL|ACCEL|ACCELERATE|FSDP|PARALLELISM_CONFIG|MLFLOW|SLURM|OMPI|PMI|PMIX|MV2|MASTER|LOCAL|TORCHELASTIC|TORCH_CPP|TORCH_NCCL|CUDA_VISIBLE|UCX|NCCL|OMP|GOMP|KMP|GLOO|PET)"
QUOTED = re.compile(rf"""["'`:]({PREFIX}_[A-Z0-9_]*[A-Z0-9]|LIBACCEL|RANK|WORLD_SIZE|GROUP_RANK)["'`]""")
READ = re.compile(r"""(?:getenv|environment_\w+|environ(?:\.get|\.setdefault|\.pop)?|parse_\w+_from_env|ENV|env::var(?:_os)?|os\.Getenv)[(\[]\s*["']([A-Z][A-Z0-9_]*)["']""")
SOURCES = ("src", "bindings/python/accel", "bindings/rust", "bindings/julia/src", "bindings/go/accel.go", "tools/apigen/accel.go.in", "examples")


def names_of_sources(root):
    listed = subprocess.run(["git", "ls-files", *SOURCES], cwd=root, capture_output=True, text=True, check=False).stdout.split()
    paths = [root / path for path in listed] or [path for source in SOURCES for path in ([root / source] if (root / source).is_file() else (root / source).rglob("*"))]
    constants = set(re.findall(r"#define (ACCEL_\w+)|\b(ACCEL_[A-Z0-9_]+) =", "".join(path.read_text() for path in (root / "include").rglob("*.h"))))
    constants = {name for pair in constants for name in pair}
    found = {}
    for path in paths:
        if path.suffix not in (".cpp", ".hpp", ".h", ".c", ".py", ".rs", ".jl", ".go", ".in", ".i") or "tests" in path.parts or "test" in path.parts \
                or "generated" in path.parts or path.name.startswith(("LibAccel", "generated")):
            continue
        text = path.read_text()
        for name in QUOTED.findall(text) + READ.findall(text):
            if name not in NO_VARIABLES and name not in constants:
                found.setdefault(name, str(path.relative_to(root)))
    return found


def main(root):
    page = (root / "docs/environment.md").read_text()
    described = set(re.findall(r"`([A-Z][A-Z0-9_]+)(?:=[^`]*)?`", page))
    found = names_of_sources(root)
    missing = [f"{name} ({path}) is not in docs/environment.md" for name, path in sorted(found.items()) if name not in described]
    rows = set(re.findall(r"^\| `([A-Z][A-Z0-9_]+)`", page, re.MULTILINE))
    everything = subprocess.run(["grep", "-rhoE", r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\bRANK\b|\bLIBACCEL\b|\bLIBTORCH\b", "src", "bindings", "include", "tools", "bench", "tests", "packaging"], cwd=root,
                                capture_output=True, text=True, check=False).stdout
    words = set(everything.split())
    gone = [f"{name} is in docs/environment.md, and no source has it" for name in sorted(rows - words - {"HOME", "TERM", "PATH"})]
    print("\n".join(missing + gone))
    return 1 if missing or gone else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
