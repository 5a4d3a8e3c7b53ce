# `aten.add(a, b; alpha = 2)`: the overload follows from the arguments and from the schemas that LibTorch gives.

struct Parameter
    name::String
    type::String
    has_default::Bool
    named_only::Bool
end

struct Overload
    op::Op
    parameters::Vector{Parameter}
end

# What was found is read without a lock: tables are never changed, but replaced by longer ones.

"""All overloads of one name. The choice is made once for each combination of types of arguments."""
mutable struct Operator
    name::String
    overloads::Vector{Overload}
    chosen::IdDict{Any,Op} # by the type of the arguments
    chosen_named::Dict{Any,Op} # by the types of the arguments, of lists by those of their items
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
Base.show(io::IO, operator::Operator) = print(io, join((schema(overload.op) for overload in operator.overloads), "\n"))

function find_operator(name)
    listed = result(out -> LibAccel.accel_op_list(name, out))
    ops = [Op(full) for full in listed if first(split_name(full)) == name]
    isempty(ops) && Op(name) # the library's error names what is near
    return Operator(name, [Overload(op, parse_parameters(schema(op))) for op in ops], IdDict{Any,Op}(), Dict{Any,Op}(), Threads.SpinLock())
end

function parse_parameters(schema)
    listed = schema[findfirst('(', schema)+1:prevind(schema, findlast(") ->", schema)[1])]
    parameters, named_only = Parameter[], false
    for part in split_outside_brackets(listed)
        part == "*" && (named_only = true; continue)
        declared = split(part, '='; limit = 2)
        words = split(declared[1], ' ')
        push!(parameters, Parameter(words[end], replace(join(words[1:end-1]), r"\([^)]*\)" => ""), length(declared) == 2, named_only))
    end
    return parameters
end

function split_outside_brackets(listed)
    parts, depth, start = String[], 0, 1
    for (place, letter) in pairs(listed)
        letter in "([" && (depth += 1)
        letter in ")]" && (depth -= 1)
        if letter == ',' && depth == 0
            push!(parts, strip(listed[start:prevind(listed, place)]))
            start = nextind(listed, place)
        end
    end
    rest = strip(listed[start:end])
    isempty(rest) || push!(parts, rest)
    return parts
end

"""How well an argument fits a type of a schema: 0 not at all, 2 exactly, 1 when it is converted."""
function fitness(argument, type)
    optional = endswith(type, '?')
    argument === nothing && return optional || type == "NoneType" ? 2 : 0
    inner = optional ? chop(type) : type
    list = match(r"^(.*)\[\d*\]$", inner)
    if list !== nothing
        argument isa Union{Tuple,AbstractVector} || return argument isa Integer && list[1] in ("int", "SymInt") && !endswith(inner, "[]") ? 1 : 0
        return all(each -> fitness(each, list[1]) > 0, argument) ? 2 : 0
    end
    argument isa Tensor && return inner == "Tensor" ? 2 : 0
    argument isa Bool && return inner == "bool" ? 2 : inner == "Scalar" ? 1 : 0
    argument isa Integer && return inner in ("int", "SymInt", "Scalar") ? 2 : inner == "float" ? 1 : 0
    argument isa AbstractFloat && return inner in ("float", "Scalar") ? 2 : 0
    argument isa Union{AbstractString,Symbol} && return inner == "str" ? 2 : 0
    # Schemas call dtypes, layouts and devices integers.
    argument isa DataType && return inner in ("ScalarType", "int") ? 2 : 0
    argument isa Device && return inner == "Device" ? 2 : 0
    return 0
end

function fitness(overload::Overload, args, kwargs)
    parameters = overload.parameters
    length(args) <= count(parameter -> !parameter.named_only, parameters) || return 0
    total = 1
    for (place, parameter) in enumerate(parameters)
        if place <= length(args)
            fit = fitness(args[place], parameter.type)
        elseif haskey(kwargs, Symbol(parameter.name))
            fit = fitness(kwargs[Symbol(parameter.name)], parameter.type)
        else
            fit = parameter.has_default ? 1 : 0
        end
        fit == 0 && return 0
        place <= length(args) && (total += fit)
    end
    known = Set(Symbol(parameter.name) for parameter in parameters)
    return all(name -> name in known, keys(kwargs)) ? total : 0
end

function choose(operator::Operator, args, kwargs)
    fits = [fitness(overload, args, kwargs) for overload in operator.overloads]
    best = argmax(fits)
    fits[best] == 0 && refuse("no overload of ", operator.name, " takes (", join((typeof(argument) for argument in args), ", "),
        join(("; $name" for name in keys(kwargs)), ""), "); there are\n", operator)
    return operator.overloads[best].op
end

function (operator::Operator)(args...; kwargs...)
    isempty(kwargs) || return call_named(chosen_named(operator, args, values(kwargs)), args, values(kwargs))
    args isa Tuple{Vararg{Plain}} || return call(chosen_named(operator, args, NamedTuple()), args)
    op = get(operator.chosen, typeof(args), nothing)
    return call(op === nothing ? remember(operator, :chosen, typeof(args), choose(operator, args, NamedTuple())) : op, args)
end

function chosen_named(operator, args, kwargs)
    key = (map(kind, args), map(kind, kwargs))
    op = get(operator.chosen_named, key, nothing)
    return op === nothing ? remember(operator, :chosen_named, key, choose(operator, args, kwargs)) : op
end
kind(argument) = typeof(argument)
kind(list::Union{Tuple,AbstractVector}) = map(typeof, Tuple(list))
