# SPDX-License-Identifier: Apache-2.0
# The low layer at work, once on each of two ranks: a state, a tensor, an operator and a gather; then errors and what is left.
# The C program layout_probe (its path is the argument) prints the layouts that are compared.
include(joinpath(@__DIR__, "..", "src", "LibAccel.jl"))
using .LibAccel
const L = LibAccel
import Libdl

text(pointer) = unsafe_string(pointer)

function new_tensor(numbers::Vector{Float32})
    out = Ref{Ptr{L.accel_tensor_t}}(C_NULL)
    shape = Int64[length(numbers)]
    L.accel_tensor_from_data(numbers, shape, 1, L.ACCEL_DTYPE_FLOAT32, out)
    return out[]
end

tensor_value(tensor) = L.accel_value_t(L.ACCEL_VALUE_TENSOR, 0, UInt64(UInt(tensor)))
tensor_of(value::L.accel_value_t) = Ptr{L.accel_tensor_t}(UInt(getfield(value, :as)))

function elements(tensor)
    data, count = Ref{Ptr{Cvoid}}(C_NULL), Ref{Int64}(0)
    L.accel_tensor_data(tensor, data)
    L.accel_tensor_numel(tensor, count)
    return copy(unsafe_wrap(Array, Ptr{Float32}(data[]), count[]))
end

function gather()
    state = Ref{Ptr{L.accel_state_t}}(C_NULL)
    L.accel_state_create(Ref(L.accel_state_options_t(cpu = 1)), state)
    rank = Float32(L.accel_process_index(state[]))
    @assert L.accel_num_processes(state[]) == 2
    tensor = new_tensor([rank, 10 + rank])
    op = Ref{Ptr{L.accel_op_t}}(C_NULL)
    L.accel_op_find("aten::add", "Tensor", op)
    arguments = [tensor_value(tensor), tensor_value(tensor)]
    doubled, count = Ref(L.accel_value_t(0, 0, 0)), Ref{Csize_t}(0)
    L.accel_op_call(op[], arguments, 2, doubled, 1, count)
    gathered = Ref(L.accel_value_t(0, 0, 0))
    L.accel_gather(state[], doubled, gathered)
    @assert elements(tensor_of(gathered[])) == Float32[0, 20, 2, 22]
    L.accel_value_dispose(gathered)
    L.accel_value_dispose(doubled)
    L.accel_tensor_release(tensor)
    L.accel_end_training(state[])
    L.accel_state_release(state[])
    @assert L.accel_debug_live_objects() == 0
end

function raised(call)
    try
        call()
    catch error
        return error
    end
    error("expected an error")
end

function wrong_calls_throw()
    count = Ref{Int64}(0)
    thrown = raised(() -> L.accel_tensor_numel(C_NULL, count))
    @assert thrown isa L.AccelError && thrown.status == L.ACCEL_ERROR_INVALID_ARGUMENT
    @assert occursin("tensor is NULL", thrown.message) && occursin("ACCEL_ERROR_INVALID_ARGUMENT", sprint(showerror, thrown))
    tensor = new_tensor(Float32[1])
    L.accel_tensor_release(tensor)
    @assert raised(() -> L.accel_tensor_numel(tensor, count)).status == L.ACCEL_ERROR_INVALID_HANDLE
end

function every_function_is_there()
    library = L.load_library()
    for name in L.FUNCTIONS
        @assert Libdl.dlsym(library, name; throw_error = false) !== nothing "$name is not in the library"
        @assert isdefined(L, name)
    end
end

# Lines of `struct NAME SIZE`, `field NAME OFFSET` `constant NAME VALUE` and `text NAME VALUE`, printed by a C program.
function layouts_are_those_of_c(probe)
    record, place, checked = nothing, 0, 0
    for line in eachline(`$probe`)
        kind, name, value = split(line)
        checked += 1
        if kind == "struct"
            record, place = getfield(L, Symbol(name)), 0
            @assert sizeof(record) == parse(Int, value) "sizeof($name)"
        elseif kind == "field"
            place += 1
            @assert string(fieldname(record, place)) == name && fieldoffset(record, place) == parse(Int, value) "$record.$name"
        elseif kind == "text"
            @assert getfield(L, Symbol(name)) == value "$name"
        else
            @assert Float64(getfield(L, Symbol(name))) == parse(Float64, value) "$name"
        end
    end
    @assert checked > 100
end

gather()
wrong_calls_throw()
every_function_is_there()
layouts_are_those_of_c(ARGS[1])
