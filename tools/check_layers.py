#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks rules that a compiler does not know: which module includes which, what headers may include, names, sizes, comments.

usage: check_layers.py SOURCE_ROOT

A module includes itself and modules of lower layers. docs/architecture.md gives the reasons.
"""

import collections
import pathlib
import re
import sys

import class_members
import unit_cycles
import unnamed_namespaces

LAYER = {
    "base": 0,
    "json": 1, "os": 1,
    "machine": 2,
    "config": 3, "kernels": 3,
    "tensor": 4, "trace": 4, "logging": 4, "http": 4, "text": 4,
    "comm": 5, "precision": 5, "launch": 5, "track": 5,
    "state": 6, "nn": 6, "optim": 6,
    "data": 7, "parallel": 7, "quant": 7,
    "checkpoint": 8, "profile": 8,
    "bigmodel": 9,
    "accelerator": 10, "report": 10,
    "capi": 11, "cli": 11,
}
# Folders inside of a module that are stacked in layers too.
INNER_LAYER = {
    "comm/ucx/host": 0, "comm/ucx/transport": 1, "comm/ucx/algorithms": 2, "comm/ucx/progress": 3, "comm/ucx": 4,
}
PUBLIC_HEADER = "accel.h"
# Each header with settings or their choices, and the most sources that one may reach: they are compiled anew when its
# comment changes.
SETTINGS = ("config/generated/settings/", "config/generated/choices/")
MOST_REACHED = 40
# Headers of LibTorch that cost every source that reaches them seconds more than ATen/core/Tensor.h and ATen/ops/<name>.h.
HEAVY = re.compile(
    r"ATen/(ATen|Functions|Operators|NativeFunctions|autocast_mode)\.h"
    r"|torch/(torch|all|extension|script|types)\.h|torch/csrc/(api/include/torch/(?!version)|autograd/|jit/(api|serialization)/).*"
    r"|torch/csrc/distributed/c10d/(Backend|Work|ProcessGroup|ProcessGroupNCCL|comm|reducer)\.hpp")
# The sources that use what only these headers have, themselves or through a header of ours, one a line. The list may only
# shrink: an entry that is not needed any more is an error too.
HEAVY_SOURCES = "tools/heavy_sources.txt"
# All accelerators take one path, through LibTorch's interfaces of devices in general. One kind is named by the table of
# devices and by the plugins of its vendor alone; elsewhere, "cuda" in code or comments of these folders is listed as
# "FILE NUMBER_OF_LINES  # reason". The list may only shrink: a number that is too large is an error too.
CUDA = re.compile(r"cuda", re.IGNORECASE)
CUDA_PLACES = re.compile(r"src/comm/nccl/|src/tensor/graphs/|src/tensor/device/(accelerator_library|device|device_availability|device_kind)\.[ch]pp$|.*/generated/|include/accel\.hpp$")
CUDA_LINES = "tools/cuda_lines.txt"
# Modules that work without LibTorch, but for the one header that hides the differences between its versions.
WITHOUT_TORCH = ("base", "json", "os", "machine", "config", "trace", "logging", "http", "launch", "track", "text", "report", "cli")
TORCH_INCLUDE = re.compile(r"(torch|ATen|c10|caffe2)/")
TORCH_COMPATIBILITY = "base/torch_compat.hpp"
ASKS_TORCH_VERSION = re.compile(r"\bTORCH_VERSION_(MAJOR|MINOR|PATCH)\b")
# Folders of one kind of parallelism each. What stands above asks the interface of all of them.
KIND_OF_PARALLELISM = re.compile(r"parallel/(ddp|fsdp|tensor|pipeline|context|expert)/")
PARALLEL_INTERFACE = "parallel/parallel_model.hpp"
CHOOSES_PARALLELISM = "parallel/parallelize.cpp"
CHANGES_ENVIRONMENT = re.compile(r"\b(setenv|unsetenv|putenv|clearenv)\s*\(|\benviron\s*=[^=]|store\w*\(&environ")
ENVIRONMENT_WRITER = "base/environment.cpp"
ENVIRONMENT_USERS = ("base/environment.hpp", ENVIRONMENT_WRITER, "comm/backend/plugin.cpp",  # only around the load of a library
                     "profile/kineto_session.cpp", "nn/package/package_module.cpp")
USING_NAMESPACE = re.compile(r"^using namespace ", re.MULTILINE)
FORBIDDEN_NAME = re.compile(r"(^|_)(utils?|helpers?|common|misc)(_|$)")
# Such a comment leaves out the noun that it describes: "Of a sharded parameter, what this rank has."
FRAGMENT = re.compile(r"(?://+|/\*\*?|^\s*\*) ?(Of|That|Those|What|As|The same)\b")
COMMENTED = {".cpp", ".hpp", ".h", ".in", ".js"}
MOST_BYTES = 40 * 1024
MOST_FILES = 40  # of a folder of src/
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
            if not any((source / name).is_file() for name in (included, included + ".in")):
                yield f"includes {included}, which does not exist"
            elif target != module and LAYER[target] >= LAYER[module]:
                yield f"includes {included}; {module}/ (layer {LAYER[module]}) may include layers below it only"
        elif quote == '"' and not (file.parent / included).is_file():
            yield f'includes "{included}"; expected a path from src/'
        elif quote == '"':
            yield f'includes "{included}"; expected the path from src/, "{file.parent.relative_to(source)}/{included}"'
        folder, target_folder = name.rpartition("/")[0], included.rpartition("/")[0]
        if folder != target_folder and INNER_LAYER.get(target_folder, -1) >= INNER_LAYER.get(folder, len(INNER_LAYER)):
            yield f"includes {included}; {folder}/ may include folders below it only, which are not {target_folder}/"
        kind = KIND_OF_PARALLELISM.match(included)
        if kind and not name.startswith(kind.group()) and name != CHOOSES_PARALLELISM:
            yield f"includes {included}, which is one kind of parallelism; expected {PARALLEL_INTERFACE}"
        if module in WITHOUT_TORCH and TORCH_INCLUDE.match(included) and name != TORCH_COMPATIBILITY:
            yield f"includes {included}; {module}/ does without LibTorch"


def heavy_includes(source):
    """{name of a source: {heavy header: the file of ours that includes it}}, through any number of headers of ours."""
    included = {}
    for file in source.rglob("*.[ch]pp"):
        included[file.relative_to(source).as_posix()] = [name for _, name in INCLUDE.findall(file.read_text())]
    reached = {}
    for start in included:
        found, seen, todo = {}, {start}, [start]
        while todo:
            name = todo.pop()
            for header in included[name]:
                if HEAVY.fullmatch(header):
                    found.setdefault(header, name)
                elif header in included and header not in seen:
                    seen.add(header)
                    todo.append(header)
        if found and start.endswith(".cpp"):
            reached[start] = found
    return reached


def heavy_problems(root):
    reached, listed = heavy_includes(root / "src"), root / HEAVY_SOURCES
    allowed = set(listed.read_text().split()) if listed.is_file() else set()
    for name in sorted(reached.keys() - allowed):
        header, through = sorted(reached[name].items())[0]
        origin = "" if through == name else f" through {through}"
        yield (f"src/{name}: includes {header}{origin}, which costs seconds; expected ATen/core/Tensor.h, ATen/ops/<name>.h "
               "and other light headers")
    for name in sorted(allowed - reached.keys()):
        yield f"src/{name}: needs no heavy header any more, or is gone; remove it from {HEAVY_SOURCES}"


def unity_problems(file):
    """What would leak into the next source of the same compilation, where several are compiled as one."""
    if USING_NAMESPACE.search(file.read_text()):
        yield "has a file-level `using namespace`; expected its code inside of that namespace"


def environment_problems(file, name):
    """A host's other threads may read the environment at any time; one source knows how it can be changed beside them."""
    if name != ENVIRONMENT_WRITER and CHANGES_ENVIRONMENT.search(file.read_text()):
        yield f"changes the environment; expected the settings of a library by its own calls, or {ENVIRONMENT_WRITER}"
    if name not in ENVIRONMENT_USERS and "EnvironmentDefaults" in file.read_text():
        yield f"puts variables into the environment; expected that of {', '.join(ENVIRONMENT_USERS[2:])} alone"


def cuda_problems(root):
    listed = root / CUDA_LINES
    lines = [line.partition("#")[0].split() for line in listed.read_text().splitlines()] if listed.is_file() else []
    allowed = {line[0]: int(line[1]) for line in lines if line}
    found = {}
    for folder in ("src", "include"):
        for file in (root / folder).rglob("*"):
            name = file.relative_to(root).as_posix()
            if file.suffix in CODE and not CUDA_PLACES.match(name):
                found[name] = sum(bool(CUDA.search(line)) for line in file.read_text().splitlines())
    for name in sorted(found.keys() | allowed.keys()):
        count, most = found.get(name, 0), allowed.get(name, 0)
        if count > most:
            yield (f"{name}: names CUDA in {count} lines, expected {most}: what holds for one kind of device holds for all; "
                   "ask src/tensor/device/device_work.hpp, c10's guards or LibTorch's hooks")
        elif count < most:
            yield f"{name}: names CUDA in {count} lines and {CUDA_LINES} allows {most}; lower the number"


def room_problems(source):
    """Folders with too many files, and names that two sources share: a reader takes one for the other. In capi/ a topic of the header has the
    name of the module behind it."""
    folders_of = collections.defaultdict(set)
    for folder in sorted(path for path in (source, *source.rglob("*")) if path.is_dir()):
        files = [file for file in folder.iterdir() if file.is_file()]
        if len(files) > MOST_FILES:
            yield f"src/{folder.relative_to(source)}: {len(files)} files; expected at most {MOST_FILES}: give them folders by concept"
        parts = folder.relative_to(source).parts
        if "capi" not in parts and "generated" not in parts:
            for file in files:
                if file.suffix in {".cpp", ".hpp"}:
                    folders_of[file.stem].add(folder.relative_to(source).as_posix())
    for stem, folders in sorted(folders_of.items()):
        if len(folders) > 1:
            yield f"src/: {stem} is in {' and in '.join(sorted(folders))}; expected names that differ"


def settings_problems(source):
    texts = {file.relative_to(source).as_posix(): file.read_text() for file in source.rglob("*.[ch]pp")}
    included = {name: {other for other in unit_cycles.INCLUDE.findall(text) if other in texts} for name, text in texts.items()}
    reached = collections.Counter(header for name in texts if name.endswith(".cpp") for header in unit_cycles.reached_from(name, included)
                                  if header.startswith(SETTINGS))
    for header, count in sorted(reached.items()):
        if count > MOST_REACHED:
            yield f"src/{header}: reaches {count} sources; expected at most {MOST_REACHED}: declare its struct where a reference is enough"


def fragment_problems(root):
    """Comments without a subject."""
    for folder in ("src", "include"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in COMMENTED:
                for number, line in enumerate(file.read_text().splitlines(), 1):
                    if begin := FRAGMENT.search(line):
                        yield f"{file.relative_to(root)}:{number}: the comment begins with '{begin[1]}'; expected its subject"


def problems(root):
    source = root / "src"
    yield from room_problems(source)
    for file in sorted(source.rglob("*.[ch]pp")):
        name = file.relative_to(root)
        parts = file.relative_to(source).parts
        if len(parts) > 1 and parts[0] not in LAYER:
            yield f"{name}: the module {parts[0]}/ has no layer; add it to LAYER in tools/check_layers.py"
        elif len(parts) > 1:
            yield from (f"{name}: {problem}" for problem in include_problems(source, file))
            yield from (f"{name}: {problem}" for problem in unity_problems(file))
            yield from (f"{name}: {problem}" for problem in environment_problems(file, file.relative_to(source).as_posix()))
    yield from heavy_problems(root)
    yield from cuda_problems(root)
    yield from unit_cycles.problems(root)
    yield from class_members.problems(root)
    yield from unnamed_namespaces.problems(root)
    yield from fragment_problems(root)
    yield from settings_problems(source)
    for folder in ("src", "tests", "tools", "examples", "bench", "bindings"):
        for file in sorted((root / folder).rglob("*")):
            if not file.is_file() or file.suffix not in CODE or "__pycache__" in file.parts:
                continue
            if file.suffix != ".py" and file != source / TORCH_COMPATIBILITY and ASKS_TORCH_VERSION.search(file.read_text()):
                yield f"{file.relative_to(root)}: asks for LibTorch's version; expected a name that src/{TORCH_COMPATIBILITY} defines"
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
