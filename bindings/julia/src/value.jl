# SPDX-License-Identifier: Apache-2.0
# Nested values: nothing, truths, numbers, text, bytes, tensors, types, devices; vectors are lists, tuples are tuples, named tuples and
# dictionaries are maps.

const CValue = LibAccel.accel_value_t
const NONE = CValue(LibAccel.ACCEL_VALUE_NONE, 0, 0)

"""    Bytes(data, type = "")

Bytes as a value. `type` says who can read them, "python/pickle" for example."""
struct Bytes
    data::Vector{UInt8}
    type::String
end
Bytes(data) = Bytes(collect(UInt8, data), "")
Base.:(==)(a::Bytes, b::Bytes) = a.data == b.data && a.type == b.type
Base.hash(bytes::Bytes, seed::UInt) = hash(bytes.data, hash(bytes.type, seed))

"""The types that become a value of C without allocating anything. It must live as long as the value is used."""
const Plain = Union{Nothing,Bool,Integer,AbstractFloat,String,Tensor,Device,DataType}

plain(::Nothing) = NONE
plain(x::Bool) = CValue(LibAccel.ACCEL_VALUE_BOOL, 0, x)
plain(x::Integer) = CValue(LibAccel.ACCEL_VALUE_INT, 0, reinterpret(UInt64, Int64(x)))
plain(x::AbstractFloat) = CValue(LibAccel.ACCEL_VALUE_DOUBLE, 0, reinterpret(UInt64, Float64(x)))
plain(x::String) = CValue(LibAccel.ACCEL_VALUE_STRING, 0, reinterpret(UInt64, Base.unsafe_convert(Cstring, x)))
plain(x::Tensor) = CValue(LibAccel.ACCEL_VALUE_TENSOR, 0, UInt64(UInt(raw(x))))
plain(x::Device) = CValue(LibAccel.ACCEL_VALUE_DEVICE, 0,
    UInt64(reinterpret(UInt32, getfield(x, :type))) | UInt64(reinterpret(UInt32, x.index)) << 32)
plain(x::DataType) = CValue(LibAccel.ACCEL_VALUE_DTYPE, 0, UInt64(reinterpret(UInt32, dtype_code(x))))

"""A value that owns what it points to; free it with `dispose`."""
owned(x::Plain) = GC.@preserve x output(out -> LibAccel.accel_value_copy(Ref(plain(x)), out), CValue)
owned(x::AbstractString) = owned(String(x))
owned(x::Symbol) = owned(String(x))
owned(bytes::Base.CodeUnits) = owned(Bytes(bytes))
owned(bytes::Bytes) = GC.@preserve bytes output(CValue) do out
    LibAccel.accel_value_bytes(pointer(bytes.data), length(bytes.data), isempty(bytes.type) ? C_NULL : bytes.type, out)
end
# Collected: some vectors make their items when they are read, and C would be left with the text of one that is gone.
owned(items::Union{Tuple,AbstractVector}) = lend_all(collect(Any, items)) do values
    create = items isa Tuple ? LibAccel.accel_value_tuple : LibAccel.accel_value_list
    output(out -> create(values, length(values), out), CValue)
end
function owned(items::Union{AbstractDict,NamedTuple})
    map = Ref(NONE)
    LibAccel.accel_value_map(map)
    fill_owned!(map) do
        for (name, item) in pairs(items)
            lend(value -> lend(key -> LibAccel.accel_value_put(map, key, value), key_of(name)), item)
        end
    end
end
owned(x) = refuse("a ", typeof(x), " is not a value; expected nothing, a Bool, a number, text, a Tensor, a type of elements, a Device, ",
    "a list (tuple, vector) or a map (named tuple, dictionary) of those. Tensor(array) shares an array, with `reversed = true` in the layout that layers take")

function fill_owned!(fill::Function, value::Ref{CValue})
    try
        fill()
    catch
        LibAccel.accel_value_dispose(value)
        rethrow()
    end
    return value[]
end

"""Calls `use` with a reference to the value of an object, valid during the call."""
lend(use::Function, x::Plain) = GC.@preserve x use(Ref(plain(x)))
function lend(use::Function, x)
    value = Ref(owned(x))
    try
        return use(value)
    finally
        LibAccel.accel_value_dispose(value)
    end
end

"""The form for several objects: `use` gets a vector of C values."""
function lend_all(use::Function, objects)
    values = Vector{CValue}(undef, length(objects))
    disposed = Ref{CValue}[]
    try
        for (place, object) in enumerate(objects)
            if object isa Plain
                values[place] = plain(object)
            else
                values[place] = owned(object)
                push!(disposed, Ref(values[place]))
            end
        end
        return GC.@preserve objects use(values)
    finally
        foreach(LibAccel.accel_value_dispose, disposed)
    end
end

option(value::Ref{CValue}) = Base.unsafe_convert(Ptr{CValue}, value)

tensor_pointer(value::CValue) = Ptr{LibAccel.accel_tensor_t}(UInt(getfield(value, :as)))

"""Julia's own object for a value that stays with C."""
function borrowed(value::CValue)
    value.kind == LibAccel.ACCEL_VALUE_TENSOR && return Tensor(LibAccel.accel_tensor_retain(tensor_pointer(value)))
    return scalar(value)
end

function scalar(value::CValue)
    kind, bits = value.kind, getfield(value, :as)
    kind == LibAccel.ACCEL_VALUE_NONE && return nothing
    kind == LibAccel.ACCEL_VALUE_BOOL && return bits != 0
    kind == LibAccel.ACCEL_VALUE_INT && return reinterpret(Int64, bits)
    kind == LibAccel.ACCEL_VALUE_DOUBLE && return reinterpret(Float64, bits)
    kind == LibAccel.ACCEL_VALUE_STRING && return unsafe_string(Ptr{Cchar}(UInt(bits)))
    kind == LibAccel.ACCEL_VALUE_DTYPE && return element_type(bits % Int32)
    kind == LibAccel.ACCEL_VALUE_DEVICE && return Device(bits % Int32, (bits >> 32) % Int32)
    kind == LibAccel.ACCEL_VALUE_BYTES && return bytes_at(Ptr{LibAccel.accel_bytes_t}(UInt(bits)))
    reference = Ref(value)
    items = Any[borrowed(item_at(LibAccel.accel_value_at(reference, i - 1))) for i in 1:LibAccel.accel_value_count(reference)]
    kind == LibAccel.ACCEL_VALUE_LIST && return items
    kind == LibAccel.ACCEL_VALUE_TUPLE && return Tuple(items)
    return Map(scalar(item_at(LibAccel.accel_value_key_at(reference, i - 1))) => item for (i, item) in enumerate(items))
end

item_at(pointer) = pointer == C_NULL ? throw(OutOfMemoryError()) : unsafe_load(pointer)

function bytes_at(place)
    bytes = unsafe_load(place)
    data = bytes.size == 0 ? UInt8[] : copy(unsafe_wrap(Array, Ptr{UInt8}(UInt(bytes.data)), bytes.size))
    return Bytes(data, bytes.type == C_NULL ? "" : unsafe_string(bytes.type))
end

"""Julia's own object for a value that the caller owns, which is used up."""
function taken(value::CValue)
    if value.kind == LibAccel.ACCEL_VALUE_TENSOR
        weigh(tensor_pointer(value))
        return Tensor(tensor_pointer(value))
    end
    object = scalar(value)
    owns = value.kind in (LibAccel.ACCEL_VALUE_STRING, LibAccel.ACCEL_VALUE_LIST, LibAccel.ACCEL_VALUE_MAP,
        LibAccel.ACCEL_VALUE_TUPLE, LibAccel.ACCEL_VALUE_BYTES)
    owns && LibAccel.accel_value_dispose(Ref(value))
    return object
end

"""The output value of a C function."""
function result(make::Function)
    out = Ref(NONE)
    make(out)
    return taken(out[])
end
