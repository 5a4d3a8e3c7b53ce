# SPDX-License-Identifier: Apache-2.0
"""The GPT of examples/c/train_gpt.c in each precision: losses fall, and those of bf16 and fp16 end within 2 % of fp32's: losses.py PRECISION..."""

import os
import re
import subprocess
import sys

from result import DEVICE, SHORT, figure, require

TOLERANCE = 0.02
SIZE = ["--steps", "12", "--layers", "1", "--width", "64", "--context", "32", "--warmup", "4", "--lr", "0.01"] if SHORT else ["--steps", "60"]


def train(precision):
    """(first loss, last validation loss)"""
    bundle = os.environ["BUNDLE"]
    command = [f"{bundle}/bin/train_gpt", "--text", f"{bundle}/python", "--suffix", ".py", "--log-every", "1", "--eval-every", "0", "--sample-length", "0",
               "--precision", precision, "--checkpoint-dir", f"{precision}_saved", *SIZE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    require(done.returncode == 0, f"train_gpt --precision {precision} has status {done.returncode}: {done.stderr.strip()[-300:]}")
    first = re.search(r"^step 1/\d+  loss ([\d.]+)", done.stdout, re.MULTILINE)
    last = re.search(r"validation loss ([\d.]+)", done.stdout)
    require(first and last, "train_gpt printed no losses")
    return float(first[1]), float(last[1])


def main():
    lasts = {}
    for precision in sys.argv[1:]:
        if precision == "fp16" and DEVICE == "cpu":
            continue  # the CPU refuses it
        first, lasts[precision] = train(precision)
        figure("gpt_loss", precision=precision, first=first, last=lasts[precision])
        require(lasts[precision] < 0.95 * first, f"{precision}: the loss fell from {first} to {lasts[precision]} only")
    for precision, loss in lasts.items():
        require(abs(loss - lasts["no"]) <= TOLERANCE * lasts["no"], f"{precision} ends at {loss}, fp32 at {lasts['no']}; expected within {TOLERANCE:.0%}")


main()
