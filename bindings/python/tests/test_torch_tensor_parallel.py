# SPDX-License-Identifier: Apache-2.0
"""Models of torch and transformers whose layers are split over ranks, by their plans or by rules."""

import pytest

torch = pytest.importorskip("torch")
from test_tensor_parallel import numbers  # noqa: E402

TRAINING = """
    import os
    import torch
    from accel import Accelerator, ParallelismConfig

    parts, kind = int(os.environ["WORLD_SIZE"]), os.environ["KIND"]
    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=parts) if parts > 1 else None)
    torch.manual_seed(5 + accelerator.process_index)  # the first rank's weights count
    if kind == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(hidden_size=24, intermediate_size=31, num_hidden_layers=2, num_attention_heads=6,
                                             num_key_value_heads=int(os.environ.get("KEYS", 2)), vocab_size=17, tie_word_embeddings=bool(int(os.environ.get("TIED", "0")))))
        plan, logits = None, lambda output: output.logits
        if "LOSS" in os.environ:
            inner = model
    elif kind == "conv1d":
        from transformers.pytorch_utils import Conv1D

        class Scaled(torch.nn.Embedding):  # a forward of its own
            def forward(self, ids):
                return super().forward(ids) * 3

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.norm = Scaled(17, 8), torch.nn.LayerNorm(6)
                self.up, self.down = Conv1D(12, 8), Conv1D(17, 12)

            def forward(self, ids):
                hidden = self.norm(self.up(self.words(ids)).unflatten(-1, (-1, 6))).flatten(-2)  # a norm over heads
                return self.down(torch.tanh(hidden))

        model, logits = Net(), lambda output: output
        plan = "words embedding_rowwise; up colwise; down rowwise; norm replicated_with_grad_allreduce"
    else:
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(17, 9, padding_idx=16)
                self.up, self.down = torch.nn.Linear(9, 13), torch.nn.Linear(13, 8)
                self.middle, self.last = torch.nn.Linear(8, 7), torch.nn.Linear(7, 17, bias=False)

            def forward(self, ids):
                return self.last(self.middle(torch.tanh(self.down(torch.tanh(self.up(self.words(ids)))))))

        model = Net()
        plan = "words embedding_rowwise; up colwise; down rowwise\\nmiddle colwise_rep; last rowwise_split_input"
        logits = lambda output: output
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    whole = sum(parameter.numel() for parameter in model.parameters())
    splitting = {"plan": plan or "auto", "loss_parallel": int("LOSS" in os.environ), "overlap": os.environ.get("OVERLAP", "auto"),
                 "overlap_chunks": 3}
    model = accelerator.prepare_model(model, tensor_parallel=splitting if parts > 1 else None)
    optimizer = accelerator.prepare(optimizer)
    if kind == "llama" and os.environ.get("KEYS") == "3":  # six heads that share three key heads
        assert model.get_submodule("module.model.layers.0.self_attn.q_proj" if parts > 1 else "model.layers.0.self_attn.q_proj").out_features == \
            (24 if parts == 1 else 16 - 8 * accelerator.process_index)
    own = sum(parameter.numel() for parameter in model.parameters())
    assert parts == 1 and own == whole or own < 0.6 * whole, (own, whole)
    ids = (torch.arange(32) * 5 % 17).reshape(4, 8)
    seen = []
    for step in range(5):
        if os.environ.get("LOSS") == "labels":
            loss = model(ids, labels=ids).loss
        elif os.environ.get("LOSS") == "fused":
            hidden = inner.model(ids).last_hidden_state
            loss = torch.ops.accel.linear_cross_entropy(hidden[:, :-1], inner.lm_head.weight, ids[:, 1:])
        else:
            output = logits(model(ids))
            loss = torch.nn.functional.cross_entropy(output[:, :-1].flatten(0, 1), ids[:, 1:].reshape(-1))
        accelerator.backward(loss)
        seen += [loss.item(), float(accelerator.clip_grad_norm_(model.parameters(), 1.0))]
        optimizer.step()
        optimizer.zero_grad()
    if "LOSS" in os.environ:
        own = logits(model(ids))
        assert own.shape[-1] == (17 if parts == 1 else 9 - accelerator.process_index)
        if parts > 1:
            try:
                torch.log_softmax(own, -1)
            except RuntimeError as error:
                assert "each rank has some classes" in str(error), error
            else:
                raise AssertionError("a softmax over the classes of one rank")
        with torch.no_grad():
            seen.append(float(model(ids, labels=ids).loss))
            assert logits(model(ids)).shape[-1] == 17
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        seen.append(sum(float(tensor.double().abs().sum()) for tensor in state.values()))
    print(seen)
    accelerator.end_training()
"""


@pytest.mark.parametrize("settings", [{"KIND": "net"}, {"KIND": "conv1d"}, {"KIND": "llama"}, {"KIND": "llama", "TIED": 1},
                                      {"KIND": "llama", "LOSS": "logits"}, {"KIND": "llama", "LOSS": "labels", "TIED": 1},
                                      {"KIND": "llama", "LOSS": "fused"}, {"KIND": "llama", "KEYS": 3}, {"KIND": "llama", "KEYS": 1},
                                      {"KIND": "net", "OVERLAP": "yes"}, {"KIND": "conv1d", "OVERLAP": "yes"},
                                      {"KIND": "llama", "OVERLAP": "yes", "LOSS": "labels"}], ids=str)
def test_training_is_that_of_one_process(ranks, settings):
    if settings["KIND"] != "net":
        pytest.importorskip("transformers")
    alone = numbers(ranks(TRAINING, 1, **settings)[0])
    first, second = ranks(TRAINING, 2, **settings)
    assert numbers(first) == pytest.approx(alone, rel=1e-4)
    assert numbers(second) == pytest.approx(alone[:-1], rel=1e-4)


def test_a_loss_of_the_scores_of_a_rank_still_says_whether_it_shifts_labels():
    loss_utils = pytest.importorskip("transformers.loss.loss_utils")
    from accel.parallel import split_layers, torch_sequences

    model = torch.nn.Identity()
    model.loss_function = split_layers._loss_of_scores(loss_utils.ForCausalLMLoss)
    assert torch_sequences._shifts_labels(model)


def test_a_file_says_how_models_are_split(ranks, tmp_path):
    """A configuration file's sections of accel_prepare_model_options_t count for models of torch as for those of accel."""
    script = """
        import torch
        from accel import Accelerator
        accelerator = Accelerator(cpu=True)
        for plan in (None, "0 replicate; 1 replicate"):
            model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 2))
            prepared = accelerator.prepare_model(model, tensor_parallel=plan and {"plan": plan})
            print(list(model[0].weight.shape), prepared.forward.inputs_are_split)
        accelerator.end_training()
    """
    sections = {"tensor_parallel:\n  plan: 0 colwise; 1 rowwise\ncontext_parallel:\n  inputs_are_split: true\n": "[2, 2] True\n[4, 2] True\n",
                "prepare_model:\n  split_by_program: true\n": "[4, 2] False\n[4, 2] False\n"}
    for number, (section, expected) in enumerate(sections.items()):
        file = tmp_path / f"job{number}.yaml"
        file.write_text(f"tensor_parallel_size: 2\n{section}")
        assert ranks(script, ACCELERATE_CONFIG_FILE=file) == [expected] * 2


def test_heads_that_cannot_be_split(ranks):
    pytest.importorskip("transformers")
    printed = ranks("""
        import os
        from transformers import LlamaConfig, LlamaForCausalLM
        from accel import Accelerator, ParallelismConfig
        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=3))
        model = LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                                             vocab_size=17))
        for settings in (None, {"plan": "model.layers.*.mlp.middle_proj colwise"}):
            try:
                accelerator.prepare_model(model, tensor_parallel=settings)
            except ValueError as error:
                print(error)
        accelerator.end_training()
    """, 3)
    words = ("model.layers.0.self_attn: 4 heads and 2 key heads cannot be split over 3 ranks; expected a tp_size that divides",
             "the rule 'model.layers.*.mlp.middle_proj colwise' of the plan matches no module and no parameter of LlamaForCausalLM")
    for lines in printed:
        for line, expected in zip(lines.splitlines(), words, strict=True):
            assert line.startswith(expected)
