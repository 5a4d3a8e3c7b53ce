# SPDX-License-Identifier: Apache-2.0
# Loaders: batches of items. `for (features, labels) in loader`.

@doc """
    DataLoader(data; batchsize = 1, shuffle = false, partial = true, collate = true, parallel = false, seed = 0, ...)

Batches of data: the keywords are those of MLUtils. `for batch in loader` goes through an epoch, and the next loop through the next
one. A loop that is left by `break` is continued by the next; `set_epoch!` drops the rest. After `prepare(state, loader)` each rank
has its share of the batches.

`data` is an array, whose last dimension counts the observations, a tensor, whose first one does, a tuple, a named tuple or a dictionary of those, a
[`Dataset`](@ref), or what `Dataset` or `StreamDataset` would take. Batches have its form: arrays of arrays, tensors of tensors,
tuples, named tuples and dictionaries; items of datasets that are lists and maps give tuples and named tuples.

- `batchsize`: observations of a batch; -1: all. `partial = false` leaves out a last batch that is smaller.
- `shuffle`: another order in each epoch, by `seed`, or by a number that `rng` gives.
- `collate`: how items become a batch: `true` stacks them; `false` gives the list of them; `:pad` fills them up, with `padding_value`,
  `pad_to_multiple_of`, `padding_side = :left` and `padding_masks`; or a function that gets the list of the items.
- `parallel`: `true`, or a number of threads of the library that read; where functions of Julia make items or batches there are none.
- `buffer`: taken, and without effect: no batch is in the memory of another.
- `sampler`; `batch_sampler`: a function of the epoch, from 0, that gives the numbers of the items of each batch, from 1: the same on all
  ranks. Where all batches but the last have one size, say it as `batchsize`.
- `slice`: a function of the rows that rank 0 read for all ranks, this rank's range of them, its number and how many there are; it
  gives the rank's batch (`prepare(state, loader; dispatch_batches = true)`).
- `prefetch`, `pin_memory` and others: as in torch.
""" DataLoader
function DataLoader(dataset::Dataset; batchsize::Integer = 1, shuffle::Bool = false, partial::Bool = true, collate = true,
                    parallel::Union{Bool,Integer} = false, buffer = false, rng = nothing, batch_sampler = nothing, slice = nothing,
                    sampler = C_NULL, seed = rng === nothing ? LibAccel.ACCEL_UNSET_INT64 : Int64(Base.rand(rng, UInt32)), options...)
    foreach(refuse_torch, keys(options))
    workers = parallel === true ? max(1, Threads.nthreads() - 1) : Int(parallel)
    makes_batches = collate isa Function || collate === false
    workers > 0 && (dataset.calls_julia || makes_batches || slice !== nothing) &&
        refuse("parallel = ", parallel, ": threads of the library cannot call functions of Julia; expected false")
    size = batchsize == -1 ? length(dataset) : batchsize
    loader = with_options(LibAccel.accel_dataloader_options_t; shuffle = shuffle, drop_last = !partial, seed = seed, sampler = sampler,
                          batch_size = batch_sampler === nothing ? size : LibAccel.ACCEL_UNSET_INT64,
                          collate = makes_batches || collate === true || collate === nothing ? LibAccel.ACCEL_UNSET : collate,
                          num_workers = workers, options...) do given
        made(DataLoader, out -> LibAccel.accel_dataloader_create(dataset, given, out))
    end
    makes_batches && LibAccel.accel_dataloader_set_collate(loader, collate_callback(), keep(collate === false ? collect : collate), destroy())
    slice === nothing || LibAccel.accel_dataloader_set_slice(loader, slice_callback(), keep(slice), destroy())
    loader.form = makes_batches ? :made : nothing
    batch_sampler === nothing || LibAccel.accel_dataloader_set_batch_sampler(loader, batches_callback(), keep(batch_sampler), destroy(),
        batchsize == 1 ? LibAccel.ACCEL_UNSET_INT64 : batchsize)
    return loader
end
const FURTHER = (:prefetch, :pin_memory, :padding_value, :pad_to_multiple_of, :padding_side, :padding_masks)
function refuse_torch(name)
    known = get((batch_size = "batchsize", drop_last = "partial = false", num_workers = "parallel"), name, nothing)
    known === nothing || refuse(name, " is not a keyword; expected ", known)
    name in FURTHER || refuse(name, ": unknown keyword; expected some of batchsize, shuffle, partial, collate, parallel, buffer, rng, seed, ",
        "sampler, batch_sampler, slice, ", join(FURTHER, ", "))
    return nothing
end

const Observed = Union{Tensor,AbstractArray{<:Union{Real,Complex}}}
DataLoader(data::Observed; options...) = of_observations((data,), data; options...)
DataLoader(data::Tuple{Observed,Vararg{Observed}}; options...) = of_observations(data, data; options...)
DataLoader(data::NamedTuple{names,<:Tuple{Observed,Vararg{Observed}}}; options...) where {names} =
    of_observations(Tuple(data), data; options...)
DataLoader(data::AbstractDict; options...) = of_observations(Tuple(map(observed, collect(values(data)))), data; options...)
const Arrays = Tuple{Union{Tensor,AbstractArray},Vararg}
DataLoader(data::Union{Arrays,NamedTuple{<:Any,<:Arrays}}; options...) = DataLoader(map(observed, data); options...)
observed(part::Observed) = part
observed(part) = refuse("a ", typeof(part), " among the data; expected arrays of numbers, or one vector of items, or a Dataset")
DataLoader(object; options...) = DataLoader(dataset_of(object); options...)
dataset_of(object) = applicable(getindex, object, 1) && applicable(length, object) ? Dataset(object) : StreamDataset(object)

function of_observations(parts, data; collate = true, options...)
    form = data isa Observed ? part_form(data) :
        data isa AbstractDict ? Tuple(keys(data)) => map(part_form, parts) : map(part_form, data)
    makes_batches = collate isa Function || collate === false
    make(items) = (collate === false ? identity : collate)([in_form(form, each) for each in items])
    loader = DataLoader(TensorDataset(map(to_tensors, parts)...); collate = makes_batches ? make : collate, options...)
    loader.form = !makes_batches ? form : any(part -> part isa Tensor, parts) ? :made : :made_of_arrays
    return loader
end
part_form(::Tensor) = :tensor
part_form(part::AbstractArray) = eltype(part)[]

"""What the library gives, in the form of the data: `:made` is what a function made, and `nothing` stands for a dataset."""
in_form(form::AbstractArray, batch) = as_part(form, batch[1])
in_form(form::Tuple, batch) = map(as_part, form, Tuple(batch))
in_form(form::NamedTuple{names}, batch) where {names} = NamedTuple{names}(map(as_part, Tuple(form), Tuple(batch)))
in_form((names, forms)::Pair, batch) = Dict(zip(names, map(as_part, forms, Tuple(batch))))
as_part(form, x) = x
as_part(form::AbstractArray, x) = ndims(x) == 0 ? item(x) : restored(form, x) # one observation of a vector is a number
in_form(form::Symbol, batch) = form === :tensor ? batch[1] : form === :made ? named(batch) : with_arrays(named(batch))
in_form(::Nothing, batch) = batch isa Vector ? Tuple(batch) : named(batch)

# Maps with texts as names are named tuples.
named(x) = x
named(x::Map) = all(name -> name isa String, keys(x)) ?
    NamedTuple{Tuple(map(Symbol, keys(x)))}(Tuple(map(named, values(x)))) : x
with_arrays(x) = x
with_arrays(x::Tensor) = view_array(x)
with_arrays(x::Union{Tuple,NamedTuple,Vector}) = map(with_arrays, x)

run_collate(items, out, block) = callback_status(() -> give_item(out, object_of(block)(borrowed(unsafe_load(items)))))
collate_callback() = @cfunction(run_collate, Int32, (Ptr{CValue}, Ptr{CValue}, Ptr{Cvoid}))

run_slice(rows, first, last, process_index, num_processes, out, block) = callback_status() do
    give_item(out, object_of(block)(borrowed(unsafe_load(rows)), first+1:last, Int(process_index), Int(num_processes)))
end
slice_callback() = @cfunction(run_slice, Int32, (Ptr{CValue}, Int64, Int64, Int32, Int32, Ptr{CValue}, Ptr{Cvoid}))

run_batches(epoch, out, block) =
    callback_status(() -> give_item(out, Any[Int64[number - 1 for number in batch] for batch in object_of(block)(epoch)]))
batches_callback() = @cfunction(run_batches, Int32, (Int64, Ptr{CValue}, Ptr{Cvoid}))

"""Batches of an epoch on this rank; less are left of an epoch that is resumed."""
Base.length(loader::DataLoader) = counted(LibAccel.accel_dataloader_length(loader), "accel_dataloader_length")
Base.IteratorSize(::Type{DataLoader}) = Base.SizeUnknown()
Base.eltype(::Type{DataLoader}) = Any
function Base.iterate(loader::DataLoader, ::Nothing = nothing)
    out = Ref(NONE)
    status = LibAccel.accel_dataloader_next(loader, out)
    tell()
    status == LibAccel.ACCEL_ITER_END && return nothing
    return in_form(loader.form, taken(out[])), nothing
end
"""Items that a step takes on all ranks together."""
total_batch_size(loader::DataLoader) =
    counted(LibAccel.accel_dataloader_total_batch_size(loader), "accel_dataloader_total_batch_size")
"""Items of the data, for all ranks together."""
total_dataset_length(loader::DataLoader) =
    counted(LibAccel.accel_dataloader_total_dataset_length(loader), "accel_dataloader_total_dataset_length")
describe(io::IO, loader::DataLoader) = print(io, "DataLoader(", how_many(LibAccel.accel_dataloader_length(loader), "batches"), ")")
