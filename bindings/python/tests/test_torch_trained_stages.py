# SPDX-License-Identifier: Apache-2.0
"""Models of torch and transformers that are trained in stages: the same as in one process."""

import json

import pytest

torch = pytest.importorskip("torch")

MODELS = """
    import collections
    import copy
    import json
    import os
    import torch
    import torch.nn.functional as F
    from accel import Accelerator
    from accel.utils import ParallelismConfig

    def scores_loss(output, labels):
        return F.cross_entropy(output.logits.flatten(0, 1), labels.flatten())

    class Blocks(torch.nn.Module):
        _pp_plan = {"blocks": None}

        def __init__(self):
            super().__init__()
            self.words, self.dropout = torch.nn.Embedding(17, 8), torch.nn.Dropout(0)
            self.blocks = torch.nn.Sequential(collections.OrderedDict((name, torch.nn.Linear(8, 8)) for name in ("first", "second", "third")))
            self.register_buffer("scale", torch.full((1,), 2.0), persistent=False)
            self.head = torch.nn.Linear(8, 17)

        def forward(self, ids, shift=0.0):
            return self.head(torch.tanh(self.blocks(self.dropout(self.words(ids)) * self.scale + shift)))

    def make(kind):
        \"\"\"The model, its inputs and targets, the loss of a step and that of a plain loop.\"\"\"
        torch.manual_seed(4)
        ids, labels = torch.randint(17, (7, 6)), torch.randint(17, (7, 6))
        if kind == "sequential":
            repeated = torch.nn.Tanh()
            model = torch.nn.Sequential(torch.nn.Embedding(17, 8), torch.nn.Linear(8, 8), repeated, torch.nn.Linear(8, 8), repeated, torch.nn.Linear(8, 17))
            loss = lambda output, labels: F.mse_loss(output, F.one_hot(labels, 17).float())
            return model, ids, labels, loss, lambda model: loss(model(ids), labels)
        if kind == "blocks":
            shift = torch.rand(7, 1, 1)
            of = lambda output, labels: F.cross_entropy(output.flatten(0, 1), labels.flatten())
            return Blocks(), [ids, shift], labels, "cross_entropy", lambda model: of(model(ids, shift), labels)
        if kind == "gpt2":
            from transformers import GPT2Config, GPT2LMHeadModel
            model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=3, n_head=2, vocab_size=17, n_positions=9, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))
            inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids).index_fill(1, torch.tensor([5]), 0)}
            return model, inputs, labels, "cross_entropy", lambda model: scores_loss(model(**inputs), labels)
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=9, vocab_size=17))
        return model, {"input_ids": ids, "labels": ids}, None, None, lambda model: model(input_ids=ids, labels=ids).loss

    def plain_step(model, optimizer, loss):
        value = loss(model)
        value.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return value.item(), norm.item()

    kind, options = os.environ["KIND"], json.loads(os.environ.get("OPTIONS", "{}"))
    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(pp_size=int(os.environ["WORLD_SIZE"])))
    model, inputs, targets, loss, plain_loss = make(kind)
    plain = copy.deepcopy(model)
    plain_optimizer, optimizer = (torch.optim.AdamW(each.parameters(), lr=0.02, weight_decay=0.1) for each in (plain, model))

    def step():
        loss_of_step = accelerator.pipeline_step(model, inputs, targets, loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        return loss_of_step, norm.item()

    def check(whole):
        assert list(whole) == list(plain.state_dict()), (list(whole), list(plain.state_dict()))
        for name, tensor in plain.state_dict().items():
            torch.testing.assert_close(whole[name], tensor, atol=2e-5, rtol=1e-4, msg=lambda text: f"{name}: {text}")
"""
TRAINING = MODELS + """
    has_output = accelerator.is_main_process if options.get("schedule") == "zero_bubble_v" else accelerator.is_last_process
    model = accelerator.prepare_model(model, pipeline={"micro_batches": 3, **options})
    optimizer = accelerator.prepare(optimizer)
    on_meta = [name for name, parameter in accelerator.unwrap_model(model).named_parameters() if parameter.is_meta]
    print(json.dumps(on_meta))
    for number in range(4):
        torch.testing.assert_close(step(), plain_step(plain, plain_optimizer, plain_loss), atol=1e-5, rtol=1e-4)
        if number == 1:
            accelerator.save_state("state")
    whole = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        check(whole)
    else:
        assert not whole
    accelerator.load_state("state")  # of the second step, and on to the fourth
    step()
    step()
    whole = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        check(whole)

    model.eval()
    plain.eval()
    given = (inputs if isinstance(inputs, list) else [inputs], {}) if not isinstance(inputs, dict) else ([], {**inputs})
    given[1].pop("labels", None)
    output = model(*given[0], **given[1]) if accelerator.is_main_process else model()
    assert (output is None) == (not has_output and not options.get("gather_output")), output
    if output is not None:
        expected = plain(*given[0], **given[1])
        assert type(output) is type(expected)
        scores = (lambda value: value) if isinstance(output, torch.Tensor) else (lambda value: value.logits)
        torch.testing.assert_close(scores(output), scores(expected), atol=1e-4, rtol=1e-4)
    model.train()
    step()
    accelerator.end_training()
"""
ALONE = MODELS + """
    model = accelerator.prepare_model(model, pipeline={"micro_batches": 3})
    optimizer = accelerator.prepare(optimizer)
    if "CHECKPOINT" in os.environ:
        for _ in range(2):
            plain_step(plain, plain_optimizer, plain_loss)
        accelerator.load_state("state")
        check(model.state_dict())
    for _ in range(2):
        torch.testing.assert_close(step(), plain_step(plain, plain_optimizer, plain_loss), atol=1e-5, rtol=1e-4)
    check(model.state_dict())
    accelerator.end_training()
"""
KINDS = ["sequential", "blocks", "gpt2", "llama"]


def require(kind):
    if kind in ("gpt2", "llama"):
        pytest.importorskip("transformers")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"schedule": "gpipe", "split": "parameters", "gather_output": 1}], ids=str)
def test_steps_are_those_of_one_process(ranks, kind, options):
    require(kind)
    released = [json.loads(printed) for printed in ranks(TRAINING, KIND=kind, OPTIONS=json.dumps(options))]
    assert all(released) and not set(released[0]) & set(released[1]), released
    if kind == "gpt2":
        assert "transformer.wpe.weight" in released[1] and "transformer.wte.weight" not in released[1]  # which is tied to the head
    ranks(ALONE, 1, KIND=kind, CHECKPOINT=1)  # and goes on where the stages have been


@pytest.mark.parametrize("kind, options", [
    ("sequential", {"schedule": "interleaved", "micro_batches": 4}), ("blocks", {"schedule": "zero_bubble_v", "micro_batches": 4}),
    ("gpt2", {"schedule": "zero_bubble", "split": "2,2"}), ("gpt2", {"split": "transformer.h.1"}), ("llama", {"schedule": "auto"})], ids=str)
def test_schedules_and_cuts(ranks, kind, options):
    require(kind)
    ranks(TRAINING, KIND=kind, OPTIONS=json.dumps(options))


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_computes_the_same_step(ranks, kind):
    require(kind)
    ranks(ALONE, 1, KIND=kind)


MEASURED = MODELS + """
    import time

    class Slow(torch.nn.Module):  # without a parameter, and more expensive than all others
        def forward(self, values):
            time.sleep(0.2)
            return values

    if kind == "blocks":
        model.blocks = torch.nn.Sequential(*model.blocks, Slow())
        sample = [torch.zeros(2, 6, dtype=torch.long), torch.zeros(2, 1, 1)]
    else:
        model = torch.nn.Sequential(*model, Slow(), torch.nn.BatchNorm1d(6))
        sample = torch.zeros(2, 6, dtype=torch.long)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    numbers = torch.get_rng_state()
    pipeline = {"micro_batches": 2, "split": "measured", **({"sample_inputs": sample} if accelerator.is_main_process else {})}
    prepared = accelerator.prepare_model(model, pipeline=pipeline)
    assert torch.equal(torch.get_rng_state(), numbers)
    own = {name: tensor for name, tensor in accelerator.unwrap_model(prepared).state_dict().items() if not tensor.is_meta}
    for name, tensor in own.items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())
    print(json.dumps(sorted(own)))
    accelerator.end_training()
"""


@pytest.mark.parametrize("kind", ["sequential", "blocks"])
def test_parts_are_measured(ranks, kind):
    first, last = (set(json.loads(printed)) for printed in ranks(MEASURED, KIND=kind))
    if kind == "blocks":  # the sleep of a block is a stage, with what is behind it
        assert last == {"head.weight", "head.bias"}, last
    else:
        assert {"0.weight", "1.weight", "3.weight", "5.weight"} <= first and "7.weight" in last, (first, last)


EMPTY = MODELS + """
    import zlib
    from accel.utils import ensure_weights_retied
    made = []

    def filling(model):
        names = {module: name for name, module in model.named_modules()}

        def fill(module):
            module.to_empty(device="cpu", recurse=False)
            made.append(names[module])
            generator = torch.Generator().manual_seed(zlib.crc32(names[module].encode()))
            with torch.no_grad():
                for tensor in (*module._parameters.values(), *module._buffers.values()):
                    if tensor is not None:  # masks are causal
                        tensor.copy_(torch.rand(tensor.shape, generator=generator) - 0.5 if tensor.is_floating_point() else torch.ones_like(tensor).tril())

        return fill

    def empty():
        with torch.device("meta"):
            return make(kind)[0]

    plain = empty()
    fill = ensure_weights_retied(filling(plain), plain)
    for module in plain.modules():
        if any(tensor is not None and tensor.is_meta for tensor in (*module._parameters.values(), *module._buffers.values())):
            fill(module)
    everywhere = set(made)
    made.clear()
    model = empty()
    if accelerator.is_main_process:
        try:
            accelerator.prepare_model(empty(), evaluation_mode=True)
        except ValueError as error:
            assert "on the device meta" in str(error) and "param_init_fn" in str(error), error
    plain_optimizer, optimizer = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (plain, model))
    model = accelerator.prepare_model(model, pipeline={"micro_batches": 3, "param_init_fn": filling(model), **options})
    optimizer = accelerator.prepare(optimizer)
    assert made and len(made) == len(set(made)) < len(everywhere), (made, everywhere)
    print(json.dumps(made))
    for _ in range(3):
        torch.testing.assert_close(step(), plain_step(plain, plain_optimizer, plain_loss), atol=1e-5, rtol=1e-4)
    whole = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        check(whole)
    accelerator.end_training()
"""


@pytest.mark.parametrize("kind, options", [("sequential", {}), ("blocks", {"schedule": "zero_bubble_v", "micro_batches": 4}), ("gpt2", {})], ids=str)
def test_empty_models_get_values_of_their_stages(ranks, kind, options):
    require(kind)
    made = [set(json.loads(printed)) for printed in ranks(EMPTY, KIND=kind, OPTIONS=json.dumps(options))]
    assert "transformer.h.0.ln_1" not in made[1] and "transformer.h.2.ln_1" not in made[0]


FROM_FILES = MODELS + """
    accelerator.save_model(plain, "files", max_shard_size=1500)
    accelerator.wait_for_everyone()
    with torch.device("meta"):
        empty = make(kind)[0]
    before, optimizer = list(empty.parameters()), torch.optim.SGD(empty.parameters(), lr=0.1)
    plain_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    drawn = []

    def rest(module):  # buffers that no file has
        drawn.append(module)
        module.to_empty(device="cpu", recurse=False)
        for name in module._buffers:
            module._buffers[name].copy_(plain.get_submodule({each: path for path, each in empty.named_modules()}[module])._buffers[name])

    model = accelerator.prepare_model(empty, pipeline={"micro_batches": 3, "checkpoint": "files", "param_init_fn": rest})
    optimizer = accelerator.prepare(optimizer)
    assert all(former is now for former, now in zip(before, empty.parameters()))
    assert not any(any(True for _ in module.parameters(recurse=False)) for module in drawn), drawn
    on_meta = [name for name, parameter in empty.named_parameters() if parameter.is_meta]
    print(json.dumps(on_meta))
    for _ in range(3):
        torch.testing.assert_close(step(), plain_step(plain, plain_optimizer, plain_loss), atol=1e-5, rtol=1e-4)
    whole = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        check(whole)
    try:
        accelerator.prepare_model(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)), pipeline={"checkpoint": "nowhere"})
        raise AssertionError("no error")
    except ValueError as error:
        assert "nowhere is not there" in str(error), error
    accelerator.end_training()
"""


@pytest.mark.parametrize("kind", ["blocks", "gpt2"])
def test_stages_are_read_from_files(ranks, kind):
    require(kind)
    first, last = (set(json.loads(printed)) for printed in ranks(FROM_FILES, KIND=kind))
    assert first and last and not first & last, (first, last)  # what a rank did not read


BESIDE_OTHERS = """
    import collections
    import copy
    import os
    import torch
    import torch.nn.functional as F
    from accel import Accelerator
    from accel.utils import FullyShardedDataParallelPlugin, ParallelismConfig
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

    kind = os.environ["KIND"]
    axis = {"replicas": "dp_replicate", "tensor": "tp", "sequences": "cp"}.get(kind, "dp_shard")
    plugin = None
    if axis == "dp_shard":
        wrapping = {"auto_wrap_policy": "NO_WRAP"} if kind in ("recomputed model", "experts") else {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                                                                                       "transformer_cls_names_to_wrap": ["GPT2Block"]}
        plugin = FullyShardedDataParallelPlugin(sharding_strategy="FULL_SHARD", activation_checkpointing=kind.startswith("recomputed"), **wrapping)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, fsdp_plugin=plugin,
                              parallelism_config=ParallelismConfig(pp_size=2, ep_size=2 if kind == "experts" else 1, **{f"{axis}_size": 2}))
    torch.manual_seed(4)
    if kind == "experts":
        model = MixtralForCausalLM(MixtralConfig(hidden_size=8, intermediate_size=12, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                                                 num_local_experts=4, vocab_size=18))
    elif kind in ("tensor", "sequences"):
        model = LlamaForCausalLM(LlamaConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=12, vocab_size=18))
    else:
        model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=3, n_head=2, vocab_size=17, n_positions=9, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0))
    plain = copy.deepcopy(model)
    if kind == "shards":
        model.gradient_checkpointing_enable()
    model.train()
    calls = collections.Counter()
    for number, block in enumerate(model.base_model.h if hasattr(model.base_model, "h") else model.base_model.layers):
        next(block.children()).register_forward_pre_hook(lambda *_, number=number: calls.update([number]))
    ids, labels = torch.randint(17, (2, 8, 8)), torch.randint(17, (2, 8, 8))
    # Roundings of gradients that are nearly 0 would be whole updates.
    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.02, eps=1e-4)
    rank = accelerator.torch_device_mesh.get_local_rank(axis)
    own = slice(4 * rank, 4 * rank + 4) if axis.startswith("dp") else slice(None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, eps=1e-4)
    try:
        model = accelerator.prepare_model(model, pipeline={"micro_batches": 2})
    except NotImplementedError as error:
        assert kind == "sequences" and "pp_size=2 and cp_size=2" in str(error), error
        raise SystemExit
    assert kind != "sequences"
    optimizer = accelerator.prepare(optimizer)
    for _ in range(3):
        for batch in range(2):
            (F.cross_entropy(plain(ids[batch]).logits.flatten(0, 1), labels[batch].flatten()) / 2).backward()
            inputs, targets = ids[batch][own].clone(), labels[batch][own].clone()
            with accelerator.accumulate(model):
                accelerator.pipeline_step(model, inputs, targets)
                norm = accelerator.clip_grad_norm_(model.parameters(), 0.3)
                optimizer.step()
                optimizer.zero_grad()
        torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.3), atol=1e-5, rtol=1e-4)
        plain_optimizer.step()
        plain_optimizer.zero_grad()
    is_recomputed = kind == "shards" or kind.startswith("recomputed")
    assert calls and set(calls.values()) == {24 if is_recomputed else 12}, calls
    whole = accelerator.get_state_dict(model)
    for name, tensor in plain.state_dict().items() if accelerator.is_main_process else ():
        torch.testing.assert_close(whole[name], tensor, atol=2e-5, rtol=1e-4)
    accelerator.end_training()
"""


@pytest.mark.combinations
@pytest.mark.parametrize("kind", ["replicas", "shards", "recomputed blocks", "recomputed model", "tensor", "experts", "sequences"])
def test_stages_beside_other_axes(ranks, kind):
    pytest.importorskip("transformers")
    ranks(BESIDE_OTHERS, 4, KIND=kind)


def test_what_is_refused(ranks):
    ranks("""
        import torch
        from accel import Accelerator
        from accel.utils import ParallelismConfig

        def error_of(function):
            try:
                function()
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(pp_size=2))
        said = error_of(lambda: accelerator.prepare(torch.nn.Linear(2, 2)))
        assert said.startswith("NotImplementedError: Linear cannot be cut into stages: expected an nn.Sequential") and "_pp_plan" in said, said
        layers = lambda: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
        for split in ("1,1", "0,3", "x", "0", "1,2,0", "2,"):
            said = error_of(lambda: accelerator.prepare_model(layers(), pipeline={"split": split}))
            assert said.startswith(f"ValueError: split={split!r} of Sequential into 2 stages; expected") and "2 numbers of parts with the sum 3" in said, said
        said = error_of(lambda: accelerator.prepare_model(layers(), pipeline={"split": "measured"}))
        assert "there are no inputs to measure with; expected sample_inputs" in said, said
        said = error_of(lambda: accelerator.prepare_model(torch.nn.Sequential(torch.nn.Linear(2, 2))))
        assert "1 parts for 2 stages" in said, said

        class Translating(torch.nn.Module):
            config = type("Config", (), {"is_encoder_decoder": True})

            def __init__(self):
                super().__init__()
                self.encoder, self.decoder = (torch.nn.ModuleList([torch.nn.Linear(2, 2)]) for _ in range(2))

        said = error_of(lambda: accelerator.prepare(Translating()))
        assert said.startswith("NotImplementedError: Translating is an encoder-decoder model") and "split_by_program" in said, said

        class Biased(torch.nn.Module):
            _pp_plan = {"blocks": None}

            def __init__(self, width):
                super().__init__()
                self.words, self.bias = torch.nn.Linear(2, 4), torch.nn.Linear(2, width)
                self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

            def forward(self, rows):
                hidden, bias = self.words(rows), self.bias(rows).sum(1, keepdim=True)
                for block in self.blocks:
                    hidden = block(hidden) + bias
                return hidden

        class Repeated(torch.nn.Module):
            _pp_plan = {"blocks": None}

            def __init__(self):
                super().__init__()
                self.blocks = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(2))

            def forward(self, rows):
                for block in (*self.blocks, *self.blocks):
                    rows = block(rows)
                return rows

        for wrong, words in ((Biased(4), "what is behind blocks.0 gives NaN and got none"),
                             (Biased(3), "bias gives the shape (2, 3) and blocks compute (2, 4)"),
                             (Repeated(), "calls blocks.0 again")):
            wrong = accelerator.prepare(wrong)
            said = error_of(lambda: accelerator.pipeline_step(wrong, torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)))
            assert words in said, said
        wrong = Repeated()
        wrong.blocks = torch.nn.ModuleList([wrong.blocks[0], torch.nn.Tanh(), wrong.blocks[0]])
        said = error_of(lambda: accelerator.prepare(wrong))
        assert "NotImplementedError: blocks.2 of Repeated is blocks.0 again" in said, said

        torch.manual_seed(1)
        model = accelerator.prepare(layers())
        said = error_of(lambda: model(torch.zeros(4, 2)))
        assert "pipeline_step" in said, said
        for wrong in (torch.zeros(1, 2), torch.zeros(4, 5), object()):
            said = error_of(lambda: accelerator.pipeline_step(model, wrong, torch.zeros(4, dtype=torch.long)))
            assert said is not None, wrong
            for parameter in model.parameters():
                parameter.grad = None
        said = error_of(lambda: accelerator.pipeline_step(model, torch.zeros(4, 2), torch.zeros(4, 2), lambda output, targets: 3))
        assert "the loss is a int" in said, said
        said = error_of(lambda: accelerator.pipeline_step(model, torch.zeros(4, 2), None, None))
        assert "one element" in said, said
        model.zero_grad()
        assert accelerator.pipeline_step(model, torch.ones(4, 2), torch.zeros(4, dtype=torch.long)) > 0  # and can be used again
        accelerator.end_training()
    """)


def test_what_one_rank_refuses(ranks):
    """The others hear of it before they wait for what that rank does not do."""
    ranks("""
        import datetime
        import torch
        from accel import Accelerator
        from accel.utils import InitProcessGroupKwargs, ParallelismConfig

        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(pp_size=2),
                                  kwargs_handlers=[InitProcessGroupKwargs(timeout=datetime.timedelta(seconds=30))])
        layers = lambda more=0: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2), *[torch.nn.ReLU() for _ in range(more)])

        def empty():
            with torch.device("meta"):
                return layers()

        def fill(module, refuses):
            if refuses:
                raise RuntimeError("no values here")
            module.to_empty(device="cpu", recurse=False)

        def said(model, **pipeline):
            try:
                accelerator.prepare_model(model, pipeline=pipeline)
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        for refusing in range(2):
            refuses = accelerator.process_index == refusing
            words = said(torch.nn.Linear(2, 2) if refuses else layers())
            assert words.startswith("NotImplementedError: ") and "Linear cannot be cut into stages" in words, words
            assert refuses != (f"rank {refusing} failed: " in words), words
            words = said(empty(), param_init_fn=lambda module: fill(module, refuses))
            assert words == ("RuntimeError: no values here" if refuses else f"ValueError: rank {refusing} failed: no values here"), words
            words = said(layers(), split="measured" if refuses else "1,2")
            assert words.startswith("DistributedOperationException: rank 1 has split=") or words.startswith("CollectiveMismatchError: rank 1 has split="), words
            words = said(layers(more=int(refuses)))
            assert "nothing" in words and "the part '3'" in words and "expected the same on all ranks" in words, words
        model = accelerator.prepare_model(layers())
        assert accelerator.pipeline_step(model, torch.ones(4, 2), torch.zeros(4, dtype=torch.long)) > 0
        accelerator.end_training()
    """)
