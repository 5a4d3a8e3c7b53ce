#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""record_names.py FOLDER: the public names of each module of Accelerate, from its sources, as JSON.

FOLDER is that of the package. Names of test tools and of other packages are left out. The result is bindings/python/tests/accelerate_names.json.
"""

import ast
import json
import pathlib
import sys

# What modules define for themselves, and alternatives of theirs.
INTERNAL = {"logger", "TYPE_CHECKING", "np_core", "rich"}


def defined(statements, takes_imports):
    """The names that statements define at the top of a module; of a package's __init__ those that it takes from its modules too."""
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.ImportFrom) and statement.level and takes_imports:
            yield from (alias.asname or alias.name for alias in statement.names)
        for part in ("body", "orelse", "handlers") if isinstance(statement, (ast.If, ast.Try, ast.ExceptHandler)) else ():
            yield from defined(getattr(statement, part, []), takes_imports)


def main():
    package = pathlib.Path(sys.argv[1])
    record = {}
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        if "test_utils" in parts or parts[-1] == "__main__":
            continue
        path = ".".join(part for part in parts if part != "__init__")
        names = set(defined(ast.parse(file.read_text()).body, takes_imports=path in ("", "utils"))) - INTERNAL
        record[path] = sorted(name for name in names if not name.startswith("_"))
    print(json.dumps(record, indent=0))


if __name__ == "__main__":
    main()
