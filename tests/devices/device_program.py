#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of programs that compute on the job's device, one after another: device_program.py FOLDER CASE...

The device is that of ACCELERATE_TORCH_DEVICE. Rank 0 writes what came out of a case, a JSON object of lists of numbers, to
FOLDER/CASE.json, which devices_agree_test.py compares with that of the CPU.
"""

import json
import os
import pathlib
import sys

import accel
import tested_device
from accel import Accelerator, DataLoader, DataLoaderConfiguration, nn, optim
from accel.nn import functional as F

FEATURES, CLASSES = 6, 4
SCRIPTED = pathlib.Path(__file__).parents[1] / "engine" / "fixtures" / "scripted.pt"
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Outcome:
    """What came out, by name; tensors of all ranks behind each other."""

    def __init__(self):
        self.numbers = {}

    def add(self, name, value):
        values = value.detach().to("cpu").to(accel.float64).reshape(-1).tolist() if isinstance(value, accel.Tensor) else list(value)
        gathered = accel.utils.gather_object([float(number) for number in values])
        self.numbers.setdefault(name, []).extend(gathered)

    def add_model(self, model):
        for name, parameter in model.named_parameters():
            self.add(name, parameter)


def device_of(accelerator):
    """The job's device, after a check that it is the one that was asked for."""
    wanted = os.environ["ACCELERATE_TORCH_DEVICE"]
    assert accelerator.device.type == wanted, f"{accelerator.device} is not a {wanted}"
    return accelerator.device


class Rows:
    """Features and labels, the same in every process."""

    def __init__(self, count):
        self.features = (accel.arange(count * FEATURES).to(accel.float32) * 1.7).sin().reshape(count, FEATURES)
        self.labels = self.features[:, :CLASSES].argmax(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.features[index], self.labels[index]


class Net(nn.Module):
    """Two layers with a norm and a dropout between them, one head that only some batches use, and a count of calls."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.norm = nn.Linear(FEATURES, 16), nn.LayerNorm(16)
        self.dropout, self.last = nn.Dropout(dropout), nn.Linear(16, CLASSES)
        self.register_buffer("calls", accel.zeros(1))

    def forward(self, rows):
        self.calls.add_(1)
        return self.last(self.dropout(F.gelu(self.norm(self.first(rows)))))


def prepared(accelerator, rows=44, batch_size=4, lr=0.01, dropout=0.0, **loader):
    accel.set_seed(3)
    model = Net(dropout)
    optimizer = optim.AdamW(model.parameters(), lr=lr)
    return accelerator.prepare(model, optimizer, DataLoader(Rows(rows), batch_size=batch_size, shuffle=True, seed=7, **loader))


def train_epoch(accelerator, model, optimizer, loader, outcome):
    for features, labels in loader:
        assert features.device == labels.device == accelerator.device, f"a batch on {features.device}"
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(features), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                outcome.add("norm", [float(accelerator.clip_grad_norm_(model.parameters(), 0.5))])
            optimizer.step()
            optimizer.zero_grad()
        outcome.add("loss", loss)


def trained(outcome, precision, steps, **settings):
    accelerator = Accelerator(mixed_precision=precision, gradient_accumulation_steps=steps, **settings)
    device_of(accelerator)
    model, optimizer, loader = prepared(accelerator)
    for _ in range(2):
        train_epoch(accelerator, model, optimizer, loader, outcome)
    outcome.add_model(accelerator.unwrap_model(model))
    return accelerator


@case
def float32(outcome, _):
    trained(outcome, "no", 1)


@case
def accumulation(outcome, _):
    trained(outcome, "no", 3)


@case
def bf16(outcome, _):
    trained(outcome, "bf16", 1)


@case
def fp16(outcome, _):
    """Scales of losses that overflow first: those steps are skipped. The CPU, which has no fp16, shows where it leads in float32."""
    has_fp16 = os.environ["ACCELERATE_TORCH_DEVICE"] != "cpu"
    scaler = accel.GradScalerKwargs(init_scale=2.0**24, growth_interval=1000)
    accelerator = Accelerator(mixed_precision="fp16", kwargs_handlers=[scaler]) if has_fp16 else Accelerator()
    model, optimizer, loader = prepared(accelerator)
    skipped = []
    for _ in range(20):
        for features, labels in loader:
            scale = accelerator.loss_scale
            accelerator.backward(F.cross_entropy(model(features), labels))
            optimizer.step()
            optimizer.zero_grad()
            skipped.append(optimizer.step_was_skipped)
            assert not skipped[-1] or accelerator.loss_scale == scale / 2
    assert any(skipped[:4]) == has_fp16 and not any(skipped[30:]), skipped
    losses = [F.cross_entropy(model(features), labels).item() for features, labels in loader]
    outcome.add("loss", [sum(losses) / len(losses)])


@case
def workers(outcome, _):
    """Threads read batches, and page-locked copies go to the device one batch ahead."""
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))
    accel.set_seed(3)
    loader = accelerator.prepare(DataLoader(Rows(50), batch_size=3, shuffle=True, seed=7, num_workers=2, pin_memory=True))
    for _ in range(2):
        for features, labels in loader:
            assert features.device == accelerator.device
            outcome.add("sums", (features.sum(1) * labels).sum())
            features.mul_(0)  # what the device got is a copy
    outcome.add("rows", [len(loader)])


@case
def join(outcome, _):
    """Rank r has r batches more than rank 0."""
    accelerator = Accelerator()
    accel.set_seed(3)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    rows = Rows(40)
    with accelerator.join_uneven_inputs([model]):
        for step in range(3 + accelerator.process_index):
            first = 5 * step + accelerator.process_index
            features, labels = (part[first:first + 4].to(accelerator.device) for part in (rows.features, rows.labels))
            accelerator.backward(F.cross_entropy(model(features), labels))
            optimizer.step()
            optimizer.zero_grad()
    outcome.add_model(accelerator.unwrap_model(model))


@case
def local_sgd(outcome, _):
    accelerator = Accelerator()
    model, optimizer, loader = prepared(accelerator)
    with accel.LocalSGD(accelerator=accelerator, model=model, local_sgd_steps=3) as averaging:
        for features, labels in loader:
            accelerator.backward(F.cross_entropy(model(features), labels))
            optimizer.step()
            optimizer.zero_grad()
            averaging.step()
    outcome.add_model(accelerator.unwrap_model(model))


@case
def compressed_gradients(outcome, _):
    hook = accel.DistributedDataParallelKwargs(comm_hook=accel.utils.DDPCommunicationHookType.BF16)
    trained(outcome, "no", 1, kwargs_handlers=[hook])


@case
def low_rank_gradients(outcome, _):
    kinds = accel.utils.DDPCommunicationHookType
    hook = accel.DistributedDataParallelKwargs(comm_hook=kinds.POWER_SGD, comm_state_option={"matrix_approximation_rank": 2})
    trained(outcome, "no", 1, kwargs_handlers=[hook])


@case
def metrics(outcome, _):
    """Tensors of the device and of the CPU in one call, of different sizes, and objects that hold tensors."""
    accelerator = Accelerator()
    rank, device = accelerator.process_index, device_of(accelerator)
    loader = accelerator.prepare(DataLoader(Rows(21), batch_size=4))
    for features, labels in loader:
        gathered = accelerator.gather_for_metrics({"features": features, "labels": labels, "on the CPU": labels.to("cpu")})
        assert gathered["features"].device == device and gathered["on the CPU"].device.type == "cpu"
        for name, tensor in gathered.items():
            outcome.add(name, tensor)
    mine = accel.full([rank + 2, 3], float(rank + 1), device=device)
    outcome.add("padded", accelerator.pad_across_processes(mine, pad_index=-1))
    outcome.add("mean", accelerator.reduce(accel.full([5], float(rank), device=device), "mean"))
    outcome.add("broadcast", accel.utils.broadcast(accel.full([3], float(rank), device=device), from_process=accelerator.num_processes - 1))
    for sent in accel.utils.gather_object([{"rank": rank, "tensor": mine}]):
        outcome.add("object", sent["tensor"])
    large = accel.arange(300_000, device=device).to(accel.float32) + rank  # more than one chunk of staging
    outcome.add("large", accelerator.reduce(large, "sum")[::4999])
    outcome.add("gathered", accelerator.gather(large)[::4999])


@case
def checkpoint(outcome, folder):
    """Training goes on with the same bits after a checkpoint. What a dropout draws is the device's own."""
    accelerator = Accelerator()
    model, optimizer, loader = prepared(accelerator, dropout=0.2)
    train_epoch(accelerator, model, optimizer, loader, Outcome())
    kinds = {"state": {}, "torch": {"safe_serialization": False}, "compressed": {"compression_level": 1},
             "shared": {"incremental": True, "asynchronous": True}, "asynchronous": {"asynchronous": True}}
    for name, settings in kinds.items():
        accelerator.save_state(os.path.join(folder, name), **settings)
    outcomes = []
    for name in [None, *kinds]:  # the last save goes on beside the first epoch
        if name is not None:
            accelerator.load_state(os.path.join(folder, name))
        outcomes.append(Outcome())
        train_epoch(accelerator, model, optimizer, loader, outcomes[-1])
        outcomes[-1].add_model(accelerator.unwrap_model(model))
        assert outcomes[-1].numbers == outcomes[0].numbers, name
    outcome.add("batches", [len(outcomes[0].numbers["loss"])])


@case
def loaded_before_it_is_prepared(outcome, _):
    """Optimizers get their states on the CPU, where the model still is, and continue on the device."""
    accelerator = Accelerator()
    rows = Rows(8)

    def train(model, optimizer):
        for _ in range(2):
            accelerator.backward(F.cross_entropy(model(rows.features.to(accelerator.device)), rows.labels.to(accelerator.device)))
            optimizer.step()
            optimizer.zero_grad()

    kinds = (optim.Adam, optim.AdamW, optim.NAdam, optim.Adagrad)
    for kind in kinds:
        def new():
            accel.set_seed(3)
            model = Net()
            return model, kind(model.parameters(), lr=0.01)

        former, following = new(), new()
        trained = accelerator.prepare(*former)
        train(*trained)
        following[0].load_state_dict({name: value.to("cpu") for name, value in former[0].state_dict().items()})
        following[1].load_state_dict(former[1].state_dict())
        train(*accelerator.prepare(*following))
        train(*trained)
        weights = [[parameter.to("cpu").flatten().tolist() for parameter in model.parameters()] for model, _ in (former, following)]
        assert weights[0] == weights[1], kind.__name__
        del trained
        accelerator.free_memory()
    outcome.add("kinds", [len(kinds)])


@case
def from_the_cpu(outcome, _):
    """Loads what the case `checkpoint` of the CPU left in the folder that $FOLDER_OF_THE_CPU names."""
    accelerator = Accelerator()
    model, _, _ = prepared(accelerator, dropout=0.2)
    accelerator.load_state(os.path.join(os.environ["FOLDER_OF_THE_CPU"], "state"))
    outcome.add_model(accelerator.unwrap_model(model))


def steps_between(outcome, folder, first, last):
    """Steps of one global batch each, whatever the number of ranks, from the checkpoint `first` to the checkpoint `last`."""
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    device_of(accelerator)
    model, optimizer, loader = prepared(accelerator, rows=40, batch_size=8)
    if first > 0:
        accelerator.load_state(os.path.join(folder, str(first)))
    step = first
    while step < last:
        for features, labels in loader:
            loss = F.cross_entropy(model(features), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            outcome.add("loss", accelerator.reduce(loss.detach(), "mean"))
            step += 1
            if step == last:
                accelerator.save_state(os.path.join(folder, str(last)))
                break


@case
def resume_whole(outcome, folder):
    steps_between(outcome, folder, 0, 13)


@case
def resume_first(outcome, folder):
    steps_between(outcome, folder, 0, 3)


@case
def resume_second(outcome, folder):
    steps_between(outcome, folder, 3, 7)


@case
def resume_last(outcome, folder):
    steps_between(outcome, folder, 7, 13)


@case
def random_numbers(outcome, folder):
    """What holds of random numbers on every device; the numbers themselves are those of each kind, and "drawn"."""
    accelerator = Accelerator()
    device, rank = device_of(accelerator), accelerator.process_index

    def draw(on=device):
        return accel.randn(7, device=on).tolist()

    def of_ranks(numbers):
        return accel.utils.gather_object([numbers])

    # Seeded draws repeat, go on, and are the same on all ranks.
    accel.set_seed(11)
    first = draw()
    assert draw() != first
    accel.set_seed(11)
    assert draw() == first
    assert all(other == first for other in of_ranks(first))
    # With device_specific each rank has the seed of its number behind the given one.
    accel.set_seed(11, device_specific=True)
    own = draw()
    assert len({str(numbers) for numbers in of_ranks(own)}) == accelerator.num_processes
    accel.set_seed(11 + rank)
    assert draw() == own
    outcome.add("drawn normal", own)
    # Each device has a generator of its own.
    others = [f"{device.type}:{index}" for index in range(tested_device.count(device.type))] if device.type != "cpu" else []
    for other in [*others, "cpu"]:
        if other not in (str(device), device.type):
            accel.set_seed(11, device_specific=True)
            draw(other)
            assert draw() == own, f"numbers drawn on {other} change those of {device}"
    accel.set_seed(11, device_specific=True)
    dropped = F.dropout(accel.ones(64, device=device), 0.5, True)
    assert set(dropped.tolist()) == {0.0, 2.0}
    outcome.add("drawn dropout", dropped)
    # A checkpoint has the generators of the device and of the CPU.
    state = os.path.join(folder, f"random_{device.type}")
    accelerator.save_state(state)
    continued = draw(), draw("cpu")
    draw(), draw("cpu")
    accelerator.load_state(state)
    assert (draw(), draw("cpu")) == continued
    generator = accel.Generator(device=device).manual_seed(5)
    before = generator.get_state()
    assert before.device.type == "cpu"
    generator.manual_seed(6)
    assert generator.get_state().tolist() != before.tolist()
    generator.set_state(before)
    assert generator.get_state().tolist() == before.tolist()
    accel.set_seed(11, device_specific=True)
    accel.utils.synchronize_rng_states(["torch" if device.type == "cpu" else device.type])
    synchronized = draw()
    assert all(other == synchronized for other in of_ranks(synchronized))
    outcome.add("drawn synchronized", synchronized)


@case
def callback(outcome, _):
    """A forward that is the program's, through operators, with hooks."""
    accelerator = Accelerator()
    device_of(accelerator)

    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(accel.ones(3)), nn.Parameter(accel.zeros(3))

        def forward(self, rows):
            return accel.ops.addcmul(self.bias, rows, self.weight)

    affine = Affine()
    seen = []
    affine.register_forward_hook(lambda _, output: seen.append(str(output.device)))
    model, optimizer = accelerator.prepare(affine, optim.SGD(affine.parameters(), lr=0.1))
    for step in range(4):
        rows = accel.arange(12, device=accelerator.device).to(accel.float32).reshape(4, 3) / (step + 1 + accelerator.process_index)
        accelerator.backward((model(rows) - 2 * rows).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    assert seen == [str(accelerator.device)] * 4, seen
    outcome.add_model(affine)


@case
def parameters(outcome, _):
    """Gradients that the program computes itself, in memory of the device."""
    accelerator = Accelerator()
    device = device_of(accelerator)
    holder = nn.Module()
    holder.first, holder.second = nn.Parameter(accel.ones(3)), nn.Parameter(accel.full([2, 2], 0.5))
    holder.to(device)
    gradients = accel.OwnGradients(holder)
    optimizer = accelerator.prepare(optim.SGD(holder.parameters(), lr=0.1, momentum=0.9))
    for step in range(3):
        with accelerator.accumulate():
            for index, weight in reversed(list(enumerate(holder.parameters()))):
                gradients.ready(index, weight.detach() * (step + 1 + accelerator.process_index))
            gradients.synchronize()
            optimizer.step()
    outcome.add_model(holder)


@case
def torchscript(outcome, _):
    accelerator = Accelerator()
    accel.set_seed(3)
    scripted = nn.load_torchscript(SCRIPTED)
    model = accelerator.prepare(scripted)
    scripted.eval()
    accelerator.backward(model(accel.tensor([1, 4]).to(device_of(accelerator)), [2.0, 0.5], 1 + accelerator.process_index).square().sum())
    for name, parameter in scripted.named_parameters():
        outcome.add(name, parameter.grad)


@case
def dlpack(outcome, _):
    """A tensor of the device and its lent memory are the same."""
    accelerator = Accelerator()
    tensor = accel.arange(6, device=device_of(accelerator))
    lent = accel.from_dlpack(tensor)
    assert lent.device == tensor.device
    lent.mul_(2)
    outcome.add("both", tensor)


def main():
    folder, *names = sys.argv[1:]
    for name in names:
        outcome = Outcome()
        CASES[name](outcome, folder)
        if accel.PartialState().is_main_process:
            with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as file:
                json.dump(outcome.numbers, file)
        accel.AcceleratorState._reset_state()
        accel.GradientState._reset_state()
    accel.PartialState().destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
