# SPDX-License-Identifier: Apache-2.0
struct OwnException <: Exception
    number::Int
end

affine() = Model("Affine"; weight = full(2, 1), bias = Accel.ones(Float32, 1)) do self, x
    return x .* self["weight"] .+ self["bias"]
end

@testset "a forward of Julia's" begin
    model = affine()
    x = Tensor(Float32[1, 2])
    @test Array(model(x)) == [3, 5]
    backward(sum(model(x)))
    @test Array(gradient(model["weight"])) == [3] && Array(gradient(model["bias"])) == [2]
    set_forward!((self, x) -> (sum = x, pair = [x, x]), model)
    @test Array(model(x)["pair"][2]) == [1, 2]
    @test_throws AccelError set_forward!((self, x) -> x, Linear(1, 1))
end

@testset "Julia's own exception, with its trace" begin
    deep(x) = throw(OwnException(42))
    model = Model((self, x) -> deep(x), "Throws")
    try
        model(Tensor([1.0]))
        @test false
    catch exception
        @test exception === OwnException(42)
        causes = [entry[1] for entry in (VERSION < v"1.7" ? Base.catch_stack() : Base.current_exceptions())]
        traced = sprint(showerror, first(filter(cause -> cause isa CapturedException, causes)))
        @test occursin("deep", traced) && occursin("callback_test.jl", traced)
    end
    # An error of the library inside keeps its status, and one that was handled inside leaves nothing behind.
    wrong = Model((self, x) -> x * x, "Wrong")
    problem = @test_throws AccelError wrong(Tensor(ones(2, 3)))
    @test problem.value.call == "accel_op_call"
    handled = Model("Handles") do self, x
        try
            deep(x)
        catch
        end
        return x
    end
    @test item(handled(Tensor(1.0))) == 1
    # From a callback inside a callback.
    outer = Model((self, x) -> model(x), "Outer")
    @test_throws OwnException outer(Tensor([1.0]))
end

@testset "hooks" begin
    model, seen = affine(), Any[]
    add_hook!((self, x) -> (push!(seen, kind(self)); (x .* 10,)), model; when = :before)
    add_hook!((self, y) -> (push!(seen, Array(y)); nothing), model)
    @test Array(model(Tensor(Float32[1]))) == [21] && seen == ["Affine", [21]]
    failing = add_hook!((self, y) -> throw(OwnException(1)), model)
    @test_throws OwnException model(Tensor(Float32[1]))
    remove_hook!(model, failing)
    @test Array(model(Tensor(Float32[1]))) == [21]
    @test_throws AccelError remove_hook!(model, failing)
    @test_throws ArgumentError add_hook!(identity, model; when = :never)
    host = input_names!(Model((self, inputs...) -> length(inputs), "Host"), "x,mask")
    @test host(1; mask = 2) == 2 && host(x = 1) == 1
    @test_throws AccelError host(1; msak = 2)
    layer, steps = Linear(1, 1), Any[]
    add_hook!((self, g) -> (push!(steps, item(g)); (g .* 3,)), layer; when = :before_backward)
    add_hook!((self, g...) -> (push!(steps, length(g)); nothing), layer; when = :after_backward)
    backward(sum(layer(Tensor(Float32[2.0]))))
    @test steps == [1, 0] && Array(gradient(layer["weight"])) == reshape(Float32[6], 1, 1)
end

@testset "an update of Julia's" begin
    model = affine()
    optimizer = Optimizer(model; states = ["velocity"], lr = 0.1) do parameter, gradient, states, step, lr, weight_decay
        velocity = view_array(states["velocity"])
        velocity .= 0.9f0 .* velocity .+ view_array(gradient)
        view_array(parameter) .-= Float32(lr) .* velocity
    end
    backward(sum(model(Tensor(Float32[1]))))
    @test step!(optimizer)
    @test Array(model["weight"]) ≈ [1.9] && Array(model["bias"]) ≈ [0.9]
    @test occursin("velocity", join(keys(state_dict(optimizer)["state"][0]), " "))
    failing = Optimizer((arguments...) -> throw(OwnException(2)), model; lr = 1)
    @test_throws OwnException step!(failing)
end

@testset "schedules, orders, trees, works" begin
    optimizer = SGD(Linear(1, 1); lr = 1.0)
    scheduler = Scheduler(step -> 1 / (1 + step), optimizer)
    step!(scheduler)
    @test learning_rate(optimizer) == 0.5
    @test_throws OwnException Scheduler(step -> throw(OwnException(3)), optimizer)

    backwards = Sampler((epoch, length) -> length:-1:1, 3)
    @test indices(backwards, 0) == [3, 2, 1]
    loader = DataLoader(TensorDataset(Tensor([10, 20, 30])); sampler = backwards)
    @test [item(batch[1]) for batch in loader] == [30, 20, 10]
    @test_throws DimensionMismatch indices(Sampler((epoch, length) -> 1:2, 3), 0)

    @test_throws OwnException map_tensors(x -> throw(OwnException(4)), [Tensor([1])])

    State(cpu = true) do state
        heard = Int[]
        work = then(status -> push!(heard, status), gather_async(state, Tensor([1])))
        @test Array(fetch(work)) == [1] && heard == [0] && istaskdone(work)
        seeds = Int[]
        add_seed_callback!(seed -> push!(seeds, seed), state)
        seed!(state, 5)
        @test seeds == [5]
    end
end

@testset "a batch size that fits" begin
    State(cpu = true) do state
        tried = Int[]
        size = find_executable_batch_size(state, 100) do batch_size
            push!(tried, batch_size)
            batch_size > 60 && throw(OutOfMemoryError())
        end
        @test !haskey(task_local_storage(), :accel_carried)
        @test size <= 60 && first(tried) == 100 && last(tried) == size
        @test_throws OwnException find_executable_batch_size(batch_size -> throw(OwnException(5)), state, 8)
    end
end
