# SPDX-License-Identifier: Apache-2.0
# Julia's collector does not see what tensors weigh: a collection is asked for whenever new ones have come to so many bytes.

const LIMIT = Threads.Atomic{Int}(512 << 20)
const NEW_BYTES = Threads.Atomic{Int}(0)

"""    pressure!(bytes): how much memory of new tensors may come together before a collection"""
pressure!(bytes::Integer) = (LIMIT[] = bytes; nothing)

"""Counts a new tensor."""
function weigh(tensor::Ptr{LibAccel.accel_tensor_t})
    bytes = Ref{Csize_t}(0)
    ccall(LibAccel.@address(accel_tensor_nbytes), Int32, (Ptr{LibAccel.accel_tensor_t}, Ptr{Csize_t}), tensor, bytes)
    bytes[] < 4096 && return nothing
    if Threads.atomic_add!(NEW_BYTES, Int(bytes[])) > LIMIT[]
        NEW_BYTES[] = 0
        GC.gc(false)
    end
    return nothing
end
