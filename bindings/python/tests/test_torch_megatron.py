# SPDX-License-Identifier: Apache-2.0
"""Training under Megatron-LM's settings: the same as a plain loop."""

import dataclasses
import json
import math
import re

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from test_tensor_parallel import numbers  # noqa: E402

from accel import Accelerator  # noqa: E402
from accel.megatron import checks, layout  # noqa: E402
from accel.utils import (GPTTrainStep, MegatronEngine, MegatronLMDummyDataLoader, MegatronLMDummyScheduler, MegatronLMOptimizerWrapper,  # noqa: E402
                         MegatronLMPlugin, MegatronLMSchedulerWrapper, add_model_config_to_megatron_parser, avg_losses_across_data_parallel_group,
                         gather_across_data_parallel_groups)

# A plain loop over global batches of 8 rows, and the same training by the plugin, whose ranks and micro-batches share these rows.
TRAINING = """
    import json
    import os
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    settings, steps, end = json.loads(os.environ["SETTINGS"]), 5, 16
    torch.manual_seed(5)
    if os.environ.get("KIND") == "llama":
        model = LlamaForCausalLM(LlamaConfig(hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
                                             vocab_size=18, eos_token_id=end, max_position_embeddings=32))
    elif os.environ.get("KIND") == "glm4_moe":
        from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
        config = Glm4MoeConfig(hidden_size=24, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=2, head_dim=8, first_k_dense_replace=1,
                               n_routed_experts=4, num_experts_per_tok=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=18,
                               eos_token_id=end, max_position_embeddings=32)
        config.rope_theta, config.partial_rotary_factor, config.bf16 = 10000.0, 0.5, False  # read for Megatron-LM
        model = Glm4MoeForCausalLM(config)
    else:
        model = GPT2LMHeadModel(GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=18, n_positions=16, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0,
                                           eos_token_id=end))
    model.train()
    rows = [{"input_ids": (torch.arange(12) * 5 + row * row) % 17} for row in range(8 * steps)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    seen = []
    if "PLAIN" in os.environ:
        for step, batch in enumerate(torch.utils.data.DataLoader(rows, batch_size=8)):
            samples = step * 8
            rate = 0.02 * samples / 16 if samples <= 16 else 0.001 + (1 - (samples - 16) / (48 - 16)) * (0.02 - 0.001)
            optimizer.param_groups[0]["lr"] = rate
            ids = batch["input_ids"]
            labels = torch.cat([ids[:, 1:], torch.full((8, 1), end)], 1)
            losses = torch.nn.functional.cross_entropy(model(ids).logits.flatten(0, 1), labels.flatten(), reduction="none")
            mask = (ids != end).flatten().float()
            loss = (losses * mask).sum() / mask.sum()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.get("gradient_clipping", 1.0))
            optimizer.step()
            optimizer.zero_grad()
            seen += [rate, loss.item(), norm.item()]
    else:
        from accel import Accelerator
        from accel.utils import MegatronLMDummyScheduler, MegatronLMPlugin

        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(min_lr=0.001, **settings))
        world = accelerator.num_processes // settings.get("tp_degree", 1) // settings.get("context_parallel_size", 1) // settings.get("pp_degree", 1)
        size = 8 // world // settings.get("num_micro_batches", 1)
        loader = torch.utils.data.DataLoader(rows, batch_size=size)
        scheduler = MegatronLMDummyScheduler(optimizer, total_num_steps=6 * world, warmup_num_steps=2 * world)
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
        model.train()
        for batch in loader:
            assert len(batch["input_ids"]) == 8 // world, batch["input_ids"].shape
            rate = optimizer.param_groups[0]["lr"]
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            seen += [rate, loss.item(), accelerator.clip_grad_norm_(model.parameters(), 1.0)]
        model.eval()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        evaluated = model(**batch).loss.item()
        assert all(one.is_meta or torch.equal(one, other) for one, other in zip(before, model.parameters()))
        assert abs(evaluated - seen[-2]) < 1
        accelerator.end_training()
    print(seen)
"""


def run(ranks, number, settings, **environment):
    plain = numbers(ranks(TRAINING, 1, PLAIN=1, SETTINGS=json.dumps(settings), **environment)[0])
    assert len(plain) == 15 and plain[1] != plain[4]
    for printed in ranks(TRAINING, number, SETTINGS=json.dumps(settings), **environment):
        assert numbers(printed) == pytest.approx(plain, rel=2e-4)


@pytest.mark.parametrize("number, settings", [
    (1, {}), (1, {"num_micro_batches": 4}), (2, {"num_micro_batches": 2}), (2, {"tp_degree": 2, "num_micro_batches": 2}),
    (2, {"tp_degree": 2, "sequence_parallelism": True}), (2, {"pp_degree": 2, "num_micro_batches": 4}),
    (2, {"use_distributed_optimizer": True, "num_micro_batches": 2})], ids=str)
def test_training_is_that_of_a_plain_loop(ranks, number, settings):
    run(ranks, number, settings)


@pytest.mark.combinations
@pytest.mark.parametrize("number, settings", [
    (1, {"recompute_granularity": "full"}), (1, {"recompute_activations": True}), (2, {"use_custom_fsdp": True, "num_micro_batches": 2}),
    (2, {"context_parallel_size": 2, "num_micro_batches": 2}),
    (2, {"pp_degree": 2, "num_micro_batches": 2, "decoder_last_pipeline_num_layers": 1}),
    (4, {"pp_degree": 2, "use_distributed_optimizer": True, "num_micro_batches": 2}), (4, {"pp_degree": 2, "tp_degree": 2, "num_micro_batches": 2}),
    (2, {"gradient_clipping": 0.25, "num_micro_batches": 4})], ids=str)
def test_other_settings(ranks, number, settings):
    run(ranks, number, settings)


@pytest.mark.parametrize("number, settings", [
    (2, {"expert_model_parallel_size": 2}), (4, {"expert_model_parallel_size": 2, "tp_degree": 2, "expert_tensor_parallel_size": 2})], ids=str)
def test_experts(ranks, number, settings):
    run(ranks, number, {"num_micro_batches": 2, **settings}, KIND="glm4_moe")


@pytest.mark.combinations
@pytest.mark.parametrize("axis", ["tp_degree", "pp_degree"])
def test_llama(ranks, axis):
    run(ranks, 2, {axis: 2, "num_micro_batches": 2}, KIND="llama")


def gpt(**changed):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(5)
    given = {"n_embd": 8, "n_layer": 4, "n_head": 2, "vocab_size": 18, "n_positions": 16, "attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0,
             "eos_token_id": 16}
    return GPT2LMHeadModel(GPT2Config(**{**given, **changed}))


def loader(size=2, rows=8):
    return torch.utils.data.DataLoader([{"input_ids": (torch.arange(6) * 5 + row) % 16} for row in range(rows)], batch_size=size)


def prepared(*others, model=None, size=2, **settings):
    accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(**settings))
    model = gpt() if model is None else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    return accelerator, accelerator.prepare(model, optimizer, loader(size), *(make(optimizer) for make in others))


def test_what_prepare_returns():
    accelerator, (model, optimizer, batches, scheduler) = prepared(lambda optimizer: MegatronLMDummyScheduler(optimizer, 10), num_micro_batches=2)
    assert isinstance(model, MegatronEngine) and isinstance(optimizer, MegatronLMOptimizerWrapper)
    assert isinstance(scheduler, MegatronLMSchedulerWrapper) and len(next(iter(batches))["input_ids"]) == 4
    plugin = accelerator.state.megatron_lm_plugin
    assert (plugin.micro_batch_size, plugin.global_batch_size, plugin.train_iters) == (2, 4, 10)
    assert plugin.arguments.model_type_name == "gpt" and plugin.arguments.num_layers == 4 and plugin.arguments.seq_length == 6
    inner = accelerator.unwrap_model(model)
    assert type(inner).__name__ == "GPT2LMHeadModel"
    assert accelerator.prepare(model) is model
    with pytest.raises(AssertionError, match="same `Accelerator.*` instance with multiple models"):
        accelerator.prepare(gpt(), loader())


def test_an_update_needs_no_other_call():
    accelerator, (model, optimizer, batches) = prepared(num_micro_batches=2, gradient_clipping=0)
    model.train()
    batch = next(iter(batches))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    first = model(**batch).loss
    assert not first.requires_grad and any(not torch.equal(one, other) for one, other in zip(before, model.parameters()))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    accelerator.backward(first)
    optimizer.step()
    optimizer.zero_grad()
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters())) and not optimizer.step_was_skipped
    assert model(**batch).loss < first and model.iteration == 2
    with accelerator.accumulate(model):
        assert model(**batch).loss < first
    with pytest.raises(NotImplementedError, match="gradient_clipping"):
        accelerator.clip_grad_value_(model.parameters(), 1.0)
    with pytest.raises(ValueError, match="without a batch"):
        model()


def test_accumulation_is_that_of_micro_batches(caplog):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, megatron_lm_plugin=MegatronLMPlugin(num_micro_batches=2))
    model = gpt()
    model, optimizer, batches = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.5), loader())
    assert accelerator.gradient_accumulation_steps == 1 and sum("num_micro_batches=2 counts" in record.message for record in caplog.records) == 1
    model.train()
    before = model.module.lm_head.weight.detach().clone()
    with accelerator.accumulate(model):
        model(**next(iter(batches)))
    assert not torch.equal(before, model.module.lm_head.weight)


def test_labels_and_what_counts():
    accelerator, (model, *_) = prepared(eod_mask_loss=True, other_megatron_args={"reset_position_ids": True, "reset_attention_mask": True})
    step = model.train_step_handler
    assert isinstance(step, GPTTrainStep)
    tokens, labels, mask, hidden, positions = step.get_batch(iter([{"input_ids": torch.tensor([[3, 16, 5, 6]])}]))
    assert tokens.tolist() == [[3, 16, 5, 6]] and labels.tolist() == [[16, 5, 6, 16]] and mask.tolist() == [[1, 0, 1, 1]]
    assert positions.tolist() == [[0, 1, 0, 1]]
    assert (~hidden[0, 0]).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    model.train()
    assert model(input_ids=torch.tensor([[3, 16, 5, 6]])).loss > 0


def test_losses_of_micro_batches_without_the_count_of_tokens():
    ids = torch.tensor([[1, 2, 3, 4], [1, 16, 16, 16]])
    accelerator, (model, *_) = prepared(num_micro_batches=2, calculate_per_token_loss=False, size=1)
    inner = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(inner(row[None]).logits[0], torch.cat([row[1:], torch.tensor([16])]), reduction="none") for row in ids]
    model.eval()
    expected = (losses[0].mean() + losses[1][0]) / 2
    assert model(input_ids=ids).loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_schedules():
    def rates(**settings):
        accelerator, (model, optimizer, batches, scheduler) = prepared(lambda optimizer: MegatronLMDummyScheduler(optimizer, 8, 2), **settings)
        model.train()
        seen = []
        for _ in range(2):
            for batch in batches:
                seen.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]))
                model(**batch)
        accelerator.free_memory()
        type(accelerator.state)._reset_state(True)
        return [rate for rate, _ in seen], [decay for _, decay in seen]

    linear, decay = rates()
    assert linear == pytest.approx([0, 0.05, *(0.1 * (1 - part / 6) for part in range(6))]) and decay == [0.5] * 8
    cosine, decay = rates(lr_decay_style="cosine", min_lr=0.01, weight_decay_incr_style="linear", start_weight_decay=0.0, end_weight_decay=0.8)
    assert cosine == pytest.approx([0, 0.05, *(0.01 + 0.09 * 0.5 * (math.cos(math.pi * part / 6) + 1) for part in range(6))])
    assert decay == pytest.approx([0.1 * step for step in range(8)])
    constant, _ = rates(lr_decay_style="constant", lr_warmup_iters=4)
    assert constant == pytest.approx([0, 0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.1])


def test_groups_by_conditions():
    accelerator, (model, optimizer, *_) = prepared(
        no_wd_decay_cond=lambda name, parameter: name.endswith(".bias"), scale_lr_cond=lambda name, parameter: name.startswith("transformer.wte"), lr_mult=0.5)
    groups = {(group["lr"], group["weight_decay"]): len(group["params"]) for group in optimizer.param_groups}
    assert set(groups) == {(0.1, 0.5), (0.05, 0.5), (0.1, 0.0)} and groups[0.05, 0.5] == 1
    assert sum(groups.values()) == len(list(model.parameters()))


def test_what_a_model_contradicts_is_refused():
    for settings, match in (({"attention_dropout": 0.1}, "attention_dropout=0.1, and the model has attn_pdrop=0"),
                            ({"use_rotary_position_embeddings": True}, "has no rotary embeddings"), ({"seq_length": 17}, "takes 16 positions"),
                            ({"recompute_method": "block", "recompute_granularity": "full", "hidden_dropout": 0.5}, "hidden_dropout=0.5")):
        with pytest.raises(ValueError, match=match):
            prepared(**settings)
        Accelerator().state._reset_state(True)
    with pytest.raises(ValueError, match="no config.model_type"):
        prepared(model=torch.nn.Linear(2, 2))
    Accelerator().state._reset_state(True)
    with pytest.raises(ValueError, match="the schedule warms up over 16 of 16 samples: expected fewer than all"):
        prepared(lambda optimizer: MegatronLMDummyScheduler(optimizer, 8, 8))
    Accelerator().state._reset_state(True)
    with pytest.raises(ValueError, match="can't use a custom scheduler with Megatron-LM"):
        prepared(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1))
    Accelerator().state._reset_state(True)
    accelerator, model = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin()), gpt()
    with pytest.raises(ValueError, match="You must specify a training or evaluation dataloader"):
        accelerator.prepare(model)
    with pytest.raises(ValueError, match="Optimizer adagrad is not supported"):
        accelerator.prepare(model, loader(), torch.optim.Adagrad(model.parameters()))
    with pytest.raises(ValueError, match="You can't customize device placements with DeepSpeed or Megatron-LM"):
        accelerator.prepare(model, loader(), device_placement=[True, False])


def test_what_has_no_effect_is_told_once(caplog):
    accelerator, (model, optimizer, batches) = prepared(attention_backend=True, eval_iters=5, train_iters=3, sequence_parallelism=True,
                                                        other_megatron_args={"no_bias_gelu_fusion": True, "eos_token_id": 16})
    told = [record.message for record in caplog.records if "has no effect" in record.message]
    for name in ("attention_backend", "eval_iters", "train_iters", "sequence_parallelism", "other_megatron_args['no_bias_gelu_fusion']"):
        assert sum(f"MegatronLMPlugin: {name} has no effect" in text for text in told) == 1, (name, told)
    assert len(told) == 5


def test_layers_that_are_computed_again():
    from accel.megatron import recompute

    layers = recompute.layers_of(gpt())
    assert len(layers) == 4

    def chosen(**settings):
        found, is_selective = recompute.chosen(layers, MegatronLMPlugin(**settings))
        return [layers.index(layer) for layer in found], is_selective

    assert chosen() == ([], False) and chosen(recompute_activations=True) == ([0, 1, 2, 3], True)
    assert chosen(recompute_granularity="full") == ([0, 1, 2, 3], False) and chosen(recompute_granularity="full", recompute_num_layers=2) == ([0, 2], False)
    assert chosen(recompute_granularity="full", recompute_method="block", recompute_num_layers=3) == ([0, 1, 2], False)


def test_stages_by_the_fields_of_the_plugin():
    def stages(**settings):
        return layout.stages_of(MegatronLMPlugin(pp_degree=2, num_micro_batches=4, **settings), gpt())

    assert layout.stages_of(None, gpt()) == layout.stages_of(MegatronLMPlugin(), gpt()) == {}
    assert stages() == {"micro_batches": 4}
    assert stages(num_layers_per_virtual_pipeline_stage=1) == {"micro_batches": 4, "schedule": "interleaved", "stages_per_rank": 2,
                                                                "split": "1,1,1,2"}
    assert stages(num_layers_per_virtual_pipeline_stage=2) == {"micro_batches": 4, "split": "2,3"}
    assert stages(decoder_last_pipeline_num_layers=1) == {"micro_batches": 4, "split": "3,2"}
    for wrong in ({"num_layers_per_virtual_pipeline_stage": 3}, {"decoder_last_pipeline_num_layers": 4}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            stages(**wrong)
    with pytest.raises(NotImplementedError, match="pp_degree=2 and context_parallel_size=2"):
        layout.data_ranks(MegatronLMPlugin(pp_degree=2, context_parallel_size=2), 4)


# Of each field of the plugin either another test here shows what it does, or a case below that it is told where it does nothing.
ACTS = set("""
    tp_degree pp_degree use_custom_fsdp no_load_optim no_save_optim context_parallel_size num_micro_batches gradient_clipping optimizer_cpu_offload
    recompute_granularity use_rotary_position_embeddings no_wd_decay_cond scale_lr_cond megatron_dataset_flag seq_length encoder_seq_length
    decoder_seq_length tensorboard_dir custom_train_step_class custom_model_provider_function custom_prepare_model_function
    custom_get_batch_function custom_loss_function expert_model_parallel_size expert_tensor_parallel_size""".split())
FUNCTION = print
WITHOUT_EFFECT = [
    ("attention_backend", {"attention_backend": True}), ("attention_softmax_in_fp32", {"attention_softmax_in_fp32": False}),
    ("attention_dropout", {"attention_dropout": 0.1}), ("hidden_dropout", {"hidden_dropout": 0.1}), ("recompute_method", {"recompute_method": "block"}),
    ("recompute_method", {"recompute_method": "block", "recompute_granularity": "selective"}), ("recompute_num_layers", {"recompute_num_layers": 2}),
    ("recompute_num_layers", {"recompute_num_layers": 2, "recompute_activations": True}),
    ("recompute_activations", {"recompute_activations": True, "recompute_granularity": "full"}),
    ("num_layers_per_virtual_pipeline_stage", {"num_layers_per_virtual_pipeline_stage": 1}),
    ("decoder_last_pipeline_num_layers", {"decoder_last_pipeline_num_layers": 1}),
    ("pipeline_model_parallel_split_rank", {"pipeline_model_parallel_split_rank": 1}), ("sequence_parallelism", {"sequence_parallelism": True}),
    ("use_distributed_optimizer", {"use_distributed_optimizer": True}), ("eod_mask_loss", {"eod_mask_loss": True, "kind": "bert"}),
    ("return_logits", {"return_logits": True, "kind": "t5"}),
    ("reset_attention_mask", {"other_megatron_args": {"reset_attention_mask": True}, "kind": "t5"}),
    ("eod_mask_loss", {"eod_mask_loss": True, "custom_get_batch_function": FUNCTION, "kind": "gpt"}),
    ("calculate_per_token_loss", {"calculate_per_token_loss": True, "custom_loss_function": FUNCTION}),
    ("custom_train_step_kwargs", {"custom_train_step_kwargs": {"scale": 2}}), ("eval_iters", {"eval_iters": 5}), ("eval_interval", {"eval_interval": 5}),
    ("consumed_samples", {"consumed_samples": [1]}), ("custom_megatron_datasets_provider_function", {"custom_megatron_datasets_provider_function": FUNCTION}),
    ("is_train_batch_min", {"is_train_batch_min": False, "megatron_dataset_flag": True}),
    ("use_precision_aware_optimizer", {"use_precision_aware_optimizer": True}), ("overlap_cpu_optimizer_d2h_h2d", {"overlap_cpu_optimizer_d2h_h2d": True}),
    ("lr_mult", {"lr_mult": 0.5}), ("train_iters", {"train_iters": 3}), ("train_samples", {"train_samples": 3}),
    ("lr_decay_style", {"lr_decay_style": "cosine"}),
    ("lr_decay_iters", {"lr_decay_iters": 3}), ("lr_decay_samples", {"lr_decay_samples": 3}), ("lr_warmup_iters", {"lr_warmup_iters": 3}),
    ("lr_warmup_samples", {"lr_warmup_samples": 3}), ("lr_warmup_fraction", {"lr_warmup_fraction": 0.1}), ("min_lr", {"min_lr": 0.1}),
    ("weight_decay_incr_style", {"weight_decay_incr_style": "linear"}), ("start_weight_decay", {"start_weight_decay": 0.1}),
    ("end_weight_decay", {"end_weight_decay": 0.1}),
    ("lr_decay_samples", {"train_iters": 4, "lr_decay_samples": 3, "given": [MegatronLMDummyScheduler(None)]}),
    ("lr_warmup_iters", {"train_samples": 4, "lr_warmup_iters": 3, "given": [MegatronLMDummyScheduler(None)]}),
    ("set_all_logging_options", {"set_all_logging_options": True}),
    ("log_throughput", {"set_all_logging_options": True, "tensorboard_dir": "logs"}),
    ("log_num_zeros_in_grad", {"set_all_logging_options": True, "tensorboard_dir": "logs"}),
    ("other_megatron_args", {"other_megatron_args": {"no_bias_gelu_fusion": True}}),
    ("num_workers", {"megatron_dataset_flag": True, "given": [MegatronLMDummyDataLoader(num_workers=2)]}),
    ("seed", {"megatron_dataset_flag": True, "given": [MegatronLMDummyDataLoader(seed=2)]}),
    ("eval_iters", {"megatron_dataset_flag": True, "given": [MegatronLMDummyDataLoader(eval_iters=2)]}),
]


def test_each_field_acts_or_is_told():
    Accelerator(cpu=True)
    fields = {field.name for field in dataclasses.fields(MegatronLMPlugin)}
    assert fields - {name for name, _ in WITHOUT_EFFECT} - ACTS == set()
    without_rates = torch.nn.Linear(1, 1)
    without_rates.config = object()
    for name, settings in WITHOUT_EFFECT:
        given, kind = settings.get("given", [without_rates]), settings.get("kind")
        plugin = MegatronLMPlugin(**{field: value for field, value in settings.items() if field in fields})
        plugin.megatron_lm_default_args["model_type_name"] = kind
        unused = {re.match(r"\w+", what).group() for what, _ in checks.unused_settings(plugin, given)}
        assert name in unused, (name, settings, unused)
        assert unused <= {name, *settings} or settings.get("tensorboard_dir"), (name, settings, unused)
    assert not list(checks.unused_settings(MegatronLMPlugin(), [without_rates, MegatronLMDummyDataLoader()]))


def test_masks_are_not_dropped_where_sequences_are_split(ranks):
    printed = ranks("""
        import torch
        from types import SimpleNamespace
        from accel import Accelerator
        from accel.megatron import calls
        from accel.utils import MegatronLMPlugin
        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(context_parallel_size=2))
        tokens = torch.arange(4)[None]
        model = calls.as_megatron(torch.nn.Linear(1, 1), SimpleNamespace(model_type_name="gpt", return_logits=False))
        try:
            model(tokens, None, torch.zeros(1, 1, 4, 4, dtype=torch.bool), labels=tokens)
        except NotImplementedError as error:
            print("attention_mask with context_parallel_size above 1" in str(error))
        try:
            calls.as_megatron(torch.nn.Linear(1, 1), SimpleNamespace(model_type_name="t5"))
        except NotImplementedError as error:
            print("context_parallel_size=2: sequences of models of the type 't5'" in str(error))
    """)
    assert printed == ["True\nTrue\n"] * 2


@pytest.mark.parametrize("settings", [{"tp_degree": 2}, {"use_custom_fsdp": True}, {"use_distributed_optimizer": True}], ids=str)
def test_the_norm_of_the_parameters_is_that_of_the_whole_model(ranks, settings, tmp_path):
    printed = ranks("""
        import json
        import os
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel
        from accel import Accelerator
        from accel.utils import MegatronLMPlugin
        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(
            tensorboard_dir=os.environ["LOGS"], set_all_logging_options=True, **json.loads(os.environ["SETTINGS"])))
        torch.manual_seed(5)
        model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=18, n_positions=8, eos_token_id=16))
        before = sum(parameter.detach().square().sum() for parameter in model.parameters()).sqrt().item()
        rows = torch.utils.data.DataLoader([{"input_ids": torch.arange(4)}] * 4, batch_size=2)
        model, optimizer, rows = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0), rows)
        model._log.tracker.log = lambda told, step: accelerator.print(before, told["params-norm"])
        model.train()
        model(**next(iter(rows)))
        accelerator.end_training()
    """, SETTINGS=json.dumps(settings), LOGS=str(tmp_path))
    before, logged = map(float, printed[1].split())
    assert printed[0] == "" and logged == pytest.approx(before, rel=1e-6)


def test_functions_of_the_program():
    made, called = gpt(), []

    def provider(pre_process=True, post_process=True):
        return made

    def loss(mask, losses):
        called.append(mask.shape)
        value = losses.mean()
        return value, {"own": value.detach()}

    accelerator, (model, optimizer, batches) = prepared(custom_model_provider_function=provider, custom_prepare_model_function=lambda make: [make()],
                                                        custom_loss_function=loss)
    assert accelerator.unwrap_model(model) is made and {id(one) for group in optimizer.param_groups for one in group["params"]} == {
        id(one) for one in made.parameters()}
    model.train()
    assert model(**next(iter(batches))).loss > 0 and called == [(2, 6)]


def test_a_step_of_the_program():
    class Step:
        def __init__(self, args, scale):
            self.scale, self.model_output_class = scale, None

        def forward_step(self, iterator, model):
            batch = next(iterator)
            return model(batch["x"]), lambda output: (output.square().mean() * self.scale, {"loss": output.square().mean().detach() * self.scale})

    class Net(torch.nn.Linear):
        class config:
            model_type, return_dict = "ownkind", False

    @add_model_config_to_megatron_parser("ownkind")
    def parse(plugin, model, batch):
        plugin.megatron_lm_default_args.update(model_type_name="own", model_return_dict=False)

    accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(
        num_micro_batches=2, custom_train_step_class=Step, custom_train_step_kwargs={"scale": 2.0}))
    model = Net(2, 1)
    rows = torch.utils.data.DataLoader([{"x": torch.tensor([float(row), 1.0])} for row in range(4)], batch_size=2)
    model, optimizer, rows = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), rows)
    model.train()
    batch = next(iter(rows))
    inner = accelerator.unwrap_model(model)
    expected = (torch.nn.functional.linear(batch["x"], inner.weight, inner.bias).square().mean() * 2).item()
    assert model(**batch).item() == pytest.approx(expected, rel=1e-5)
    assert model(**batch).item() < expected


def test_other_models():
    from transformers import MegatronBertConfig, MegatronBertForMaskedLM, T5Config, T5ForConditionalGeneration

    text = {"input_ids": torch.randint(3, 30, (4, 6)), "attention_mask": torch.ones(4, 6, dtype=torch.long), "labels": torch.randint(3, 30, (4, 6))}
    text["labels"][:, 2:] = -100
    rows = torch.utils.data.DataLoader([{name: value[row] for name, value in text.items()} for row in range(4)], batch_size=2)
    bert = MegatronBertForMaskedLM(MegatronBertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                                                      max_position_embeddings=8, hidden_dropout_prob=0, attention_probs_dropout_prob=0))
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=30, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0,
                                             decoder_start_token_id=0))
    for model in (bert, t5):
        with torch.no_grad():
            given = text if model is bert else {**text, "decoder_input_ids": shifted(text["labels"])}
            expected = model.eval()(**given).loss.item()
        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(num_micro_batches=2))
        engine, optimizer, batches = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), rows)
        engine.eval()
        batch = next(iter(batches))
        assert engine(**batch).loss.item() == pytest.approx(expected, rel=1e-5)
        engine.train()
        first = engine(**batch).loss
        assert engine(**batch).loss < first
        type(accelerator.state)._reset_state(True)


def shifted(labels):
    moved = torch.nn.functional.pad(labels[:, :-1], (1, 0))
    return moved.masked_fill(moved == -100, 0)


def test_datasets_of_a_function():
    asked = []

    def provider(samples):
        asked.append(samples)
        return [{"text": (torch.arange(7) + row) % 16} for row in range(12)], [{"text": torch.arange(7)}] * 4, None

    accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(
        megatron_dataset_flag=True, custom_megatron_datasets_provider_function=provider, num_micro_batches=2, train_iters=3, consumed_samples=[4],
        eval_iters=1))
    model = gpt()
    dummies = [MegatronLMDummyDataLoader(micro_batch_size=2) for _ in range(3)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer, scheduler, training, evaluation, testing = accelerator.prepare(
        model, optimizer, MegatronLMDummyScheduler(optimizer), *dummies)
    assert asked == [[12, 4, 4]] and testing is None and len(training) == 2 and len(evaluation) == 1
    model.train()
    batch = next(iter(training))
    assert batch["text"][0].tolist() == [4, 5, 6, 7, 8, 9, 10] and model(**batch).loss > 0


def test_checkpoints(tmp_path):
    for settings in ({}, {"no_save_optim": True}, {"no_load_optim": True}):
        accelerator, (model, optimizer, batches) = prepared(num_micro_batches=2, **settings)
        model.train()
        for batch in batches:
            model(**batch)
        folder = tmp_path / ("_".join(settings) or "all")
        model.save_checkpoint(folder)
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        number = len(optimizer.state_dict()["state"])
        model(**batch)
        steps = next(iter(optimizer.state.values()))["step"].item()
        model.load_checkpoint(folder)
        assert number > 0 and steps == 3 and all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
        states = [state["step"].item() for state in optimizer.state.values()]
        assert set(states) == ({2} if not settings else {3} if "no_load_optim" in settings else set())
        type(accelerator.state)._reset_state(True)


# Each job does one step more of the same training: it loads what the job before has saved, of other ranks and micro-batches.
RESUMED = """
    import json
    import os
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    from accel import Accelerator
    from accel.utils import MegatronLMDummyScheduler, MegatronLMPlugin

    settings, begin, last = json.loads(os.environ["SETTINGS"]), int(os.environ["BEGIN"]), int(os.environ["LAST"])
    torch.manual_seed(begin)
    model = GPT2LMHeadModel(GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=18, n_positions=16, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0,
                                       eos_token_id=16))
    rows = [{"input_ids": (torch.arange(12) * 5 + row * row) % 17} for row in range(40)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(min_lr=0.001, lr_decay_style="cosine", **settings))
    data_ranks = accelerator.num_processes // settings.get("tp_degree", 1)
    rows_of_step = int(os.environ["ROWS"])
    loader = torch.utils.data.DataLoader(rows, batch_size=rows_of_step // data_ranks // settings.get("num_micro_batches", 1))
    scheduler = MegatronLMDummyScheduler(optimizer, total_num_steps=48 // rows_of_step * data_ranks, warmup_num_steps=16 // rows_of_step * data_ranks)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    if begin > 0:
        model.load_checkpoint(f"{os.environ['FOLDER']}/{begin}")
    model.train()
    seen, done = [model.iteration, accelerator.state.megatron_lm_plugin.arguments.consumed_train_samples], begin
    for batch in loader:
        seen += [optimizer.param_groups[0]["lr"], model(**batch).loss.item()]
        done += rows_of_step
        model.save_checkpoint(f"{os.environ['FOLDER']}/{done}")
        if done >= last:
            break
    print(seen)
"""


def test_checkpoints_load_on_other_ranks(ranks, tmp_path):
    def job(number, settings, begin, last, rows=8, folder=tmp_path / "parts"):
        printed = ranks(RESUMED, number, SETTINGS=json.dumps(settings), BEGIN=begin, LAST=last, ROWS=rows, FOLDER=folder)
        of_ranks = [numbers(text) for text in printed]
        assert of_ranks[0] == pytest.approx(of_ranks[-1], rel=1e-6)
        return of_ranks[0]

    whole = job(1, {}, 0, 40, folder=tmp_path / "whole")
    assert whole[:2] == [0, 0] and len(whole) == 12
    found = job(2, {"tp_degree": 2, "sequence_parallelism": True, "num_micro_batches": 2}, 0, 16)
    assert found == pytest.approx(whole[:6], rel=2e-4)
    sharded = job(2, {"use_distributed_optimizer": True}, 16, 24)
    assert sharded == pytest.approx([2, 16, *whole[6:8]], rel=2e-4)
    smaller = job(1, {}, 24, 32, rows=4)  # the schedule goes on behind as many samples
    assert smaller[:3] == pytest.approx([3, 24, whole[8]], rel=2e-4) and smaller[4] < smaller[2]


def test_logs(tmp_path):
    accelerator, (model, optimizer, batches) = prepared(tensorboard_dir=str(tmp_path), set_all_logging_options=True)
    model.train()
    for batch in batches:
        model(**batch)
    model.eval()
    model(**batch)
    model.log_eval_results()
    accelerator.end_training()
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    for name in (b"lm loss", b"learning-rate", b"grad-norm", b"params-norm", b"lm loss validation"):
        assert name in written, name


def test_logits():
    accelerator, (model, optimizer, batches) = prepared(num_micro_batches=2, return_logits=True)
    model.eval()
    output = model(**next(iter(batches)))
    assert output.logits.shape == (4, 6, 18) and output.loss > 0


def test_losses_of_the_data_ranks(ranks):
    printed = ranks("""
        import torch
        from accel import Accelerator
        from accel.utils import MegatronLMPlugin, avg_losses_across_data_parallel_group, gather_across_data_parallel_groups
        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin())
        rank = accelerator.process_index
        print(avg_losses_across_data_parallel_group([torch.tensor(rank + 1.0), torch.tensor(4.0)]).tolist(),
              gather_across_data_parallel_groups({"a": [torch.tensor(rank)], "b": torch.tensor([rank, 7])}))
    """)
    assert printed == ["[1.5, 4.0] {'a': [tensor([0, 1])], 'b': tensor([0, 7, 1, 7])}\n"] * 2


def test_whole_weights_are_on_the_main_process(ranks):
    printed = ranks("""
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel
        from accel import Accelerator
        from accel.utils import MegatronLMPlugin
        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(tp_degree=2))
        torch.manual_seed(5)
        model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=18, n_positions=8, eos_token_id=16))
        before = {name: value.clone() for name, value in model.state_dict().items()}
        rows = torch.utils.data.DataLoader([{"input_ids": torch.arange(4)}] * 2, batch_size=2)
        model, rows = accelerator.prepare(model, rows)
        whole = accelerator.get_state_dict(model)
        print(accelerator.is_main_process, len(whole) == len(before), all(torch.equal(value, before[name]) for name, value in whole.items()))
        accelerator.end_training()
    """)
    assert [text.split() for text in printed] == [["False", "False", "True"], ["True", "True", "True"]]


# Regression: the first stage waited in the next forward, or for the values, until the deadline of communication.
def test_an_error_behind_the_last_stage_is_one_of_all(ranks):
    printed = ranks("""
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel
        from accel import Accelerator
        from accel.utils import MegatronLMPlugin

        def loss_of(mask, losses):
            if wrong == "loss":
                raise KeyError("absent")
            loss = losses.mean()
            return loss, {"own": 0.5 if wrong == "value" else loss.detach()}

        accelerator = Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin(pp_degree=2, num_micro_batches=2, custom_loss_function=loss_of))
        model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=18, n_positions=8, eos_token_id=16))
        rows = torch.utils.data.DataLoader([{"input_ids": torch.arange(4)}] * 4, batch_size=2)
        model, optimizer, rows = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), rows)
        batch = next(iter(rows))
        for is_training, wrong in ((False, "loss"), (False, "value"), (True, "loss"), (True, "value")):
            model.train(is_training)
            try:
                model(**batch)
            except Exception as error:
                print("absent" in str(error) or "has no attribute 'dim'" in str(error))
        wrong = None
        print(model(**batch).loss > 0)
        accelerator.end_training()
    """, ACCEL_TIMEOUT_MS=60000)
    assert [text.split() for text in printed] == [["True"] * 4 + ["tensor(True)"]] * 2


def test_losses_of_one_rank():
    Accelerator(cpu=True, megatron_lm_plugin=MegatronLMPlugin())
    assert avg_losses_across_data_parallel_group([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert gather_across_data_parallel_groups(torch.tensor(3.0)).tolist() == [3.0]
