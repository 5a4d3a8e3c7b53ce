# SPDX-License-Identifier: Apache-2.0
"""Layers of a torch model that are split over the ranks of the axis tp, by a plan: the engine cuts the parameters, and hooks on the layers call
its operators around their products."""

import functools
import inspect

import torch

from .. import capi
from ..state.process import Group
from .plan_rules import first_match, read
from .region_random import RegionRandom
from .sequence_blocks import SequenceBlocks
from .split_heads import Attention, attentions_of
from .split_styles import COLUMNS, PACKED, ROWS, SUMMED, TABLES, WHOLE, Layer, Region, apply


def prepare(model: torch.nn.Module, state, options, experts=None) -> "Split | None":
    """Splits a model that is about to be prepared, whose plan becomes rules for its parameters; None: its layers stay whole. `experts`: what
    is shared out along another axis, which the plan of a family leaves whole."""
    mesh = capi.accel_state_mesh(state)
    plan = options.tensor_parallel.plan or "auto"
    is_of_program = options.split_by_program == 1 or plan == "none"
    if capi.accel_mesh_size(mesh, "tensor") == 1 or is_of_program or plan == "auto" and options.evaluation_mode == 1:
        return None
    if experts is not None and options.tensor_parallel.sequence_parallel == 1:
        raise NotImplementedError(f"ep_size={capi.accel_mesh_size(mesh, 'expert')} and sequence_parallel: routers and experts of torch models get whole sequences "
                                  "on the ranks along tp; expected one of both, or a model of accel")
    split = Split(model, _rules_of(model, experts) if plan == "auto" else read(plan), Group.of(capi.accel_mesh_group(mesh, "tensor")),
                  splits_sequences=options.tensor_parallel.sequence_parallel == 1, splits_loss=options.tensor_parallel.loss_parallel == 1,
                  is_of_family=plan == "auto")
    if options.expert_parallel.tensor_parallel_experts == 1 and not any(layer.splits_experts for layer in split.layers):
        raise ValueError(f"tensor_parallel_experts: the plan has no rule for the experts of {type(model).__name__}; expected the style moe_tp_experts for "
                         "a module, and rules for its parameters")
    options.tensor_parallel.plan = split.plan_of_parameters()
    options.tensor_parallel.sequence_parallel = options.tensor_parallel.loss_parallel = 0  # the hooks see to them
    return split


def _rules_of(model, experts):
    """The plan that a model of transformers has."""
    plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    if not plan:
        rules = '{"plan": "layers.*.up colwise; layers.*.down rowwise"}'
        raise ValueError(f"{type(model).__name__} has no tp_plan, and tp_size is above 1: expected rules, prepare_model(model, tensor_parallel={rules}), "
                         "or split_by_program=True for a forward that splits the model itself")
    return [(pattern, style) for pattern, style in plan.items() if experts is None or not experts.leaves_whole(pattern)]


class Split:
    """The layers of a model that a plan splits."""

    def __init__(self, model, rules, group, splits_sequences=False, splits_loss=False, is_of_family=False):
        self.model, self.group = model, group
        self.rank, self.ranks = capi.accel_process_index(group.handle), capi.accel_num_processes(group.handle)
        self.layers, self.parameters, used = [], [], set()
        for path, module in model.named_modules():
            number = first_match(rules, path)
            if number is not None:
                used.add(number)
                self.layers.append(Layer(path, module, rules[number][1]))
        for path, parameter in model.named_parameters():
            number = first_match(rules, path)
            if number is not None:
                used.add(number)
                self.parameters.append((path, parameter, rules[number][1]))
        unused = [" ".join(rules[number]) for number in range(len(rules)) if number not in used]
        if unused and not is_of_family:  # the plan of a family names layers that some of its models have
            raise ValueError(f"the rule {unused[0]!r} of the plan matches no module and no parameter of {type(model).__name__}")
        self._check()
        self.attentions: "list[Attention]" = attentions_of(model, self.layers, self.rank, self.ranks)
        heads = [layer for layer in self.layers if layer.gathers]
        if splits_loss and not heads:
            raise ValueError("loss_parallel: the plan has no head whose logits would be gathered: expected a layer with the style "
                             "colwise_gather_output")
        self.head = heads[-1] if splits_loss else None
        if splits_loss and hasattr(model, "loss_function"):
            model.loss_function = _loss_of_scores(model.loss_function)
        self.blocks = SequenceBlocks(model, self.layers, group, self.ranks) if splits_sequences else None

    def _check(self):
        config = getattr(self.model, "config", None)
        columns = [layer for layer in self.layers if layer.gives_part]
        if columns and not any(layer.takes_part for layer in self.layers):
            raise ValueError(f"the plan splits the output of {columns[0].path}, and no layer takes it: expected a rowwise layer, or the style "
                             "colwise_gather_output")
        for layer in self.layers:
            if layer.style == "mla_kv_a_proj":
                layer.rotary = getattr(config.get_text_config() if hasattr(config, "get_text_config") else config, "qk_rope_head_dim", None)
                if layer.rotary is None:
                    raise ValueError(f"{layer.path}: the style mla_kv_a_proj: {type(self.model).__name__} has no qk_rope_head_dim in its configuration; "
                                     "expected one, or another style")
        paths = {f"{layer.path}.{parameter}" for layer in self.layers if layer.is_cut for parameter, _ in layer.module.named_parameters(recurse=False)}
        experts = {layer.path for layer in self.layers if layer.splits_experts}
        for path, parameter, style in self.parameters:
            if parameter.dim() > 2 and style not in WHOLE and path.rpartition(".")[0] not in experts:
                raise ValueError(f"{path}: the style {style!r} of the plan for a parameter of shape {tuple(parameter.shape)}: expected the style "
                                 "moe_tp_experts for its module, whose experts are the first dimension")
            if path in paths:
                raise ValueError(f"the plan has rules for {path} and for its layer; expected one of them")
            if style.partition("[")[0].partition("(")[0] not in COLUMNS + ROWS + TABLES + WHOLE:
                raise ValueError(f"{path}: the style {style!r} of the plan: expected one of {', '.join(COLUMNS + ROWS + TABLES + WHOLE)}")

    def plan_of_parameters(self):
        rules = [rule for layer in self.layers for rule in layer.rules()]
        for path, parameter, style in self.parameters:
            if parameter.dim() > 1 and style in PACKED:  # of experts: their gates, and what these are multiplied by
                style += "(2)"
            rules += [] if style in WHOLE else [f"{path} {style}"]
        return "; ".join(rules) if rules else "none"

    def add_hooks(self):
        """After the engine has cut the parameters."""
        region = Region(self.layers, self.group, self.rank, self.ranks, self.blocks, RegionRandom(self.model, self.rank), self.head)
        for layer in self.layers:
            apply(layer, region)
            if layer.gives_part:
                self._own_sizes(layer)
        for attention in self.attentions:
            attention.take_own_heads()
        region.sum_gradients(parameter for _, parameter, style in self.parameters if style in SUMMED)
        if self.blocks is not None:
            self.blocks.add_hooks(region)

    def _own_sizes(self, layer):
        """Attention of transformers keeps sizes of what its projections give: those of this rank from now on."""
        parent = self.model.get_submodule(layer.parent)
        whole, unit = layer.shape[layer.output_dim] // layer.parts, layer.head_size or 1
        heads = whole // unit  # sharding may have cut the weight once more
        own = unit * (heads // self.ranks + int(self.rank < heads % self.ranks))
        for name in ("split_size", "all_head_size"):
            if getattr(parent, name, None) == whole:
                setattr(parent, name, own)


def _loss_of_scores(loss):
    """A loss of transformers with as many classes as its scores have: those of this rank, or all in an evaluation."""
    signature = inspect.signature(loss)

    @functools.wraps(loss)  # its name says whether it shifts labels
    def of_scores(*args, **options):
        given = signature.bind(*args, **options)
        if "vocab_size" in given.arguments:
            given.arguments["vocab_size"] = given.arguments["logits"].shape[-1]
        return loss(*given.args, **given.kwargs)

    return of_scores
