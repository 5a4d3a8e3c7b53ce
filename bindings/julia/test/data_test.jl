# SPDX-License-Identifier: Apache-2.0
using Random: MersenneTwister

@testset "iteration" begin
    dataset = TensorDataset(Tensor(collect(1:5)))
    loader = DataLoader(dataset; batchsize = 2)
    @test length(loader) == 3
    @test [Array(batch[1]) for batch in loader] == [[1, 2], [3, 4], [5]]
    @test [Array(x) for (x,) in loader] == [[1, 2], [3, 4], [5]]
    @test length(collect(loader)) == 3
    @test length(DataLoader(dataset; batchsize = 2, partial = false)) == 2
    orders = [sort(vcat((Array(x) for (x,) in shuffled)...)) for shuffled in (DataLoader(dataset; shuffle = true, seed = 3),)]
    @test orders == [[1, 2, 3, 4, 5]]
    for (x,) in loader
        break
    end
    @test Array(first(loader)[1]) == [3, 4]
    @test Array(first(set_epoch!(loader, 0))[1]) == [1, 2]
    saved = state_dict(loader)
    other = load_state_dict!(DataLoader(dataset; batchsize = 2), saved)
    @test Array(first(other)[1]) == [3, 4]
    @test Array(first(skip_first_batches(DataLoader(dataset; batchsize = 2), 2))[1]) == [5]
    @test sprint(show, loader) == "DataLoader(3 batches)"
end

@testset "arrays, as MLUtils loads them" begin
    x, y = reshape(Float32.(1:10), 2, 5), 10:10:50 |> collect
    loader = DataLoader((x, y); batchsize = 2)
    batches = collect(loader)
    @test batches == [(x[:, 1:2], [10, 20]), (x[:, 3:4], [30, 40]), (x[:, 5:5], [50])] && batches[1][1] isa Matrix{Float32}
    @test length(loader) == 3 && length(DataLoader((x, y); batchsize = 2, partial = false)) == 2
    @test [batch.label for batch in DataLoader((features = x, label = y); batchsize = 3)] == [[10, 20, 30], [40, 50]]
    @test collect(DataLoader(Dict(:x => x, :label => y); batchsize = 3))[2] == Dict(:x => x[:, 4:5], :label => [40, 50])
    @test occursin("among the data", (@test_throws ArgumentError DataLoader((x, ["a", "b", "c", "d", "e"]))).value.msg)
    @test first(DataLoader(x; batchsize = -1)) == x
    @test first(DataLoader((x = Tensor(y), z = y); batchsize = 2)).x isa Tensor
    @test first(DataLoader((x, y); batchsize = 2, collate = false)) == [(x[:, 1], 10), (x[:, 2], 20)] # items are views of one column
    @test first(DataLoader((x, y); batchsize = 2, collate = items -> (sums = [sum(item[1]) for item in items],))).sums == [3, 7]
    shuffled(; options...) = vcat((batch for batch in DataLoader(y; shuffle = true, options...))...)
    @test shuffled(rng = MersenneTwister(1)) == shuffled(rng = MersenneTwister(1)) && sort(shuffled(seed = 3)) == y
    @test collect(DataLoader(y; parallel = 1, buffer = true, batchsize = 5)) == [y]
    @test first(DataLoader(view(x, 1:1, :); batchsize = 2)) == x[1:1, 1:2]
    @test first(skip_first_batches(loader, 2)) == (x[:, 5:5], [50])
    @test first(prepare(State(cpu = true), loader)) == batches[1]
end

@testset "samplers" begin
    @test indices(SequentialSampler(3), 0) == [1, 2, 3]
    @test sort(indices(RandomSampler(10; seed = 1), 0)) == 1:10
    @test indices(RandomSampler(10; seed = 1), 1) != indices(RandomSampler(10; seed = 1), 0)
    @test length(RandomSampler(7)) == 7
    @test length(indices(RandomDraws(3, 10; replacement = true), 0)) == 10
    @test indices(WeightedSampler([0, 1, 0], 4), 0) == [2, 2, 2, 2]
    @test indices(SubsetSampler([3, 1]), 0) == [3, 1]
    @test sort(indices(LengthGroupedSampler([5, 1, 5, 1], 2), 0)) == 1:4
    @test indices(DistributedSampler(6, 2, 1; shuffle = false), 0) == [2, 4, 6]
end

@testset "what makes a batch" begin
    rows = RaggedDataset([[1, 2, 3], [4], [5, 6]])
    padded = DataLoader(rows; batchsize = 3, collate = :pad, padding_value = -1, padding_side = :left, padding_masks = true)
    (numbers, mask), = padded
    @test Array(numbers) == [1 2 3; -1 -1 4; -1 5 6] && Array(mask) == [1 1 1; 0 0 1; 0 1 1]
    @test size(first(DataLoader(rows; batchsize = 3, collate = :pad, pad_to_multiple_of = 4))[1]) == (3, 4)
    @test_throws AccelError first(DataLoader(rows; batchsize = 3))
    lengths = DataLoader(rows; batchsize = 2, collate = items -> (sizes = [length(row) for (row,) in items], count = length(items)))
    @test Array(first(lengths).sizes) == [3, 1] && first(DataLoader(rows; collate = items -> "text")) == "text"
    @test [batch.count for batch in set_epoch!(lengths, 0)] == [2, 1]
end

@testset "what is in a batch" begin
    dataset = TensorDataset(Tensor(collect(10:10:60)))
    chosen = DataLoader(dataset; batch_sampler = epoch -> [[6, 1], [epoch + 1]])
    @test [[Array(x) for (x,) in chosen] for _ in 1:2] == [[[60, 10], [10]], [[60, 10], [20]]] && current_epoch(chosen) == 2
    @test length(DataLoader(dataset; batch_sampler = epoch -> [[1, 2], [3]], batchsize = 2)) == 2
    sampled = DataLoader(dataset; batchsize = 2, sampler = SubsetSampler([2, 4, 6]))
    @test [(Array(x), valid_rows(sampled)) for (x,) in sampled] == [([20, 40], 2), ([60], 1)]
    ordered = Sampler((epoch, length) -> length:-1:1, 3)
    @test indices(ordered, 0) == [3, 2, 1]
    @test_throws DimensionMismatch indices(Sampler((epoch, length) -> [1], 3), 0)
    State(cpu = true) do state
        shared = prepare(state, DataLoader(dataset; batchsize = 4))
        @test (total_batch_size(shared), total_dataset_length(shared)) == (4, 6) && Accel.config(even_batches!(shared, false))["even_batches"] == false
        @test !in_dataloader(state) && (first(shared); in_dataloader(state))
        gradient_accumulation!(state; num_steps = 3, sync_each_batch = true)
        @test gradient_accumulation(state)["num_steps"] == 3 && gradient_accumulation(state)["sync_each_batch"] && gradient_accumulation_steps(state) == 3
        sliced = DataLoader(dataset; batchsize = 2, slice = (rows, range, rank, ranks) -> (Array(rows[1])[range], rank, ranks))
        rows, rank, ranks = first(prepare(state, sliced; dispatch_batches = true))
        @test Array(rows) == [10, 20] && (rank, ranks) == (0, 1)
    end
end

@testset "exceptions of Julia's come out of the loop" begin
    struct Unreadable <: Exception end
    struct Uncounted end
    Base.length(::Uncounted) = throw(Unreadable())
    Base.getindex(::Uncounted, index::Int) = index
    failing = Ref(true)
    reads = DataLoader(Dataset(mapped(i -> failing[] && i == 3 ? throw(Unreadable()) : i, 4)); batchsize = 2)
    seen = []
    @test_throws Unreadable foreach(batch -> push!(seen, Array(batch)), reads)
    failing[] = false # the same batch can be asked for again
    foreach(batch -> push!(seen, Array(batch)), reads)
    @test seen == [[1, 2], [3, 4]]
    @test_throws Unreadable first(DataLoader(Dataset(1:3); collate = items -> throw(Unreadable())))
    @test_throws Unreadable first(DataLoader(TensorDataset(Tensor([1])); batch_sampler = epoch -> throw(Unreadable())))
    @test_throws Unreadable first(DataLoader(StreamDataset((epoch, shards) -> throw(Unreadable()))))
    @test_throws Unreadable first(DataLoader(StreamDataset(throw(Unreadable()) for _ in 1:2)))
    @test_throws Unreadable length(Dataset(Uncounted()))
    @test sprint(show, Dataset(Uncounted())) == "Dataset(a stream)" && !haskey(task_local_storage(), :accel_carried)
    for wrong in ((collate = identity,), (slice = identity,))
        @test_throws ArgumentError DataLoader(TensorDataset(Tensor([1])); parallel = 1, wrong...)
    end
    @test_throws ArgumentError DataLoader(Dataset(1:3)[1:2]; parallel = 1)
    @test_throws ArgumentError DataLoader(merge(as_stream(vcat(Dataset(1:3)))); parallel = 1)
    @test length(DataLoader(TensorDataset(Tensor([1])); parallel = 1)) == 1
    @test_throws ArgumentError DataLoader(TensorDataset(Tensor([1])); collate = :heap)
    @test occursin("expected some of batchsize, shuffle",
        (@test_throws ArgumentError DataLoader(TensorDataset(Tensor([1])); batchsise = 1)).value.msg)
    @test occursin("expected batchsize", (@test_throws ArgumentError DataLoader([1]; batch_size = 1)).value.msg)
end
