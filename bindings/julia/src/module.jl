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

(model::Model)(inputs...) = result() do out
    lend_all(values -> LibAccel.accel_module_call(model, values, length(values), out), inputs)
end

"""    add_hook!(model) do self, outputs... end

Runs after the forward, or before it with `when = :before`. What it returns, a value or a tuple, replaces the outputs (or inputs);
`nothing` keeps them. The result is for `remove_hook!`."""
function add_hook!(hook::Function, model::Model; when::Symbol = :after)
    when in (:before, :after) || refuse("when = :", when, "; expected :before or :after")
    place = when == :before ? LibAccel.ACCEL_HOOK_FORWARD_PRE : LibAccel.ACCEL_HOOK_FORWARD
    return output(out -> LibAccel.accel_module_add_hook(model, place, hook_callback(), keep(hook, model), destroy(), out), Int64)
end

"""    to!(model, Float64), to!(model, "cuda:0"): moves parameters and buffers in place"""
to!(model::Model, dtype::Type, place = CPU) = (LibAccel.accel_module_to(model, dtype_code(dtype), as_device(place)); model)
to!(model::Model, place::Union{Device,AbstractString}) = (LibAccel.accel_module_to(model, LibAccel.ACCEL_UNSET, as_device(place)); model)

describe(io::IO, model::Model) = print(io, kind(model), "(", num_parameters(model), " parameters)")
function Base.show(io::IO, ::MIME"text/plain", model::Model)
    show(io, model)
    isopen(model) || return nothing
    for (path, kind) in modules(model)
        path == "" && continue
        print(io, "\n", "  "^(count(==('.'), path) + 1), last(split(path, '.')), ": ", kind)
    end
end
