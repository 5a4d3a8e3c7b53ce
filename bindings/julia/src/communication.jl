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
    return result(out -> LibAccel.accel_work_result(work, out))
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

# Of trees. `blocking` and `async` are the two forms of a C function.
under_way(async, state, x, rest...) = start(out -> lend(value -> async(state, value, rest..., out), x))
done(blocking, async, state, x, rest...) = INTERRUPTIBLE[] ? finished(under_way(async, state, x, rest...)) :
    result(out -> lend(value -> blocking(state, value, rest..., out), x))
# Of tensors, in place.
done_in_place(blocking, async, arguments...) =
    INTERRUPTIBLE[] ? finish(start(out -> async(arguments..., out))) : (blocking(arguments...); nothing)

"""Starts `broadcast!`."""
broadcast_async!(state::State, x; from = 0) = under_way(LibAccel.accel_broadcast_async, state, x, from)
"""    broadcast!(state, x; from = 0)

Writes one rank's tensors into those of all ranks."""
Base.broadcast!(state::State, x; from = 0) =
    (lend(value -> done_in_place(LibAccel.accel_broadcast, LibAccel.accel_broadcast_async, state, value, from), x); x)

"""    all_reduce!(state, array): an array of Julia, in its own memory"""
all_reduce!(state::State, array::Array; by = :sum) = (all_reduce!(state, Tensor(array; reversed = true); by = by); array)


"""    Mesh(state, "replica" => 2, "expert" => 4)

The ranks as a grid of named axes, for communication of the program's own; `mesh(state)` is the one that the library follows."""
Mesh(state::State, axes::Pair...) = Mesh(state, join(map(first, axes), ","), collect(Int64, map(last, axes)))
describe(io::IO, mesh::Mesh) = print(io, "Mesh(", string(mesh), ")")
