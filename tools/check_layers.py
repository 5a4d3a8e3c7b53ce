#!/usr/bin/env python3
"""Checks rules that a compiler does not know: which module includes which, what headers may include, names, sizes.

usage: check_layers.py SOURCE_ROOT

A module includes itself and modules of lower layers. docs/architecture.md gives the reasons.
"""

import pathlib
import re
import sys

LAYER = {
    "base": 0,
    "config": 1, "tensor": 1, "kernels": 1,
    "comm": 2,
    "state": 3, "nn": 3, "precision": 3,
    "data": 4, "optim": 4, "parallel": 4, "quant": 4,
    "checkpoint": 5, "bigmodel": 5, "track": 5,
    "accelerator": 6,
    "capi": 7, "launch": 7,
}
PUBLIC_HEADER = "accel.h"
# Headers that would make each source that includes ours compile for seconds longer.
HEAVY = ("torch/torch.h", "torch/all.h", "torch/extension.h", "ATen/ATen.h")
# Modules that work without LibTorch, but for the one header that hides the differences between its versions.
WITHOUT_TORCH = ("base", "launch")
TORCH_INCLUDE = re.compile(r"(torch|ATen|c10|caffe2)/")
TORCH_COMPATIBILITY = "base/torch_compat.hpp"
FORBIDDEN_NAME = re.compile(r"(^|_)(utils?|helpers?|common|misc)(_|$)")
MOST_BYTES = 40 * 1024
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
CODE = {".cpp", ".hpp", ".c", ".h", ".py"}


def include_problems(source, file):
    """What is wrong with the includes of one file of src/."""
    name = file.relative_to(source).as_posix()
    module = name.split("/")[0]
    for quote, included in INCLUDE.findall(file.read_text()):
        target = included.split("/")[0]
        if included == PUBLIC_HEADER:
            if module != "capi":
                yield f"includes {PUBLIC_HEADER}, which only capi/ may"
        elif quote == '"' and "/" in included and target in LAYER:
            if not (source / included).is_file():
                yield f"includes {included}, which does not exist"
            elif target != module and LAYER[target] >= LAYER[module]:
                yield f"includes {included}; {module}/ (layer {LAYER[module]}) may include layers below it only"
        elif quote == '"' and not (file.parent / included).is_file():
            yield f'includes "{included}"; expected a path from src/'
        elif quote == '"':
            yield f'includes "{included}"; expected the path from src/, "{file.parent.relative_to(source)}/{included}"'
        if included in HEAVY and file.suffix in (".hpp", ".h") and "pch" not in file.stem:
            yield f"includes {included}; headers include ATen/core/Tensor.h and the like"
        if module in WITHOUT_TORCH and TORCH_INCLUDE.match(included) and name != TORCH_COMPATIBILITY:
            yield f"includes {included}; {module}/ does without LibTorch"


def problems(root):
    source = root / "src"
    for file in sorted(source.rglob("*.[ch]pp")):
        name = file.relative_to(root)
        parts = file.relative_to(source).parts
        if len(parts) > 1 and parts[0] != "pch" and parts[0] not in LAYER:
            yield f"{name}: the module {parts[0]}/ has no layer; add it to LAYER in tools/check_layers.py"
        elif len(parts) > 1 and parts[0] != "pch":
            yield from (f"{name}: {problem}" for problem in include_problems(source, file))
    for folder in ("src", "tests", "tools", "examples", "bench", "bindings"):
        for file in sorted((root / folder).rglob("*")):
            if not file.is_file() or file.suffix not in CODE or "__pycache__" in file.parts:
                continue
            if FORBIDDEN_NAME.search(file.stem):
                yield f"{file.relative_to(root)}: the name does not say what is in the file"
            if file.stat().st_size > MOST_BYTES and "generated" not in file.parts:
                size = file.stat().st_size
                yield f"{file.relative_to(root)}: {size} bytes; expected at most {MOST_BYTES}: cut it by concept"


def main():
    if len(sys.argv) != 2:
        print("usage: check_layers.py SOURCE_ROOT", file=sys.stderr)
        return 2
    found = list(problems(pathlib.Path(sys.argv[1]).resolve()))
    print("\n".join(found) if found else "the rules of src/ hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
