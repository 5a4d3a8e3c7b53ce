#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many lines of the bindings are written by hand, by language and by what they are for; and of the generator.

usage: binding_lines.py SOURCE_ROOT

Sources without tests, examples and what tools/apigen writes. A forwarder is a function whose body is one call of the C API with its
arguments converted. A file that no kind names is an error.
"""

import ast
import fnmatch
import pathlib
import re
import subprocess
import sys

# Of each language: the kinds, each with the files that are of it, below the folder. The first kind that names a file counts.
KINDS = {
    "bindings/python": {
        "how Python and C meet: values, arrays, callbacks, errors, loading": "*.i engine/* tensors/indexing.py tensors/ops.py tensors/schema.py "
            "tensors/tensor_type.py tensors/text.py",
        "classes with torch's names over the engine": "tensors/* modules/* data/data*.py data/loader.py data/sampler.py training/lr_scheduler.py "
            "training/opti*.py training/own_gradients.py training/registered_parameters.py training/scheduler.py",
        "programs of torch, and the names, defaults and messages of Accelerate": "*.py",
    },
    "bindings/rust": {
        "how Rust and C meet: values, callbacks, errors, loading": "accel-sys/* builders.rs call.rs callback.rs error.rs failure.rs flags.rs handle.rs lib.rs "
            "memory.rs op.rs options.rs prelude.rs scope.rs strings.rs value.rs",
        "what Rust's users expect: operators, indices, arrays, traits, serde": "accel-derive/* arithmetic.rs array.rs configuration.rs display.rs dlpack.rs "
            "dtype.rs index.rs ops.rs serialize.rs serialize/* slice.rs tensor.rs tree.rs",
        "objects, and functions of a shape of their own": "accelerator.rs accelerator/* big_model.rs checkpoint.rs comm.rs data.rs data/* "
            "generated.rs generation.rs launch.rs library.rs logging.rs module.rs nn.rs optimizer.rs parameters.rs progress.rs random.rs scheduler.rs state.rs tracker.rs "
            "tracking.rs work.rs",
    },
    "bindings/julia": {
        "how Julia and C meet: values, callbacks, errors, loading": "Accel.jl callback.jl dtype.jl errors.jl handle.jl keep.jl loading.jl map.jl memory.jl "
            "messages.jl operator.jl pressure.jl scope.jl value.jl",
        "what Julia's users expect: arrays, broadcasting, indices": "arithmetic.jl array.jl indexing.jl linear_algebra.jl overload.jl indexed_elements.jl reducing.jl shape.jl "
            "tensor.jl tree.jl",
        "objects, and functions of a shape of their own": "*.jl data/*",
    },
}
FOLDERS = ("accel/src/", "accel/", "src/")  # what stands before the names above
ENDS = (".py", ".i", ".rs", ".jl")
NOT_BY_HAND = re.compile(r"/(tests?|examples|generated)/|generated\.(i|rs)$|/LibAccel\.jl$")
C_CALL = re.compile(r"\b(?:capi|sys|LibAccel)(?:\.|::)accel_\w+\(")


def kind_of(file, folder):
    name = file.removeprefix(f"{folder}/")
    name = next((name.removeprefix(start) for start in FOLDERS if name.startswith(start)), name)
    return next((kind for kind, patterns in KINDS[folder].items() if any(fnmatch.fnmatch(name, one) for one in patterns.split())), None)


def split(text):
    """(empty lines, lines of comments and documentation, lines of code)"""
    empty = words = 0
    inside = False
    for line in map(str.strip, text.splitlines()):
        starts = line.startswith(('"""', '@doc """'))
        empty += not line
        words += bool(line) and (inside or starts or line.startswith(("#", "//", "/*", "* ")) and not line.startswith("#["))
        inside = inside != (line.count('"""') == 1 and (inside or starts))
    return empty, words, len(text.splitlines()) - empty - words


def forwarders(file, text):
    """Lines of functions that are nothing but one call of C."""
    if file.endswith(".py"):
        found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        bodies = [(node, [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]) for node in found]
        return sum(node.end_lineno - node.lineno + 1 + len(node.decorator_list) for node, body in bodies
                   if len(body) == 1 and isinstance(body[0], (ast.Return, ast.Expr)) and len(C_CALL.findall(ast.unparse(body[0]))) == 1)
    if file.endswith(".rs"):
        bodies = re.findall(r"(?m)^    pub fn [^\n]*\{\n((?:        [^\n]*\n)+)    \}", text)
        return sum(body.count("\n") + 2 for body in bodies if len(C_CALL.findall(body)) == 1 and body.count("\n") < 5 and ";" not in body)
    bodies = re.findall(r"(?m)^[\w.!]+\([^\n]*\) =(?: [^\n]+|\n    [^\n]+)$", text)
    return sum(body.count("\n") + 1 for body in bodies if len(C_CALL.findall(body)) == 1)


def main():
    root = pathlib.Path(sys.argv[1])
    files = subprocess.run(["git", "ls-files", *KINDS], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    rows, strange = {}, []
    for file in files:
        folder = next(folder for folder in KINDS if file.startswith(folder))
        if not file.endswith(ENDS) or NOT_BY_HAND.search(file) and not file.endswith("accel/src/generated.rs"):
            continue
        kind, text = kind_of(file, folder), (root / file).read_text()
        if kind is None:
            strange.append(file)
            continue
        counted = (1, len(text.splitlines()), *split(text), 0 if file.endswith(".i") else forwarders(file, text))
        rows[folder, kind] = [a + b for a, b in zip(rows.get((folder, kind), [0] * len(counted)), counted)]
    if strange:
        print(f"no kind of binding_lines.py names {', '.join(strange)}; expected one of KINDS to do so")
        return 1
    print("| language | what for | files | lines | empty | comments | code | of it forwarders |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for folder, kinds in KINDS.items():
        for kind in kinds:
            print(f"| {folder.removeprefix('bindings/').capitalize()} | {kind} | {' | '.join(map(str, rows[folder, kind]))} |")
    print(f"| all | | {' | '.join(map(str, map(sum, zip(*rows.values()))))} |")
    def lines(found):
        return sum(len((root / file).read_text().splitlines()) for file in found)

    tables = lines(file.relative_to(root) for file in root.glob("api/*.yaml"))
    print(f"\ntools/apigen: {lines(file.relative_to(root) for file in root.glob('tools/apigen/*.py'))} lines of Python; the tables in api/: {tables} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
