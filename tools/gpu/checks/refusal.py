# SPDX-License-Identifier: Apache-2.0
"""Two ranks on one card without staging: refused before the first collective, with the ranks, the cards and both ways out."""

import os
import subprocess

from result import require

environment = {**os.environ, "ACCEL_TIMEOUT_MS": "20000"}
environment.pop("ACCEL_BACKEND", None)
done = subprocess.run([os.environ["ACCEL_PROGRAM"], "launch", "--num-processes", "2", "--", f"{os.environ['BUNDLE']}/bin/hello"], env=environment,
                      capture_output=True, text=True, timeout=50, check=False)
said = done.stdout + done.stderr
print(said)
require(done.returncode != 0, "two ranks on one card were not refused")
for word in ("ranks 0 and 1 are both on", "GPU", "as many ranks as there are GPUs", "cuda:staged"):
    require(word in said, f"the error does not say `{word}`")
require("NCCL error" not in said, "the error is NCCL's")
