# SPDX-License-Identifier: Apache-2.0
"""Inference with a model in stages, one on each rank: names of Accelerate's module `inference`.

Chunks of a batch pass through the stages one behind the other, so that all ranks compute at once; the engine passes them on.
"""

import contextlib
import functools
import math
import weakref

from .. import capi
from ..big_models.device_maps import calculate_maximum_sizes, compute_module_sizes, infer_auto_device_map
from ..compat.other import convert_bytes
from ..engine.torch_types import is_torch_model
from ..engine.values import engine_values, like, map_leaves
from ..modules.argument_types import check_model
from ..modules.layers import ModuleList, Sequential
from ..modules.module import PreparedModule
from ..state.job import current
from ..state.process import PartialState
from ..tensors.tensor_type import is_tensor
from ..tensors.trees import ignorant_find_batch_size
from .stages.chain_stages import PartChain
from .collectives import from_rank
from .stages.pipeline_cut import balanced


def generate_device_map(model, num_processes=1, no_split_module_classes=None, max_memory=None):
    """The device map of a model whose parts are on this many devices. Without `max_memory` each has room for its share, the largest layer
    and a tenth."""
    if num_processes > 1 and max_memory is None:
        size, (largest, _) = calculate_maximum_sizes(model)
        number, unit = convert_bytes((size + largest) / num_processes).split(" ")
        share = math.ceil(float(number)) * 1.1
        max_memory = dict.fromkeys(range(num_processes), int(share) if unit == "bytes" else f"{share} {unit}")
    return infer_auto_device_map(model, max_memory=max_memory, no_split_module_classes=no_split_module_classes, clean_result=False)


def find_pippy_batch_size(args, kwargs):
    """Rows of the first argument that begins with a tensor; None if there is none."""
    given = [*(args or ()), *(kwargs or {}).values()]
    return next((rows for rows in map(ignorant_find_batch_size, given) if rows is not None), None)


class Pipeline:
    """This rank's stage of a model, and forwards of the whole."""

    def __init__(self, chain, split_points, num_chunks):
        state = PartialState()
        self.chain, self.num_chunks, self.split_points = chain, num_chunks, list(split_points)
        self.is_first, self.is_last = state.is_main_process, state.is_last_process
        self.stage = chain.stage(self.split_points, state.process_index, state.device)
        self.handle = capi.accel_module_create("Stage")
        own = weakref.ref(self)  # the engine holds the callback: no circle
        capi.accel_module_set_forward(self.handle, lambda _, inputs: own()._run(inputs[0]))

    def step(self, *args, **kwargs):
        """One batch, which the first rank has. The last rank gets the output, the others None."""
        return self.start(*args, **kwargs)()

    def start(self, *args, **kwargs):
        """step() but for making the output, which is done by calling what this returns."""
        return self.run(self.stage, {"args": list(args), "named": kwargs} if self.is_first else None)

    def run(self, stage, batch, rounds=1, num_chunks=None):
        """A batch through a function in the place of this rank's stage; a rank after the first one has none. Returns a function that makes the
        output, on the last rank."""
        self.running, self.output = stage, None
        try:
            try:
                sent = None if batch is None else _sent(batch)
            except Exception:
                with contextlib.suppress(Exception):
                    self._forward(None, num_chunks, rounds)  # the ranks that wait hear of it
                raise
            joined = self._forward(sent, num_chunks, rounds)
            return functools.partial(like, self.output, joined) if self.is_last and joined is not None else lambda: None
        finally:
            self.running = self.output = None

    def _forward(self, batch, num_chunks, rounds):
        return capi.accel_pipeline_forward(current(), self.handle, batch, num_chunks or self.num_chunks, self.chain.chunk_rows, rounds)

    def _run(self, value):
        output = self.running(self._received(value))
        if self.is_last:
            self.output = output if self.output is None else self.output
        return _sent(output)

    def _received(self, value):
        return map_leaves(value, is_tensor, _torch_tensor) if is_torch_model(self.chain.model) else value

    def __reduce__(self):
        raise TypeError("a Pipeline has a stage of this rank and cannot be copied; copy the model before prepare_pippy()")


def _torch_tensor(tensor):
    from ..engine.bridge import to_torch  # imports torch

    return to_torch(tensor)


def _sent(value):
    """The values that pass to the next stage, or are joined with other chunks."""
    return engine_values(value, "a stage has")


class LayerChain:
    """A model of accel: an nn.Sequential, whose layers are the parts."""

    chunk_rows = 0

    def __init__(self, model):
        self.model, self.names = model, list(model._modules)

    def choose(self, count, args, kwargs):
        sizes = compute_module_sizes(self.model)
        return [self.names[place] for place in balanced([sizes[name] for name in self.names], count)[1:]]

    def stage(self, split_points, index, device):
        unknown = [name for name in split_points if name not in self.names]
        bounds = [0, *map(self.names.index, split_points), len(self.names)] if not unknown else []
        if unknown or bounds != sorted(set(bounds)):
            raise ValueError(f"split_points={list(split_points)}: expected names of layers behind the first one, in their order: {self.names[1:]}")
        layers = list(self.model._modules.values())[bounds[index]:bounds[index + 1]]
        for layer in layers:
            layer.to(device)

        def run(value):
            args, named = ([value["passed"]], {}) if index else (value["args"], value["named"])
            for layer in layers:
                args, named = [layer(*args, **named)], {}
            return args[0] if index == len(split_points) else {"passed": args[0]}

        return run


def _chain_of(model, split_points, no_split, args, kwargs):
    """The model as a chain of parts; one of torch is traced where nothing says of which it consists."""
    if not is_torch_model(model):
        return LayerChain(model) if isinstance(model, Sequential) and not isinstance(model, ModuleList) else PartChain.of(model)
    from .stages.torch_stages import BlockChain, SequentialChain  # imports torch

    for chain in (SequentialChain.of(model), BlockChain.of(model)):
        if chain is not None and (split_points is None or chain.can_split(split_points)):
            return chain
    from .stages.traced_stages import TracedChain

    return TracedChain(model, no_split, args, kwargs)


def _chosen(chain, count, args, kwargs):
    """Where the first rank cuts the model, on all ranks."""
    return from_rank(0, lambda: chain.choose(count, args, kwargs))


def build_pipeline(model, split_points, args, kwargs, num_chunks):
    """The Pipeline of a model whose stages begin with the modules `split_points`, and the first one with the model. `args` and `kwargs` are
    example inputs, of a model that has to be traced."""
    return Pipeline(_chain_of(model, split_points, None, args or (), kwargs or {}), split_points, num_chunks)


def pippy_forward(forward, num_chunks, gather_output, *args, **kwargs):
    """The call of a model in stages: the first rank gives the inputs, and the last one has the output; with gather_output all have it."""
    state, pipeline = PartialState(), getattr(forward, "__self__", None)
    if state.num_processes == 1:
        return forward(*args, **kwargs)
    if not state.is_main_process:
        args, kwargs = (), {}
    elif find_pippy_batch_size(args, kwargs) is None:
        if isinstance(pipeline, Pipeline):
            forward()  # with nothing: the ranks that wait hear of it
        raise ValueError("Could not find batch size from args or kwargs")
    if not gather_output:
        return forward(*args, **kwargs)
    made = pipeline.start(*args, **kwargs) if isinstance(pipeline, Pipeline) else _returning(forward(*args, **kwargs))
    return from_rank(state.num_processes - 1, made)


def _returning(output):
    return lambda: output


class PipelinedModule(PreparedModule):
    """A model of accel in stages."""

    def __init__(self, model, pipeline, split_points, gather_output):
        super().__init__(model.handle, model)
        for name, value in {"pippy_stage": pipeline, "hf_split_points": split_points, "_gather_output": gather_output,
                            "_original_forward": model.forward, "_original_call": model.__call__}.items():
            object.__setattr__(self, name, value)
        if isinstance(pipeline.chain, PartChain):
            from .stages.chain_generation import ChainGeneration

            object.__setattr__(self, "generate", ChainGeneration(pipeline, gather_output))

    def __call__(self, *inputs, **named):
        return pippy_forward(self.pippy_stage.step, self.pippy_stage.num_chunks, self._gather_output, *inputs, **named)


def prepare_pippy(model, split_points="auto", no_split_module_classes=None, example_args=(), example_kwargs=None, num_chunks=None,
                  gather_output=False):
    """A model whose stages are on the ranks, in their order, for inference. The first rank calls it with a batch, the others with nothing; the last
    one gets the output, the others None, and with `gather_output` all get it. `split_points` are the names of the modules with which the
    stages but the first begin; "auto" makes the most expensive stage as cheap as it can be. `num_chunks`: into how many parts the rows
    of a batch are cut, as many as processes by default. In one process the model itself."""
    check_model("prepare_pippy", model)
    state = PartialState()
    num_chunks = state.num_processes if num_chunks is None else num_chunks
    args, kwargs = tuple(example_args or ()), dict(example_kwargs or {})
    if num_chunks < 1:
        raise ValueError(f"num_chunks={num_chunks}: expected at least 1")
    if state.num_processes == 1:
        model.hf_split_points, model.pippy_stage = [], None
        return model
    if vars(model).get("pippy_stage") is not None and is_torch_model(model):  # it has stages, and gets others
        model.forward = vars(model).pop("_original_forward")
    given = None if isinstance(split_points, str) and split_points == "auto" else list(split_points)
    if given is not None and len(given) != state.num_processes - 1:
        raise ValueError(f"split_points={given} for {state.num_processes} processes: expected {state.num_processes - 1} names, of the modules with "
                         "which the stages but the first begin")
    chain = _chain_of(model, given, no_split_module_classes, args, kwargs)
    given = _chosen(chain, state.num_processes, args, kwargs) if given is None else given
    pipeline = Pipeline(chain, given, num_chunks)
    if not is_torch_model(model):
        return PipelinedModule(model, pipeline, given, gather_output)
    model._original_forward, model._original_call = model.forward, model.__call__
    model.pippy_stage, model.hf_split_points = pipeline, given

    def forward(*args, **kwargs):
        return pippy_forward(pipeline.step, num_chunks, gather_output, *args, **kwargs)

    forward.__wrapped__ = model._original_forward  # which extract_model_from_parallel() finds again
    model.forward = forward
    if hasattr(chain, "blocks") and hasattr(model, "generate"):
        from .stages.pipelined_generation import PipelinedGeneration

        model.generate = PipelinedGeneration(pipeline, gather_output)
    return model
