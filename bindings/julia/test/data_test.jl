@testset "datasets" begin
    dataset = TensorDataset(Tensor([1 2; 3 4; 5 6]), Tensor([10, 20, 30]))
    @test length(dataset) == 3 && Array(dataset[2][1]) == [3, 4] && item(dataset[end][2]) == 30
    @test length(subset(dataset, 2:3)) == 2 && item(subset(dataset, 2:3)[1][2]) == 20
    @test_throws BoundsError dataset[4]
    @test_throws BoundsError dataset[0]
    @test_throws AccelError TensorDataset(Tensor([1, 2]), Tensor([1]))
    mktempdir() do folder
        write(joinpath(folder, "a.txt"), "0123456789")
        text = TextDataset(joinpath(folder, "a.txt"), 4)
        @test String(UInt8.(Array(text[1][1]))) == "0123" && String(UInt8.(Array(text[1][2]))) == "1234"
        @test_throws AccelError TextDataset(joinpath(folder, "missing"), 4)
    end
end

@testset "iteration" begin
    dataset = TensorDataset(Tensor(collect(1:5)))
    loader = DataLoader(dataset; batch_size = 2)
    @test length(loader) == 3
    @test [Array(batch[1]) for batch in loader] == [[1, 2], [3, 4], [5]]
    @test [Array(x) for (x,) in loader] == [[1, 2], [3, 4], [5]]
    @test length(collect(loader)) == 3
    @test length(DataLoader(dataset; batch_size = 2, drop_last = true)) == 2
    orders = [sort(vcat((Array(x) for (x,) in shuffled)...)) for shuffled in (DataLoader(dataset; shuffle = true, seed = 3),)]
    @test orders == [[1, 2, 3, 4, 5]]
    for (x,) in loader
        break
    end
    @test Array(first(loader)[1]) == [3, 4]
    @test Array(first(set_epoch!(loader, 0))[1]) == [1, 2]
    saved = state_dict(loader)
    other = load_state_dict!(DataLoader(dataset; batch_size = 2), saved)
    @test Array(first(other)[1]) == [3, 4]
    @test Array(first(skip_first_batches(DataLoader(dataset; batch_size = 2), 2))[1]) == [5]
    @test sprint(show, loader) == "DataLoader(3 batches)"
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
