"""Layers of a torch model that are split over the ranks of the axis tp, by a plan: the engine cuts the parameters, and hooks on the layers call
its operators around their products."""

import types
import weakref

import torch

from .. import capi
from ..engine.bridge import from_torch, to_torch

_COLUMNS = ("colwise", "colwise_gather_output", "colwise_rep", "packed_colwise")
_ROWS = ("rowwise", "rowwise_split_input", "rowwise_rep", "packed_rowwise")
_TABLES = ("embedding_rowwise", "embedding_colwise")
_SUMMED = "replicated_with_grad_allreduce"
_STYLES = _COLUMNS + _ROWS + _TABLES + ("replicate", _SUMMED)


def prepare(model: torch.nn.Module, state, options) -> "Split | None":
    """What to do with a model that is about to be prepared, whose plan becomes rules for its parameters; None: its layers stay whole."""
    if options.tensor_parallel.sequence_parallel == 1:
        raise NotImplementedError("sequence_parallel: layers of torch keep whole sequences; expected a model of accel, or sequence_parallel=False")
    if options.tensor_parallel.overlap == capi.ACCEL_OVERLAP_YES or (options.tensor_parallel.overlap_chunks or 0) > 0:
        raise NotImplementedError("overlap: layers of torch exchange between their products; expected a model of accel, or no overlap")
    mesh = capi.accel_state_mesh(state)
    plan = options.tensor_parallel.plan or "auto"
    if capi.accel_mesh_size(mesh, "tensor") == 1 or options.split_by_program or plan == "none" or plan == "auto" and options.evaluation_mode:
        return None
    split = Split(model, _rules_of(model) if plan == "auto" else _read(plan), capi.accel_mesh_group(mesh, "tensor"))
    options.tensor_parallel.plan = split.plan_of_parameters()
    return split


def _rules_of(model):
    """The plan that a model of transformers has."""
    plan = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    if not plan:
        rules = '{"plan": "layers.*.up colwise; layers.*.down rowwise"}'
        raise ValueError(f"{type(model).__name__} has no tp_plan, and tp_size is above 1: expected rules, prepare_model(model, tensor_parallel={rules}), "
                         "or split_by_program=True for a forward that splits the model itself")
    return list(plan.items())


def _read(text):
    rules = [rule.split() for rule in text.replace(";", "\n").splitlines() if rule.strip()]
    wrong = [" ".join(rule) for rule in rules if len(rule) != 2]
    if wrong or not rules:
        raise ValueError(f"plan: {wrong[0] if wrong else text!r}: expected rules of a path and a style, such as 'layers.*.up colwise'")
    return rules


def _matches(pattern, path):
    parts, given = pattern.split("."), path.split(".")
    return len(parts) == len(given) and all(part in ("*", own) for part, own in zip(parts, given))


class Layer:
    def __init__(self, path, module, style):
        self.path, self.module = path, module
        self.style, _, self.packed = style.partition("(")
        self.is_linear = isinstance(module, torch.nn.Linear)
        self.is_transposed = type(module).__name__ == "Conv1D" and isinstance(getattr(module, "weight", None), torch.nn.Parameter)
        is_product = self.is_linear or self.is_transposed
        fits = self.style in ("replicate", _SUMMED) or (is_product and self.style in _COLUMNS + _ROWS or
                                             isinstance(module, torch.nn.Embedding) and self.style in _TABLES)
        if self.style not in _STYLES:
            raise ValueError(f"{path}: the style {self.style!r} of the plan: expected one of {', '.join(_STYLES)}")
        if not fits:
            raise ValueError(f"{path}: the style {self.style!r} does not fit a {type(module).__name__}; expected a torch.nn.Linear for colwise and "
                             "rowwise, a torch.nn.Embedding for embedding_*")
        if self.style in _TABLES and (module.max_norm is not None or module.scale_grad_by_freq or module.sparse):
            raise ValueError(f"{path}: an embedding with max_norm, scale_grad_by_freq or sparse gradients cannot be split; expected one without")

    @property
    def output_dim(self):
        """The dimension of a weight that has the features of the output."""
        return 1 if self.is_transposed else 0

    def has_parts(self):
        """Whether ranks have parts of its parameters."""
        return self.style not in ("replicate", _SUMMED)

    def features(self):
        """How many features are shared by the ranks, of a linear layer."""
        return self.module.weight.shape[self.output_dim if self.style in _COLUMNS else 1 - self.output_dim]

    def rules(self):
        """Those of its parameters, which the engine cuts along their first or second dimension."""
        along_first = self.style in _COLUMNS + ("embedding_rowwise",)
        packed = f"packed_{{}}({self.packed}" if self.packed else "{}"
        yield f"{self.path}.weight {packed.format('colwise' if along_first != self.is_transposed else 'rowwise')}"
        if self.style in _COLUMNS and self.module.bias is not None:
            yield f"{self.path}.bias {packed.format('colwise')}"


class Split:
    """The layers of a model that a plan splits."""

    def __init__(self, model, rules, group):
        self.group = group
        used, self.layers = set(), []
        for path, module in model.named_modules():
            rule = next((number for number, (pattern, _) in enumerate(rules) if _matches(pattern, path)), None)
            if rule is None:
                continue
            used.add(rule)
            layer = Layer(path, module, rules[rule][1])
            if layer.style != "replicate":
                self.layers.append(layer)
        unused = [" ".join(rules[number]) for number in range(len(rules)) if number not in used]
        if unused:
            raise ValueError(f"the rule {unused[0]!r} of the plan matches no module of {type(model).__name__}")
        columns = [layer for layer in self.layers if layer.style in ("colwise", "packed_colwise")]
        if columns and not any(layer.style in ("rowwise", "packed_rowwise") for layer in self.layers):
            raise ValueError(f"the plan splits the output of {columns[0].path}, and no layer takes it: expected a rowwise layer, or the style "
                             "colwise_gather_output")
        ranks, config = capi.accel_num_processes(group), getattr(model, "config", None)
        for name in ("num_attention_heads", "num_key_value_heads") if columns else ():
            heads = getattr(config, name, None)
            if heads is not None and heads % ranks != 0:
                raise ValueError(f"{name}={heads} of {type(model).__name__} cannot be shared by {ranks} ranks: expected a multiple of tp_size")
        uneven = [layer for layer in self.layers if layer.style in ("colwise", "packed_colwise") and layer.features() % ranks != 0]
        if uneven and any(getattr(module, "p", 0) for module in model.modules() if isinstance(module, torch.nn.Dropout)):
            raise ValueError(f"{uneven[0].path} has {uneven[0].features()} features, which {ranks} ranks share unevenly, and the model has dropout, which "
                             "would draw unequally often on the ranks: expected a multiple of tp_size, or no dropout")
        self.sizes = {layer.path: tuple(layer.module.weight.shape) for layer in self.layers if layer.has_parts()}

    def plan_of_parameters(self):
        rules = [rule for layer in self.layers if layer.has_parts() for rule in layer.rules()]
        return "; ".join(rules) if rules else "none"

    def add_hooks(self):
        """After the engine has cut the parameters."""
        inputs: dict = {}
        for layer in self.layers:
            if layer.style == _SUMMED:
                self._sum_gradients(layer)
            elif layer.style in _COLUMNS:
                parent = layer.path.rpartition(".")[0]
                self._split_output(layer, inputs.setdefault(parent, RegionInput(self.group)))
            elif layer.style in _ROWS:
                self._split_input(layer)
            else:
                self._split_table(layer)

    def _split_output(self, layer, region):
        layer.module.register_forward_pre_hook(lambda _, args: (region.enter(args[0]), *args[1:]))
        if layer.style in ("colwise_gather_output", "colwise_rep"):
            whole = self.sizes[layer.path][layer.output_dim]
            layer.module.register_forward_hook(lambda _, args, output: self._gathered(output, whole))
        setattr(layer.module, "nf" if layer.is_transposed else "out_features", layer.module.weight.shape[layer.output_dim])

    def _sum_gradients(self, layer):
        for parameter in layer.module.parameters(recurse=False):
            if parameter.requires_grad:
                parameter.register_hook(lambda gradient: to_torch(capi.accel_parallel_reduce(self.group, from_torch(gradient))))

    def _gathered(self, part, whole):
        return to_torch(capi.accel_parallel_gather(self.group, from_torch(part), -1, whole, 1))

    def _split_input(self, layer):
        former = layer.module.forward

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
            if layer.style in ("rowwise_split_input", "rowwise_rep"):
                x = to_torch(capi.accel_parallel_scatter(self.group, from_torch(x), -1))
            total = to_torch(capi.accel_parallel_reduce(self.group, from_torch(product(module, x))))
            return total if module.bias is None else total + module.bias.to(total.dtype)

        layer.module.forward = types.MethodType(forward, layer.module)
        setattr(layer.module, "nx" if layer.is_transposed else "in_features", layer.module.weight.shape[1 - layer.output_dim])

    def _split_table(self, layer):
        rows, features = self.sizes[layer.path]
        if layer.style == "embedding_colwise":
            layer.module.register_forward_hook(lambda _, args, output: self._gathered(output, features))
            return
        own = layer.module.weight.shape[0]
        rank, ranks = capi.accel_process_index(self.group), capi.accel_num_processes(self.group)
        begin = rank * (rows // ranks) + min(rank, rows % ranks)
        padding = layer.module.padding_idx
        layer.module.padding_idx = None if padding is None or not begin <= padding < begin + own else padding - begin

        former = layer.module.forward

        def forward(module, ids):
            if ids.numel() > 0 and not bool(((ids >= 0) & (ids < rows)).all()):
                raise IndexError(f"index out of range in self: an embedding of {rows} rows was called with ids from {ids.min()} to {ids.max()}")
            local = ids - begin
            elsewhere = (local < 0) | (local >= own)
            found = former(local.masked_fill(elsewhere, 0))
            return to_torch(capi.accel_parallel_reduce(self.group, from_torch(found.masked_fill(elsewhere.unsqueeze(-1), 0))))

        layer.module.forward = types.MethodType(forward, layer.module)


class RegionInput:
    """A tensor that several layers of one parent read enters the region once, so that its gradient is summed once."""

    def __init__(self, group):
        self.group = group
        self.input = self.entered = lambda: None

    def enter(self, tensor):
        if not tensor.requires_grad:
            return tensor
        entered = self.entered() if self.input() is tensor else None
        if entered is None:
            entered = to_torch(capi.accel_parallel_copy(self.group, from_torch(tensor)))
            self.input, self.entered = weakref.ref(tensor), weakref.ref(entered)
        return entered
