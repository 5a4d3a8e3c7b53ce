#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_examples.py [--package NAME] [EXAMPLE ...]: runs examples/python/torch with accel and with Accelerate, and compares the losses.

Each example runs on one rank and on two, in float32 and under bf16, with the Python that runs this: it needs torch, accel and accelerate.
The difference that is allowed is that of rounding: sums in another order, and for bf16 products that are rounded elsewhere.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples" / "python" / "torch"
EXAMPLES = ("nlp_example", "cv_example", "gradient_accumulation", "checkpointing", "early_stopping", "local_sgd",
            "automatic_gradient_accumulation", "memory", "cross_validation", "multi_process_metrics", "schedule_free")
TOLERANCE = {"no": 2e-5, "bf16": 2e-2}


def run(example, package, ranks, precision):
    """What an example prints."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
    environment = {**os.environ, "ACCEL_EXAMPLE_PACKAGE": package, "ACCELERATE_USE_CPU": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, *torchrun, str(FOLDER / f"{example}.py"), "--mixed_precision", precision], cwd=folder,
                              env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{example} with {package} on {ranks} ranks ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def losses(text):
    return [float(number) for number in re.findall(r"loss (-?[\d.]+)", text)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="accelerate", help="what accel is compared with")
    parser.add_argument("examples", nargs="*", default=EXAMPLES)
    arguments = parser.parse_args()
    worst = 0
    for example in arguments.examples:
        for ranks in (1, 2):
            for precision, allowed in TOLERANCE.items():
                try:
                    ours, theirs = (losses(run(example, package, ranks, precision)) for package in ("accel", arguments.package))
                except RuntimeError as error:
                    print(f"{example}, {ranks} ranks, {precision}: not compared: {str(error).splitlines()[0]}", flush=True)
                    worst = 1
                    continue
                same = len(ours) == len(theirs) and len(ours) > 0
                difference = max(abs(a - b) for a, b in zip(ours, theirs)) if same else float("inf")
                verdict = "same" if difference <= allowed else f"different: {ours} and {theirs}"
                print(f"{example}, {ranks} ranks, {precision}: {difference:.6f} {verdict}", flush=True)
                worst = max(worst, difference > allowed)
    return worst


if __name__ == "__main__":
    sys.exit(main())
