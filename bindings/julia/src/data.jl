# Datasets, samplers and loaders. A loader is iterated: `for (features, labels) in loader`.

# Each kind of dataset is a function that makes a `Dataset`.
"""    TensorDataset(tensors...): rows of tensors; an item is a list with one row of each"""
function TensorDataset(tensors::Tensor...)
    listed = handles(tensors)
    return GC.@preserve tensors made(Dataset, out -> LibAccel.accel_dataset_tensors(listed, length(listed), out))
end
"""    TextDataset(path, sequence_length; suffix = nothing)

The bytes of a file, or of all files below a folder, in windows; an item is the bytes, and the bytes that follow each."""
TextDataset(path::AbstractString, sequence_length::Integer; suffix = nothing) =
    made(Dataset, out -> LibAccel.accel_dataset_text(path, something(suffix, C_NULL), sequence_length, out))
"""    subset(dataset, 1:100)"""
subset(dataset::Dataset, items::AbstractUnitRange) =
    made(Dataset, out -> LibAccel.accel_dataset_subset(dataset, first(items) - 1, last(items), out))

Base.length(dataset::Dataset) = LibAccel.accel_dataset_length(dataset)
function Base.getindex(dataset::Dataset, index::Integer)
    1 <= index <= length(dataset) || throw(BoundsError(dataset, index))
    return result(out -> LibAccel.accel_dataset_item(dataset, index - 1, out))
end
Base.firstindex(::Dataset) = 1
Base.lastindex(dataset::Dataset) = length(dataset)
Base.iterate(dataset::Dataset, index = 1) = index > length(dataset) ? nothing : (dataset[index], index + 1)
describe(io::IO, dataset::Dataset) = print(io, "Dataset(", length(dataset), " items)")

@doc """
    Sampler(length) do epoch, length ... end

An order that Julia makes: the numbers of the items, from 1; the same again for the same epoch.
""" Sampler
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
Base.length(sampler::Sampler) = LibAccel.accel_sampler_length(sampler)
describe(io::IO, sampler::Sampler) = print(io, "Sampler(", length(sampler), " draws)")

@doc """
    DataLoader(dataset; batch_size, shuffle, drop_last, seed, prefetch, sampler)

Makes batches of the items of a dataset. `for batch in loader` goes through an epoch, and the next loop through the next one. A loop
that is left by `break` is continued by the next; `set_epoch!` drops the rest.
""" DataLoader
DataLoader(dataset::Dataset; options...) = with_options(LibAccel.accel_dataloader_options_t; options...) do given
    made(DataLoader, out -> LibAccel.accel_dataloader_create(dataset, given, out))
end

"""Batches of an epoch on this rank; less are left of an epoch that is resumed."""
Base.length(loader::DataLoader) = LibAccel.accel_dataloader_length(loader)
Base.IteratorSize(::Type{DataLoader}) = Base.SizeUnknown()
Base.eltype(::Type{DataLoader}) = Any
function Base.iterate(loader::DataLoader, ::Nothing = nothing)
    out = Ref(NONE)
    status = LibAccel.accel_dataloader_next(loader, out)
    return status == LibAccel.ACCEL_ITER_END ? nothing : (taken(out[]), nothing)
end
"""    set_epoch!(loader, epoch): from 0"""
set_epoch!(loader::DataLoader, epoch) = (LibAccel.accel_dataloader_set_epoch(loader, epoch); loader)
"""A new loader over the same data whose first epoch leaves out its first batches."""
skip_first_batches(loader::DataLoader, num_batches) =
    made(DataLoader, out -> LibAccel.accel_skip_first_batches(loader, num_batches, out))
state_dict(loader::DataLoader) = result(out -> LibAccel.accel_dataloader_state_dict(loader, out))::Map
"""Takes back what `state_dict` gave."""
load_state_dict!(loader::DataLoader, state) =
    (lend(value -> LibAccel.accel_dataloader_load_state_dict(loader, value), state); loader)
describe(io::IO, loader::DataLoader) = print(io, "DataLoader(", length(loader), " batches)")
