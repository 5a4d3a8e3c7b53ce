# SPDX-License-Identifier: Apache-2.0
# The order of items in an epoch.

@doc """
    Sampler(length) do epoch, length ... end

An order that Julia makes: the numbers of the items, from 1; the same again for the same epoch.
""" Sampler
run_order(epoch, indices, n_indices, block) = callback_status() do
    order = object_of(block)(epoch, Int(n_indices))
    length(order) == n_indices || throw(DimensionMismatch("the order has $(length(order)) items; expected $n_indices"))
    foreach(((place, number),) -> unsafe_store!(indices, number - 1, place), enumerate(order))
end
order_callback() = @cfunction(run_order, Int32, (Int64, Ptr{Int64}, Csize_t, Ptr{Cvoid}))

Sampler(order::Function, length::Integer) =
    made(Sampler, out -> LibAccel.accel_sampler_create(length, order_callback(), keep(order), destroy(), out))
"""    indices(sampler, epoch): the order of an epoch, numbers from 1; epochs count from 0"""
indices(sampler::Sampler, epoch) = Array(made(Tensor, out -> LibAccel.accel_sampler_indices(sampler, epoch, out))) .+ 1
describe(io::IO, sampler::Sampler) = print(io, "Sampler(", length(sampler), " draws)")
