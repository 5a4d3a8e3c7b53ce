# SPDX-License-Identifier: Apache-2.0
"""Units that include each other. A unit is a header and its source together: what the source needs, whoever uses the header needs too."""

import collections
import re

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def included_units(source):
    """{unit: the units that it includes}, by their names from src/ without endings."""
    texts = {file.relative_to(source).as_posix(): file.read_text() for file in source.rglob("*.[ch]pp")}
    units = {name: name.rpartition(".")[0] for name in texts}
    included = collections.defaultdict(set)
    for name, text in texts.items():
        included[units[name]] |= {units[other] for other in INCLUDE.findall(text) if other in texts} - {units[name]}
    return included


def reached_from(unit, included):
    """{unit that is reached: the one before it on a shortest path from `unit`}"""
    before, todo = {}, collections.deque([unit])
    while todo:
        at = todo.popleft()
        for other in sorted(included.get(at, ())):
            if other not in before:
                before[other] = at
                todo.append(other)
    return before


def shortest_cycle(unit, included):
    before = reached_from(unit, included)
    path = [unit, before[unit]]
    while path[-1] != unit:
        path.append(before[path[-1]])
    return " -> ".join(reversed(path))


def cycles(included):
    """The largest sets of units that all reach each other."""
    reached = {unit: reached_from(unit, included).keys() for unit in included}
    found = {frozenset(other for other in reached[unit] if unit in reached.get(other, ()))
             for unit in included if unit in reached[unit]}
    return sorted(found, key=sorted)


def problems(root):
    included = included_units(root / "src")
    for cycle in cycles(included):
        unit = min(cycle)
        yield f"src/{unit}: includes itself: {shortest_cycle(unit, included)}; expected units below it only"
