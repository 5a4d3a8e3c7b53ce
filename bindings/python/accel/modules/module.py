# SPDX-License-Identifier: Apache-2.0
"""Models: subclasses of Module with a forward in Python, which the engine prepares, saves and runs as its own layers."""

import functools
import inspect
import weakref

from .. import capi
from ..engine import calls
from ..engine.values import to_engine
from ..generated import methods
from ..state.job import current
from ..state.options import fill
from ..tensors import dtypes, ops
from ..tensors.device import Device, names_device
from . import copies
from .generation_batch import generate_options
from .quantization import quantization_options


_LORA_LISTS = ("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "modules_to_save")


class Parameter:
    """Marks a tensor as trained: `self.weight = Parameter(accel.randn(3, 4))`. The attribute is then the tensor."""

    def __init__(self, data, requires_grad=True):
        self.data, self.requires_grad = to_engine(data), requires_grad


class Parameters:
    """The parameters of a module; optimizers and clipping also ask which module it is."""

    def __init__(self, module):
        self.module = module

    def __iter__(self):
        return iter(capi.accel_module_named_parameters(self.module.handle).values())

    def __len__(self):
        return len(capi.accel_module_named_parameters(self.module.handle))


class Module(methods.Module):
    """A model or a part of one. Subclasses call `super().__init__()`, set parameters and modules as attributes, and have
    `forward()`, which gets and gives tensors, numbers, texts, lists and dicts."""

    def __init__(self):
        self._adopt(capi.accel_module_create(type(self).__name__))
        self.__dict__["_is_of_python"] = True
        if type(self).forward is not Module.forward:
            owner = weakref.ref(self)  # the engine holds the callback: no circle
            capi.accel_module_set_forward(self.handle, lambda _, inputs: calls.run(owner().forward, inputs))

    def __new__(cls, *args, **kwargs):
        made = super().__new__(cls)
        made.__dict__.update(_make=cls, _arguments=(args, kwargs), _is_of_python=False)  # for copies
        return made

    _is_made_of_parts = False  # whether its class makes the same module again of the modules in it

    @classmethod
    def _of_tensors(cls, attributes, tensors):
        """A module of Python without its __init__(): what copies of one begin with."""
        made = cls.__new__(cls)
        Module.__init__(made)
        made.__dict__.update(attributes)
        for name, kind, tensor, persistent in tensors:
            if kind == "parameter":
                made.register_parameter(name, Parameter(tensor, tensor.dtype.is_floating_point))
            else:
                made.register_buffer(name, tensor, persistent)
        return made

    def _adopt(self, handle):
        self.__dict__.update(handle=handle, _modules={}, _tensors={}, _hooks=[])
        return self

    @classmethod
    def of_handle(cls, handle):
        """The module that the engine made."""
        made = cls.__new__(cls)._adopt(handle)
        made.__dict__["_make"] = None
        return made

    def forward(self, *inputs):
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *inputs, **named):
        """Arguments and results are those of forward(); models of from_config() have names of inputs, too. Tensors in them pass through the engine; objects that it does not know, and
        dataclasses, come out as they are, the latter with their tensors."""
        if named and type(self).forward is Module.forward and type(self)._bind is Module._bind:
            return capi.accel_module_call_kw(self.handle, to_engine(list(inputs)), to_engine(named))
        if named:
            inputs, named = self._bind(inputs, named)
        return calls.call(self.handle, inputs, named)

    def _bind(self, inputs, named):
        bound = inspect.signature(self.forward).bind(*inputs, **named)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    # Attributes

    def __setattr__(self, name, value):
        if isinstance(value, (Parameter, Module)) and "handle" not in self.__dict__:
            raise AttributeError(f"call super().__init__() in {type(self).__name__}.__init__() before setting {name}")
        if isinstance(value, Parameter):
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self.add_module(name, value)
        elif self._kind_of(name) is not None:
            self._replace(name, value)
        else:
            object.__setattr__(self, name, value)

    def _replace(self, name, value):
        """Another value for the name of a parameter, buffer or module: None takes it away, a tensor becomes the buffer's, and the
        parameter of another module is shared with it."""
        kind = self._kind_of(name)
        is_tensor = isinstance(value, capi.accel_tensor)
        if value is None:
            delattr(self, name)
            object.__setattr__(self, name, None)
        elif is_tensor and (kind == "buffer" or kind == "parameter" and value.requires_grad and value.is_leaf):
            capi.accel_module_replace_tensor(self.handle, name, value)
            object.__setattr__(self, name, value)
        else:
            raise TypeError(f"{name} is a {kind} of {type(self).__name__} and cannot become a {type(value).__name__}; expected "
                            f"{'a Module' if kind == 'module' else 'a Parameter' if kind == 'parameter' else 'a tensor'} or None")

    def __delattr__(self, name):
        if self._kind_of(name) is not None:
            capi.accel_module_remove(self.handle, name)
            self._modules.pop(name, None)
            self._tensors.pop(name, None)
        object.__delattr__(self, name)

    def _kind_of(self, name):
        """Whether a name is that of a "module", a "parameter" or a "buffer" of this module; None for anything else."""
        if "handle" not in self.__dict__:
            return None
        if self._is_of_python:
            return "module" if name in self._modules else self._tensors.get(name)
        return ("module" if name in capi.accel_module_named_modules(self.handle) else
                "buffer" if name in capi.accel_module_named_buffers(self.handle) else
                "parameter" if name in capi.accel_module_named_parameters(self.handle) else None)

    def __getattr__(self, name):  # of what the engine made
        handle = self.__dict__.get("handle")
        if handle is not None and not name.startswith("_"):
            for find in (capi.accel_module_tensor, capi.accel_module_child):
                try:
                    found = find(handle, name)
                    return Module.of_handle(found) if find is capi.accel_module_child else found
                except capi.Error as error:
                    if error.status != capi.ACCEL_ERROR_NOT_FOUND:
                        raise
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def register_parameter(self, name, parameter):
        if self._make_room(name, "parameter"):
            tensor = parameter.data.detach()
            tensor.requires_grad = parameter.requires_grad
            capi.accel_module_replace_tensor(self.handle, name, tensor)
        else:
            capi.accel_module_add_parameter(self.handle, name, parameter.data, int(parameter.requires_grad))
        self._tensors[name] = "parameter"
        object.__setattr__(self, name, capi.accel_module_tensor(self.handle, name))

    def register_buffer(self, name, tensor, persistent=True):
        """State that is not trained."""
        if self._make_room(name, "buffer"):
            delattr(self, name)  # it may be persistent or not
        capi.accel_module_add_buffer(self.handle, name, to_engine(tensor), int(persistent))
        self._tensors[name] = "buffer"
        object.__setattr__(self, name, capi.accel_module_tensor(self.handle, name))

    def add_module(self, name, module):
        put = capi.accel_module_replace_child if self._make_room(name, "module") else capi.accel_module_add_child
        put(self.handle, name, module.handle)
        self._modules[name] = module
        object.__setattr__(self, name, module)

    def _make_room(self, name, kind):
        """Takes away what has the name, unless it is of the same kind: that is exchanged, and keeps its place. Whether it is there."""
        former = self._kind_of(name)
        if former not in (None, kind):
            delattr(self, name)
        return former == kind

    def get_submodule(self, path):
        module = self
        for name in path.split(".") if path else ():
            module = module._modules[name] if name in module._modules else getattr(module, name)
        return module

    # What is in it

    def parameters(self):
        return Parameters(self)

    def named_parameters(self, prefix="", recurse=True):
        return self._named(capi.accel_module_named_parameters, prefix, recurse)

    def buffers(self):
        return iter(capi.accel_module_named_buffers(self.handle).values())

    def named_buffers(self, prefix="", recurse=True):
        return self._named(capi.accel_module_named_buffers, prefix, recurse)

    def _named(self, of_engine, prefix, recurse):
        """Pairs of path and tensor; without `recurse` those of this module alone."""
        before = f"{prefix}." if prefix else ""
        return ((before + name, tensor) for name, tensor in of_engine(self.handle).items() if recurse or "." not in name)

    def children(self):
        return iter(self._modules.values())

    def named_children(self):
        return iter(self._modules.items())

    def named_modules(self):
        """Paths and modules, itself first."""
        return ((path, self.get_submodule(path)) for path in capi.accel_module_named_modules(self.handle))

    def modules(self):
        return (module for _, module in self.named_modules())

    def load_state_dict(self, state_dict, strict=True):
        capi.accel_module_load_state_dict(self.handle, to_engine(state_dict), int(strict))

    # How it works

    def train(self, mode=True):
        capi.accel_module_train(self.handle, int(mode))
        return self

    def eval(self):
        return self.train(False)

    def quantize(self, kind="int8", **options):
        """Exchanges the weights of linear layers for codes of 4 or 8 bits, one after the other, and returns the names of the layers; adapters can be trained
        on them. Options are the fields of accel_quantization_options_t: `model.quantize("nf4", has_double_quantization=True, skip_modules=["lm_head"])`."""
        names = capi.accel_module_quantize(self.handle, quantization_options({"kind": kind, **options}))
        self.__dict__["_quantization"] = {"kind": kind, **options}  # for copies
        return names

    def add_adapter(self, name, **options):
        """Adds an adapter, LoRA or DoRA, to linear layers, and makes it the only active one; nothing else is trained from then on. Options are the
        fields of accel_lora_options_t: `model.add_adapter("fr", rank=16, target_modules=["q_proj", "v_proj"])`. accel.use_adapters() chooses for calls,
        Accelerator.save_adapter() writes."""
        for field in _LORA_LISTS:
            if isinstance(options.get(field), (set, frozenset, tuple)):
                options[field] = list(options[field])
        capi.accel_module_add_adapter(self.handle, name, fill(capi.accel_lora_options_t(), options))

    def activate_adapters(self, *names):
        """These adapters act, one after the other, and are trained; without names the model is as it was without them."""
        capi.accel_module_activate_adapters(self.handle, list(names))

    def generate(self, input_ids, attention_mask=None, on_tokens=None, **options):
        """Lets a decoder add tokens to sequences: a dict with "tokens" [batch, length + new] and the "log_probabilities" of the new ones. `on_tokens` gets
        the new tokens [batch] as soon as they are known, and ends all sequences with False. Options are the fields of accel_generate_options_t."""
        mask = None if attention_mask is None else to_engine(attention_mask)
        return capi.accel_module_generate(self.handle, to_engine(input_ids), mask, generate_options(options), on_tokens)

    def to(self, *goals):
        """`to("cuda")`, `to(accel.bfloat16)`: moves parameters and buffers in place."""
        for goal in goals:
            is_device = names_device(goal)
            dtype = capi.ACCEL_UNSET if is_device else dtypes.dtype(goal).number
            device = Device(goal) if is_device else next((tensor.device for tensor in self.parameters()), Device("cpu"))
            capi.accel_module_to(self.handle, dtype, device)
        return self

    def cuda(self):
        return self.to("cuda")

    def cpu(self):
        return self.to("cpu")

    def requires_grad_(self, requires_grad=True):
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none=True):
        """Drops the gradients, or fills them with zeros: then momentum and weight decay still change the parameters."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                ops.zero_(parameter.grad)

    def apply(self, function):
        """Calls a function with each module, children first."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def register_forward_pre_hook(self, hook, *, with_kwargs=False):
        """hook(module, inputs) before forward; what it returns replaces the inputs. With `with_kwargs` hook(module, inputs, kwargs), which
        returns both. The result has remove()."""
        return self._add_hook(capi.ACCEL_HOOK_FORWARD_PRE, hook, with_kwargs)

    def register_forward_hook(self, hook):
        """hook(module, output) after forward; what it returns replaces the output. The result has remove()."""
        return self._add_hook(capi.ACCEL_HOOK_FORWARD, hook)

    def register_full_backward_pre_hook(self, hook):
        """hook(module, gradients) ahead of the backward of a call, with those of the outputs; what it returns replaces them."""
        return self._add_hook(capi.ACCEL_HOOK_BACKWARD_PRE, hook)

    def register_full_backward_hook(self, hook):
        """hook(module, gradients) behind the backward of a call, with those of the inputs, None where there is none; what it returns
        replaces them. torch's hook gets those of the outputs too: register_full_backward_pre_hook() has them."""
        return self._add_hook(capi.ACCEL_HOOK_BACKWARD, hook)

    def _add_hook(self, when, hook, with_kwargs=False):
        self._hooks.append(ModuleHook(self, when, hook, with_kwargs))
        return self._hooks[-1]

    def __reduce__(self):
        return copies.of_module(self)

    def extra_repr(self):
        return ""

    def __repr__(self):
        kind = type(self).__name__ if type(self) is not Module else capi.accel_module_kind(self.handle)
        lines = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else self.extra_repr()
        return f"{kind}({inside})"


class ModuleHook:
    """A hook of a module."""

    def __init__(self, module, when, function, with_kwargs):
        self._module, self.when, self.function, self.with_kwargs = weakref.ref(module), when, function, with_kwargs
        before = calls.run_pre_hook_with_kwargs if with_kwargs else calls.run_pre_hook
        run = calls.run_hook if when == capi.ACCEL_HOOK_FORWARD else before
        hook = weakref.ref(self)  # the module keeps it, so that a circle through the function can be collected
        self._id = capi.accel_module_add_hook(module.handle, when, lambda _, values: run(hook().function, hook()._module(), values))

    def remove(self):
        """Takes the hook away; a second time nothing happens."""
        module = self._module()
        if module is not None and self in module._hooks:
            module._hooks.remove(self)
            capi.accel_module_remove_hook(module.handle, self._id)


class PreparedModule(Module):
    """A model that Accelerator.prepare() returns: on the device, under the precision, and the same on all ranks. Attributes, and the
    names of parameters and modules, are those of the model inside, `module`."""

    def __init__(self, handle, module):
        self._adopt(handle)
        object.__setattr__(self, "module", module)

    inputs_are_split = False  # whether each call gets this rank's part of sequences

    def register_comm_hook(self, hook):
        """hook(gradients, bucket, is_last) in place of the exchange of gradients: turns a flat bucket, in place, into what the
        optimizer shall see, usually the mean over the ranks. Not called with one process."""
        capi.accel_register_comm_hook(current(), self.handle, lambda gradients, bucket, is_last: hook(gradients, bucket, bool(is_last)))

    @property
    def forward(self):
        return self.module.forward

    def __getattr__(self, name):
        if name in ("module", "handle"):
            raise AttributeError(name)
        return getattr(self.module, name)

    def __reduce__(self):
        """A copy is that of the model inside: it belongs to no job. It runs without the precision of the job."""
        return copies.of_module(self.module)

    def __repr__(self):
        return f"Prepared({self.module!r})"


def _of_the_model_inside(name):
    method = getattr(Module, name)
    return functools.wraps(method)(lambda self, *args, **kwargs: getattr(self.module, name)(*args, **kwargs))


for _name in ("children", "get_submodule", "load_state_dict", "named_buffers", "named_children", "named_modules", "named_parameters",
              "state_dict"):
    setattr(PreparedModule, _name, _of_the_model_inside(_name))


class Layer(Module):
    """A layer whose forward is the engine's."""

    def __init__(self, handle, **shown):
        self._adopt(handle)
        object.__setattr__(self, "_shown", shown)

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in self._shown.items())


def last_of(shape):
    """The last dimension of a shape, which may be that alone."""
    return shape[-1] if isinstance(shape, (list, tuple)) else shape
