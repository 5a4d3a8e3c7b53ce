# SPDX-License-Identifier: Apache-2.0
# Datasets that Julia makes: map-style or iterable. They are made on the thread of the call that wants them.

"""An array whose value is a tensor over its memory."""
struct ArrayItem
    array::AbstractArray
end
function owned(numbers::ArrayItem)
    tensor = Tensor(numbers.array)
    value = owned(tensor)
    close(tensor)
    return value
end

# In items and batches arrays of numbers are tensors; elsewhere vectors are lists.
as_item(x) = x
as_item(x::AbstractArray{<:Union{Real,Complex}}) = ArrayItem(x)
as_item(x::AbstractVector{<:Union{Real,Complex}}) = ArrayItem(x)
as_item(x::Union{Tuple,NamedTuple}) = map(as_item, x)
as_item(x::AbstractVector) = Any[as_item(each) for each in x]
as_item(x::AbstractDict) = Map(name => as_item(each) for (name, each) in pairs(x))
give_item(out::Ptr{CValue}, x) = give(out, as_item(x))

run_length(block) = callback_number(() -> length(object_of(block)))
length_callback() = @cfunction(run_length, Int64, (Ptr{Cvoid},))

run_item(index, out, block) = callback_status(() -> give_item(out, object_of(block)[index+1]))
item_callback() = @cfunction(run_item, Int32, (Int64, Ptr{CValue}, Ptr{Cvoid}))

run_items(indices, n_indices, out, block) = callback_status() do
    items = object_of(block)[[unsafe_load(indices, place) + 1 for place in 1:n_indices]]
    give_item(out, Any[each for each in items])
end
items_callback() = @cfunction(run_items, Int32, (Ptr{Int64}, Csize_t, Ptr{CValue}, Ptr{Cvoid}))

run_set_epoch(epoch, block) = callback_status(() -> set_epoch!(object_of(block), epoch))
set_epoch_callback(object) =
    applicable(set_epoch!, object, Int64(0)) ? @cfunction(run_set_epoch, Int32, (Int64, Ptr{Cvoid})) : C_NULL

function Dataset(object; by_batch::Bool = false)
    by_number = applicable(length, object) && applicable(getindex, object, 1) && !(object isa Union{AbstractDict,AbstractString,Number})
    by_number || refuse("a ", typeof(object), " is not a dataset: expected length(object) and object[i]; StreamDataset takes what can be iterated")
    dataset = made(Dataset, out -> LibAccel.accel_dataset_create(
        length_callback(), item_callback(), by_batch ? items_callback() : C_NULL, set_epoch_callback(object), keep(object), destroy(), out))
    dataset.calls_julia = true
    return dataset
end

"""A reader of a stream: an iterator, and what `iterate` gave last."""
mutable struct Reader
    items::Any
    last::Any
    begun::Bool
end
Reader(items) = Reader(items, nothing, false)

"""The next item in a tuple; nothing after the last one. After an exception it can be asked for again."""
function read_item(reader::Reader)
    step = reader.begun ? iterate(reader.items, reader.last) : iterate(reader.items)
    step === nothing && return nothing
    reader.begun, reader.last = true, step[2]
    return (step[1],)
end

function skip_items(reader::Reader, count)
    if !reader.begun && reader.items isa AbstractVector
        skipped = min(count, length(reader.items))
        reader.items = view(reader.items, firstindex(reader.items)+skipped:lastindex(reader.items))
        return skipped
    end
    skipped = 0
    while skipped < count && read_item(reader) !== nothing
        skipped += 1
    end
    return skipped
end

struct Stream
    begin_epoch::Any
    num_shards::Int
end

# The number of a reader is the block that roots it, and C ends it as it lets go of everything: without Julia.
run_begin(epoch, shard, num_readers, block) = callback_number() do
    stream = object_of(block)::Stream
    reinterpret(Int, keep(Reader(stream.begin_epoch(epoch, shard+1:num_readers:stream.num_shards))))
end
begin_callback() = @cfunction(run_begin, Int64, (Int64, Int64, Int64, Ptr{Cvoid}))

reader_of(number) = object_of(Ptr{Cvoid}(number))::Reader

function run_next(number, out, block)
    has_ended = Ref(false)
    status = callback_status() do
        item = read_item(reader_of(number))
        item === nothing ? (has_ended[] = true) : give_item(out, first(item))
    end
    return has_ended[] ? LibAccel.ACCEL_ITER_END : status
end
next_callback() = @cfunction(run_next, Int32, (Int64, Ptr{CValue}, Ptr{Cvoid}))

run_skip(number, count, block) = callback_number(() -> skip_items(reader_of(number), count))
skip_callback() = @cfunction(run_skip, Int64, (Int64, Int64, Ptr{Cvoid}))

"""    StreamDataset(iterator)
    StreamDataset(; length = nothing, num_shards = 1) do epoch, shards ... end

Items one after another. The function gives what is iterated in an epoch, from 0: the same items for the same arguments. In a stream with
several shards each rank reads some, those in the range `shards`. A vector is resumed without reading what was read."""
function StreamDataset(begin_epoch::Function; length = nothing, num_shards::Integer = 1)
    dataset = made(Dataset, out -> LibAccel.accel_dataset_create_stream(begin_callback(), next_callback(), skip_callback(), destroy(),
        keep(Stream(begin_epoch, num_shards)), destroy(), something(length, LibAccel.ACCEL_UNSET_INT64), num_shards, out))
    dataset.calls_julia = true
    return dataset
end
function StreamDataset(iterator)
    applicable(iterate, iterator) || refuse("a ", typeof(iterator), " cannot be iterated; expected what can")
    known = Base.IteratorSize(typeof(iterator)) isa Union{Base.HasLength,Base.HasShape}
    return StreamDataset((epoch, shards) -> iterator; length = known ? length(iterator) : nothing)
end
