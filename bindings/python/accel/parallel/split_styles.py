# SPDX-License-Identifier: Apache-2.0
"""The effect of the styles of a plan on layers of torch: the dimensions along which the engine cuts their parameters, and the operators around
their forwards."""

import collections
import types
import weakref

import torch

from ..generated.split_operators import parallel_class_scores, parallel_copy, parallel_gather, parallel_reduce, parallel_reduce_scatter, parallel_scatter

COLUMNS = ("colwise", "colwise_gather_output", "colwise_rep", "packed_colwise")
ROWS = ("rowwise", "rowwise_split_input", "rowwise_rep", "packed_rowwise")
TABLES = ("embedding_rowwise", "embedding_colwise")
SUMMED = ("replicated_with_grad_allreduce", "sequence_parallel")
PACKED = ("packed_colwise", "packed_rowwise")
_EXPERTS, _IDENTITY_EXPERT = "moe_tp_experts", "moe_identity_expert"
WHOLE = ("replicate", "local_params", "all_reduce", "mla_kv_a_proj", _EXPERTS, _IDENTITY_EXPERT, *SUMMED)
STYLES = COLUMNS + ROWS + TABLES + WHOLE
_GATHERED = ("colwise_gather_output", "colwise_rep")
_SPLITTING = ("rowwise_split_input", "rowwise_rep")


class Layer:
    """A module that a rule of the plan names."""

    def __init__(self, path, module, style):
        self.path, self.module = path, module
        without_heads, _, heads = style.partition("[")
        self.style, _, self.packed = without_heads.partition("(")
        self.head_size = int(heads[:-1]) if heads[:-1].isdigit() else 0  # features that stay together; 0: none do
        self.is_transposed = type(module).__name__ == "Conv1D" and isinstance(getattr(module, "weight", None), torch.nn.Parameter)
        is_product = self.is_transposed or isinstance(module, torch.nn.Linear)
        if self.style not in STYLES:
            raise ValueError(f"{path}: the style {self.style!r} of the plan: expected one of {', '.join(STYLES)}")
        fits = (self.style in WHOLE or is_product and self.style in COLUMNS + ROWS or isinstance(module, torch.nn.Embedding) and self.style in TABLES)
        if not fits:
            raise ValueError(f"{path}: the style {self.style!r} does not fit a {type(module).__name__}; expected a torch.nn.Linear for colwise and "
                             "rowwise, a torch.nn.Embedding for embedding_*")
        if self.style in TABLES and (module.max_norm is not None or module.scale_grad_by_freq or module.sparse):
            raise ValueError(f"{path}: an embedding with max_norm, scale_grad_by_freq or sparse gradients cannot be split; expected one without")
        self.shape = tuple(module.weight.shape) if self.is_cut else None  # of the whole weight
        # The engine computes the product of a layer whose forward is that of its library.
        self.is_plain = (is_product and "forward" not in vars(module) and "weight" in module._parameters and
                         (type(module).forward is torch.nn.Linear.forward or type(module).__module__ == "transformers.pytorch_utils"))

    is_cut = property(lambda self: self.style not in WHOLE, doc="Whether ranks have parts of its parameters.")
    gathers = property(lambda self: self.style in _GATHERED, doc="Whether its output is gathered, as that of a head is.")
    gives_part = property(lambda self: self.style in COLUMNS and self.style not in _GATHERED, doc="Whether its output is split.")
    takes_part = property(lambda self: self.style in ROWS and self.style not in _SPLITTING, doc="Whether its input is split.")
    sums_gradients = property(lambda self: self.style in SUMMED, doc="Whether it is whole on each rank, and works on its part.")
    splits_experts = property(lambda self: self.style == _EXPERTS, doc="Whether its parameters are those of experts, each of which is split.")
    parent = property(lambda self: self.path.rpartition(".")[0])

    @property
    def output_dim(self):
        """The dimension of a weight that has the features of the output."""
        return 1 if self.is_transposed else 0

    @property
    def parts(self):
        """The number of tensors that a packed layer has behind each other, where it is given."""
        return int(self.packed[:-1]) if self.packed[:-1].isdigit() else 1

    @property
    def widths(self):
        """The features of each tensor that its output, or that of a row layer its input, has behind each other."""
        features = self.shape[self.output_dim if self.style in COLUMNS else 1 - self.output_dim]
        sizes = self.packed[:-1].split(",") if "," in self.packed else []
        return list(map(int, sizes)) or [features // self.parts] * self.parts

    def rules(self):
        """The rules for its parameters, which the engine cuts along their first or second dimension, or the rule of each expert."""
        if self.splits_experts:
            yield f"{self.path} {self.style}"
        if not self.is_cut:
            return
        along_first = self.style in COLUMNS or self.style == "embedding_rowwise"
        packed = (f"packed_{{}}({self.packed}" if self.packed else "{}") + (f"[{self.head_size}]" if self.head_size else "")
        # Of rows with one class each the engine can compute a loss.
        first = "colwise_gather_output" if self.style in _GATHERED or self.style in TABLES else "colwise"
        yield f"{self.path}.weight {packed.format(first if along_first != self.is_transposed else 'rowwise')}"
        if self.style in COLUMNS and self.module.bias is not None:
            yield f"{self.path}.bias {packed.format('colwise')}"


class Region:
    """The parts that the layers of a model share: the group of their ranks, the blocks in which sequences are split (None: nowhere), and the
    random numbers of parts."""

    def __init__(self, layers, group, rank, ranks, blocks, random, head=None):
        self.group, self.rank, self.ranks, self.blocks, self.random = group, rank, ranks, blocks, random
        self.readers = collections.Counter(layer.parent for layer in layers if layer.is_plain and layer.style in COLUMNS)
        self.head = head  # the layer whose logits stay split for the loss
        self.inputs: dict = {}
        self.summed: set = set()  # the numbers of parameters whose gradients are summed

    def sum_gradients(self, parameters):
        """Sums the gradients of parameters that each rank has whole and uses on its part."""
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self.summed:
                self.summed.add(id(parameter))
                parameter.register_hook(lambda gradient: parallel_reduce(gradient, self.group))

    def splits_sequence(self, layer):
        return self.blocks is not None and self.blocks.has(layer.path)

    def product_of(self, layer):
        """The engine's product of a layer, with its exchange; None: the layer's own forward computes it."""
        splits_sequence = self.splits_sequence(layer)
        if not layer.is_plain or splits_sequence and layer.gives_part and self.blocks.is_gathered(layer.parent):
            return None
        module, more = layer.module, {"is_transposed": layer.is_transposed, "splits_sequence": splits_sequence}
        if layer.style in COLUMNS:
            more["readers"] = self.readers[layer.parent]
        return lambda x: torch.ops.accel.split_linear(x, module.weight, module.bias, **more)

    def input_of(self, layer):
        """Column layers of one parent read the same input."""
        if layer.parent not in self.inputs:
            self.inputs[layer.parent] = RegionInput(self._entry_of(layer))
        return self.inputs[layer.parent]

    def _entry_of(self, layer):
        if not self.splits_sequence(layer):
            return lambda x: parallel_copy(x, self.group) if x.requires_grad else x
        if self.blocks.is_gathered(layer.parent):
            return lambda x: x  # at the door of the module around it
        return lambda x: parallel_gather(x, self.group, -2, replicated=False)


class RegionInput:
    """A tensor that several layers of one parent read enters the region once, so that its gradient is summed once."""

    def __init__(self, entry):
        self.entry = entry
        self.input = self.entered = lambda: None

    def enter(self, tensor):
        entered = self.entered() if self.input() is tensor else None
        if entered is None:
            entered = self.entry(tensor)
            if entered is not tensor:
                self.input, self.entered = weakref.ref(tensor), weakref.ref(entered)
        return entered


def apply(layer, region):
    """After the engine has cut the parameters."""
    if layer.style in COLUMNS:
        _split_output(layer, region)
    elif layer.style in ROWS:
        _split_input(layer, region)
    elif layer.style in TABLES:
        _split_table(layer, region)
    elif layer.style in SUMMED:
        region.sum_gradients(layer.module.parameters(recurse=False))
    elif layer.style == "all_reduce":
        layer.module.register_forward_hook(lambda _, args, output: parallel_reduce(output, region.group))
    elif layer.style == "mla_kv_a_proj":
        _enter_rotary_part(layer, region)
    elif layer.splits_experts:
        _split_experts(layer, region)
    elif layer.style == _IDENTITY_EXPERT:  # a term of the sum on each rank
        layer.module.register_forward_pre_hook(lambda _, args: (args[0] / region.ranks, *args[1:]))


def _split_output(layer, region):
    module, product = layer.module, region.product_of(layer)
    if product is not None:
        module.forward = product
    else:
        entered = region.input_of(layer)
        module.register_forward_pre_hook(lambda _, args: (entered.enter(args[0]), *args[1:]))
    if layer.style in _GATHERED:
        whole = layer.shape[layer.output_dim]
        if layer is region.head:
            module.register_forward_hook(lambda _, args, output: parallel_class_scores(output, region.group, whole))
        else:
            module.register_forward_hook(lambda _, args, output: parallel_gather(output, region.group, -1, whole))
    else:
        region.random.begin_behind(module, layer.parent)
    setattr(module, "nf" if layer.is_transposed else "out_features", module.weight.shape[layer.output_dim])


def _split_input(layer, region):
    former, group, in_engine = layer.module.forward, region.group, region.product_of(layer)
    splits_sequence = region.splits_sequence(layer)

    def product(module, x):
        """The layer's own forward, without its bias, which is added to the sum."""
        if layer.is_transposed:
            return x @ module.weight
        bias, module._parameters["bias"] = module._parameters["bias"], None
        try:
            return former(x)
        finally:
            module._parameters["bias"] = bias

    def forward(module, x):
        if layer.takes_part:
            region.random.end()
        else:
            x = parallel_scatter(x, group)
        if in_engine is not None:
            return in_engine(x)
        terms = product(module, x)
        total = parallel_reduce_scatter(terms, group, -2) if splits_sequence else parallel_reduce(terms, group)
        return total if module.bias is None else total + module.bias.to(total.dtype)

    layer.module.forward = types.MethodType(forward, layer.module)
    setattr(layer.module, "nx" if layer.is_transposed else "in_features", layer.module.weight.shape[1 - layer.output_dim])


def _split_table(layer, region):
    rows, features = layer.shape
    if layer.style == "embedding_colwise":
        layer.module.register_forward_hook(lambda _, args, output: parallel_gather(output, region.group, -1, features))
        return
    own = rows // region.ranks + int(region.rank < rows % region.ranks)  # sharding may have cut the weight once more
    begin = region.rank * (rows // region.ranks) + min(region.rank, rows % region.ranks)
    padding = layer.module.padding_idx
    layer.module.padding_idx = None if padding is None or not begin <= padding < begin + own else padding - begin

    former = layer.module.forward

    def forward(module, ids):
        if ids.numel() > 0 and not bool(((ids >= 0) & (ids < rows)).all()):
            raise IndexError(f"index out of range in self: an embedding of {rows} rows was called with ids from {ids.min()} to {ids.max()}")
        local = ids - begin
        elsewhere = (local < 0) | (local >= own)
        found = former(local.masked_fill(elsewhere, 0))
        return parallel_reduce(found.masked_fill(elsewhere.unsqueeze(-1), 0), region.group)

    layer.module.forward = types.MethodType(forward, layer.module)


def _enter_rotary_part(layer, region):
    """A projection whose last features go to each rank's heads, and the others to a column layer."""
    def enter(_, args, output):
        others, rotary = output.split([output.shape[-1] - layer.rotary, layer.rotary], dim=-1)
        return torch.cat([others, parallel_copy(rotary, region.group) if rotary.requires_grad else rotary], dim=-1)

    layer.module.register_forward_hook(enter)


def _split_experts(layer, region):
    """Tokens and the weights of their experts enter, and each rank returns a term of the sum."""
    def enter(_, args, kwargs):
        def entered(value):
            return parallel_copy(value, region.group) if isinstance(value, torch.Tensor) and value.requires_grad else value

        return tuple(map(entered, args)), {name: entered(value) for name, value in kwargs.items()}

    layer.module.register_forward_pre_hook(enter, with_kwargs=True)
    layer.module.register_forward_hook(lambda _, args, output: parallel_reduce(output, region.group))
