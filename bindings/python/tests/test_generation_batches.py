# SPDX-License-Identifier: Apache-2.0
"""Sequences that are generated together: with each kind of placement they get the tokens of the whole model."""

import pathlib
import threading

import pytest
import simulated_torch

import accel
from accel import errors, nn

CONFIG = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "vocab_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 64}
OF_THIS_FILE = f"""
    import sys
    sys.path.append({str(pathlib.Path(__file__).parent)!r})
    from test_generation_batches import new_model, together
"""
PROMPTS = [[3, 1, 4, 1, 5], [9], [2, 6], [5, 3, 5, 8, 9, 7, 9]]


def new_model():
    accel.set_seed(3)
    return nn.from_config(CONFIG).eval()


def alone(model, prompt, **options):
    return model.generate(accel.tensor([prompt]), **options)["tokens"][0, len(prompt):].tolist()


def together(model, wanted, **limits):
    batch = accel.GenerationBatch(model, **limits)
    got = {batch.add(prompt, max_new_tokens=number): [] for prompt, number in zip(PROMPTS, wanted)}
    for new in batch:
        got[new["id"]].append(new["token"])
    assert len(batch) == 0
    return list(got.values())


def test_sequences_get_the_tokens_that_they_get_alone():
    model = new_model()
    wanted = [5, 7, 9, 3]
    expected = [alone(model, prompt, max_new_tokens=number) for prompt, number in zip(PROMPTS, wanted)]
    assert together(model, wanted) == expected
    assert together(model, wanted, max_sequences=2, max_prompt_tokens=2, max_cached_tokens=64) == expected


def test_a_sequence_has_its_own_options_and_end():
    model = new_model()
    tokens = alone(model, PROMPTS[0], max_new_tokens=6)
    batch = accel.GenerationBatch(model)
    stopped = batch.add(accel.tensor(PROMPTS[0]), max_new_tokens=6, stop_tokens=[tokens[2]])
    drawn = batch.add(PROMPTS[1], sample=True, seed=4, top_k=9, max_new_tokens=4)
    assert len(batch) == batch.info()["waiting"] == 2
    heard = list(batch)
    assert [(new["token"], new["end"]) for new in heard if new["id"] == stopped] == [(token, "") for token in tokens[:2]] + [(tokens[2], "stop")]
    own = [new for new in heard if new["id"] == drawn]
    assert [new["token"] for new in own] == alone(model, PROMPTS[1], sample=True, seed=4, top_k=9, max_new_tokens=4)
    assert own[-1]["end"] == "length" and all(new["log_probability"] <= 0 for new in own)
    assert batch.step() == [] and batch.info()["running"] == 0


def test_sequences_join_and_leave_while_others_go_on():
    model = new_model()
    batch = accel.GenerationBatch(model)
    first, left = batch.add(PROMPTS[0], max_new_tokens=12), batch.add(PROMPTS[1], max_new_tokens=12)
    heard = {first: [], left: []}
    for new in batch:
        heard[new["id"]].append(new["token"])
        if len(heard) == 2 and len(heard[first]) == 3:
            batch.cancel(left)
            joining = threading.Thread(target=lambda: heard.setdefault(batch.add(PROMPTS[2], max_new_tokens=5), []))
            joining.start()
            joining.join()
    assert len(heard[left]) < 12 and heard.pop(first) == alone(model, PROMPTS[0], max_new_tokens=12)
    assert heard[2] == alone(model, PROMPTS[2], max_new_tokens=5)
    with pytest.raises(errors.NotFoundError):
        batch.cancel(left)


def test_wrong_input_is_refused():
    model = new_model()
    batch = accel.GenerationBatch(model)
    with pytest.raises(TypeError, match="no setting 'unheard'"):
        accel.GenerationBatch(model, unheard=1)
    with pytest.raises(errors.ArgumentError, match="max_sequences"):
        accel.GenerationBatch(model, max_sequences=0)
    with pytest.raises(errors.UnsupportedError, match="paged cache"):
        accel.GenerationBatch(nn.Linear(2, 2))
    with pytest.raises(errors.ShapeError, match=r"expected \[length\]"):
        batch.add(accel.tensor([[1, 2]]))
    with pytest.raises(errors.ArgumentError, match="top_p"):
        batch.add([1], top_p=2.0)
    with pytest.raises(errors.ArgumentError, match="64 positions"):
        batch.add([1] * 65)
    with pytest.raises(errors.UnsupportedError, match="draft_model"):
        batch.add([1], draft_model=new_model())
    batch.add([1])
    model.train()
    with pytest.raises(errors.StateError, match="training"):
        batch.step()


@pytest.mark.parametrize("to", ["cpu", "disk"])
def test_offloaded_weights(to, tmp_path):
    expected = together(new_model(), [5, 7, 9, 3])
    offloaded = accel.cpu_offload(new_model(), execution_device="cpu") if to == "cpu" else accel.disk_offload(new_model(), str(tmp_path))
    assert together(offloaded, [5, 7, 9, 3], max_sequences=2) == expected


PLACED = OF_THIS_FILE + """
    import os
    import accel
    from accel import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig

    if os.environ["KIND"] == "sharded":
        accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(
            sharding_strategy="FULL_SHARD", auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["LlamaDecoderLayer"]))
    else:
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=2))
    whole = new_model()
    expected = together(whole, [5, 7, 9, 3])
    weights = sum(weight.numel() for weight in whole.parameters())
    model = accelerator.prepare(new_model()).eval()
    assert sum(weight.numel() for weight in model.parameters()) < 0.7 * weights
    assert together(model, [5, 7, 9, 3]) == together(model, [5, 7, 9, 3], max_sequences=2, max_prompt_tokens=2) == expected
    accelerator.end_training()
"""


@pytest.mark.parametrize("kind", ["sharded", "split"])
def test_ranks_share_the_weights(ranks, kind):
    ranks(PLACED, KIND=kind)


def test_stages_are_refused(ranks):
    ranks(OF_THIS_FILE + """
    import accel
    from accel import Accelerator, ParallelismConfig, errors
    from accel.inference import prepare_pippy

    def refused(words, call):
        try:
            call()
        except errors.UnsupportedError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)

    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(pp_size=2))
    model = accelerator.prepare(new_model()).eval()
    refused("in stages on several ranks", lambda: together(model, [5, 7, 9, 3]))
    refused("in stages", lambda: accel.GenerationBatch(prepare_pippy(new_model())))
    accelerator.end_training()
    """)


@simulated_torch.needs_device
def test_a_device_generates():
    assert simulated_torch.run("device_generation_batches.py") == "equal\n"
