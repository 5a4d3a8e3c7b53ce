#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps what was released as it is: compares api/accel.json with the locks of api/lock/.

usage: api_lock.py check SOURCE_ROOT
       api_lock.py write SOURCE_ROOT [LIBRARY]

`check` names everything that programs of a release with the same ABI could not live with: only additions are allowed. Before
1.0 the ABI is the minor version, after that the major one. `write` is part of a release: it stores what is frozen, and with
LIBRARY the symbols of that build, for abidiff. api/lock/README.md says more.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

# Numbers that are meant to change.
VERSION_PREFIX = "ACCEL_VERSION_"
ADVICE = "put it back, and give what is new a name of its own"


def words(entry):
    """A parameter or result in words: its type, who owns it, whether NULL is allowed."""
    marks = [entry.get("ownership"), "nullable" if entry.get("nullable") else ""]
    return " ".join([entry["type"]["c"]] + [mark for mark in marks if mark])


def signature(function):
    return {"returns": words(function["returns"]), "parameters": [words(entry) for entry in function["parameters"]]}


def layout(struct):
    fields = [f"{field['type']['c']} {field['name']} at {field['offset']}, {field['initial']} at first"
              for field in struct["fields"]]
    members = [f"{member['type']['c']} {field['name']}.{member['name']}"
               for field in struct["fields"] for member in field.get("members", [])]
    return {"size": struct["size"], "alignment": struct["alignment"], "fields": fields, "members": members}


def frozen(api):
    """What programs rely on, {kind: {name: what it is}}; texts and names of parameters may change."""
    return {
        "constants": {entry["name"]: f"({entry['type']}){entry['value']}" for entry in api["constants"]
                      if not entry["name"].startswith(VERSION_PREFIX)},
        "aliases": {entry["name"]: entry["type"] for entry in api["aliases"]},
        "handles": {entry["name"]: f"struct {entry['struct']}" for entry in api["handles"]},
        "structs": {entry["name"]: layout(entry) for entry in api["structs"]},
        "callbacks": {entry["name"]: signature(entry) for entry in api["callbacks"]},
        "functions": {entry["name"]: {"since": entry["since"], **signature(entry)}
                      for entry in api["functions"]},
    }


def changes_of_struct(then, now):
    grows = then["fields"][0].startswith("size_t struct_size ")
    common = min(len(then["fields"]), len(now["fields"]))
    for was, found in zip(then["fields"], now["fields"]):
        if was != found:
            yield f"its field was `{was}` and is `{found}`"
    for gone in then["fields"][common:] + [member for member in then["members"] if member not in now["members"]]:
        yield f"its field `{gone}` is gone"
    for added in now["fields"][common:] if not grows else []:
        yield f"it has the new field `{added}` and no struct_size by which old programs would be known"
    if then["alignment"] != now["alignment"] or (then["size"] != now["size"] and not grows):
        yield f"it had {then['size']} bytes aligned to {then['alignment']}, and has {now['size']} to {now['alignment']}"


def changes_of_signature(then, now, called_by_us):
    if then.get("since") != now.get("since"):
        yield f"it was there since {then['since']}, and says {now['since']}"
    if then["returns"] != now["returns"]:
        yield f"it returned `{then['returns']}` and returns `{now['returns']}`"
    if len(then["parameters"]) != len(now["parameters"]):
        yield f"it had {len(then['parameters'])} parameters and has {len(now['parameters'])}"
        return
    for place, (was, found) in enumerate(zip(then["parameters"], now["parameters"]), 1):
        accepts_more = found == was + " nullable" and not called_by_us
        if was != found and not accepts_more:
            yield f"its parameter {place} was `{was}` and is `{found}`"


def breaches(then, now):
    """One line for each thing that is not as it was."""
    for kind, entries in then.items():
        for name, was in entries.items():
            found = now[kind].get(name)
            if found is None:
                changes = ["it is gone"]
            elif kind == "structs":
                changes = changes_of_struct(was, found)
            elif kind in ("functions", "callbacks"):
                changes = changes_of_signature(was, found, called_by_us=kind == "callbacks")
            else:
                changes = [f"it was {was} and is {found}"] if was != found else []
            for change in changes:
                yield f"{name}: {change}; {ADVICE}"


def numbers(version):
    return [int(part) for part in version.split(".")[:2]]


def same_abi(released, current):
    """Whether programs of one version run with the other; versions are [major, minor]."""
    return released == current if current[0] == 0 else released[0] == current[0] and released <= current


def problems(root, api):
    for file in sorted((root / "api/lock").glob("*.json")):
        lock = json.loads(file.read_text())
        if same_abi(numbers(lock["version"]), numbers(api["version"])):
            yield from (f"{file.relative_to(root)}: {breach}" for breach in breaches(lock["frozen"], frozen(api)))


def stripped(library, folder):
    """A copy with its symbols alone: then a build with debugging information is like one without."""
    copy = pathlib.Path(folder) / pathlib.Path(library).resolve().name
    subprocess.run(["strip", "--strip-unneeded", "-o", copy, library], check=True)
    return copy


def store_symbols(library, file):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["abidw", "--no-corpus-path", "--out-file", file, stripped(library, folder)], check=True)


def main():
    if (sys.argv[1:2], len(sys.argv)) not in ((["check"], 3), (["write"], 3), (["write"], 4)):
        print("usage: api_lock.py check SOURCE_ROOT, or api_lock.py write SOURCE_ROOT [LIBRARY]", file=sys.stderr)
        return 2
    root = pathlib.Path(sys.argv[2])
    api = json.loads((root / "api/accel.json").read_text())
    found = list(problems(root, api))
    print("\n".join(found), end="\n" if found else "")
    if found or sys.argv[1] == "check":
        return 1 if found else 0
    lock = root / "api/lock" / (".".join(map(str, numbers(api["version"]))) + ".json")
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(json.dumps({"version": api["version"], "frozen": frozen(api)}, indent=1) + "\n")
    if sys.argv[3:]:
        store_symbols(sys.argv[3], lock.with_suffix(".abi"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
