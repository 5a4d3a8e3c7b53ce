# SPDX-License-Identifier: Apache-2.0
# What C holds of Julia: arrays whose memory a tensor shares, and functions that C calls back. It is rooted until C lets go of it,
# which may happen on any thread, where Julia must not run: so the `destroy` of C posts a semaphore of libuv, and Julia looks
# at the semaphores after each garbage collection.

const SEMAPHORE_BYTES = 64

const KEPT = Dict{Ptr{Cvoid},Any}()
const KEPT_LOCK = Threads.SpinLock()

"""Roots an object until C calls `destroy()` with the pointer that is returned."""
function keep(object)
    block = Libc.malloc(SEMAPHORE_BYTES)
    block == C_NULL && throw(OutOfMemoryError())
    ccall(:uv_sem_init, Cint, (Ptr{Cvoid}, Cuint), block, 0) == 0 || throw(OutOfMemoryError())
    # A finalizer that sweeps in here finds the lock taken, and leaves.
    lock(KEPT_LOCK)
    KEPT[block] = object
    unlock(KEPT_LOCK)
    return block
end

"""The `accel_destroy_fn` of all rooted objects."""
destroy() = cglobal(:uv_sem_post)

function object_of(block::Ptr{Cvoid})
    lock(KEPT_LOCK)
    object = get(KEPT, block, nothing)
    unlock(KEPT_LOCK)
    return object
end

"""Lets go of what C no longer holds. Runs by itself after each garbage collection."""
function sweep()
    trylock(KEPT_LOCK) || return nothing
    gone = Ptr{Cvoid}[]
    for block in keys(KEPT)
        ccall(:uv_sem_trywait, Cint, (Ptr{Cvoid},), block) == 0 && push!(gone, block)
    end
    for block in gone
        delete!(KEPT, block)
        ccall(:uv_sem_destroy, Cvoid, (Ptr{Cvoid},), block)
        Libc.free(block)
    end
    unlock(KEPT_LOCK)
    return nothing
end

"""Nothing refers to it, so each garbage collection finalizes it, and it begins anew."""
mutable struct Sweeper
    Sweeper() = finalizer(sweep_again, new())
end

function sweep_again(::Sweeper)
    sweep()
    Sweeper()
    return nothing
end
