# SPDX-License-Identifier: Apache-2.0
"""Models of torch that are sharded train as one process does; their weights are collected and saved whole, and load again."""

import pytest

torch = pytest.importorskip("torch", reason="there is no torch")

TRAINING = """
    import sys
    import torch
    from accel import Accelerator, FullyShardedDataParallelPlugin

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(6, 13)
            self.down = torch.nn.Linear(13, 6)

        def forward(self, x, scale=1.0):
            return {"out": x + self.down(torch.tanh(self.up(x))) * scale}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 6)
            self.blocks = torch.nn.ModuleList([Block(), Block()])
            self.last = torch.nn.Linear(6, 1)

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x, scale=0.5)["out"]
            return self.last(x)

    def train(steps, model, optimizer, accelerator):
        share = 12 // accelerator.num_processes
        losses = []
        for step in range(steps):
            x = torch.randn(12, 4, generator=torch.Generator().manual_seed(step))
            x = x[accelerator.process_index * share:][:share]
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
        return losses

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap=["Block"])
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin, gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(model, optimizer)
"""


def numbers(printed):
    return [float(number) for number in printed.split()]


def test_trains_as_one_process(ranks):
    script = TRAINING + """
    print(*train(8, model, optimizer, accelerator))
    """
    (alone,) = ranks(script, num_processes=1)
    for num_processes in (2, 3):
        for printed in ranks(script, num_processes=num_processes):
            assert numbers(printed) == pytest.approx(numbers(alone), rel=1e-5)


def test_weights_are_collected_saved_and_loaded(ranks):
    for printed in ranks(TRAINING + """
    rows = [accelerator.gather_for_metrics([len(model.module.blocks[0].up.weight)])]
    train(4, model, optimizer, accelerator)
    whole = accelerator.get_state_dict(model)
    assert len(whole) == (12 if accelerator.is_main_process else 0)
    if accelerator.is_main_process:
        assert whole["blocks.1.up.weight"].shape == (13, 6)
    accelerator.save_model(model, "model")
    accelerator.save_state("state")
    expected = train(4, model, optimizer, accelerator)
    accelerator.load_state("state")
    assert train(4, model, optimizer, accelerator) == expected
    accelerator.wait_for_everyone()
    from accel.utils import load_state_dict
    saved = load_state_dict("model")
    if accelerator.is_main_process:
        assert all(torch.equal(saved[name], value) for name, value in whole.items())
    print(len(model.module.blocks[0].up.weight))
    """):
        assert printed in ("7\n", "6\n")


def test_weights_of_modules_inside_are_collected(ranks):
    """The model that prepare() was given, what unwrap_model() returns, and a part of it have rows only, of which no file is made."""
    for printed in ranks(TRAINING + """
    from accel.utils import load_state_dict
    whole = accelerator.get_state_dict(model)
    inner = accelerator.unwrap_model(model)
    for number, (part, prefix) in enumerate([(inner, ""), (model.module, ""), (inner.blocks, "blocks."), (inner.blocks[1], "blocks.1.")]):
        found = accelerator.get_state_dict(part)
        accelerator.save_model(part, f"part_{number}")
        accelerator.wait_for_everyone()
        expected = {name[len(prefix):]: value for name, value in whole.items() if name.startswith(prefix)}
        if accelerator.is_main_process:
            for given in (found, load_state_dict(f"part_{number}")):
                assert given.keys() == expected.keys() and all(torch.equal(given[name], value) for name, value in expected.items()), (number, given)
        else:
            assert not found
    own = torch.nn.Linear(2, 3)  # not prepared, and whole on each rank
    assert accelerator.get_state_dict(own)["weight"].shape == (3, 2)
    accelerator.save_model(own, "own")
    accelerator.wait_for_everyone()
    print(load_state_dict("own")["weight"].shape == (3, 2))
    """):
        assert printed == "True\n"


# Regression: under FSDP or ZeRO, optimizers of torch that had states before `prepare()` (Adagrad always has) failed at their
# first step, or stepped with the states of other rows.
@pytest.mark.parametrize("kind", ["fsdp", "zero"])
def test_states_that_were_made_whole(ranks, kind):
    """torch's Adagrad makes its states when it is made; other optimizers have some when they have stepped before prepare()."""
    printed = ranks(f"""
        import torch
        from accel import Accelerator, DeepSpeedPlugin, FullyShardedDataParallelPlugin

        def train(accelerator, make, steps_before, first):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
            optimizer = make(model.parameters())
            for number in range(steps_before):
                model(torch.ones(2, 3)).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            if accelerator is None:
                pass
            elif first:
                optimizer, model = accelerator.prepare(optimizer, model)
            else:
                model, optimizer = accelerator.prepare(model, optimizer)
            for number in range(3):
                loss = model(torch.ones(2, 3)).square().sum()
                loss.backward() if accelerator is None else accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            return model.state_dict() if accelerator is None else accelerator.get_state_dict(model)

        settings = ({{"fsdp_plugin": FullyShardedDataParallelPlugin(fsdp_version=2)}} if {kind!r} == "fsdp" else
                    {{"deepspeed_plugin": DeepSpeedPlugin(hf_ds_config={{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {{"stage": 2}}}})}})
        accelerator = Accelerator(cpu=True, **settings)
        for make in (lambda parameters: torch.optim.Adagrad(parameters, lr=0.1, initial_accumulator_value=0.2),
                     lambda parameters: torch.optim.AdamW(parameters, lr=0.1), lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9)):
            for steps_before, first in ((0, False), (2, False), (2, True)):
                found = train(accelerator, make, steps_before, first)
                expected = train(None, make, steps_before, first)
                for name in found:
                    torch.testing.assert_close(found[name], expected[name])
        print("done")
    """)
    assert printed == ["done\n"] * 2


@pytest.mark.parametrize("plugin, ddp", [("fsdp_plugin=accel.FullyShardedDataParallelPlugin(sharding_strategy='NO_SHARD')", ""),
                                         ("fsdp_plugin=accel.FullyShardedDataParallelPlugin(sharding_strategy='NO_SHARD')", "static_graph=True"),
                                         ("deepspeed_plugin=accel.DeepSpeedPlugin(zero_stage=0)", "bucket_cap_mb=1"),
                                         ("fsdp_plugin=accel.FullyShardedDataParallelPlugin()", "")])
# Regression: parameters without gradients were an error under NO_SHARD and ZeRO's stage 0, and under no other strategy.
def test_parameters_may_be_unused_whatever_is_sharded(ranks, plugin, ddp):
    for text in ranks(f"""
    import torch, accel
    accelerator = accel.Accelerator(cpu=True, {plugin}, kwargs_handlers=[accel.DistributedDataParallelKwargs({ddp})] if {bool(ddp)} else None)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x)

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    before = {{name: value.clone() for name, value in accelerator.get_state_dict(model).items()}}
    for x in loader:
        accelerator.backward(model(x).sum())
        optimizer.step()
        optimizer.zero_grad()
    after = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        assert all(torch.equal(before[name], after[name]) == ("unused" in name) for name in after), after
    print("trained")
    """):
        assert text.endswith("trained\n")


def test_weights_of_fp8_are_gathered_in_8_bits(ranks):
    for printed in ranks("""
    import torch
    from accel import Accelerator, FullyShardedDataParallelPlugin

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(32, 48)
            self.down = torch.nn.Linear(48, 32)

        def forward(self, x):
            return x + self.down(torch.tanh(self.up(x)))

    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block())
    seen = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda module, inputs, name=name: seen.update({name: module.weight.detach().clone()}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap=["Block"],
                                            cpu_ram_efficient_loading=True)
    accelerator = Accelerator(cpu=True, mixed_precision="fp8", fsdp_plugin=plugin)
    model, optimizer = accelerator.prepare(model, optimizer)

    def rounded(weight):
        scale = 448 / weight.abs().max()
        return ((weight * scale).to(torch.float8_e4m3fn).float() * (1 / scale)).to(torch.bfloat16)

    x = torch.randn(8, 32)
    for step in range(3):
        weights = {name: accelerator.gather(parameter.detach()) for name, parameter in model.named_parameters() if parameter.dim() == 2}
        assert all(weight.dtype == torch.float32 for weight in weights.values())
        model.train(step < 2)
        loss = (model(x).float() - x.roll(1, 1)).square().mean()
        for name, weight in weights.items():
            name = name.removeprefix("module.").removesuffix(".weight")
            in_8_bits = step < 2 and name in ("0.down", "1.up")  # neither the first layer nor the last
            assert torch.equal(seen[name], rounded(weight) if in_8_bits else weight.to(torch.bfloat16)), name
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print("done")
    """, num_processes=2):
        assert printed.split() == ["done"]
