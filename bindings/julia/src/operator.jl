# SPDX-License-Identifier: Apache-2.0
# Every operator of LibTorch: `aten.softmax(x, 1)`, or an `Op` that is found once.

"""
    Op("aten::add.Tensor")

An operator of LibTorch with its overload; calling it is a call of C. Arguments are in the order of its schema, or named; missing ones
take their defaults. One result is returned as it is, several as a tuple. Dimensions and indices count from 0, as the schema means them.
"""
mutable struct Op # mutable: handed about without a copy
    pointer::Ptr{LibAccel.accel_op_t}
    n_results::Int
end

function Op(full_name::AbstractString)
    name, overload = split_name(full_name)
    pointer = output(out -> LibAccel.accel_op_find(name, overload, out), Ptr{LibAccel.accel_op_t})
    return Op(pointer)
end
Op(pointer::Ptr{LibAccel.accel_op_t}) = Op(pointer, count_results(unsafe_string(LibAccel.accel_op_schema(pointer))))
function split_name(full_name)
    dot = findnext('.', full_name, something(findfirst("::", full_name), 0:0)[end] + 1)
    return dot === nothing ? (String(full_name), "") : (full_name[1:dot-1], full_name[dot+1:end])
end
function count_results(schema)
    returned = last(split(schema, " -> "))
    returned == "()" && return 0
    return startswith(returned, "(") ? count(==(','), returned) + 1 : 1
end

"""The schema of an operator, "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"."""
schema(op::Op) = unsafe_string(LibAccel.accel_op_schema(op.pointer))
Base.show(io::IO, op::Op) = op.pointer == C_NULL ? print(io, "Op()") : print(io, "Op(", schema(op), ")")

(op::Op)(args...; kwargs...) = isempty(kwargs) ? call(op, args) : call_named(op, args, kwargs)

# Plain arguments are lent in one object, without a list.
mutable struct Arguments{N}
    values::NTuple{N,CValue}
end
Base.unsafe_convert(::Type{Ptr{CValue}}, arguments::Arguments) = Ptr{CValue}(pointer_from_objref(arguments))

# One result and plain arguments are what training does all the time: nothing but the result is allocated.
function call(op::Op, args::NTuple{N,Plain}) where {N}
    op.n_results == 1 || return call_many(op, args)
    arguments, out, n_results = Arguments(map(plain, args)), Ref(NONE), Ref{Csize_t}(0)
    GC.@preserve args LibAccel.accel_op_call(op.pointer, arguments, N, out, 1, n_results)
    return taken(out[])
end
call(op::Op, args::Tuple) = call_many(op, args)

call_many(op::Op, args) = lend_all(args) do values
    n_results, results = Ref{Csize_t}(0), fill(NONE, max(op.n_results, 1))
    LibAccel.accel_op_call(op.pointer, values, length(values), results, length(results), n_results)
    returned(op, results, n_results[])
end
returned(op::Op, results, count) = op.n_results == 1 ? taken(results[1]) : Tuple(taken(results[i]) for i in 1:count)

function call_named(op::Op, args, kwargs)
    names = [String(name) for name in keys(kwargs)]
    n_results = Ref{Csize_t}(0)
    results = fill(NONE, max(op.n_results, 1))
    lend_all(args) do positional
        lend_all(Tuple(values(kwargs))) do named
            LibAccel.accel_op_call_kw(op.pointer, positional, length(positional), names, named, length(named), results, length(results), n_results)
        end
    end
    return returned(op, results, n_results[])
end
