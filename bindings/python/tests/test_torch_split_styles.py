# SPDX-License-Identifier: Apache-2.0
"""Models of torch that are split by each style of a plan, by rules for parameters, and with sequences between split layers."""

import pathlib
import types

import pytest

torch = pytest.importorskip("torch")
from test_tensor_parallel import numbers  # noqa: E402

from accel.parallel.sequence_blocks import SequenceBlocks  # noqa: E402
from accel.parallel.split_heads import attentions_of  # noqa: E402
from accel.parallel.split_styles import Layer  # noqa: E402

TRAINING = """
    import os
    import types
    import torch
    import accel
    from accel import Accelerator, ParallelismConfig
    from accel.utils import TorchTensorParallelConfig

    parts, kind, dropout = int(os.environ["WORLD_SIZE"]), os.environ["KIND"], float(os.environ.get("DROPOUT", 0))
    sequence = "SEQUENCE" in os.environ
    others = {os.environ["AXIS"]: 2} if "AXIS" in os.environ else {}
    config = ParallelismConfig(tp_size=parts // (2 if others else 1), tp_handler=TorchTensorParallelConfig(sequence_parallel=sequence,
                               enable_async_tp="OVERLAP" in os.environ), **others) if parts > 1 else None
    accelerator = Accelerator(cpu=True, parallelism_config=config)
    torch.manual_seed(5)
    plan, logits = None, lambda output: output.logits
    if kind == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel
        model = GPT2LMHeadModel(GPT2Config(n_embd=24, n_layer=2, n_head=4, n_inner=31, vocab_size=17, n_positions=8, attn_pdrop=dropout,
                                           resid_pdrop=dropout, embd_pdrop=dropout))
        plan = ("transformer.wte embedding_rowwise; transformer.h.*.attn.c_attn packed_colwise(3); transformer.h.*.attn.c_proj rowwise;"
                "transformer.h.*.mlp.c_fc colwise; transformer.h.*.mlp.c_proj rowwise; lm_head colwise_gather_output")
    elif kind == "bert":
        from transformers import BertConfig, BertForMaskedLM
        model = BertForMaskedLM(BertConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=31, vocab_size=17,
                                           max_position_embeddings=8, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout))
        block = "bert.encoder.layer.*."
        plan = "\\n".join([block + "attention.self.query colwise", block + "attention.self.key colwise", block + "attention.self.value colwise",
                          block + "attention.output.dense rowwise", block + "intermediate.dense colwise", block + "output.dense rowwise"])
    elif kind == "llama":
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(hidden_size=24, intermediate_size=31, num_hidden_layers=2, num_attention_heads=4,
                                             num_key_value_heads=2, vocab_size=17, attention_dropout=dropout))
    elif kind == "blocks":
        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 13), torch.nn.Linear(13, 8)

            def forward(self, x):
                return x + self.down(torch.tanh(self.up(self.norm(x))))

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.last = torch.nn.Embedding(17, 8), torch.nn.Linear(8, 17)
                self.layers = torch.nn.ModuleList([Block(), Block()])

            def forward(self, ids):
                x = self.words(ids)
                for layer in self.layers:
                    x = layer(x)
                return self.last(x)

        model, logits = Net(), lambda output: output
        plan = "layers.*.up colwise; layers.*.down rowwise"
    else:
        class Terms(torch.nn.Module):  # parameters of its own, and a term of the sum
            def __init__(self):
                super().__init__()
                self.up, self.down = (torch.nn.Parameter(torch.randn(*shape) / 3) for shape in ((12, 8), (8, 12)))
                self.group = accel.Mesh().get_group("tp")

            def forward(self, x):
                x = accel.parallel_copy(x, self.group)
                return torch.nn.functional.linear(torch.tanh(torch.nn.functional.linear(x, self.up)), self.down)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.config = types.SimpleNamespace(qk_rope_head_dim=2)
                self.words, self.terms = torch.nn.Embedding(17, 8), Terms()
                self.first, self.wide, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(6, 12), torch.nn.Linear(12, 17)

            def forward(self, ids):
                low = self.first(torch.tanh(self.terms(self.words(ids))))
                return self.last(torch.tanh(self.wide(low[..., :6])) * low[..., 6:].sum(-1, keepdim=True))

        model, logits = Net(), lambda output: output
        plan = "terms all_reduce; terms.up colwise; terms.down rowwise; first mla_kv_a_proj; wide colwise; last rowwise; words local_params"
    if "RECOMPUTE" in os.environ:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    whole = sum(parameter.numel() for parameter in model.parameters())
    model = accelerator.prepare_model(model, tensor_parallel=plan and {"plan": plan} if parts > 1 else None)
    optimizer = accelerator.prepare(optimizer)
    own = sum(parameter.numel() for parameter in model.parameters())
    assert parts == 1 and own == whole or own < 0.85 * whole, (own, whole)
    model.train()
    ids = (torch.arange(32) * 5 % 17).reshape(4, 8)
    seen = []
    for step in range(5):
        output = logits(model(ids))
        loss = torch.nn.functional.cross_entropy(output[:, :-1].reshape(-1, 17), ids[:, 1:].reshape(-1))
        accelerator.backward(loss)
        seen += [loss.item(), float(accelerator.clip_grad_norm_(model.parameters(), 1.0))]
        optimizer.step()
        optimizer.zero_grad()
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        seen.append(sum(float(tensor.double().abs().sum()) for tensor in state.values()))
    print(seen)
    accelerator.end_training()
"""


@pytest.mark.parametrize("settings", [{"KIND": "styles"}, {"KIND": "blocks", "SEQUENCE": 1}, {"KIND": "gpt2"}, {"KIND": "gpt2", "SEQUENCE": 1},
                                      {"KIND": "bert", "SEQUENCE": 1}, {"KIND": "llama", "SEQUENCE": 1, "RECOMPUTE": 1},
                                      {"KIND": "blocks", "SEQUENCE": 1, "OVERLAP": 1}, {"KIND": "gpt2", "SEQUENCE": 1, "OVERLAP": 1},
                                      {"KIND": "llama", "SEQUENCE": 1, "RECOMPUTE": 1, "OVERLAP": 1},
                                      {"KIND": "llama", "RECOMPUTE": 1, "OVERLAP": 1}], ids=str)
def test_training_is_that_of_one_process(ranks, settings):
    if settings["KIND"] not in ("styles", "blocks"):
        pytest.importorskip("transformers")
    alone = numbers(ranks(TRAINING, 1, **settings)[0])
    first, second = ranks(TRAINING, 2, **settings)
    assert numbers(first) == pytest.approx(alone, rel=1e-4)
    assert numbers(second) == pytest.approx(alone[:-1], rel=1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_heads_are_shared_unevenly(ranks, kind):
    """Three ranks have two, one and one of four heads."""
    pytest.importorskip("transformers")
    alone = numbers(ranks(TRAINING, 1, KIND=kind)[0])
    for printed in ranks(TRAINING, 3, KIND=kind):
        assert numbers(printed)[:10] == pytest.approx(alone[:10], rel=1e-4)


@pytest.mark.combinations
@pytest.mark.parametrize("settings", [{"KIND": "blocks", "SEQUENCE": 1, "AXIS": "dp_replicate_size"},
                                      {"KIND": "blocks", "SEQUENCE": 1, "AXIS": "dp_shard_size"}, {"KIND": "llama", "AXIS": "dp_shard_size"},
                                      {"KIND": "bert", "AXIS": "dp_shard_size"}], ids=str)
def test_replicas_and_shards_of_split_models(ranks, settings):
    alone = numbers(ranks(TRAINING, 1, **settings)[0])
    for printed in ranks(TRAINING, 4, **settings):
        assert numbers(printed)[:10] == pytest.approx(alone[:10], rel=1e-4)


@pytest.mark.parametrize("settings", [{"KIND": "gpt2"}, {"KIND": "gpt2", "SEQUENCE": 1}], ids=str)
def test_ranks_drop_elements_of_their_own(ranks, settings):
    """Features are shared unevenly, so that the ranks draw unequally often between two layers, and must be equal behind them."""
    pytest.importorskip("transformers")
    first, second = map(numbers, ranks(TRAINING, 2, DROPOUT=0.3, **settings))
    assert first[:-1] == pytest.approx(second, rel=1e-6)
    again = numbers(ranks(TRAINING, 2, DROPOUT=0.3, RECOMPUTE=1, **settings)[0])
    assert again == pytest.approx(first, rel=1e-5)


def test_example(ranks):
    pytest.importorskip("transformers")
    program = (pathlib.Path(__file__).parents[3] / "examples" / "python" / "split_llama.py").read_text()
    alone = ranks(program, 1)[0].splitlines()
    split = ranks(program, 2, PARALLELISM_CONFIG_TP_SIZE=2)[0].splitlines()
    assert alone[1].split()[2] == alone[1].split()[4] == split[1].split()[4]
    assert int(split[1].split()[2]) < int(split[1].split()[4])
    assert split[2:] == alone[2:] and len(alone) == 7


def model_of(**layers):
    block = torch.nn.ModuleDict(layers)
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([block])
    return model


def blocks_of(model, **styles):
    layers = [Layer(f"layers.0.{name}", model.layers[0][name], style) for name, style in styles.items()]
    return SequenceBlocks(model, layers, None, 2)


def test_sequences_are_split_only_where_all_is():
    up, down, norm = torch.nn.Linear(4, 6), torch.nn.Linear(6, 4), torch.nn.LayerNorm(4)
    pair = {"up": "colwise", "down": "rowwise"}
    assert blocks_of(model_of(up=up, down=down), **pair).is_gathered("layers.0")
    assert not blocks_of(model_of(up=up, down=down, norm=norm), **pair).is_gathered("layers.0")
    with pytest.raises(ValueError, match="layers.0.other is not split"):
        blocks_of(model_of(up=up, down=down, other=torch.nn.Linear(4, 4)), **pair)
    blocks_of(model_of(up=up, down=down, other=torch.nn.Linear(4, 4)), other="sequence_parallel", **pair)
    with pytest.raises(ValueError, match="'colwise_rep', which needs whole sequences"):
        blocks_of(model_of(up=up, down=down, other=torch.nn.Linear(4, 4)), other="colwise_rep", **pair)
    alone = torch.nn.Sequential(up, down)
    with pytest.raises(ValueError, match="expected one list of blocks"):
        SequenceBlocks(alone, [Layer("0", up, "colwise"), Layer("1", down, "rowwise")], None, 2)
    with pytest.raises(ValueError, match="7 positions cannot be shared by 2 ranks"):
        blocks_of(model_of(up=up, down=down), **pair)._own_positions(torch.zeros(1, 7, 4))


def own_heads(heads, key_heads, rules, rank, ranks):
    """The numbers of heads of 4 features that a module of transformers has on a rank."""
    model = torch.nn.Module()
    model.attention = torch.nn.ModuleDict({name: torch.nn.Linear(8, 4 * count) for name, count in zip("qkv", (heads, key_heads, key_heads))})
    model.config = model.attention.config = types.SimpleNamespace(num_attention_heads=heads, num_key_value_heads=key_heads)
    counts = {"head_dim": 4, "num_heads": heads, "num_key_value_heads": key_heads, "num_key_value_groups": heads // key_heads}
    vars(model.attention).update(counts)
    layers = [Layer("attention." + name, model.attention[name], rule) for name, rule in zip("qkv", rules)]
    for attention in attentions_of(model, layers, rank, ranks):
        attention.take_own_heads()
    return [getattr(model.attention, name) for name in list(counts)[1:]]


def test_rules_say_which_heads_a_rank_has():
    by_heads = ["colwise[4]"] * 3
    assert [own_heads(8, 2, by_heads, rank, 4) for rank in range(4)] == [[2, 1, 2]] * 4
    assert [own_heads(3, 3, by_heads, rank, 2) for rank in range(2)] == [[2, 2, 1], [1, 1, 1]]
    assert [own_heads(6, 3, ["colwise[8]", *by_heads[1:]], rank, 2) for rank in range(2)] == [[4, 2, 2], [2, 1, 2]]
    with pytest.raises(ValueError, match="attention.q: its rule keeps 4 features together; expected 8"):
        own_heads(6, 3, by_heads, 0, 2)
