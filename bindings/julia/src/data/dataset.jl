# SPDX-License-Identifier: Apache-2.0
# Datasets, and those of tensors. Each kind is a function that makes a `Dataset`.

@doc """
A map-style dataset has indices from 1: `length(dataset)`, `dataset[i]`, `dataset[2:5]`. Only a loader reads an iterable one.

    Dataset(object; by_batch = false)

Any object with `length(object)` and `object[i]`. Arrays of numbers in its items become tensors. `by_batch = true` asks for the items
of a batch at once: `object[numbers]` gives a list of them.
""" Dataset

const ArrayOrTensor = Union{Tensor,AbstractArray}
as_tensor(tensor::Tensor) = tensor
as_tensor(array::Union{AbstractArray,Number}) = Tensor(array)

"""    TensorDataset(tensors...): rows of tensors; an item is a list with one row of each
    TensorDataset(map): rows of tensors with names; an item is a map

They share their memory. A row is what has one first index: of the columns of an array, `Tensor(array; reversed = true)`."""
function TensorDataset(tensors::ArrayOrTensor...)
    shared = map(as_tensor, tensors)
    listed = handles(shared)
    return GC.@preserve shared made(Dataset, out -> LibAccel.accel_dataset_tensors(listed, length(listed), out))
end
TensorDataset(tensors::Union{AbstractDict,NamedTuple}) = made(Dataset, out -> lend(
    value -> LibAccel.accel_dataset_named_tensors(value, out), Map(name => as_tensor(tensor) for (name, tensor) in pairs(tensors))))

"""    RaggedDataset(rows): vectors, or arrays, of different lengths
    RaggedDataset(values, offsets): row i of each tensor is its entries from offsets[i] to offsets[i + 1], which count from 0

An item is a list with one row of each tensor. A loader with `collate = :pad` fills them up."""
function RaggedDataset(values::Tuple{Vararg{ArrayOrTensor}}, offsets::ArrayOrTensor)
    shared = map(as_tensor, values)
    listed, bounds = handles(shared), as_tensor(offsets)
    return GC.@preserve shared made(Dataset, out -> LibAccel.accel_dataset_ragged(listed, length(listed), bounds, out))
end
RaggedDataset(values::ArrayOrTensor, offsets::ArrayOrTensor) = RaggedDataset((values,), offsets)
RaggedDataset(rows::AbstractVector{<:AbstractArray}) =
    RaggedDataset(Base.reduce(vcat, rows), Int64[0; cumsum(Int64[size(row, 1) for row in rows])])

"""    WindowsDataset(tokens, sequence_length; stride = sequence_length)

Windows of a vector of integers, for example of `map_file`; an item is the tokens, and those that follow each."""
function WindowsDataset(tokens::ArrayOrTensor, sequence_length::Integer; stride::Integer = sequence_length)
    shared = as_tensor(tokens)
    return made(Dataset, out -> LibAccel.accel_dataset_windows(shared, sequence_length, stride, out))
end

"""    PackedDataset(tokens, sequence_length; end_of_document, document_offsets, packing = :concatenate, pad_token = 0)

Documents packed into sequences of one length: either `end_of_document` is the token that ends each, or `document_offsets` are where
each begins, from 0, and the end of the last. `packing = :best_fit` keeps documents whole. An item is the tokens; the next token of
the same document, or -100; the position, from 0; the number of the document, -1 where nothing is."""
function PackedDataset(tokens::ArrayOrTensor, sequence_length::Integer; document_offsets = nothing, options...)
    shared = as_tensor(tokens)
    offsets = document_offsets === nothing ? C_NULL : as_tensor(document_offsets)
    return with_options(LibAccel.accel_packing_options_t; sequence_length = sequence_length, document_offsets = offsets,
                        options...) do given
        made(Dataset, out -> LibAccel.accel_dataset_packed(shared, given, out))
    end
end

# Of other datasets. What calls functions of Julia is known, because workers must not read it.
reading(dataset::Dataset, sources::Dataset...) = (dataset.calls_julia = any(source -> source.calls_julia, sources); dataset)

"""    subset(dataset, 1:100), dataset[1:100]"""
subset(dataset::Dataset, items::AbstractUnitRange) =
    reading(made(Dataset, out -> LibAccel.accel_dataset_subset(dataset, first(items) - 1, last(items), out)), dataset)
"""Datasets one behind the other."""
function Base.vcat(datasets::Dataset...)
    listed = handles(datasets)
    joined = GC.@preserve datasets made(Dataset, out -> LibAccel.accel_dataset_concatenate(listed, length(listed), out))
    return reading(joined, datasets...)
end
"""    as_stream(dataset; seed = nothing)

A map-style dataset as a stream: in the order of the indices, or with a seed in another order in each epoch."""
as_stream(dataset::Dataset; seed = nothing) =
    reading(made(Dataset, out -> LibAccel.accel_dataset_as_stream(dataset, something(seed, LibAccel.ACCEL_UNSET_INT64), out)), dataset)

"""    merge(datasets...; weights = nothing, seed = 0, ends = :first)

One stream of several datasets: where each item comes from is drawn by weight, the same in every run. It ends when a dataset is drawn
that has ended, or with `ends = :all` when all have."""
function Base.merge(dataset::Dataset, datasets::Dataset...; weights = nothing, seed = 0, ends = :first)
    sources = (dataset, datasets...)
    listed = handles(sources)
    merged(value) = GC.@preserve sources made(Dataset, out -> LibAccel.accel_dataset_merge(
        listed, length(listed), value, seed, number_of(CHOICES.merge_end, ends), out))
    return reading(weights === nothing ? merged(C_NULL) : lend(merged, Float64[weights...]), sources...)
end

Base.length(dataset::Dataset) = counted(LibAccel.accel_dataset_length(dataset), "accel_dataset_length")
function Base.getindex(dataset::Dataset, index::Integer)
    1 <= index <= length(dataset) || throw(BoundsError(dataset, index))
    return result(out -> LibAccel.accel_dataset_item(dataset, index - 1, out))
end
function Base.getindex(dataset::Dataset, items::AbstractUnitRange{<:Integer})
    isempty(items) || (first(items) >= 1 && last(items) <= length(dataset)) || throw(BoundsError(dataset, items))
    return subset(dataset, items)
end
Base.firstindex(::Dataset) = 1
Base.lastindex(dataset::Dataset) = length(dataset)
Base.iterate(dataset::Dataset, index = 1) = index > length(dataset) ? nothing : (dataset[index], index + 1)
Base.eltype(::Type{Dataset}) = Any
"""The number of rows that were left out when files were opened: malformed rows where that was asked for, and files that are not images."""
num_skipped(dataset::Dataset) = counted(LibAccel.accel_dataset_num_skipped(dataset), "accel_dataset_num_skipped")

describe(io::IO, dataset::Dataset) = print(io, "Dataset(", how_many(LibAccel.accel_dataset_length(dataset), "items"), ")")
function how_many(count, things)
    count < 0 || return string(count, " ", things)
    forget_carried() # of an object whose length failed
    return "a stream"
end
