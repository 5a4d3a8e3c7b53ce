# SPDX-License-Identifier: Apache-2.0
"""Kinds, signatures and attributes as in Accelerate: what interface.py says of this package, against its record of Accelerate 1.15.0.

More parameters with defaults, and more attributes, are not a difference. Each other one stands in interface_differences.txt with its reason.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

HERE = pathlib.Path(__file__).parent
_PLACES = ("*", "**")
_HIDDEN = [["args", "*", ""], ["kwargs", "**", ""]]  # of a decorator that does not tell what is inside


def of_signatures(reference, own):
    """What a call of Accelerate would meet otherwise."""
    if reference in (None, _HIDDEN) or own is None:
        return
    known = {name: (kind, default) for name, kind, default in own}
    order = {one: [name for name, kind, _ in parameters if kind in ("", "position")] for one, parameters in (("theirs", reference), ("ours", own))}
    for name, kind, default in reference:
        if kind in _PLACES:
            if all(own_kind != kind for own_kind, _ in known.values()):
                yield f"no {kind}{name}"
        elif name not in known:
            yield f"no parameter {name}"
        else:
            own_kind, own_default = known[name]
            if kind == "" and (own_kind == "keyword" or order["ours"].index(name) != order["theirs"].index(name)):
                yield f"parameter {name} has another place"
            if default and default != own_default or own_default and not default and own_kind == "position":
                yield f"default of {name} is {default}, here {own_default or 'none'}"
    for name, kind, default in own:
        if kind not in _PLACES and not default and all(name != theirs for theirs, _, _ in reference):
            yield f"needs {name}"


def of_members(reference, own, attributes):
    """{name: difference}"""
    for name, member in reference.items():
        other = own.get(name)
        if other is None:
            if name not in attributes:
                yield name, "is missing"
        elif isinstance(member, list) and isinstance(other, list):
            yield from ((name, difference) for difference in of_signatures(member[1], other[1]))
        elif isinstance(member, list) or isinstance(other, list) or member not in ("property", other):
            yield name, f"is {_short(member)}, here {_short(other)}"


def of_names(reference, own, attributes):
    """Of one name."""
    if reference == ["missing"] or own == ["stand-in"]:
        return
    if reference[0] != own[0]:
        yield "", f"is a {reference[0]}, here a {own[0]}"
    elif reference[0] == "enum":
        yield from ((name, f"is {value}, here {own[1].get(name)}") for name, value in reference[1].items() if own[1].get(name) != value)
    elif reference[0] in ("function", "class"):
        yield from (("", difference) for difference in of_signatures(reference[1], own[1]))
        yield from of_members(reference[2], own[2], attributes) if reference[0] == "class" else ()
    elif reference != own:
        yield "", f"is {_short(reference[1])}, here {_short(own[1])}"


def _short(member):
    return "a method" if isinstance(member, list) else member if len(member) < 60 else member[:57] + "..."


def differences(reference, own):
    """Lines `name: what differs`."""
    for path, names in reference["names"].items():
        for name, description in names.items():
            attributes = own["objects"].get(name, {})
            for member, what in of_names(description, own["names"].get(path, {}).get(name, ["missing"]), attributes):
                yield f"{path}.{name}{'.' * bool(member)}{member}: {what}"
    yield from of_objects(reference["objects"], own["objects"])


def of_objects(reference, own):
    """Lines `<object>.attribute: what differs`."""
    for kind, attributes in reference.items():
        for name, value in attributes.items():
            other = own[kind].get(name, "missing")
            if other != value:
                yield f"<{kind}>.{name}: is {value}, here {other}"


def _record(name):
    return json.loads((HERE / name).read_text())


def test_nothing_differs_without_a_reason():
    done = subprocess.run([sys.executable, HERE / "interface.py", "accel"], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONWARNINGS": "ignore"})
    assert done.returncode == 0, done.stderr
    check(differences(_record("accelerate_interface.json"), json.loads(done.stdout)), "interface_differences.txt")


def test_no_object_of_two_ranks_differs_without_a_reason(ranks):
    printed = ranks(f"""
        import os, runpy, sys, warnings
        warnings.simplefilter("ignore")
        sys.argv = ["interface.py", "accel"]
        runpy.run_path({str(HERE / "interface.py")!r}, run_name="__main__")
    """)
    own = json.loads(printed[0])["objects"]
    check(of_objects(_record("accelerate_interface_of_ranks.json")["objects"], own), "interface_differences_of_ranks.txt")


def check(found, reasons):
    """All differences stand in a file of reasons, and nothing else does."""
    found = list(found)
    rows = [line.split(" | ") for line in (HERE / reasons).read_text().splitlines() if line and not line.startswith("#")]
    assert all(len(row) == 2 and row[1] for row in rows)
    allowed = {difference for difference, _ in rows}
    assert sorted(set(found) - allowed) == [], "differ from Accelerate"
    assert sorted(allowed - set(found)) == [], "differ no more: their lines can go"


@pytest.mark.parametrize("reference, own, expected", [
    ([["a", "", ""], ["b", "", "1"]], [["a", "", ""], ["b", "", "1"], ["c", "", "2"]], []),
    ([["a", "", ""], ["b", "", "1"]], [["b", "", "1"], ["a", "", "None"]], ["parameter a has another place", "parameter b has another place"]),
    ([["a", "", "1"]], [["a", "keyword", "2"]], ["parameter a has another place", "default of a is 1, here 2"]),
    ([["a", "", ""], ["rest", "**", ""]], [["other", "", ""]], ["no parameter a", "no **rest", "needs other"]),
])
def test_differences_of_signatures_are_found(reference, own, expected):
    assert list(of_signatures(reference, own)) == expected


def test_differences_of_names_are_found():
    assert list(of_names(["class", [], {"run": ["method", []], "size": "property", "kind": "1"}],
                         ["class", [], {"size": "3", "kind": "2"}], {})) == [("run", "is missing"), ("kind", "is 1, here 2")]
    assert list(of_names(["function", []], ["missing"], {})) == [("", "is a function, here a missing")]
    assert list(of_names(["enum", {"NO": "'no'"}], ["enum", {}], {})) == [("NO", "is 'no', here None")]
