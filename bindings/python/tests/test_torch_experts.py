# SPDX-License-Identifier: Apache-2.0
"""Experts of models of torch: shared out over ranks, split over the axis tensor, or both, a model trains as in one process."""

import pytest

torch = pytest.importorskip("torch")
from test_tensor_parallel import numbers  # noqa: E402

from accel import Accelerator  # noqa: E402
from accel.parallel.shared_experts import Experts  # noqa: E402
from accel.parallel.split_styles import Layer  # noqa: E402

TRAINING = """
    import os
    import torch
    from accel import Accelerator, FullyShardedDataParallelPlugin, ParallelismConfig

    world, kind = int(os.environ["WORLD_SIZE"]), os.environ["KIND"]
    tensor, experts = int(os.environ.get("TENSOR", 1)), int(os.environ.get("EXPERTS", 1))
    config = ParallelismConfig(dp_shard_size=world // tensor, tp_size=tensor, ep_size=experts) if world > 1 else None
    layer_class = "MixtralDecoderLayer" if kind == "mixtral" else "Block"
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap",
                                            transformer_cls_names_to_wrap=[layer_class]) if "SHARDED" in os.environ and world > 1 else None
    accelerator = Accelerator(cpu=True, parallelism_config=config, fsdp_plugin=plugin)
    torch.manual_seed(5)
    auxiliary = "AUXILIARY" in os.environ
    if kind == "mixtral":
        from transformers import MixtralConfig, MixtralForCausalLM
        model = MixtralForCausalLM(MixtralConfig(hidden_size=16, intermediate_size=24 if "IMPLEMENTATION" in os.environ else 25, num_hidden_layers=2, num_attention_heads=4,
                                                 num_key_value_heads=2, vocab_size=17, num_local_experts=4, num_experts_per_tok=2,
                                                 router_aux_loss_coef=0.3, output_router_logits=auxiliary,
                                                 experts_implementation=os.environ.get("IMPLEMENTATION", "eager")))
        plan = None
    else:
        class Experts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = torch.nn.Parameter(torch.randn(4, 6, 8) / 3), torch.nn.Parameter(torch.randn(4, 8, 6) / 3)

            def forward(self, x, chosen, weights):
                hidden = torch.tanh(torch.einsum("th,eoh->teo", x, self.up))
                all_experts = torch.einsum("teo,eho->teh", hidden, self.down)
                return (all_experts.gather(1, chosen.unsqueeze(-1).expand(-1, -1, x.shape[-1])) * weights.unsqueeze(-1)).sum(1)

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.router, self.experts = torch.nn.Linear(8, 4, bias=False), Experts()

            def forward(self, x):
                tokens = x.reshape(-1, 8)
                weights, chosen = torch.softmax(self.router(tokens), -1).topk(2)
                return x + self.experts(tokens, weights=weights, chosen=chosen).reshape(x.shape)

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

        model = Net()
        shared = "layers.*.experts ep_dispatch_experts; layers.*.experts.* grouped_gemm" if experts > 1 else ""
        split = "layers.*.experts moe_tp_experts; layers.*.experts.up colwise; layers.*.experts.down rowwise" if tensor > 1 else ""
        plan = "; ".join(filter(None, (shared, split)))
    if "RECOMPUTE" in os.environ:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    whole = sum(parameter.numel() for parameter in model.parameters())
    options = {"tensor_parallel_experts": 1} if "BOTH" in os.environ else None
    if "CAPACITY" in os.environ:
        options = {"capacity_factor": float(os.environ["CAPACITY"])}
    model = accelerator.prepare_model(model, tensor_parallel={"plan": plan} if plan and world > 1 else None, expert_parallel=options)
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.2))
    own = sum(parameter.numel() for parameter in model.parameters())
    assert own == whole if world == 1 else own < 0.85 * whole, (own, whole)
    model.train()
    data, rank = world // tensor, int(os.environ["RANK"]) // tensor
    ids = (torch.arange(32) * 5 % 17).reshape(4, 8).chunk(data)[rank]
    if "EMPTY" in os.environ and rank == 0:
        ids = ids[:0]
    seen = []
    for step in range(4):
        if auxiliary:
            loss = model(input_ids=ids, labels=ids).loss
        else:
            output = model(ids)
            output = output if isinstance(output, torch.Tensor) else output.logits
            loss = torch.nn.functional.cross_entropy(output[:, :-1].reshape(-1, 17), ids[:, 1:].reshape(-1), reduction="sum") / 28 * data
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
        seen += [float(accelerator.reduce(loss.detach(), "mean")), float(norm)]
        optimizer.step()
        optimizer.zero_grad()
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        seen.append(sum(float(tensor.double().abs().sum()) for tensor in state.values()))
    print(seen)
    accelerator.end_training()
"""


def train(ranks, world, **settings):
    """What all ranks see, and the sum of the weights."""
    first, *others = map(numbers, ranks(TRAINING, world, **settings))
    for other in others:
        assert other == pytest.approx(first[:-1], rel=1e-5)
    return first


@pytest.mark.parametrize("world, settings", [(2, {"EXPERTS": 2}), (2, {"TENSOR": 2}), (2, {"EXPERTS": 2, "RECOMPUTE": 1}),
                                             (2, {"EXPERTS": 2, "SHARDED": 1}), (2, {"EXPERTS": 2, "IMPLEMENTATION": "grouped_mm"}),
                                             (2, {"TENSOR": 2, "EXPERTS": 2}), (4, {"TENSOR": 2, "EXPERTS": 2, "BOTH": 1})], ids=str)
def test_models_of_transformers_train_as_in_one_process(ranks, world, settings):
    pytest.importorskip("transformers")
    alone = train(ranks, 1, KIND="mixtral", **{name: value for name, value in settings.items() if name == "IMPLEMENTATION"})
    assert train(ranks, world, KIND="mixtral", **settings) == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("world, settings", [(2, {"EXPERTS": 2}), (4, {"EXPERTS": 4}), (4, {"EXPERTS": 2, "SHARDED": 1}), (2, {"TENSOR": 2}),
                                             (4, {"TENSOR": 2, "EXPERTS": 2, "BOTH": 1})], ids=str)
def test_modules_with_rules_train_as_in_one_process(ranks, world, settings):
    assert train(ranks, world, KIND="own", **settings) == pytest.approx(train(ranks, 1, KIND="own"), rel=1e-4)


@pytest.mark.parametrize("settings", [{"KIND": "mixtral", "AUXILIARY": 1}, {"KIND": "own", "CAPACITY": 0.6}, {"KIND": "own", "EMPTY": 1}], ids=str)
def test_what_depends_on_the_tokens_of_a_rank_does_not_on_its_experts(ranks, settings):
    """A loss for balance is over a rank's tokens, as is the capacity; a rank may have no tokens."""
    if settings["KIND"] == "mixtral":
        pytest.importorskip("transformers")
    if "CAPACITY" in settings:  # whole experts of torch drop nothing
        shared = train(ranks, 2, EXPERTS=2, **settings)
        assert shared != pytest.approx(train(ranks, 2, EXPERTS=2, KIND="own"), rel=1e-3)
        return
    assert train(ranks, 2, EXPERTS=2, **settings) == pytest.approx(train(ranks, 2, **settings), rel=1e-4)


class TwoExperts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2, 3, 3))

    def forward(self, x, chosen, weights):
        return x


def test_a_bound_without_shared_experts_is_a_warning(caplog):
    for factor in (0.0, 1.0):
        Accelerator(cpu=True).prepare_model(TwoExperts(), expert_parallel={"capacity_factor": factor})
        assert ("capacity_factor is 1.0, and no experts of TwoExperts are shared out" in caplog.text) == (factor > 0)


def test_modules_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="mlp.experts: 2 experts, and ep_size is 3"):
        Experts("mlp.experts", TwoExperts(), "weight", 3, 0)
    with pytest.raises(ValueError, match=r"the forward of Linear takes \(input"):
        Experts("mlp.experts", torch.nn.Linear(2, 2), "weight", 2, 0)
    experts = Experts("mlp.experts", TwoExperts(), "weight", 1, 0)
    experts.add_hook()
    with pytest.raises(ValueError, match="mlp.experts: tokens for expert 2, and there are 2"):
        experts.module(torch.zeros(1, 3), torch.tensor([[2]]), torch.ones(1, 1))
    assert Layer("mlp.experts", TwoExperts(), "moe_tp_experts").splits_experts
    with pytest.raises(ValueError, match="the style 'ep_dispatch_experts' of the plan: expected one of"):
        Layer("mlp.experts", TwoExperts(), "ep_dispatch_experts")


def test_shared_experts_beside_split_sequences_are_refused(ranks):
    ranks("""
        import torch
        from accel import Accelerator
        from accel.utils import ParallelismConfig

        class Experts(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(2, 4, 4))

            def forward(self, x, chosen, weights):
                return x

        accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=2, ep_size=2))
        model = torch.nn.ModuleDict({"up": torch.nn.Linear(4, 8), "down": torch.nn.Linear(8, 4), "experts": Experts()})
        plan = "up colwise; down rowwise; experts ep_dispatch_experts"
        try:
            accelerator.prepare_model(model, tensor_parallel={"plan": plan, "sequence_parallel": 1})
            raise AssertionError("no error")
        except NotImplementedError as error:
            assert str(error).startswith("ep_size=2 and sequence_parallel: "), error
        accelerator.end_training()
    """)
