# SPDX-License-Identifier: Apache-2.0
"""The profile of a training (profile.py training) or of a model whose layers are on the host (profile.py big_model FOLDER)."""

import gzip
import os
import pathlib
import shutil
import subprocess
import sys

from result import figure, require
from device_trace import Trace

PROFILED_STEPS = 5  # of train_gpt, the steps 4 to 8


def check_kernels(trace):
    require(trace.kernels, "the trace has no kernels")
    require(trace.correlated_share() > 0.99, f"only {trace.correlated_share():.0%} of the kernels have the correlation of their launch")


def traces_below(folder):
    files = sorted(file for file in pathlib.Path(folder).rglob("*") if file.name.endswith((".json", ".json.gz")))
    require(files, f"there is no trace in {folder}")
    return files


def training():
    bundle = os.environ["BUNDLE"]
    command = [f"{bundle}/bin/train_gpt", "--text", f"{bundle}/python", "--suffix", ".py", "--steps", "12", "--precision", "bf16", "--profile", "trace",
               "--sample-length", "0", "--eval-every", "0", "--checkpoint-dir", "saved"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    require(done.returncode == 0, f"train_gpt --profile has status {done.returncode}")
    file = traces_below("trace")[0]
    trace = Trace.read(file)
    keep(file)
    figure("profile", **trace.facts(PROFILED_STEPS))
    check_kernels(trace)


def keep(file):
    """For a person who looks at it."""
    target = os.path.join(os.environ["OUT"], "trace.json.gz")
    with open(file, "rb") as source, open(target, "wb") if file.name.endswith(".gz") else gzip.open(target, "wb") as kept:
        shutil.copyfileobj(source, kept)


def big_model(folder):
    from accel import Accelerator, ProfileKwargs, init_empty_weights, load_checkpoint_and_dispatch
    from big_model import LAYERS, OfAccel, split

    library, folder = OfAccel(), pathlib.Path(folder)
    folder.mkdir(parents=True)
    library.save(folder)
    with init_empty_weights():
        model = library.make()
    model = load_checkpoint_and_dispatch(model.eval(), str(folder), device_map=split(0, LAYERS), no_split_module_classes=["LlamaDecoderLayer"])
    tokens = library.tokens()
    library.logits(model, tokens)
    with Accelerator().profile(ProfileKwargs(output_trace_dir="trace")):
        library.logits(model, tokens)
    trace = Trace.read(traces_below("trace")[0])
    figure("profile_big_model", **trace.facts(1))
    check_kernels(trace)
    require(trace.copies_beside_kernels() > 0, "no copy of a layer's weights ran beside a kernel of the layer before it")


if __name__ == "__main__":
    {"training": training, "big_model": big_model}[sys.argv[1]](*sys.argv[2:])
