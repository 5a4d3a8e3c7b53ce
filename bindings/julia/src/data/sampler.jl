# The order of items in an epoch.

@doc """
    Sampler(length) do epoch, length ... end

An order that Julia makes: the numbers of the items, from 1; the same again for the same epoch.
""" Sampler
run_order(epoch, indices, n_indices, block) = answered() do
    order = kept(block)(epoch, Int(n_indices))
    length(order) == n_indices || throw(DimensionMismatch("the order has $(length(order)) items; expected $n_indices"))
    foreach(((place, number),) -> unsafe_store!(indices, number - 1, place), enumerate(order))
end
order_callback() = @cfunction(run_order, Int32, (Int64, Ptr{Int64}, Csize_t, Ptr{Cvoid}))

Sampler(order::Function, length::Integer) =
    made(Sampler, out -> LibAccel.accel_sampler_create(length, order_callback(), keep(order), destroy(), out))
"""1, 2, 3, ..."""
SequentialSampler(length) = made(Sampler, out -> LibAccel.accel_sampler_sequential(length, out))
"""A new order in every epoch, the same in every run and on every rank."""
RandomSampler(length; seed = 0) = made(Sampler, out -> LibAccel.accel_sampler_seedable_random(length, seed, out))
"""    RandomDraws(length, num_samples; replacement, seed): another number of draws than there are items"""
RandomDraws(length, num_samples; replacement = false, seed = 0) =
    made(Sampler, out -> LibAccel.accel_sampler_random_draws(length, num_samples, replacement, seed, out))
"""    WeightedSampler(weights, num_samples; replacement, seed)"""
function WeightedSampler(weights, num_samples; replacement = true, seed = 0)
    listed = Float64[weights...]
    return made(Sampler, out -> LibAccel.accel_sampler_weighted(listed, length(listed), num_samples, replacement, seed, out))
end
"""    SubsetSampler(numbers; shuffle, seed): some of the items, by their numbers from 1"""
function SubsetSampler(numbers; shuffle = false, seed = 0)
    listed = Int64[number - 1 for number in numbers]
    return made(Sampler, out -> LibAccel.accel_sampler_subset(listed, length(listed), shuffle, seed, out))
end
"""    LengthGroupedSampler(lengths, batch_size; group_batches, seed): batches of items of about one length"""
function LengthGroupedSampler(lengths, batch_size; group_batches = LibAccel.ACCEL_UNSET_INT64, seed = 0)
    listed = Int64[lengths...]
    return made(Sampler, out -> LibAccel.accel_sampler_length_grouped(listed, length(listed), batch_size, group_batches, seed, out))
end
"""    DistributedSampler(length, num_replicas, rank; shuffle, seed, drop_last): one rank's share, for programs that share by themselves"""
DistributedSampler(length, num_replicas, rank; shuffle = true, seed = 0, drop_last = false) =
    made(Sampler, out -> LibAccel.accel_sampler_distributed(length, num_replicas, rank, shuffle, seed, drop_last, out))
"""    indices(sampler, epoch): the order of an epoch, numbers from 1; epochs count from 0"""
indices(sampler::Sampler, epoch) = Array(made(Tensor, out -> LibAccel.accel_sampler_indices(sampler, epoch, out))) .+ 1
Base.length(sampler::Sampler) = Int(LibAccel.accel_sampler_length(sampler))
describe(io::IO, sampler::Sampler) = print(io, "Sampler(", length(sampler), " draws)")
