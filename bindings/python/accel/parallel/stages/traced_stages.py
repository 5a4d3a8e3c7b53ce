# SPDX-License-Identifier: Apache-2.0
"""Stages of any model of torch, which torch traces with example inputs."""

import contextlib

import torch
from torch.distributed.pipelining import SplitPoint
from torch.distributed.pipelining._IR import MultiUseParameterConfig, Pipe, annotate_split_points
from torch.utils import _pytree as pytree

from ...tensors.trees import ignorant_find_batch_size
from .stage_costs import choose
from .stage_modules import place, without_cache


class TracedChain:
    """A model by its modules. It is called as with the example inputs, with any number of rows where the trace takes it; else with `chunk_rows`."""

    chunk_rows = 0

    def __init__(self, model, no_split, args, kwargs):
        if not args and not kwargs:
            raise ValueError(f"{type(model).__name__} is neither an nn.Sequential nor a model of transformers with one list of blocks; expected "
                             "example_args or example_kwargs, with which it can be traced")
        self.model, self.args, self.kwargs = model, tuple(args), dict(kwargs)
        self.names = list(_parts(model, set(no_split or ())))

    def choose(self, count, args, kwargs):
        return choose(self.model, self.names, count, args, kwargs)

    def stage(self, split_points, index, device):
        args, kwargs, rows = self._example()
        with _marked(self.model, split_points), without_cache(self.model):
            program = _exported(self.model, args, kwargs, rows)
            graph = Pipe._from_traced(self.model, program, MultiUseParameterConfig.REPLICATE).split_gm
        inputs = [node for node in program.module(check_guards=False).graph.nodes if node.op == "placeholder"]
        if rows is not None and not _takes_any_rows(program, rows):
            self.chunk_rows = rows
        return TracedStage(graph, [node.name for node in inputs], program.call_spec, len(split_points) + 1, index, device)

    def _example(self):
        """The example inputs, with two rows where they have one: a trace takes one row for the only number."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        rows = next((found for found in map(ignorant_find_batch_size, (leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()))
                     if found is not None), None)
        if rows != 1:
            return self.args, self.kwargs, rows
        return *pytree.tree_map_only(torch.Tensor, lambda leaf: leaf.repeat(2, *[1] * (leaf.dim() - 1)) if leaf.dim() and len(leaf) == 1 else leaf,
                                     (self.args, self.kwargs)), 2


class TracedStage:
    """The nodes of a stage in the graph of a model whose nodes are stages."""

    def __init__(self, graph, inputs, call_spec, count, index, device):
        self.inputs, self.call_spec, self.index, self.count = inputs, call_spec, index, count
        stages, calls = {}, 0
        for node in graph.graph.nodes:
            stages[node] = max((stages[source] for source in node.all_input_nodes), default=0)
            if node.op == "call_module":
                stages[node], calls = calls, calls + 1
        if calls != count:
            raise ValueError(f"the trace of the model has {calls} stages; expected {count}: split_points are modules that the model calls once, in "
                             "the order of the calls")
        output = next(node for node in graph.graph.nodes if node.op == "output")
        stages[output] = count - 1
        self.nodes = [node for node in graph.graph.nodes if stages[node] == index and node.op != "placeholder"]
        self.needed_later = [node.name for node in graph.graph.nodes if stages[node] <= index and any(stages[user] > index for user in node.users)]
        self.modules = {node.target: graph.get_submodule(node.target) for node in self.nodes if node.op == "call_module"}
        for module in self.modules.values():
            place(module, (), device)

    def __call__(self, value):
        values = value["passed"] if self.index else self._flat(value["args"], value["named"])
        for node in self.nodes:
            args, kwargs = (torch.fx.node.map_arg(given, lambda source: values[source.name]) for given in (node.args, node.kwargs))
            if node.op == "output":
                return pytree.tree_unflatten(list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]], self.call_spec.out_spec)
            values[node.name] = self.modules[node.target](*args) if node.op == "call_module" else node.target(*args, **kwargs)
        return {"passed": {name: values[name] for name in self.needed_later}}

    def _flat(self, args, named):
        """The inputs by the names of the graph."""
        leaves, spec = pytree.tree_flatten((tuple(args), dict(named)))
        expected = self.call_spec.in_spec
        if spec != expected:
            raise ValueError(f"the model is called with {spec}; expected the arguments of its example, {expected}")
        return dict(zip(self.inputs, leaves))


def _parts(model, no_split, path=""):
    """The paths of the smallest modules, in the order of the model; those of some classes are not looked into."""
    for name, child in model.named_children():
        below = f"{path}.{name}" if path else name
        if type(child).__name__ in no_split or not any(True for _ in child.children()):
            yield below
        else:
            yield from _parts(child, no_split, below)


def _exported(model, args, kwargs, rows):
    shapes = torch.export.ShapesCollection()
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and leaf.dim() and leaf.shape[0] == rows:
            shapes[leaf] = {0: torch.export.Dim.AUTO}
    try:
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes.dynamic_shapes(model, args, kwargs))
    except Exception:  # noqa: BLE001  it depends on its number of rows, or cannot be traced at all
        return torch.export.export(model, args, kwargs)


def _takes_any_rows(program, rows):
    given = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes
              if node.op == "placeholder" and node.name in given and isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].dim()]
    return not any(isinstance(shape[0], int) and shape[0] == rows for shape in shapes)


@contextlib.contextmanager
def _marked(model, split_points):
    """A model whose trace says where stages begin."""
    modules = [model.get_submodule(path) for path in split_points]
    former = [vars(module).get("forward") for module in modules]
    annotate_split_points(model, dict.fromkeys(split_points, SplitPoint.BEGINNING))
    try:
        yield
    finally:
        for module, forward in zip(modules, former):
            del module.forward, module._orig_forward
            if forward is not None:
                module.forward = forward
