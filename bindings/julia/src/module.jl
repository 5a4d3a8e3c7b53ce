# Nodes of a model: layers, models from configurations, and modules whose forward is Julia's.

@doc """
    Model(kind; parameters...) do self, inputs... end

A module whose forward is a Julia function; `kind` is the name of its class. Its parameters are named tensors, which are trained. Ask for
them by name each time: `self["weight"]`. A model is called as a function: `model(x)`.
""" Model

function Model(kind::AbstractString; parameters...)
    model = made(Model, out -> LibAccel.accel_module_create(kind, out))
    for (name, tensor) in pairs(values(parameters))
        add_parameter!(model, name, tensor)
    end
    return model
end
Model(forward::Function, kind::AbstractString; parameters...) = set_forward!(forward, Model(kind; parameters...))

"""weight [out_features, in_features]."""
Linear(in_features, out_features; bias = true) = made(Model, out -> LibAccel.accel_module_linear(in_features, out_features, bias, out))
"""weight [num_embeddings, embedding_dim]; numbers count from 0."""
Embedding(num_embeddings, embedding_dim) = made(Model, out -> LibAccel.accel_module_embedding(num_embeddings, embedding_dim, out))
"""Layer normalization over the last dimension."""
LayerNorm(size; eps = LibAccel.ACCEL_UNSET_DOUBLE) = made(Model, out -> LibAccel.accel_module_layer_norm(size, eps, out))
"""Normalization by the root mean square over the last dimension."""
RMSNorm(size; eps = LibAccel.ACCEL_UNSET_DOUBLE) = made(Model, out -> LibAccel.accel_module_rms_norm(size, eps, out))
"""Zeroes elements at random while training, and scales the others up."""
Dropout(probability) = made(Model, out -> LibAccel.accel_module_dropout(probability, out))
"""    Activation("relu"): also "gelu", "gelu_new", "silu", "tanh", "sigmoid"."""
Activation(name) = made(Model, out -> LibAccel.accel_module_activation(string(name), out))
"""Self-attention of [batch, length, embed_dim]."""
Attention(embed_dim, num_heads; causal = false, bias = true, dropout = 0.0) =
    made(Model, out -> LibAccel.accel_module_attention(embed_dim, num_heads, causal, bias, dropout, out))
"""As torch.nn.Conv2d, the same in both directions."""
Conv2d(in_channels, out_channels, kernel; stride = 1, padding = 0, groups = 1, bias = true) =
    made(Model, out -> LibAccel.accel_module_conv2d(in_channels, out_channels, kernel, stride, padding, groups, bias, out))
"""Of [batch, features, ...], with running statistics."""
BatchNorm(num_features; eps = LibAccel.ACCEL_UNSET_DOUBLE, momentum = LibAccel.ACCEL_UNSET_DOUBLE) =
    made(Model, out -> LibAccel.accel_module_batch_norm(num_features, eps, momentum, out))
"""Modules one after the other, as children "0", "1", ..."""
function Sequential(modules::Model...)
    listed = handles(modules)
    return GC.@preserve modules made(Model, out -> LibAccel.accel_module_sequential(listed, length(listed), out))
end
"""    from_config(path_or_json)

A model from the configuration of a Hugging Face model, with fresh weights."""
from_config(config::AbstractString) = made(Model, out -> LibAccel.accel_module_from_config(config, out))
"""A model that Python saved with torch.jit."""
load_torchscript(path::AbstractString) = made(Model, out -> LibAccel.accel_module_load_torchscript(path, out))

(model::Model)(inputs...) = result() do out
    lend_all(values -> LibAccel.accel_module_call(model, values, length(values), out), inputs)
end

"""    set_forward!(model) do self, inputs... end"""
function set_forward!(forward::Function, model::Model)
    LibAccel.accel_module_set_forward(model, forward_callback(), keep(forward, model), destroy())
    return model
end
"""    add_hook!(model) do self, outputs... end

Runs after the forward, or before it with `when = :before`. What it returns, a value or a tuple, replaces the outputs (or inputs);
`nothing` keeps them. The result is for `remove_hook!`."""
function add_hook!(hook::Function, model::Model; when::Symbol = :after)
    when in (:before, :after) || refuse("when = :", when, "; expected :before or :after")
    place = when == :before ? LibAccel.ACCEL_HOOK_FORWARD_PRE : LibAccel.ACCEL_HOOK_FORWARD
    return output(out -> LibAccel.accel_module_add_hook(model, place, hook_callback(), keep(hook, model), destroy(), out), Int64)
end
"""    remove_hook!(model, id): takes away what `add_hook!` added"""
remove_hook!(model::Model, id) = (LibAccel.accel_module_remove_hook(model, id); model)
"""    no_grad!(model, no_grad = true): the forward, and what it calls, records no gradients"""
no_grad!(model::Model, no_grad::Bool = true) = (LibAccel.accel_module_set_no_grad(model, no_grad); model)
"""    add_parameter!(model, name, tensor; requires_grad = true)"""
add_parameter!(model::Model, name, tensor::Tensor; requires_grad = true) =
    (LibAccel.accel_module_add_parameter(model, string(name), tensor, requires_grad); model)
"""    add_buffer!(model, name, tensor; persistent = true): state that is not trained"""
add_buffer!(model::Model, name, tensor::Tensor; persistent = true) =
    (LibAccel.accel_module_add_buffer(model, string(name), tensor, persistent); model)
"""    add_child!(model, name, child)"""
add_child!(model::Model, name, child::Model) = (LibAccel.accel_module_add_child(model, string(name), child); model)
"""Makes two names share one parameter."""
tie!(model::Model, path, source_path) = (LibAccel.accel_module_tie(model, path, source_path); model)

"""    model["layers.0.weight"]: a parameter or buffer by its path."""
Base.getindex(model::Model, path::AbstractString) = made(Tensor, out -> LibAccel.accel_module_tensor(model, path, out))
"""    child(model, "layers.0"): a module by its path."""
child(model::Model, path::AbstractString) = made(Model, out -> LibAccel.accel_module_child(model, path, out))
"""The name of a module's class."""
kind(model::Model) = unsafe_string(LibAccel.accel_module_kind(model))
"""All parameters by their paths, each once."""
parameters(model::Model) = result(out -> LibAccel.accel_module_named_parameters(model, out))::Map
"""All buffers by their paths."""
buffers(model::Model) = result(out -> LibAccel.accel_module_named_buffers(model, out))::Map
"""The kinds of all modules by their paths, itself first."""
modules(model::Model) = result(out -> LibAccel.accel_module_named_modules(model, out))::Map
"""The same, children before their parents and itself last."""
children_bottom_up(model::Model) = result(out -> LibAccel.accel_module_children_bottom_up(model, out))::Map
"""Elements of all parameters, each parameter once."""
num_parameters(model::Model) = output(out -> LibAccel.accel_module_num_parameters(model, out), Int64)
"""Where training stands: of a model, optimizer, scheduler or loader. Tensors share memory with it."""
state_dict(model::Model) = result(out -> LibAccel.accel_module_state_dict(model, out))::Map
load_state_dict!(model::Model, state; strict = true) =
    (lend(value -> LibAccel.accel_module_load_state_dict(model, value, strict), state); model)
"""    to!(model, Float64), to!(model, "cuda:0"): moves parameters and buffers in place"""
to!(model::Model, dtype::Type, place = CPU) = (LibAccel.accel_module_to(model, dtype_code(dtype), as_device(place)); model)
to!(model::Model, place::Union{Device,AbstractString}) = (LibAccel.accel_module_to(model, LibAccel.ACCEL_UNSET, as_device(place)); model)
"""    train!(model), train!(model, false)

Dropout and batch statistics are active in training."""
train!(model::Model, training::Bool = true) = (LibAccel.accel_module_train(model, training); model)
"""Whether a module is trained, or evaluated."""
istraining(model::Model) = output(out -> LibAccel.accel_module_is_training(model, out), Int32) != 0

describe(io::IO, model::Model) = print(io, kind(model), "(", num_parameters(model), " parameters)")
function Base.show(io::IO, ::MIME"text/plain", model::Model)
    show(io, model)
    isopen(model) || return nothing
    for (path, kind) in modules(model)
        path == "" && continue
        print(io, "\n", "  "^(count(==('.'), path) + 1), last(split(path, '.')), ": ", kind)
    end
end
