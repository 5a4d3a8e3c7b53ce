# SPDX-License-Identifier: Apache-2.0
# Nodes of a model: layers, models from configurations, and modules whose forward is Julia's.

@doc """
    Model(kind; parameters...) do self, inputs... end

A module whose forward is a Julia function; `kind` is the name of its class. Its parameters are named tensors, which are trained. Ask for
them by name each time: `self["weight"]`. A model is called as a function: `model(x)`, or `model(input = x)` where its inputs have
names (`input_names!`).
""" Model

function Model(kind::AbstractString; parameters...)
    model = made(Model, out -> LibAccel.accel_module_create(kind, out))
    for (name, tensor) in pairs(values(parameters))
        add_parameter!(model, name, tensor)
    end
    return model
end
Model(forward::Function, kind::AbstractString; parameters...) = set_forward!(forward, Model(kind; parameters...))

function (model::Model)(inputs...; named...)
    isempty(named) && return result(out -> lend_all(values -> LibAccel.accel_module_call(model, values, length(values), out), inputs))
    by_name = Map(string(name) => value for (name, value) in pairs(named))
    return result() do out
        lend_all(inputs) do values
            lend(map -> LibAccel.accel_module_call_kw(model, values, length(values), map, out), by_name)
        end
    end
end

const HOOK_PLACES = (before = LibAccel.ACCEL_HOOK_FORWARD_PRE, after = LibAccel.ACCEL_HOOK_FORWARD,
    before_backward = LibAccel.ACCEL_HOOK_BACKWARD_PRE, after_backward = LibAccel.ACCEL_HOOK_BACKWARD)

"""    add_hook!(model) do self, outputs... end

Runs after the forward, or with `when = :before` before it, with `:before_backward` on the gradients of the output, with
`:after_backward` on those of the inputs. What it returns, a value or a tuple, replaces what it was given; `nothing` keeps that. The
result is for `remove_hook!`."""
function add_hook!(hook::Function, model::Model; when::Symbol = :after)
    place = number_of(HOOK_PLACES, when)
    return output(out -> LibAccel.accel_module_add_hook(model, place, hook_callback(), keep(hook, model), destroy(), out), Int64)
end

with_names(call, names) = (texts = map(string, names); GC.@preserve texts call(pointer.(texts), length(texts)))

"""    activate_adapters!(model, names...)

These adapters act, one after the other, and are trained; without names the model is as it was without them."""
activate_adapters!(model::Model, names...) =
    (with_names((pointers, count) -> LibAccel.accel_module_activate_adapters(model, pointers, count), collect(names)); model)

"""    use_adapters(names...) do ... end

In the calls inside, these adapters act in place of the active ones."""
use_adapters(body::Function, names...) =
    scoped(body, out -> with_names((pointers, count) -> LibAccel.accel_use_adapters_begin(pointers, count, out), collect(names)))

"""    to!(model, Float64), to!(model, "cuda:0"): moves parameters and buffers in place"""
to!(model::Model, dtype::Type, place = CPU) = (LibAccel.accel_module_to(model, dtype_code(dtype), Ref(as_device(place))); model)
to!(model::Model, place::Union{Device,AbstractString}) = (LibAccel.accel_module_to(model, LibAccel.ACCEL_UNSET, Ref(as_device(place))); model)

describe(io::IO, model::Model) = print(io, kind(model), "(", num_parameters(model), " parameters)")
function Base.show(io::IO, ::MIME"text/plain", model::Model)
    show(io, model)
    isopen(model) || return nothing
    for (path, kind) in modules(model)
        path == "" && continue
        print(io, "\n", "  "^(count(==('.'), path) + 1), last(split(path, '.')), ": ", kind)
    end
end

"""Tokens as `generate(f, model, input_ids)`, all of which come at the end."""
generate(model::Model, input_ids::Tensor; options...) = generate(nothing, model, input_ids; options...)
