#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what Accelerate's save_state() writes of sharded models, as tests/parity/fixtures/sharded_checkpoints.

usage: sharded_checkpoints.py [CASE ...]     (with torch 2.13, accelerate 1.15.0, torchdata 0.11.0; cases of DeepSpeed with deepspeed 0.19.8)

Two ranks train Net for three steps, save, and take two steps more; all rows are on each rank, so that any number of ranks continues in the
same way. Beside the folders, expected.json has the weights, the moments by the names of parameters and the rates when the state was saved,
then the losses of the further steps and the weights after them. Files of random states are kept once: all cases have the same.
"""

import contextlib
import json
import os
import pathlib
import shutil
import sys

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, _flat_param

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "sharded_checkpoints"
INPUTS = [[0.35, -0.61, 0.12, 0.93, -0.4], [-0.22, 0.57, -0.81, 0.05, 0.66], [0.7, 0.18, -0.33, -0.96, 0.29], [-0.54, -0.07, 0.48, 0.21, -0.88]]
BEFORE, AFTER = 3, 2
CASES = {
    "fsdp2_full": {"fsdp_version": 2, "state_dict_type": "FULL_STATE_DICT", "groups": 2},
    "fsdp2_sharded": {"fsdp_version": 2, "state_dict_type": "SHARDED_STATE_DICT", "groups": 2},
    "fsdp1_full": {"fsdp_version": 1, "trains_shift": True, "state_dict_type": "FULL_STATE_DICT", "groups": 1},
    "fsdp1_sharded": {"fsdp_version": 1, "trains_shift": True, "state_dict_type": "SHARDED_STATE_DICT", "groups": 2, "use_orig_params": True},
    "fsdp1_two_models": {"fsdp_version": 1, "trains_shift": True, "state_dict_type": "FULL_STATE_DICT", "groups": 1, "models": 2},
    "fsdp1_local": {"fsdp_version": 1, "trains_shift": True, "state_dict_type": "LOCAL_STATE_DICT", "groups": 1},
    "deepspeed_0": {"stage": 0, "groups": 2},
    "deepspeed_1": {"stage": 1, "groups": 2},
    "deepspeed_2": {"stage": 2, "groups": 2},
    "deepspeed_2_bf16": {"stage": 2, "groups": 1, "bf16": True},
    "deepspeed_3": {"stage": 3, "groups": 2},
    "stateful_loader": {"ranks": 1, "groups": 1},
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 7)
        self.second = nn.Linear(7, 5)

    def forward(self, x):
        return x + self.second(torch.tanh(self.first(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.shift = nn.Parameter(torch.full((5,), 0.25), requires_grad=False)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 5))

    def forward(self, x):
        x = (x * self.scale + self.shift).to(self.blocks[0].first.weight.dtype)
        for block in self.blocks:
            x = block(x)
        return x


def make_optimizer(model, groups, with_frozen):
    if groups == 1:
        return torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.03, weight_decay=0.1)
    named = [(name, one) for name, one in model.named_parameters() if one.requires_grad or with_frozen]
    return torch.optim.AdamW([{"params": [one for name, one in named if name.endswith("weight")]},
                              {"params": [one for name, one in named if not name.endswith("weight")], "lr": 0.02, "weight_decay": 0.0}],
                             lr=0.03, weight_decay=0.1)


def make_accelerator(case):
    from accelerate import Accelerator, DataLoaderConfiguration, DeepSpeedPlugin, DistributedType, FullyShardedDataParallelPlugin, PartialState

    if case.get("ranks") == 1:
        return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    PartialState(cpu=True)
    if "stage" in case:
        config = {"zero_optimization": {"stage": case["stage"], "stage3_gather_16bit_weights_on_model_save": True},
                  "zero_allow_untested_optimizer": True, "train_micro_batch_size_per_gpu": len(INPUTS), "gradient_accumulation_steps": 1,
                  "bf16": {"enabled": bool(case.get("bf16"))}}
        return Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=config), mixed_precision="bf16" if case.get("bf16") else "no")
    # Accelerate shards on accelerators only; told that the ranks have some, it shards on CPUs in the same way.
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    _flat_param.FlatParamHandle.to_cpu = lambda self: contextlib.nullcontext()  # where they are
    begin = FullyShardedDataParallel.__init__
    FullyShardedDataParallel.__init__ = lambda self, *args, **settings: begin(self, *args, **{**settings, "device_id": torch.device("cpu")})
    return Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(
        fsdp_version=case["fsdp_version"], state_dict_type=case["state_dict_type"], auto_wrap_policy="TRANSFORMER_BASED_WRAP",
        transformer_cls_names_to_wrap=["Block"], use_orig_params=case.get("use_orig_params", False), cpu_ram_efficient_loading=False))


def moments(case, number):
    """Of the same training without sharding, by the names of the parameters."""
    torch.manual_seed(7 + number)
    model = Net()
    model.shift.requires_grad_(case.get("trains_shift", False))
    optimizer = make_optimizer(model, case["groups"], False)
    for _ in range(BEFORE):
        model(torch.tensor(INPUTS)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: {key: optimizer.state[one][key] for key in ("exp_avg", "exp_avg_sq")} for name, one in model.named_parameters() if one.requires_grad}


def steps(accelerator, models, optimizers, count):
    losses = []
    for _ in range(count):
        losses.append([])
        for model, optimizer in zip(models, optimizers):
            rows = torch.tensor(INPUTS)
            loss = model(rows).float().square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.item())
    return losses


def listed(tensors):
    return {name: [float(f"{number:.9g}") for number in tensor.detach().float().flatten().tolist()] for name, tensor in (tensors or {}).items()}


def run(rank, name, port, result):
    case, folder = CASES[name], FIXTURES / name
    size = str(case.get("ranks", 2))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=size,
                      LOCAL_WORLD_SIZE=size, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    accelerator = make_accelerator(case)
    models, optimizers, schedulers = [], [], []
    for number in range(case.get("models", 1)):
        torch.manual_seed(7 + number)
        models.append(Net())
        models[-1].shift.requires_grad_(case.get("trains_shift", False))
        if case.get("fsdp_version") == 1:  # its parameters are others afterwards
            models[-1] = accelerator.prepare(models[-1])
        optimizers.append(make_optimizer(models[-1], case["groups"], case.get("fsdp_version") == 2))
        schedulers.append(torch.optim.lr_scheduler.StepLR(optimizers[-1], 2, 0.5))
        if case.get("fsdp_version") == 1:
            optimizers[-1], schedulers[-1] = accelerator.prepare(optimizers[-1], schedulers[-1])
        else:
            models[-1], optimizers[-1], schedulers[-1] = accelerator.prepare(models[-1], optimizers[-1], schedulers[-1])
    if case.get("ranks") == 1:
        batches = iter(accelerator.prepare(torch.utils.data.DataLoader(torch.arange(12), batch_size=2, shuffle=True)))
        next(batches), next(batches)
    steps(accelerator, models, optimizers, BEFORE)
    for scheduler in schedulers:
        scheduler.step()
    shutil.rmtree(folder, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(folder))
    expected = {"weights": [listed(accelerator.get_state_dict(model)) for model in models],
                "moments": [{key: listed(value) for key, value in moments(case, number).items()} for number in range(len(models))],
                "rates": [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers],
                "losses": steps(accelerator, models, optimizers, AFTER)}
    expected["weights_after"] = [listed(accelerator.get_state_dict(model)) for model in models]
    accelerator.wait_for_everyone()
    if case.get("ranks") == 1:
        expected["batches"] = [batch.tolist() for batch in batches]
    if rank == 0:
        pathlib.Path(result).write_text(json.dumps(expected))


def main():
    names = sys.argv[1:] or list(CASES)
    file = FIXTURES / "expected.json"
    known = {case["name"]: case for case in json.loads(file.read_text())["cases"]} if file.exists() else {}
    for number, name in enumerate(names):
        result = FIXTURES.with_suffix(".json")
        result.parent.mkdir(parents=True, exist_ok=True)
        torch.multiprocessing.spawn(run, (name, 29700 + number, result), CASES[name].get("ranks", 2))
        known[name] = {"name": name, "input": {"models": 1, **CASES[name], "inputs": INPUTS}, "expected": json.loads(result.read_text())}
        result.unlink()
        for path in (FIXTURES / name).iterdir():
            if path.name.startswith("random_states"):
                path.replace(FIXTURES / path.name)
            elif path.name in ("zero_to_fp32.py", "zero_to_torch.py", "latest"):
                path.unlink()
        if name == "fsdp1_local":  # which is refused before the optimizer is read
            shutil.rmtree(FIXTURES / name / "optimizer_0")
    cases = ",\n".join(json.dumps(known[name]) for name in CASES if name in known)
    about = json.dumps(" ".join(__doc__.split("\n\n")[-1].split()))
    file.write_text(f'{{"about": {about}, "reference": "accelerate 1.15.0, torch {torch.__version__}", "seed": 7, "cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
