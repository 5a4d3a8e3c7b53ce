#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/migration.md: every feature of Hugging Face Accelerate by its name, what it is called here, and what differs.

usage: tools/migration_page.py [--check]

From the rows of tests/checks/reference_rows.txt, the pages of docs/parity, the names that the functions of the header have after
`@accelerate` (api/accel.json), and the introduction in docs/site/migration.md.in. With --check nothing is written: 1 says that the page is old.
"""

import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/migration.md"
TOPICS = {"A": "The state of the process", "B": "The Accelerator", "C": "Data loading", "D": "Accumulation, optimizers, schedulers", "E": "Operations on tensors and trees",
          "F": "Checkpoints", "G": "Large models", "H": "Types and configuration", "I": "Seeds, memory, environment", "J": "Parallelism",
          "K": "DeepSpeed, Megatron, fp8, quantization", "L": "Trackers and logs", "M": "Launching", "N": "Extras", "P": "Traps of Accelerate",
          "Q": "What users asked for"}
CODE = r"[A-Q]\d+[a-z]?"


def differences():
    """{row: text} of the pages of docs/parity."""
    found = {}
    for path in sorted((ROOT / "docs/parity").glob("*.md")):
        found.update((row, text) for row, text in re.findall(rf"^\| ({CODE}) \| .*? \| (.*) \|$", path.read_text(), re.MULTILINE))
    return found


def without_codes(text, names):
    """Words for the codes of rows: what stands in brackets goes, another code becomes the feature's name."""
    text = re.sub(rf" ?\((?:see )?{CODE}(?:(?:, | and | to ){CODE})*\)", "", text)
    text = re.sub(rf"(?<![`\w/#]){CODE}\b", lambda found: names.get(found[0], found[0]), text)
    return text.replace("](../", "](").replace("](#", "](parity.md#")


def references():
    """{the last part of a name of Accelerate: functions and structs of the header that have it after @accelerate}."""
    found = {}
    api = json.loads((ROOT / "api/accel.json").read_text())
    for declared in api["functions"] + api["structs"]:
        for reference in filter(None, declared["reference"].split(", ")):
            found.setdefault(reference.split(".")[-1], []).append(declared["name"])
    return found


def functions(name, references):
    """What the header has of the names of a feature: functions, or structs where no function has one of the names."""
    words = re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", name)))
    found = list(dict.fromkeys(entry for word in words for entry in references.get(word, [])))
    return ([entry for entry in found if not entry.endswith("_t")] or found)[:4]


def equal_features(names):
    """How many features have no difference, with their names: a reader looks for a name on this page."""
    if not names:
        return ""
    count = "1 feature is" if len(names) == 1 else f"{len(names)} features are"
    lines = textwrap.wrap(f"{count} the same as in Accelerate ([tests](../tests/checks/reference_rows.txt)): {'; '.join(names)}.", 140,
                          break_long_words=False, break_on_hyphens=False)
    return "\n" + "\n".join(lines) + "\n"


def page():
    rows = [line.split("\t")[:3] for line in (ROOT / "tests/checks/reference_rows.txt").read_text().splitlines() if not line.startswith("#")]
    names = {row: name for row, _, name in rows}
    texts = differences()
    known = references()
    parts = ["<!-- Written by tools/migration_page.py. -->\n" + (ROOT / "docs/site/migration.md.in").read_text()]
    for letter, topic in TOPICS.items():
        lines, same = [], []
        for row, state, name in rows:
            if not re.fullmatch(rf"{letter}\d+[a-z]?", row):
                continue
            called = ", ".join(f"`{entry}`" if entry.endswith("_t") else f"`{entry}()`" for entry in functions(name, known))
            if state == "differs":
                lines.append(f"| {name} | {called} | {without_codes(texts[row], names)} |\n")
            else:
                same.append(f"{name} ({called})" if called else name)
        table = f"\n| in Accelerate | in C | what differs |\n| --- | --- | --- |\n{''.join(lines)}" if lines else ""
        parts.append(f"## {topic}\n{table}{equal_features(same)}")
    return "\n".join(parts)


def unknown_names():
    """Names in the table of the introduction that a language does not have."""
    sources = {1: "include/accel/*.h", 3: "bindings/julia/src/**/*.jl", 4: "bindings/go/accel.go"}
    texts = {column: "".join(path.read_text() for path in sorted(ROOT.glob(pattern))) for column, pattern in sources.items()}
    rows = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in (ROOT / "docs/site/migration.md.in").read_text().splitlines()
            if line.startswith("| `")]
    return [f"docs/site/migration.md.in: {sources[column]} has no {name}" for row in rows for column in sources
            for name in re.findall(r"`(?:Accel\.)?([\w!]+)\(\)`", row[column]) if not re.search(rf"\b{re.escape(name)}[({{]", texts[column])]


def main():
    text = page()
    if "--check" in sys.argv:
        unknown = unknown_names()
        if unknown:
            print("\n".join(unknown))
            return 1
        if not PAGE.is_file() or PAGE.read_text() != text:
            print(f"{PAGE} is old; run tools/migration_page.py and commit the result")
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
