# Collectives. All ranks make the same calls in the same order. After an interruption the collective itself goes on, and the state
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
    return result(out -> LibAccel.accel_work_result(work, out))
end
"""    then(work) do status ... end

Called when the work has ended, by `wait`, `fetch` or `progress`."""
then(callback::Function, work::Work) =
    (LibAccel.accel_work_then(work, work_callback(), keep(callback, work), destroy()); work)
"""Runs the callbacks of works that have ended; whether none is under way."""
progress(state::State; max_us = 0) = LibAccel.accel_progress(state, max_us) == LibAccel.ACCEL_OK
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

# Of trees. `blocking` and `async` are the two forms of a C function.
under_way(async, state, x, rest...) = start(out -> lend(value -> async(state, value, rest..., out), x))
done(blocking, async, state, x, rest...) = INTERRUPTIBLE[] ? finished(under_way(async, state, x, rest...)) :
    result(out -> lend(value -> blocking(state, value, rest..., out), x))
# Of tensors, in place.
done_in_place(blocking, async, arguments...) =
    INTERRUPTIBLE[] ? finish(start(out -> async(arguments..., out))) : (blocking(arguments...); nothing)

"""Starts `gather`; the result is that of `fetch(work)`."""
gather_async(state::State, x) = under_way(LibAccel.accel_gather_async, state, x)
"""    gather(state, x)

Each tensor of all ranks, joined along the first dimension in rank order. `gather_async` gives a `Work`."""
gather(state::State, x) = done(LibAccel.accel_gather, LibAccel.accel_gather_async, state, x)

"""Starts `gather_uneven`."""
gather_uneven_async(state::State, x) = under_way(LibAccel.accel_gather_uneven_async, state, x)
"""As `gather`, for tensors whose first dimension differs by rank."""
gather_uneven(state::State, x) = done(LibAccel.accel_gather_uneven, LibAccel.accel_gather_uneven_async, state, x)

"""Starts `gather_for_metrics`."""
gather_for_metrics_async(state::State, x) = under_way(LibAccel.accel_gather_for_metrics_async, state, x)
"""As `gather`, without what the loader repeated to fill the last batch."""
gather_for_metrics(state::State, x) = done(LibAccel.accel_gather_for_metrics, LibAccel.accel_gather_for_metrics_async, state, x)

"""Starts `gather_object`."""
gather_object_async(state::State, x) = under_way(LibAccel.accel_gather_object_async, state, x)
"""The values of all ranks in one list; they may differ in kind and size."""
gather_object(state::State, x) = done(LibAccel.accel_gather_object, LibAccel.accel_gather_object_async, state, x)

"""Starts `reduce`."""
reduce_async(state::State, x; by = :sum, scale = 1) =
    under_way(LibAccel.accel_reduce_async, state, x, reduction(by), scale)
"""    reduce(state, x; by = :sum, scale = 1)

Each tensor reduced over all ranks, as new tensors; by :sum, :mean, :min, :max, :product, :and, :or, :xor."""
Base.reduce(state::State, x; by = :sum, scale = 1) =
    done(LibAccel.accel_reduce, LibAccel.accel_reduce_async, state, x, reduction(by), scale)

"""Starts `broadcast!`."""
broadcast_async!(state::State, x; from = 0) = under_way(LibAccel.accel_broadcast_async, state, x, from)
"""    broadcast!(state, x; from = 0)

Writes one rank's tensors into those of all ranks."""
Base.broadcast!(state::State, x; from = 0) =
    (lend(value -> done_in_place(LibAccel.accel_broadcast, LibAccel.accel_broadcast_async, state, value, from), x); x)

"""Starts `broadcast_objects`."""
broadcast_objects_async(state::State, x; from = 0) = under_way(LibAccel.accel_broadcast_object_list_async, state, x, from)
"""One rank's list of values."""
broadcast_objects(state::State, x; from = 0) =
    done(LibAccel.accel_broadcast_object_list, LibAccel.accel_broadcast_object_list_async, state, x, from)

"""Starts `pad_across_processes`."""
pad_across_processes_async(state::State, x; dim = 1, pad_index = 0, pad_first = false) =
    under_way(LibAccel.accel_pad_across_processes_async, state, x, dim - 1, pad_index, pad_first)
"""    pad_across_processes(state, x; dim = 1, pad_index = 0, pad_first = false)

Pads a dimension of each tensor to its largest size over all ranks."""
pad_across_processes(state::State, x; dim = 1, pad_index = 0, pad_first = false) =
    done(LibAccel.accel_pad_across_processes, LibAccel.accel_pad_across_processes_async, state, x, dim - 1, pad_index, pad_first)

"""Starts `all_reduce!`."""
all_reduce_async!(state::State, tensor::Tensor; by = :sum) =
    start(out -> LibAccel.accel_all_reduce_async(state, tensor, reduction(by), out))
"""    all_reduce!(state, tensor; by = :sum): in place; the tensor must be contiguous"""
all_reduce!(state::State, tensor::Tensor; by = :sum) =
    (done_in_place(LibAccel.accel_all_reduce, LibAccel.accel_all_reduce_async, state, tensor, reduction(by)); tensor)
"""    all_reduce!(state, array): an array of Julia, in its own memory"""
all_reduce!(state::State, array::Array; by = :sum) = (all_reduce!(state, Tensor(array; reversed = true); by = by); array)
"""    all_gather!(state, output, input): the parts of all ranks in rank order"""
all_gather!(state::State, output::Tensor, input::Tensor) =
    (done_in_place(LibAccel.accel_all_gather, LibAccel.accel_all_gather_async, state, input, output); output)
"""    reduce_scatter!(state, output, input; by = :sum): each rank keeps its part of the reduction"""
reduce_scatter!(state::State, output::Tensor, input::Tensor; by = :sum) =
    (done_in_place(LibAccel.accel_reduce_scatter, LibAccel.accel_reduce_scatter_async, state, input, reduction(by), output); output)
"""    all_to_all!(state, output, input): part i goes to rank i"""
all_to_all!(state::State, output::Tensor, input::Tensor) =
    (done_in_place(LibAccel.accel_all_to_all, LibAccel.accel_all_to_all_async, state, input, output); output)
"""    scatter!(state, output, input; from = 0): `input` is nothing except on the source rank"""
scatter!(state::State, output::Tensor, input::Union{Tensor,Nothing} = nothing; from = 0) =
    (done_in_place(LibAccel.accel_scatter, LibAccel.accel_scatter_async, state, something(input, C_NULL), from, output); output)
"""    send_tensor(state, tensor; to, tag = 0)"""
send_tensor(state::State, tensor::Tensor; to, tag = 0) = done_in_place(LibAccel.accel_send, LibAccel.accel_send_async, state, tensor, to, tag)
"""    recv_tensor!(state, tensor; from, tag = 0)"""
recv_tensor!(state::State, tensor::Tensor; from, tag = 0) =
    (done_in_place(LibAccel.accel_recv, LibAccel.accel_recv_async, state, tensor, from, tag); tensor)
"""A barrier."""
wait_for_everyone(state::State) = done_in_place(LibAccel.accel_wait_for_everyone, LibAccel.accel_wait_for_everyone_async, state)

"""    group(state, ranks): a state of some of the ranks, which call this"""
function group(state::State, ranks)
    listed = Int64[ranks...]
    return made(State, out -> LibAccel.accel_group_create(state, listed, length(listed), out))
end
"""    split_group(state, color; key = 0): ranks with the same color share a group"""
split_group(state::State, color; key = 0) = made(State, out -> LibAccel.accel_group_split(state, color, key, out))
"""After a rank was lost: a new group of the ranks that call this."""
shrink_group(state::State; wait_ms = 1000) = made(State, out -> LibAccel.accel_group_shrink(state, wait_ms, out))
"""What this rank did last, as JSON."""
flight_record(state::State) = text(out -> LibAccel.accel_flight_record(state, out))
