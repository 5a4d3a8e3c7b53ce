# SPDX-License-Identifier: Apache-2.0
# Two ranks: accel launch --num-processes 2 -- julia --project=bindings/julia bindings/julia/test/ranks.jl
using Test, Accel, Accel.Collectives, Accel.Data, Accel.Layers, Accel.Optimizers, Accel.Processes, Accel.Tensors, Accel.Training,
    Accel.Values

State(cpu = true, timeout_ms = 60_000) do state
    rank = process_index(state)
    mine = Tensor(Float32[rank, 10rank])

    @testset "collectives of rank $rank (interruptible: $wanted)" for wanted in (false, true)
        interruptible!(wanted)
        @test num_processes(state) == 2 && backend(state) == "ucx" && is_main_process(state) == (rank == 0)
        @test Array(gather(state, mine)) == [0, 0, 1, 10]
        tree = gather(state, (a = mine, b = [Tensor(rank)]))
        @test Array(tree.a) == [0, 0, 1, 10] && Array(tree.b[1]) == [0, 1]
        @test Array(gather_uneven(state, Tensor(collect(0:rank)))) == [0, 0, 1]
        @test gather_object(state, (rank = rank,)) == [Dict("rank" => 0), Dict("rank" => 1)]
        @test Array(Accel.reduce(state, mine; by = :mean)) == [0.5, 5]
        @test Array(Accel.reduce(state, mine; by = :max, scale = 2)) == [2, 20]
        @test Array(Accel.broadcast!(state, copy(mine); from = 1)) == [1, 10]
        @test broadcast_objects(state, ["from $rank"]) == ["from 0"]
        @test size(pad_across_processes(state, Tensor(ones(rank + 1, 2)))) == (2, 2)
        @test size(pad_across_processes(state, Tensor(ones(2, rank + 1)); dim = 2, pad_index = 5)) == (2, 2)
        wait_for_everyone(state)
        interruptible!(false)
    end

    @testset "in the memory of Julia" begin
        array = Float32[rank 1; 2 3]
        where_it_was = pointer(array)
        @test all_reduce!(state, array) === array && array == [1 2; 4 6] && pointer(array) == where_it_was
        both = Accel.zeros(Float32, 4)
        @test Array(all_gather!(state, both, mine)) == [0, 0, 1, 10]
        part = Accel.zeros(Float32, 2)
        @test Array(reduce_scatter!(state, part, both)) == (rank == 0 ? [0, 0] : [2, 20])
        @test Array(all_to_all!(state, part, Tensor(Float32[rank, rank + 10]))) == (rank == 0 ? [0, 1] : [10, 11])
        @test Array(scatter!(state, part, rank == 0 ? Tensor(Float32[1, 2, 3, 4]) : nothing)) == (rank == 0 ? [1, 2] : [3, 4])
        rank == 0 ? send_tensor(state, mine; to = 1, tag = 3) : recv_tensor!(state, part; from = 0, tag = 3)
        @test rank == 0 || Array(part) == [0, 0]
        @test_throws AccelError all_reduce!(state, Tensor(Float32[1 2; 3 4]))
    end

    @testset "arrays in, arrays out (interruptible: $wanted)" for wanted in (false, true)
        interruptible!(wanted)
        columns = Float32[rank 1; 2 rank]
        @test gather(state, columns)::Matrix{Float32} == Float32[0 1 1 1; 2 0 2 1] # along the last dimension
        @test gather(state, rank)::Vector{Int} == [0, 1] && Accel.reduce(state, rank + 0.5; by = :mean)::Float64 == 1
        @test Accel.reduce(state, (loss = 0.5f0 + rank, counts = (1, [rank]))) == (loss = 2.0f0, counts = (2, [1]))
        @test gather(state, (rank,)) == ([0, 1],) && Accel.reduce(state, (0.5f0,))[1] isa Float32
        @test occursin("in place", (@test_throws ArgumentError Accel.broadcast!(state, (columns, 3))).value.msg)
        tree = gather(state, (a = [rank], b = (columns, Tensor([rank]))))
        @test tree.a == [0, 1] && size(tree.b[1]) == (2, 4) && tree.b[2] isa Tensor && gather(state, Dict("x" => [rank]))["x"] == [0, 1]
        @test fetch(gather_async(state, [rank 5]))::Matrix{Int} == [0 5 1 5]
        @test gather(state, view(columns, :, 1:1)) == Float32[0 1; 2 2]
        @test Accel.reduce(state, columns; by = :sum)::Matrix{Float32} == Float32[1 2; 4 1] && columns[1] == rank
        @test Accel.broadcast!(state, columns; from = 1) === columns && columns == Float32[1 1; 2 1]
        @test pad_across_processes(state, fill(1, 2, rank + 1); pad_index = 7) == (rank == 0 ? [1 7; 1 7] : [1 1; 1 1])
        @test pad_across_processes(state, fill(1, rank + 1, 2); dim = 1) == (rank == 0 ? [1 1; 0 0] : [1 1; 1 1])
        both, part = zeros(4), zeros(2)
        @test all_gather!(state, both, [rank + 1.0, 5]) === both == [1, 5, 2, 5]
        @test reduce_scatter!(state, part, both) === part == (rank == 0 ? [2, 10] : [4, 10])
        @test all_to_all!(state, part, [rank, rank + 10.0]) == (rank == 0 ? [0, 1] : [10, 11])
        @test scatter!(state, part, rank == 0 ? [1.0, 2, 3, 4] : nothing) == (rank == 0 ? [1, 2] : [3, 4])
        rank == 0 ? send_tensor(state, [8.0, 9]; to = 1) : (@test recv_tensor!(state, part; from = 0) == [8, 9])
        for (x, y) in prepare(state, DataLoader((reshape(collect(1:8), 2, 4), 1:4 |> collect); batchsize = 1))
            @test x isa Matrix{Int} && x == [2y[1] - 1 2y[1]]' && isodd(y[1]) == (rank == 0)
        end
        interruptible!(false)
    end

    @testset "works and groups" begin
        works = [gather_async(state, Tensor(i)) for i in 1:3]
        @test [Array(fetch(work)) for work in works] == [[1, 1], [2, 2], [3, 3]]
        alone = split_group(state, rank)
        @test num_processes(alone) == 1
        close(alone)
        pair = group(state, [1, 0])
        @test process_index(pair) == 1 - rank
        close(pair)
        grid = Mesh(state, "replica" => 2, "expert" => 1)
        @test size(grid, "replica") == 2 && coordinate(grid, "replica,expert") == rank
        @test string(mesh(state)) == "pipeline 1, replicate 2, shard 1, context 1, tensor 1; this rank is at 0, $rank, 0, 0, 0"
        @test occursin("Mesh(replica 2", sprint(show, grid))
        replicas = group(grid, "replica")
        @test num_processes(replicas) == 2
        close(replicas)
        @test_throws AccelError size(grid, "tensor")
        close(grid)
        @test split_range(state, 5) == (rank == 0 ? (1:3) : (4:5))
        @test split_between_processes(state, ["a", "b"]) == [rank == 0 ? "a" : "b"]
        rank == 1 && set_trigger!(state)
        @test check_trigger(state) && !check_trigger(state)
        @test main_process_first(() -> rank, state) == rank
        @test on_local_process(() -> rank, state, 1) === (rank == 1 ? 1 : nothing) && is_distributed(state) && !is_debug(state)
        @test use_device!(state) === state
        @test occursin("operations", flight_record(state))
    end

    @testset "a mismatch is an error on every rank" begin
        problem = try
            gather(state, rank == 0 ? Tensor([1]) : Tensor([1, 2, 3]))
        catch exception
            exception
        end
        @test problem isa AccelError && problem.rank in 0:1 && problem.status == Accel.LibAccel.ACCEL_ERROR_COLLECTIVE_MISMATCH
    end

    @testset "data parallelism" begin
        seed!(state, rank)
        network = Linear(2, 1; bias = false)
        model, optimizer, loader = prepare(state, network, SGD(network; lr = 0.1),
            DataLoader(TensorDataset(Tensor(Float32[1 0; 0 1; 2 0; 0 2]), Tensor(collect(1:4))); batchsize = 1))
        @test Array(Accel.reduce(state, network["weight"]; by = :max)) == Array(network["weight"])
        seen = Int[]
        for (x, label) in loader
            push!(seen, item(label))
            Accel.accumulate(state, model) do
                backward(state, sum(model(x)))
                step!(optimizer)
                zero_grad!(optimizer)
            end
        end
        @test seen == (rank == 0 ? [1, 3] : [2, 4])
        @test Array(Accel.reduce(state, network["weight"]; by = :max)) == Array(network["weight"])

        hooked = Linear(1, 1)
        buckets = Int[]
        prepared = prepare(state, hooked)
        register_comm_hook!(state, prepared) do buffer, bucket, is_last
            push!(buckets, bucket)
            all_reduce!(state, buffer; by = :sum)
        end
        backward(state, sum(prepared(Tensor(Float32[rank + 1][:, :]))))
        @test buckets == [0] && Array(gradient(hooked["weight"])) == fill(3, 1, 1)
    end

    @testset "scopes of the training loop" begin
        network = Linear(1, 1; bias = false)
        model = prepare(state, network)
        input = Tensor(Float32[rank + 1][:, :])
        no_sync(() -> backward(state, sum(model(input))), state, model)
        @test item(gradient(network["weight"])[1, 1]) == rank + 1
        optimizer = prepare(state, SGD(network; lr = 0.1))
        zero_grad!(optimizer)
        Accel.accumulate(state, model) do
            backward_sum(state, sum(model(input)), 1)
        end
        @test item(gradient(network["weight"])[1, 1]) == 1.5
        @test clip_grad_norm!(state, model, 1.0) == 1.5 && isapprox(item(gradient(network["weight"])[1, 1]), 1; atol = 1e-5)
        clip_grad_value!(state, model, 0.5)
        unscale_gradients!(state, optimizer)
        @test item(gradient(network["weight"])[1, 1]) == 0.5 && loss_scale(state) == 1
        zero_grad!(optimizer)

        averaged = Bool[]
        local_sgd(state, model, 2) do averaging
            for _ in 1:4
                backward(state, sum(model(input)))
                step!(optimizer)
                zero_grad!(optimizer)
                push!(averaged, step!(averaging))
            end
            @test haskey(state_dict(averaging), "steps") || length(state_dict(averaging)) > 0
        end
        @test averaged == [false, true, false, true]
        @test Array(Accel.reduce(state, network["weight"]; by = :min)) == Array(network["weight"])

        # Rank 1 has a batch more.
        join_uneven_inputs(state, model; even_batches = 0) do
            for _ in 1:rank+1
                backward(state, sum(model(input)))
                step!(optimizer)
                zero_grad!(optimizer)
            end
        end
        @test Array(Accel.reduce(state, network["weight"]; by = :min)) == Array(network["weight"])
    end

    @testset "a short last batch" begin
        loader = prepare(state, DataLoader(TensorDataset(Tensor(collect(1:7))); batchsize = 2))
        gathered = Int[]
        for (x,) in loader
            append!(gathered, Array(gather_for_metrics(state, x)))
        end
        @test sort(gathered) == 1:7
    end

    @testset "parameters of Julia's" begin
        weights = (a = Float32[rank 2; 3 4], b = [5.0f0])
        own = Parameters(state, weights)
        @test weights.a == [0 2; 3 4]
        optimizer = prepare(state, SGD(Model(own); lr = 1.0))
        @test isapprox(step!(own, optimizer, (b = [4.0f0 * rank], a = Float32[0 1; 0 rank])), sqrt(4 + 1 + 0.25); rtol = 1e-5)
        @test weights.a == [0 1; 3 3.5] && weights.b == [3]
    end

    @testset "gradients of Julia's" begin
        own = Model("Own"; weight = Tensor(Float32[rank, 0]))
        gradients = Parameters(state, own)
        Accel.accumulate(state) do
            grad_ready!(gradients, 1, Float32[rank, 2])
            synchronize!(gradients)
        end
        @test Array(gradient(gradients, 1)) == [0.5, 2] && Array(own["weight"]) == [0, 0]
    end
end

# A forward of Julia's that calls LibTorch's attention, with a part of the positions on each rank.
State(cpu = true, timeout_ms = 60_000, context_parallel_size = 2) do state
    @testset "a sequence that is split" begin
        attention = Model("Attention"; scale = full(2.0f0, 1)) do self, x
            return aten.scaled_dot_product_attention(x .* self["scale"], x, x; is_causal = true)
        end
        x = aten.sin(aten.reshape(aten.arange(64.0), [1, 2, 8, 4]))
        whole = attention(x)
        part = context_parallel(state, [x], [2], []) do
            attention(x)
        end
        @test length(x) == 64 && length(part) == 32
        @test Array(context_parallel_gather(state, part, 2)) ≈ Array(whole)
        @test_throws DimensionMismatch context_parallel(() -> error("not reached"), state, [x], Int[], [])
    end
end
