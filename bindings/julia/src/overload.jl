# SPDX-License-Identifier: Apache-2.0
# `aten.add(a, b; alpha = 2)`: the engine finds the overload that is for the arguments.

# What was found is read without a lock: tables are never changed, but replaced by longer ones.

"""One name with all its overloads, those that were chosen so far."""
mutable struct Operator
    name::String
    chosen::IdDict{Any,Op} # by C's pointer, and by the type of arguments that alone decides
    lock::Threads.SpinLock
end

"""The operators of a namespace by their names: `aten.matmul(a, b)`."""
mutable struct Operators
    namespace::String
    found::Dict{Symbol,Operator}
    lock::Threads.SpinLock
end
Operators(namespace) = Operators(namespace, Dict{Symbol,Operator}(), Threads.SpinLock())

"""Puts a longer table in the place of one."""
function remember(table, field, key, value)
    guard = getfield(table, :lock)
    lock(guard)
    try
        longer = copy(getfield(table, field))
        longer[key] = value
        setfield!(table, field, longer)
    finally
        unlock(guard)
    end
    return value
end

"""
    aten.NAME(arguments...; names...)

The operators of LibTorch. `aten.NAME` lists its schemas.
"""
const aten = Operators("aten")

function Base.getproperty(operators::Operators, name::Symbol)
    operator = get(getfield(operators, :found), name, nothing)
    return operator === nothing ? find_operator(operators, name) : operator
end
@noinline find_operator(operators::Operators, name::Symbol) =
    remember(operators, :found, name, find_operator(string(getfield(operators, :namespace), "::", name)))
function Base.propertynames(operators::Operators, private::Bool = false)
    names = result(out -> LibAccel.accel_op_list(getfield(operators, :namespace) * "::", out))
    return unique(Symbol(first(split(split(name, "::")[2], '.'))) for name in names)
end
Base.show(io::IO, operators::Operators) = print(io, "Operators(\"", getfield(operators, :namespace), "\")")
Base.show(io::IO, operator::Operator) = print(io, join((schema(Op(full)) for full in overloads(operator.name)), "\n"))

"""The full names of an operator's overloads."""
overloads(name) = [full for full in result(out -> LibAccel.accel_op_list(name, out)) if first(split_name(full)) == name]

function find_operator(name)
    isempty(overloads(name)) && Op(name) # the library's error names what is near
    return Operator(name, IdDict{Any,Op}(), Threads.SpinLock())
end

function choose(operator::Operator, args, kwargs)
    op = Ref{Ptr{LibAccel.accel_op_t}}(C_NULL)
    try
        lend_all(args) do positional
            lend_all(Tuple(values(kwargs))) do named
                LibAccel.accel_op_resolve(operator.name, positional, length(positional), [String(name) for name in keys(kwargs)],
                    named, length(named), op)
            end
        end
    catch problem
        problem isa AccelError && problem.status == LibAccel.ACCEL_ERROR_TYPE_MISMATCH && refuse(problem.message)
        rethrow()
    end
    known = get(operator.chosen, op[], nothing)
    return known === nothing ? remember(operator, :chosen, op[], Op(op[])) : known
end

# A text may be the name of a dtype or of a device, and a list has items of some type.
const DecidedByType = Union{Nothing,Bool,Integer,AbstractFloat,Tensor,Device,DataType}

function (operator::Operator)(args...; kwargs...)
    isempty(kwargs) || return call_named(choose(operator, args, values(kwargs)), args, values(kwargs))
    args isa Tuple{Vararg{DecidedByType}} || return call(choose(operator, args, NamedTuple()), args)
    op = get(operator.chosen, typeof(args), nothing)
    return call(op === nothing ? remember(operator, :chosen, typeof(args), choose(operator, args, NamedTuple())) : op, args)
end
