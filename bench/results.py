#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes bench/RESULTS.md from the files of bench/results, one for each processor: usage: results.py [--check]

A file has "processor", "conditions" and "figures". A figure has "topic", "what", "command", "unit", "ours" and "date", and may have "peer",
"ratio" and "asked"; "ours", "peer" and "ratio" are numbers or lists of numbers, one for each run. A newer figure is one more line of the file:
the page shows the newest figure of each "what" of a topic. bench/results/earlier has the figures from before, with their circumstances.
--check says what is wrong with the files and whether the page is old, and writes nothing.
"""

import datetime
import json
import pathlib
import sys

BENCH = pathlib.Path(__file__).resolve().parent
PAGE = BENCH / "RESULTS.md"
NEEDED = {"topic": str, "what": str, "command": str, "unit": str, "ours": (int, float, list), "date": str}
OPTIONAL = {"peer": (int, float, list), "ratio": (int, float, list), "asked": str}
LONGEST_PAGE = 150  # lines
BEGIN = """<!-- Written by bench/results.py from bench/results/*.json. -->
# Results

The newest figures of libaccel beside PyTorch 2.13.0 with Accelerate 1.15.0 on Python 3.11, by processor. Both sides run by turns on one machine;
[README.md](README.md) says how, and what each command measures. A ratio above 1 is in favor of libaccel. Several numbers in a cell are several runs, or the
least and the greatest. The peer of `train-fsdp` is `fully_shard` of torch, the peer of `launch` is torchrun.

The figures are in `bench/results`, one file for each processor; `python3 bench/results.py` writes this page from them. Figures from before, with
the circumstances of each and the analyses that they led to, are in `bench/results/earlier`.
"""
HEAD = "| what | command | ours | peer | ratio | asked | date |\n|---|---|---:|---:|---:|---|---|\n"


class FigureError(Exception):
    """One line: the file, the figure, and what is expected."""


def numbers(value):
    return value if isinstance(value, list) else [value]


def check(path, figure):
    """Raises FigureError where a figure does not have the form that the top of this file describes."""
    where = f"{path.name}: {figure.get('what')}"
    for name, kind in {**NEEDED, **OPTIONAL}.items():
        if name in figure and (not isinstance(figure[name], kind) or not all(isinstance(number, (int, float)) for number in numbers(figure[name])
                                                                             if kind is not str)):
            raise FigureError(f"{where}: {name} is {figure[name]!r}; expected {'text' if kind is str else 'a number or a list of numbers'}")
    for name in figure.keys() ^ NEEDED.keys():
        if name not in OPTIONAL:
            raise FigureError(f"{where}: {name} is {'missing' if name in NEEDED else 'not known'}")
    if ("peer" in figure) != ("ratio" in figure):
        raise FigureError(f"{where}: a peer without a ratio, or a ratio without a peer")
    try:
        datetime.date.fromisoformat(figure["date"])
    except ValueError:
        raise FigureError(f"{where}: the date is {figure['date']}; expected YYYY-MM-DD") from None


def shown(value):
    return ", ".join(f"{number:,}" for number in numbers(value))


def row(figure):
    peer = f"{shown(figure['peer'])} {figure['unit']}" if "peer" in figure else ""
    cells = [figure["what"], f"`{figure['command']}`", f"{shown(figure['ours'])} {figure['unit']}", peer,
             shown(figure["ratio"]) if "ratio" in figure else "", figure.get("asked", ""), figure["date"]]
    return "| " + " | ".join(cells) + " |\n"


def newest(figures):
    """Of figures with one name the newest, in the order of the first ones."""
    found = {}
    for figure in figures:
        key = figure["topic"], figure["what"]
        if key not in found or figure["date"] >= found[key]["date"]:
            found[key] = figure
    return list(found.values())


def page():
    parts = [BEGIN]
    for path in sorted((BENCH / "results").glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        for figure in data["figures"]:
            check(path, figure)
        parts.append(f"\n## {data['processor']}\n\n{data['conditions'][0].upper()}{data['conditions'][1:]}.\n\n{HEAD}")
        topic = None
        for figure in newest(data["figures"]):
            if figure["topic"] != topic:
                topic = figure["topic"]
                parts.append(f"| **{topic}** | | | | | | |\n")
            parts.append(row(figure))
    text = "".join(parts)
    if text.count("\n") > LONGEST_PAGE:
        raise FigureError(f"the page has {text.count(chr(10))} lines; expected at most {LONGEST_PAGE}")
    return text


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: results.py [--check]", file=sys.stderr)
        return 2
    try:
        text = page()
    except FigureError as error:
        print(error)
        return 1
    if sys.argv[1:] == []:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print("bench/RESULTS.md is old; run python3 bench/results.py and commit the result")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
