# Loaders: batches of items. `for (features, labels) in loader`.

@doc """
    DataLoader(dataset; batch_size = 1, shuffle = false, drop_last = false, seed = 0, sampler, prefetch = 2, num_workers = 0, ...)

Makes batches of the items of a dataset, or of an object that `Dataset` or `StreamDataset` would take. `for batch in loader` goes
through an epoch, and the next loop through the next one. A loop that is left by `break` is continued by the next; `set_epoch!` drops
the rest.

- `collate`: how items become a batch: `:stack`; `:pad`, with `padding_value`, `pad_to_multiple_of`, `padding_side = :left` and
  `padding_masks`; or a function that gets the list of the items.
- `batch_sampler`: a function of the epoch, from 0, that gives the numbers of the items of each batch, from 1: the same on all ranks.
  Where all batches but the last have one size, say it as `batch_size`.
- `slice`: a function of the rows that rank 0 read for all ranks, this rank's range of them, its number and how many there are; it
  gives the rank's batch (`prepare(state, loader; dispatch_batches = true)`).
- `num_workers`: threads of the library that read; where functions of Julia make items or batches there are none.
- `pin_memory`: as in torch.
""" DataLoader
function DataLoader(dataset::Dataset; batch_size = LibAccel.ACCEL_UNSET_INT64, collate = LibAccel.ACCEL_UNSET, batch_sampler = nothing,
                    slice = nothing, sampler = C_NULL, num_workers = 0, options...)
    num_workers > 0 && (dataset.calls_julia || collate isa Function || slice !== nothing) &&
        refuse("num_workers = ", num_workers, ": workers cannot call functions of Julia; expected 0")
    size = batch_sampler === nothing ? batch_size : LibAccel.ACCEL_UNSET_INT64
    kind = collate isa Function ? LibAccel.ACCEL_UNSET : collate
    loader = with_options(LibAccel.accel_dataloader_options_t; batch_size = size, collate = kind, sampler = sampler,
                          num_workers = num_workers, options...) do given
        made(DataLoader, out -> LibAccel.accel_dataloader_create(dataset, given, out))
    end
    collate isa Function && LibAccel.accel_dataloader_set_collate(loader, collate_callback(), keep(collate), destroy())
    slice === nothing || LibAccel.accel_dataloader_set_slice(loader, slice_callback(), keep(slice), destroy())
    batch_sampler === nothing ||
        LibAccel.accel_dataloader_set_batch_sampler(loader, batches_callback(), keep(batch_sampler), destroy(), batch_size)
    return loader
end
DataLoader(object; options...) = DataLoader(dataset_of(object); options...)
dataset_of(object) = applicable(getindex, object, 1) && applicable(length, object) ? Dataset(object) : StreamDataset(object)

run_collate(items, out, block) = answered(() -> give_item(out, kept(block)(borrowed(unsafe_load(items)))))
collate_callback() = @cfunction(run_collate, Int32, (Ptr{CValue}, Ptr{CValue}, Ptr{Cvoid}))

run_slice(rows, first, last, process_index, num_processes, out, block) = answered() do
    give_item(out, kept(block)(borrowed(unsafe_load(rows)), first+1:last, Int(process_index), Int(num_processes)))
end
slice_callback() = @cfunction(run_slice, Int32, (Ptr{CValue}, Int64, Int64, Int32, Int32, Ptr{CValue}, Ptr{Cvoid}))

run_batches(epoch, out, block) =
    answered(() -> give_item(out, Any[Int64[number - 1 for number in batch] for batch in kept(block)(epoch)]))
batches_callback() = @cfunction(run_batches, Int32, (Int64, Ptr{CValue}, Ptr{Cvoid}))

"""Batches of an epoch on this rank; less are left of an epoch that is resumed."""
Base.length(loader::DataLoader) = counted(LibAccel.accel_dataloader_length(loader), "accel_dataloader_length")
Base.IteratorSize(::Type{DataLoader}) = Base.SizeUnknown()
Base.eltype(::Type{DataLoader}) = Any
function Base.iterate(loader::DataLoader, ::Nothing = nothing)
    out = Ref(NONE)
    status = LibAccel.accel_dataloader_next(loader, out)
    return status == LibAccel.ACCEL_ITER_END ? nothing : (taken(out[]), nothing)
end
"""Items that a step takes on all ranks together."""
total_batch_size(loader::DataLoader) =
    counted(LibAccel.accel_dataloader_total_batch_size(loader), "accel_dataloader_total_batch_size")
"""Items of the data, for all ranks together."""
total_dataset_length(loader::DataLoader) =
    counted(LibAccel.accel_dataloader_total_dataset_length(loader), "accel_dataloader_total_dataset_length")
describe(io::IO, loader::DataLoader) = print(io, "DataLoader(", how_many(LibAccel.accel_dataloader_length(loader), "batches"), ")")
