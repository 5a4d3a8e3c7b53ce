# SPDX-License-Identifier: Apache-2.0
# Objects that own one reference of a handle. They are passed to LibAccel as they are.

"""
An object of the library. `close(object)` gives it back at once, else the garbage collector does; `isopen(object)` says whether it
is there. Objects keep alive what they use.
"""
abstract type Handle end

@noinline closed(object::Handle) = throw(AccelError(LibAccel.ACCEL_ERROR_INVALID_HANDLE,
    string("the ", nameof(typeof(object)), " is closed; expected an open one"), "Accel"))

# A program that ends in the middle of a call, by Ctrl-C, must not wait in a finalizer for that call: the process gives all back.
const ENDS_IN_A_CALL = Ref(false)
note_the_end() = (ENDS_IN_A_CALL[] = LibAccel.WAITING[] > 0; nothing)
collected(object::Handle) = ENDS_IN_A_CALL[] ? nothing : close(object)

# Further fields are given with what they are at first: `field = false`.
macro handle(name, handle, release, further...)
    fields = [:($(each.args[1])::$(each.args[2] isa Bool ? Bool : Any)) for each in further]
    unset = [esc(each.args[2]) for each in further]
    quote
        mutable struct $(esc(name)) <: Handle
            pointer::Ptr{LibAccel.$handle}
            $(fields...)
            # Takes over one reference.
            function $(esc(name))(pointer::Ptr{LibAccel.$handle})
                return finalizer(collected, new(pointer, $(unset...)))
            end
        end

        function Base.close(object::$(esc(name)))
            pointer = object.pointer
            pointer == C_NULL && return nothing
            object.pointer = C_NULL
            LibAccel.$release(pointer)
            return nothing
        end

        @uses $(esc(name)) $handle
    end
end

macro uses(name, handle)
    quote
        function Base.unsafe_convert(::Type{Ptr{LibAccel.$handle}}, object::$(esc(name)))
            pointer = object.pointer
            pointer == C_NULL && closed(object)
            return pointer
        end

        $(esc(:raw))(object::$(esc(name))) = Base.unsafe_convert(Ptr{LibAccel.$handle}, object)

        # Makes an object from what a C function puts into its output.
        function $(esc(:made))(::Type{$(esc(name))}, make::Function)
            out = Ref{Ptr{LibAccel.$handle}}(C_NULL)
            make(out)
            return $(esc(:opened))($(esc(name))(out[]))
        end
    end
end

# Programs make tensors all the time, so a tensor is laid out as an `accel_value_t` that owns one: C itself is its finalizer, without a
# call of Julia.
mutable struct Tensor <: Handle
    kind::Int32
    reserved::UInt32
    pointer::Ptr{LibAccel.accel_tensor_t}
    # Takes over one reference.
    function Tensor(pointer::Ptr{LibAccel.accel_tensor_t})
        return finalizer((LibAccel.@address(accel_value_dispose)), new(LibAccel.ACCEL_VALUE_TENSOR, 0, pointer))
    end
end
Base.close(tensor::Tensor) =
    GC.@preserve tensor LibAccel.accel_value_dispose(Ptr{LibAccel.accel_value_t}(pointer_from_objref(tensor)))
@uses Tensor accel_tensor_t

# What happens to a new object of some types.
opened(object::Handle) = object

# The types; a kind of layer, optimizer or dataset is a function that makes one of them.
@handle State accel_state_t accel_state_release
@handle Model accel_module_t accel_module_release
@handle Optimizer accel_optimizer_t accel_optimizer_release
@handle Scheduler accel_scheduler_t accel_scheduler_release
@handle Dataset accel_dataset_t accel_dataset_release calls_julia = false
@handle Sampler accel_sampler_t accel_sampler_release
@handle DataLoader accel_dataloader_t accel_dataloader_release form = nothing
@handle Loop accel_loop_t accel_loop_release
@handle Work accel_work_t accel_work_release form = nothing
@handle Parameters accel_parameters_t accel_parameters_release sizes = nothing
@handle Generator accel_generator_t accel_generator_release
@handle Mesh accel_mesh_t accel_mesh_release
@handle OffloadHook accel_offload_hook_t accel_offload_hook_release
@handle WeightStream accel_weight_stream_t accel_weight_stream_release
@handle GenerationBatch accel_generation_batch_t accel_generation_batch_release
@handle Tracker accel_tracker_t accel_tracker_release
@handle Logger accel_logger_t accel_logger_release
@handle ProgressBar accel_progress_bar_t accel_progress_bar_release
@handle Profile accel_profile_t accel_profile_release
@handle Tokenizer accel_tokenizer_t accel_tokenizer_release
@handle DecodeStream accel_decode_stream_t accel_decode_stream_release

"""Keeps a function that is handed to C together with these objects, unless one of them is closed."""
keep(object, holders::Handle...) = (foreach(raw, holders); keep(object))

"""Handles for a C array; preserve the objects while it is used."""
handles(objects) = [raw(object) for object in objects]
handles(::Tuple{}) = Ptr{Cvoid}[]

"The items, of which there are as many as of the others: C is told one number for both."
as_many(items, others) = length(items) == length(others) ? items :
    throw(DimensionMismatch("$(length(items)) items beside $(length(others)); expected as many"))

"""Calls `use` with the handles of objects, which live meanwhile, and their number."""
function with_handles(use::Function, objects)
    kept = collect(objects) # of a generator nothing else would keep them
    listed = isempty(kept) ? Ptr{Cvoid}[] : [raw(object) for object in kept]
    return GC.@preserve kept use(listed, length(listed))
end

@doc "A collective that runs in the background: `wait(work)`, `fetch(work)`, `istaskdone(work)`, `then(function, work)`." Work

Base.isopen(object::Handle) = object.pointer != C_NULL
# Two Julia objects may stand for one of the library. Tensors are compared by their elements (shape.jl).
Base.:(==)(a::T, b::T) where {T<:Handle} = a.pointer == b.pointer
Base.hash(object::Handle, seed::UInt) = hash(object.pointer, seed)
Base.show(io::IO, object::Handle) = isopen(object) ? describe(io, object) : print(io, nameof(typeof(object)), "(closed)")
describe(io::IO, object::Handle) = print(io, nameof(typeof(object)))

"""The output of a C function, of a plain type."""
function output(read::Function, ::Type{T}) where {T}
    out = Ref{T}()
    read(out)
    return out[]
end

"""Text that a C function allocates."""
function text(write::Function)
    buffer = Ref(LibAccel.accel_buffer_t(C_NULL, 0))
    write(buffer)
    result = unsafe_string(buffer[].data, buffer[].size)
    LibAccel.accel_buffer_dispose(buffer)
    return result
end

"""Options of the C struct `T`; those that are not given stay unset. `use` gets a reference that lives during the call."""
function with_options(use::Function, ::Type{T}; given...) where {T}
    names = keys(values(given))
    all(name -> hasfield(T, name) && name !== :struct_size, names) || refuse_keywords(names, T)
    lent = Ref{LibAccel.accel_value_t}[]
    try
        held = map(names, Tuple(values(given))) do name, value
            is_value(T, name, value) || return plain_option(choices(T), name, value)
            push!(lent, Ref(owned(value)))
            last(lent)
        end
        return GC.@preserve held use(Ref(T(; NamedTuple{names}(map(option, held))...)))
    finally
        foreach(LibAccel.accel_value_dispose, lent)
    end
end
"Whether C takes a value of any kind there, a list for example."
is_value(::Type{T}, name, value) where {T} = fieldtype(T, name) == Ptr{LibAccel.accel_value_t} && !(value isa Union{Ptr,Ref})
@noinline function refuse_keywords(names, ::Type{T}) where {T}
    known = filter(name -> !(name in (:struct_size, :reserved)), [fieldnames(T)...])
    refuse(join(setdiff(names, known), ", "), ": unknown keyword; expected some of ", join(sort(known), ", "))
end
plain_option(choices, name, value) = value
plain_option(choices, name, value::Union{Symbol,AbstractString}) =
    haskey(choices, name) ? number_of(choices[name], value) : String(value)
option(value) = value
option(value::String) = Ptr{Cchar}(Base.unsafe_convert(Cstring, value))
option(value::Handle) = raw(value)
