#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which module of a Python package imports which: there are no circles, and few floors.

usage: check_imports.py PACKAGE [--draw]

Imports inside functions and for type checkers count, since a reader follows them too. The floor of a module is 1 if it imports nothing of the
package, else one above the highest module that it imports. --draw prints each floor with its modules and what they import.
"""

import ast
import collections
import pathlib
import sys

MOST_FLOORS = 10


def modules(package):
    """{dotted path: file}; the package itself is ""."""
    files = [file for file in package.rglob("*.py*") if file.name.endswith((".py", ".pyi", ".py.in"))]
    named = {(*file.parent.relative_to(package).parts, file.name.partition(".")[0]): file for file in sorted(files, reverse=True)}
    return {".".join(part for part in parts if part != "__init__"): file for parts, file in named.items()}


def imported(name, file, known):
    """The modules of the package that a file imports, wherever in it."""
    folder = [part for part in name.split(".") if part] if file.stem == "__init__" else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            path = [*folder[:len(folder) - node.level + 1], *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                inside = ".".join([*path, alias.name])
                found.add(inside if inside in known else ".".join(path))
    return found & known - {name}


def floors(graph):
    """({module: its floor}, the modules in circles or above one)"""
    floor, left = {}, set(graph)
    while ready := [name for name in left if graph[name] <= floor.keys()]:
        floor.update({name: 1 + max((floor[other] for other in graph[name]), default=0) for name in ready})
        left.difference_update(ready)
    return floor, left


def circle(graph, left):
    """One circle among modules each of which imports one of the others."""
    path = [min(left)]
    while path[-1] not in path[:-1]:
        path.append(min(graph[path[-1]] & left))
    return path[path.index(path[-1]):]


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--draw"]):
        print("usage: check_imports.py PACKAGE [--draw]", file=sys.stderr)
        return 2
    files = modules(pathlib.Path(sys.argv[1]))
    graph = {name: imported(name, file, files.keys()) if file.suffix == ".py" else set() for name, file in files.items()}
    floor, left = floors(graph)
    if sys.argv[2:]:
        rooms = collections.defaultdict(list)
        for name, number in floor.items():
            rooms[number].append(f"  {name or '(the package)'}: {' '.join(sorted(graph[name], key=lambda other: (-floor[other], other)))}")
        for number, lines in sorted(rooms.items()):
            print(number, *sorted(lines), sep="\n")
    if left:
        print(f"modules import each other: {' -> '.join(circle(graph, left))}; expected what they share in a module below them")
        return 1
    highest = max(floor, key=floor.get)
    if floor[highest] > MOST_FLOORS:
        print(f"{highest} is on floor {floor[highest]}; expected at most {MOST_FLOORS} floors, which --draw shows")
        return 1
    print(f"{len(files)} modules on {floor[highest]} floors, and no circle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
