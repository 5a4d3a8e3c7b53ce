# SPDX-License-Identifier: Apache-2.0
# Collectives. All ranks make the same calls in the same order. After an interruption the collective itself continues, and the state
# is of no more use.

const REDUCTIONS = (sum = 0, mean = 1, min = 2, max = 3, product = 4, and = 5, or = 6, xor = 7)
# The usual ones without a look into the table.
reduction(by) = by === :sum ? LibAccel.ACCEL_REDUCE_SUM : by === :mean ? LibAccel.ACCEL_REDUCE_MEAN : number_of(REDUCTIONS, by)
const SLICE_MS = 20

"""    start(make)

A collective under way. `wait(work)` waits for its end, `fetch(work)` gives its result, `istaskdone(work)` only looks."""
start(make::Function) = made(Work, make)

Base.istaskdone(work::Work) = LibAccel.accel_work_test(work) == 1
function Base.wait(work::Work)
    # A garbage collection of another thread, and Ctrl-C, wait until the slice is over.
    while LibAccel.accel_work_wait(work, SLICE_MS) == LibAccel.ACCEL_IN_PROGRESS
        GC.safepoint()
    end
    return nothing
end
"""Waits at most so many milliseconds; whether the work has ended."""
wait_for(work::Work, milliseconds) = LibAccel.accel_work_wait(work, milliseconds) == LibAccel.ACCEL_OK
function Base.fetch(work::Work)
    wait(work)
    return restored(work.form, result(out -> LibAccel.accel_work_result(work, out)))
end
"""    then(work) do status ... end

Called when the work has ended, by `wait`, `fetch` or `progress`."""
then(callback::Function, work::Work) =
    (LibAccel.accel_work_then(work, work_callback(), keep(callback, work), destroy()); work)
describe(io::IO, work::Work) = print(io, "Work(", istaskdone(work) ? "ended" : "under way", ")")

function finished(work::Work)
    try
        return fetch(work)
    finally
        close(work)
    end
end
finish(work::Work) = (finished(work); nothing)

const INTERRUPTIBLE = Ref(false)
"""
    interruptible!(true)

Whether Ctrl-C becomes an `InterruptException` in a collective that waits. This is on from the start where Julia itself makes an
exception of it: at the prompt, and in `julia -e`. Each collective takes some microseconds longer then. Programs end at Ctrl-C either way.
"""
interruptible!(wanted::Bool) = (INTERRUPTIBLE[] = wanted; nothing)

# Arrays in, arrays out: those of numbers are lent as tensors of reversed dimensions, so that gathering joins them along their last
# one, and results come back as arrays where arrays were. Objects are gathered as they are.
const OF_OBJECTS = (LibAccel.accel_gather_object_async, LibAccel.accel_broadcast_object_list_async)

to_tensors(x, number = Tensor) = x
to_tensors(x::AbstractArray{<:Union{Real,Complex}}, number = Tensor) = Tensor(x; reversed = true)
to_tensors(x::Union{Real,Complex}, number = Tensor) = number(x)
to_tensors(x::Union{Tuple,NamedTuple}, number = Tensor) = map(each -> to_tensors(each, number), x)
to_tensors(x::AbstractVector, number = Tensor) = Any[to_tensors(each, number) for each in x]
to_tensors(x::AbstractVector{<:Union{Real,Complex}}, number = Tensor) = Tensor(x) # more than one rule above is for it
to_tensors(x::AbstractDict, number = Tensor) = Map(name => to_tensors(each, number) for (name, each) in pairs(x))
not_in_place(number) = refuse("the number ", number, " cannot be written in place; expected arrays and tensors")
# Where numbers are gathered as objects, they are not counted as rows of a batch.
for_metrics(async) = async === LibAccel.accel_gather_for_metrics_async ? identity : Tensor

"""The result of a collective in the form of what went into it."""
restored(::Any, x) = x
restored(::AbstractArray{<:Union{Real,Complex}}, x::Tensor) = reversed_array(x)
# A number of each rank, or one.
restored(form::Number, x::Tensor) = ndims(x) == 0 ? convert(typeof(form), item(x)) : reversed_array(x)
restored(form::Tuple, x::Union{Tuple,AbstractVector}) = map(restored, form, Tuple(x))
restored(form::NamedTuple{names}, x::Map) where {names} =
    NamedTuple{names}(map(name -> restored(form[name], x[string(name)]), names))
restored(form::AbstractVector, x::AbstractVector) = [restored(form[i], each) for (i, each) in enumerate(x)]
restored(form::AbstractDict, x::Map) = Map(name => restored(each, x[key_of(name)]) for (name, each) in pairs(form))

# Of trees. `blocking` and `async` are the two forms of a C function.
function under_way(async, state, x, rest...)
    async in OF_OBJECTS && return start(out -> lend(value -> async(state, value, rest..., out), x))
    work = start(out -> lend(value -> async(state, value, rest..., out), to_tensors(x, for_metrics(async))))
    work.form = x
    return work
end
function done(blocking, async, state, x, rest...)
    tell()
    INTERRUPTIBLE[] && return finished(under_way(async, state, x, rest...))
    async in OF_OBJECTS && return result(out -> lend(value -> blocking(state, value, rest..., out), x))
    return restored(x, result(out -> lend(value -> blocking(state, value, rest..., out), to_tensors(x, for_metrics(async)))))
end
# Of tensors, in place.
done_in_place(blocking, async, arguments...) =
    INTERRUPTIBLE[] ? finish(start(out -> async(arguments..., out))) : (blocking(arguments...); nothing)

"""Starts `broadcast!`."""
function broadcast_async!(state::State, x; from = 0)
    shared = to_tensors(x, not_in_place)
    return start(out -> lend(value -> LibAccel.accel_broadcast_async(state, value, from, out), shared))
end
"""    broadcast!(state, x; from = 0)

Writes one rank's tensors and arrays into those of all ranks. It is called as `Accel.broadcast!`."""
broadcast!(state::State, x; from = 0) =
    (lend(value -> done_in_place(LibAccel.accel_broadcast, LibAccel.accel_broadcast_async, state, value, from), to_tensors(x, not_in_place)); x)

# Arrays of Julia, in their own memory.
const Numbers = AbstractArray{<:Union{Real,Complex}}
"""    all_reduce!(state, array): an array of Julia, in its own memory"""
all_reduce!(state::State, array::Numbers; by = :sum) = (all_reduce!(state, to_tensors(array); by = by); array)
all_gather!(state::State, output::Numbers, input::Numbers) = (all_gather!(state, to_tensors(output), to_tensors(input)); output)
all_to_all!(state::State, output::Numbers, input::Numbers) = (all_to_all!(state, to_tensors(output), to_tensors(input)); output)
reduce_scatter!(state::State, output::Numbers, input::Numbers; by = :sum) =
    (reduce_scatter!(state, to_tensors(output), to_tensors(input); by = by); output)
scatter!(state::State, output::Numbers, input::Union{Numbers,Nothing} = nothing; from = 0) =
    (scatter!(state, to_tensors(output), to_tensors(input); from = from); output)
send_tensor(state::State, array::Numbers; options...) = send_tensor(state, to_tensors(array); options...)
recv_tensor!(state::State, array::Numbers; options...) = (recv_tensor!(state, to_tensors(array); options...); array)

# A dimension of an array is another one of its tensor.
pad_across_processes(state::State, array::Numbers; dim = ndims(array), options...) =
    reversed_array(pad_across_processes(state, to_tensors(array); dim = ndims(array) + 1 - dim, options...))

"""    Mesh(state, "replica" => 2, "expert" => 4)

The ranks as a grid of named axes, for communication of the program's own; `mesh(state)` is the one that the library follows."""
Mesh(state::State, axes::Pair...) = Mesh(state, join(map(first, axes), ","), collect(Int64, map(last, axes)))
describe(io::IO, mesh::Mesh) = print(io, "Mesh(", string(mesh), ")")
