#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what a run on a GPU showed into the documentation: table.py OUT [--docs FOLDER]

OUT is the folder that run.sh wrote. In docs/devices.md the last column of "What ran where" and of "The script for a GPU", in
docs/performance.md the speeds; each with the card, the driver, the versions, the date and the commit. Doing it twice changes nothing.
"""

import argparse
import json
import pathlib
import re
import statistics
import sys

from bundle import short_commit
from steps import steps_on

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMN = "NVIDIA GPU"
# The beginning of a row of "What ran where", and the steps that show it. The rows of the other table are those of the steps themselves.
ROWS = {
    "training in fp32, bf16": ("agree_1_rank", "agree_2_ranks", "agree_resume"),
    "fp16 with loss scaling": ("agree_1_rank", "gpt_losses"),
    "streams, events, pinned memory": ("device_tests", "page_locked"),
    "random numbers": ("agree_1_rank",),
    "staged collectives": ("device_tests", "agree_2_ranks"),
    "sharded training": ("device_tests", "ddp", "fsdp"),
    "captured steps": ("device_tests", "graph_plugin", "captured_step"),
    "NCCL plugin": ("nccl", "two_ranks_on_one_card"),
    "out of memory in the forward": ("device_faults",),
    "the programs of `examples/`": ("example_train", "example_custom_module", "example_own_gradients", "example_checkpoint", "gpt_losses"),
}
SPEEDS = (("GPT of 3.3 M parameters, bf16, tokens/s", "gpt_bf16"), ("GPT of 3.3 M parameters, fp32, tokens/s", "gpt_no"),
          ("GPT-2 small, bf16, 8 x 1024, tokens/s", "gpt2"), ("MLP 512 x 4, batch 64, ms", "mlp"), ("step of one number, us", "overhead"))
WHO = (("ours, C", "c"), ("ours, torch", "ours"), ("Accelerate", "accelerate"), ("Accelerate, fused AdamW", "fused"), ("Accelerate, fused, compiled", "compile"),
       ("ours, torch, compiled", "ours_compile"))


class TableError(Exception):
    """A one-line reason."""


def read(out):
    """(the run, {step: result}) of results.jsonl."""
    file = pathlib.Path(out, "results.jsonl")
    try:
        records = [json.loads(line) for line in file.read_text().splitlines()]
        run = records[0]["run"]
        results = {record["step"]: record for record in records[1:]}
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise TableError(f"{out} has no results of run.sh ({type(error).__name__}: {error})") from None
    if run["device"] != "cuda":
        raise TableError(f"{out} is a rehearsal on {run['device']}; expected a run on cuda")
    return run, results


def figures(results, name):
    return [figure for result in results.values() for figure in result["figures"] if figure.get("figure") == name]


def machine_line(run, results):
    """Card, driver, versions, date and commit."""
    machine = next(iter(figures(results, "machine")), None)
    if machine is None or not machine["cards"]:
        raise TableError("the step machine named no card")
    card = machine["cards"][0]
    packages = ", ".join(f"{name} {machine[name]}" for name in ("torch", "accelerate", "transformers") if machine.get(name))
    return (f"The column {COLUMN} is that of one run of `tools/gpu/run.sh` on one {card['name']}, driver {card['driver_version']}, {machine['cores']} cores "
            f"of {machine['processor']}, {machine['system']}, {packages}, Python {machine['python']}, on {run['date']} at {short_commit(run['bundle'])}.")


def outcome(results, steps):
    """The cell of a row that these steps show."""
    found = [results[step] for step in steps if step in results]
    ran = [result for result in found if result["outcome"] != "not run"]
    failed = [result["step"] for result in ran if result["outcome"] == "failed"]
    left_out = [f"{result['step']} ({result['reason']})" for result in found if result["outcome"] == "not run"]
    parts = [f"failed: {', '.join(failed)}"] if failed else []
    passed = [result["step"] for result in ran if result["outcome"] == "passed"]
    if passed:
        parts.append(f"passed: {', '.join(passed)}" if failed or left_out else f"passed ({', '.join(passed)})")
    if left_out:
        parts.append(f"not run: {', '.join(left_out)}")
    return "; ".join(parts).replace("|", "/") or "not yet run"


def steps_of_rows(results):
    """{row of the script's table: its steps that have a result}, also for rows without one."""
    found = {step.row: [] for step in steps_on("cuda") if step.row != "speed"}
    for step, result in results.items():
        if result["row"] != "speed":
            found.setdefault(result["row"], []).append(step)
    return found


def set_cell(line, cell):
    """The line of a table with another last cell."""
    cells = line.rstrip().rstrip("|").split("|")
    return "|".join([*cells[:-1], f" {cell} |"])


def replace_cells(text, heading, cells):
    """The table below the heading with other last cells, {beginning of a row: cell}."""
    before, found, after = text.partition(f"## {heading}\n")
    if not found:
        raise TableError(f"there is no heading {heading}")
    section, end, rest = after.partition("\n## ")
    lines = section.split("\n")
    for beginning, cell in cells.items():
        places = [place for place, line in enumerate(lines) if line.startswith(f"| {beginning}")]
        if len(places) != 1:
            raise TableError(f"{heading}: {len(places)} rows begin with `{beginning}`; expected one")
        lines[places[0]] = set_cell(lines[places[0]], cell)
    return before + found + "\n".join(lines) + end + rest


def replace_between(text, name, content):
    """The text between <!-- NAME --> and <!-- end of NAME -->."""
    found = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not found.search(text):
        raise TableError(f"there are no marks <!-- {name} --> and <!-- end of {name} -->")
    return found.sub(lambda marks: f"{marks[1]}{content}\n{marks[2]}", text)


def devices_page(text, run, results):
    text = replace_between(text, "run on a GPU", machine_line(run, results))
    text = replace_cells(text, "What ran where", {beginning: outcome(results, steps) for beginning, steps in ROWS.items()})
    return replace_cells(text, "The script for a GPU", {row: outcome(results, steps) for row, steps in steps_of_rows(results).items()})


def median_of(results, name, who):
    """The median of the rounds' medians, or None."""
    values = [figure["value"] for step, result in results.items() if re.fullmatch(rf"speed_{name}_{who}_\d+", step) and result["outcome"] == "passed"
              for figure in result["figures"] if figure.get("params", {}).get("loop") in (None, "accelerated")]
    return statistics.median(values) if values else None


def ratio(results, name):
    """How many times as fast the better of ours is as the better of Accelerate's, without compilation."""
    higher = "tokens" in next(label for label, key in SPEEDS if key == name)
    best = max if higher else min
    ours, theirs = ([value for who in group if (value := median_of(results, name, who)) is not None] for group in (("c", "ours"), ("accelerate", "fused")))
    if not ours or not theirs:
        return "-"
    return f"{best(ours) / best(theirs) if higher else best(theirs) / best(ours):.2f}"


def shown(value):
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:,.0f}"


def speeds(run, results):
    lines = [machine_line(run, results).replace(f"The column {COLUMN} is", "These are the medians"), "",
             "| | " + " | ".join(label for label, _ in WHO) + " | the better of ours against Accelerate, not compiled |", "| --- " * (len(WHO) + 2) + "|"]
    lines += [f"| {label} | " + " | ".join(shown(median_of(results, name, who)) for _, who in WHO) + f" | {ratio(results, name)} |" for label, name in SPEEDS]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--docs", type=pathlib.Path, default=ROOT / "docs", help="the folder of the pages (docs)")
    given = parser.parse_args()
    try:
        run, results = read(given.out)
        pages = {given.docs / "devices.md": lambda text: devices_page(text, run, results),
                 given.docs / "performance.md": lambda text: replace_between(text, "speeds of a GPU", speeds(run, results))}
        changed = {page: write(page.read_text()) for page, write in pages.items()}
    except (TableError, OSError) as error:
        print(f"table: {error}", file=sys.stderr)
        return 1
    for page, text in changed.items():
        page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
