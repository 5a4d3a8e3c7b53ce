# SPDX-License-Identifier: Apache-2.0
"""Models of torch and transformers in stages: inference by chunks, and generation."""

import pytest

torch = pytest.importorskip("torch")

STAGES = """
    import argparse
    import os
    import torch
    import accel
    from accel.inference import prepare_pippy
    from accel.utils import extract_model_from_parallel

    state, kind = accel.PartialState(cpu=True), os.environ["KIND"]
    torch.manual_seed(4)
    ids, named, split_points = torch.randint(17, (7, 6)), {}, "auto"
    if kind == "sequential":
        model = torch.nn.Sequential(torch.nn.Embedding(17, 8), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    elif kind == "traced":
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.first, self.second = torch.nn.Embedding(17, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
                self.third = torch.nn.Linear(8, 3)

            def forward(self, ids, scale=None):
                words = self.words(ids) * scale
                hidden = torch.tanh(self.second(torch.tanh(self.first(words))) + words)  # words pass by a stage
                return {"scores": self.third(hidden).flatten(1), "hidden": (hidden, words.sum(1))}

        model, named = Net(), {"scale": torch.rand(7, 1, 1)}
        split_points = ["first", "third"][:state.num_processes - 1] if "SPLIT" in os.environ else "auto"
    elif kind == "bert":
        from transformers import BertConfig, BertForMaskedLM
        model = BertForMaskedLM(BertConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=9, vocab_size=17))
        named = {"attention_mask": torch.ones_like(ids).index_fill(1, torch.tensor([5]), 0)}
    elif kind == "gpt2":
        from transformers import GPT2Config, GPT2ForSequenceClassification
        model = GPT2ForSequenceClassification(GPT2Config(n_embd=8, n_layer=3, n_head=2, vocab_size=17, n_positions=9, pad_token_id=0))
    else:
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=9, vocab_size=1700))
    model.eval()
    config = getattr(model, "config", argparse.Namespace())
    config.use_cache = False  # no keys are returned
    with torch.no_grad():
        expected = model(ids, **named)
    config.use_cache = True
    example = {name: tensor[:1] for name, tensor in named.items()}
    model = prepare_pippy(model, split_points, getattr(model, "_no_split_modules", None), (ids[:1],), example, gather_output="GATHER" in os.environ)
    print(model.hf_split_points)

    def leaves(output):
        if isinstance(output, torch.Tensor):
            return [output]
        return [leaf for item in (output.values() if hasattr(output, "values") else output) for leaf in leaves(item)]

    for rows in (7, 1, 2, 3):
        given = {name: tensor[:rows] for name, tensor in named.items()}
        output = model(ids[:rows], **given) if state.is_main_process else model()
        if not state.is_last_process and "GATHER" not in os.environ:
            assert output is None
            continue
        assert type(output) is type(expected) and list(getattr(output, "keys", list)()) == list(getattr(expected, "keys", list)())
        for one, whole in zip(leaves(output), leaves(expected), strict=True):
            torch.testing.assert_close(one, whole[:rows], atol=1e-5, rtol=1e-5)
            assert not one.requires_grad
    if kind == "gpt2":
        try:
            model(ids, output_attentions=True) if state.is_main_process else model()
            raise AssertionError("attentions of one stage")
        except (ValueError, accel.Error) as error:
            assert "output_attentions=True" in str(error), error
        inside = extract_model_from_parallel(model, keep_fp32_wrapper=False)
        with torch.no_grad():
            torch.testing.assert_close(inside(ids).logits, expected.logits)
"""


@pytest.mark.parametrize("settings", [
    {"KIND": "sequential"}, {"KIND": "traced", "GATHER": 1}, {"KIND": "traced", "SPLIT": 1}, {"KIND": "bert"}, {"KIND": "gpt2"},
    {"KIND": "llama", "GATHER": 1}], ids=str)
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.combinations)])
def test_the_output_is_that_of_one_process(ranks, count, settings):
    if settings["KIND"] in ("bert", "gpt2", "llama"):
        pytest.importorskip("transformers")
    printed = ranks(STAGES, count, **settings)
    assert len(set(printed)) == 1
    if settings["KIND"] == "llama":  # a large head is a stage of its own
        assert printed[0].strip().endswith("'model.norm']"), printed[0]


def test_what_a_stage_refuses(ranks):
    ranks("""
        import torch
        import accel
        from accel.inference import prepare_pippy

        state = accel.PartialState(cpu=True)

        class Refusing(torch.nn.Module):
            def forward(self, value):
                if value.shape[0] == 1:
                    raise KeyError("a row alone")
                return value

        def error_of(function):
            try:
                function()
            except Exception as error:
                return f"{type(error).__name__}: {error}"

        model = prepare_pippy(torch.nn.Sequential(torch.nn.Linear(2, 2), Refusing()), ["1"])
        for _ in range(2):
            said = error_of(lambda: model(torch.zeros(3, 2)) if state.is_main_process else model())  # chunks of 2 rows and of 1
            assert ("KeyError" if state.is_last_process else "rank 1 of the pipeline failed in the forward of chunk 1") in said, said
        output = model(torch.ones(4, 2)) if state.is_main_process else model()
        assert (output is None) == state.is_main_process
        said = error_of(lambda: model("a text") if state.is_main_process else model())
        assert "Could not find batch size from args or kwargs" in said and ("ValueError" in said or "Argument" in said), said
        assert "ValueError: split_points=['a', 'b']" in error_of(lambda: prepare_pippy(torch.nn.Sequential(torch.nn.Linear(2, 2)), ["a", "b"]))
        assert "1 parts for 2 stages" in error_of(lambda: prepare_pippy(torch.nn.Sequential(torch.nn.Linear(2, 2)), example_args=(torch.zeros(1, 2),)))
        torch.manual_seed(1)
        layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2))
        batch = torch.ones(3, 2)
        expected = layers(batch)
        for split_points in (["1"], ["2"]):  # in other stages
            layers = prepare_pippy(layers, split_points, gather_output=True)
            torch.testing.assert_close(layers(batch) if state.is_main_process else layers(), expected, check_stride=False)
        mean = prepare_pippy(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Flatten(0)), ["1"])
        said = error_of(lambda: mean(torch.ones(4, 2)) if state.is_main_process else mean())
        assert "expected its rows in dimension 0" in said, said
    """)


GENERATION = """
    import os
    import torch
    import accel
    from accel.inference import prepare_pippy
    from accel.utils import extract_model_from_parallel

    state = accel.PartialState(cpu=True)
    torch.manual_seed(6)
    if os.environ["KIND"] == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel
        model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=3, n_head=2, vocab_size=17, n_positions=40, bos_token_id=1, eos_token_id=2))
    else:
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=9,
                                             vocab_size=17, bos_token_id=1, eos_token_id=2))
    for parameter in model.parameters():
        parameter.data.mul_(4)  # scores that differ
    model.eval()
    ids = torch.randint(3, 17, (5, 4))
    mask = torch.ones_like(ids)
    mask[1, :2] = 0
    cases = [{"max_new_tokens": 9, "do_sample": False, "attention_mask": torch.ones_like(ids)},
             {"max_new_tokens": 12, "do_sample": True, "temperature": 0.7, "top_k": 9, "attention_mask": mask, "pad_token_id": 0},
             {"max_new_tokens": 6, "do_sample": False, "attention_mask": mask, "pad_token_id": 0, "eos_token_id": [5, 6, 7, 8, 9, 10]},
             {"max_length": 7, "do_sample": True, "repetition_penalty": 1.5, "attention_mask": mask, "pad_token_id": 0}]
    expected = []
    for case in cases:
        torch.manual_seed(9)
        expected.append(model.generate(ids, **case))
    model = prepare_pippy(model, example_args=(ids[:1],), gather_output=True)
    for case, whole in zip(cases, expected):
        torch.manual_seed(9 if state.is_main_process else 1)
        found = model.generate(ids, **case) if state.is_main_process else model.generate()
        assert found.tolist() == whole.tolist(), (case, found.tolist(), whole.tolist())

    def refused(words, call):
        try:
            call()
        except (ValueError, NotImplementedError) as error:
            assert words in str(error), error
            raise

    for wrong, words in (({"num_beams": 2}, "num_beams=2: a model in stages generates a sequence a row"), ({"max_new_tokens": 0}, "must be greater than 0"),
                         ({"max_length": 2}, "leaves no token to generate after prompts of 4"), ({"streams": 3}, "a model in stages knows no streams")):
        try:
            refused(words, lambda: model.generate(ids, **wrong) if state.is_main_process else model.generate())
            raise AssertionError(wrong)
        except (ValueError, NotImplementedError):
            pass
    from accel.parallel.stages.pipelined_generation import Generation
    sequences = Generation.sequences

    def broken(self):
        raise RuntimeError("no sequences")

    Generation.sequences = broken  # an error of the last rank alone, behind the last round
    try:
        model.generate(ids, **cases[0]) if state.is_main_process else model.generate()
        raise AssertionError("no error")
    except (RuntimeError, ValueError) as error:
        assert "no sequences" in str(error), error
    Generation.sequences = sequences
    whole = extract_model_from_parallel(model, keep_fp32_wrapper=False)
    assert whole.generate(ids, **cases[0]).tolist() == expected[0].tolist()
"""


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.combinations)])
def test_generation_is_that_of_one_process_token_by_token(ranks, count, kind):
    pytest.importorskip("transformers")
    ranks(GENERATION, count, KIND=kind)
