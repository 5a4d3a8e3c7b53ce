# SPDX-License-Identifier: Apache-2.0
@testset "a loop" begin
    State(cpu = true, gradient_accumulation_steps = 2) do state
        seed!(state, 0)
        network = Sequential(Linear(1, 16), Activation("tanh"), Linear(16, 1))
        xs = reshape(Float32.(range(-1, 1; length = 32)), 1, 32)
        data = TensorDataset(Tensor(xs; reversed = true), Tensor(xs .^ 2; reversed = true))
        plain = AdamW(network; lr = 0.02)
        model, optimizer, scheduler, loader = prepare(state, network, plain, Scheduler(:cosine, plain, 5, 1000, 0.1),
            DataLoader(data; batchsize = 8, shuffle = true))
        losses, steps = Float64[], 0
        for epoch in 1:60, (x, y) in loader
            Accel.accumulate(state, model) do
                loss = aten.mse_loss(model(x), y)
                backward(state, loss)
                clip_grad_norm!(state, model, 1.0)
                steps += step!(optimizer)
                step!(scheduler)
                zero_grad!(optimizer)
                push!(losses, item(loss))
            end
        end
        @test steps == 120
        @test last(losses) < 0.1 * first(losses)
        @test occursin("accumulation", active(state)) || occursin("2", active(state))
        @test step_report(state)["steps"] > 0
        empty_cache!(state)
        @test memory_report(reset_peak = true)["cpu"]["kept"] == 0
        float32_matmul_precision!(:highest)
        @test_throws AccelError float32_matmul_precision!(:best)
        @test_throws ArgumentError State(cpu = true, cpu_kernels = :mkl)
        @test 0 < learning_rate(optimizer) < 0.02 && size(curve(scheduler, 3)) == (3, 1)
        @test sprint(show, state) == "State(rank 0 of 1, cpu)"
    end
end

@testset "all are prepared, or none" begin
    State(cpu = true) do state
        model, other = Linear(1, 1), Linear(1, 1)
        optimizer = SGD(model)
        prepared = prepare(state, Scheduler(:exponential, optimizer, 0.5))
        @test_throws AccelError prepare(state, other, prepared)
        @test !occursin("Linear", active(state))
        @test_throws MethodError prepare(state, model, "optimizer")
        @test distributed_type(state) == :no && remainder(state) == -1 && on_process(() -> 3, state, 0) == 3
        set_autocast!(State(cpu = true); enabled = false)
    end
end

@testset "8 bits" begin
    State(cpu = true, mixed_precision = :fp8) do state
        fp8!(state; backend = :te, amax_history_length = 4)
        @test_throws AccelError fp8!(state; amax_history_length = 0)
        model = prepare(state, Sequential(Linear(16, 16), Linear(16, 12), Linear(12, 16)))
        loss = aten.mean(aten.square(model(Accel.randn(Float32, 8, 16))))
        backward(state, loss)
        described = fp8_describe(model)
        @test described["layers"] == ["0"] && described["scaling"] == "DELAYED" && length(described["skipped"]) == 2
    end
    State(cpu = true, mixed_precision = :fp8) do state
        asked = String[]
        fp8_filter!(state) do name, weight
            push!(asked, name)
            return size(weight) == (32, 16)
        end
        model = prepare(state, Sequential(Linear(16, 16), Linear(16, 16), Linear(16, 32), Linear(32, 16)))
        @test fp8_describe(model)["layers"] == ["2"] && asked == ["1", "2"]
    end
end

@testset "generators" begin
    generator = Generator(3)
    state = generator_state(generator)
    @test generator_state!(generator, state) === generator && equal(generator_state(seed!(generator, 3)), state)
    state = generator_state()
    first_draw = Array(Accel.randn(Float32, 3))
    generator_state!(nothing, state)
    @test Array(Accel.randn(Float32, 3)) == first_draw
end

@testset "the library" begin
    @test library_version() == v"0.1.0" && build_info()["version"] == "0.1.0" && !is_available("no such part")
end

@testset "optimizers" begin
    for make in (AdamW, Adam, SGD, Adagrad, RMSprop, Adamax, NAdam, RAdam, Lion, LAMB, Adafactor, AdamW8bit)
        model = Linear(2, 1)
        before = Array(model["weight"])
        optimizer = make(model; lr = 0.1)
        backward(sum(model(Tensor(ones(Float32, 1, 2)))))
        @test step!(optimizer) && Array(model["weight"]) != before
        other = make(model; lr = 0.2)
        load_state_dict!(other, state_dict(optimizer))
        @test learning_rate(other) == 0.1
        zero_grad!(optimizer)
        @test gradient(model["weight"]) === nothing || all(iszero, Array(gradient(model["weight"])))
    end
    sgd = SGD(nothing; momentum = 0.9)
    add_group!(sgd, [requires_grad!(Tensor([1.0]))]; lr = 0.5)
    @test num_groups(sgd) == 1 && learning_rate(sgd) == 0.5 && setting(sgd, :momentum) == 0.9
    learning_rate!(setting!(sgd, :momentum, 0.8), 0.25)
    @test setting(sgd, :momentum) == 0.8 && sprint(show, sgd) == "Optimizer(lr 0.25)"
    update_precision!(sgd, :master_weights)
    @test_throws ArgumentError SGD(nothing; no_such_option = 1)
    @test_throws AccelError SGD(nothing; lr = -1.0)
end

@testset "steps by a function, and averages" begin
    model = Linear(1, 1; bias = false)
    x = Tensor(ones(Float32, 1, 1))
    weight() = item(model["weight"])
    before = weight()
    sgd = SGD(model; lr = 0.5)
    loss = step!(sgd) do
        loss = sum(model(x))
        backward(loss)
        loss
    end
    @test item(loss) ≈ before && weight() ≈ before - 0.5
    @test_throws DivideError step!(() -> div(1, 0), sgd)
    optimizer = ScheduleFreeSGD(model; lr = 0.5, momentum = 0.5)
    for _ in 1:2
        zero_grad!(optimizer)
        backward(sum(model(x)))
        step!(optimizer)
    end
    trained = weight()
    train!(optimizer, false)
    @test weight() ≈ trained + 0.125
    train!(optimizer)
    @test weight() ≈ trained
    @test AdaLomo(model; lr = 0.1) isa Optimizer && ScheduleFreeAdamW(model; beta1 = 0.8) isa Optimizer
end

@testset "how to back-propagate" begin
    State(cpu = true) do state
        inner = Linear(1, 1; bias = false)
        model = prepare(state, inner; evaluation_mode = true)
        x = requires_grad!(Tensor(ones(Float32, 1, 1)))
        y = model(x)
        backward(state, sum(y * y); create_graph = true, inputs = x)
        slope = gradient(x)
        @test slope !== nothing && gradient(inner["weight"]) === nothing
        backward(slope; gradient = Tensor(ones(Float32, 1, 1)), retain_graph = true)
        @test gradient(inner["weight"]) !== nothing
        backward_sum(state, sum(x), 1; retain_graph = true)
    end
end

@testset "schedules" begin
    sgd() = SGD(Linear(1, 1); lr = 1.0)
    for (arguments, rate) in (((:step_lr, 1, 0.5), 0.5), ((:linear_warmup, 2, 10), 0.5), ((:constant, 0.25, 5), 0.25), ((:exponential, 0.9), 0.9),
                              ((:linear, 0.5, 1.0, 10), 0.55), ((:polynomial, 4, 1.0), 0.75), ((:multi_step, [1], 0.1), 0.1),
                              ((:constant_with_warmup, 4), 0.25))
        scheduler = Scheduler(arguments[1], sgd(), arguments[2:end]...)
        step!(scheduler)
        @test learning_rate(scheduler) ≈ rate
    end
    optimizer = sgd()
    plateau = Scheduler(:plateau, optimizer; patience = 0, factor = 0.5)
    foreach(metric -> step!(plateau, metric), (1.0, 2.0))
    @test learning_rate(optimizer) == 0.5
    one = sgd()
    both = chained(Scheduler(:exponential, one, 0.5), Scheduler(:exponential, one, 0.5))
    step!(both)
    @test learning_rate(one) == 0.25
    two = sgd()
    later = one_after_the_other([Scheduler(:constant, two, 0.5, 10), Scheduler(:exponential, two, 0.5)], [1])
    step!(later)
    @test learning_rate(two) == 1.0
    @test_throws ArgumentError Scheduler(:no_such, one, 1)
end

@testset "names of constants are symbols in all options" begin
    optimizer = SGD(Linear(1, 1); lr = 0.1)
    plateau = Scheduler(:plateau, optimizer; mode = :max, threshold_mode = :abs, threshold = 0, patience = 0, factor = 0.5)
    for metric in (2, 3, 1)
        step!(plateau, metric)
    end
    @test learning_rate(optimizer) == 0.05
    line = Scheduler(:one_cycle, SGD(Linear(1, 1); lr = 1.0, momentum = 0.9), 1.0, 10; anneal_strategy = :linear, pct_start = 0.5)
    rates = vec(curve(line, 4))
    @test rates[2] - rates[1] ≈ rates[3] - rates[2]
    @test_throws ArgumentError Scheduler(:cyclic, optimizer, 0.1, 1.0; mode = :round)
    @test setting(Muon(Linear(2, 2; bias = false); adjust_lr_fn = :match_rms_adamw), :adjust_lr_fn) == 1
    update_precision!(optimizer, :master_weights)
    @test occursin("anneal_strategy", string(@doc Scheduler)) && occursin("beta1", string(@doc AdamW))
end

@testset "parts of a model are exchanged" begin
    model = Sequential(Linear(2, 2), Linear(2, 1))
    @test replace_child!(model, "1", Linear(2, 3)) === model
    @test size(model["1.weight"]) == (3, 2)
    weight = model["0.weight"]
    gradient!(weight, Accel.ones(Float32, 2, 2))
    @test Array(gradient(weight)) == ones(Float32, 2, 2)
    delete!(model, "1")
    @test sort(collect(keys(modules(model)))) == ["", "0"]
end

@testset "checkpoints" begin
    State(cpu = true) do state
        mktempdir() do folder
            network = Linear(2, 1)
            model, optimizer = prepare(state, network, AdamW(network; lr = 0.1))
            counter = Ref(7)
            register_for_checkpointing!(state, "counter", () -> (count = counter[],), saved -> counter[] = saved["count"])
            train_once() = (backward(state, sum(model(Tensor(ones(Float32, 1, 2))))); step!(optimizer); zero_grad!(optimizer))
            train_once()
            save_state(state, joinpath(folder, "state"))
            train_once()
            after, counter[] = Array(network["weight"]), 8
            load_state!(state, joinpath(folder, "state"))
            @test counter[] == 7
            train_once()
            @test Array(network["weight"]) == after
            # Hooks, a generator of the program, and a project that names its checkpoints.
            seen, random = [], Ref([1, 2])
            register_random_state!(state, "program", () -> Tuple(random[]), saved -> random[] = collect(saved))
            hook = register_save_state_pre_hook!(state) do models, place
                push!(seen, collect(keys(models[1])))
                write(joinpath(place, "extra"), "text")
                nothing
            end
            register_load_state_pre_hook!((models, place) -> Any[nothing], state)
            project!(state; project_dir = joinpath(folder, "run"), automatic_checkpoint_naming = true, total_limit = 1, iteration = 0)
            save_state(state, nothing)
            save_state(state, nothing; durable = false)
            checkpoint = project(state)["checkpoint"]
            @test endswith(checkpoint, "checkpoint_1") && readdir(dirname(checkpoint)) == ["checkpoint_1"]
            @test Set(seen[1]) == Set(["weight", "bias"]) && isfile(joinpath(checkpoint, "extra"))
            random[] = [9]
            fill!(Array(network["bias"]), 0)
            load_state!(state, nothing)                        # its hook leaves the model as it is
            @test random[] == [1, 2] && project(state)["iteration"] == 2
            remove_checkpoint_hook(state, hook)
            @test isempty(verify_checkpoint(checkpoint)["problems"]) && length(list_checkpoints(joinpath(folder, "run"))) == 1
            @test any(file["name"] == "extra" for file in show_checkpoint(checkpoint)["files"])
            @test isempty(compare_checkpoints(checkpoint, checkpoint)["different"])
            @test checkpoint_progress(state) == (0, 0)
            save(joinpath(folder, "tree.bin"), (1, "two", [3.0]); safe_serialization = false)
            @test load(joinpath(folder, "tree.bin")) == (1, "two", [3.0])
            save_model(state, model, folder)
            @test Set(keys(load_state_dict(folder))) == Set(["weight", "bias"])
            @test collect(keys(load(joinpath(folder, "model.safetensors")))) == ["weight", "bias"] ||
                  Set(keys(load(joinpath(folder, "model.safetensors")))) == Set(["weight", "bias"])
            @test kind(unwrap_model(state, model)) == "Linear"
        end
    end
end

struct OwnLayer
    weight::Matrix{Float32}
    bias::Vector{Float32}
    activation::Function
    size::Int
end

# Regression: in Julia, a gradient of the wrong size was named with the sizes of its tensor, in reverse.
@testset "a program's own parameters" begin
    State(cpu = true, gradient_accumulation_steps = 2) do state
        layer = OwnLayer(Float32[1 2 3; 4 5 6], Float32[1, 2], tanh, 3)
        tree = (first = layer, rest = ((scale = [1.5],), Dict("shift" => Float16[2])), counts = [1, 2], rate = 0.1, nothing_here = nothing)
        own = Parameters(state, tree)
        @test collect(keys(parameters(Model(own)))) == ["first.bias", "first.weight", "rest.1.scale", "rest.2.shift"]
        @test eltype(Model(own)["rest.2.shift"]) == Float16 && size(Model(own)["first.weight"]) == (3, 2)
        optimizer = prepare(state, SGD(Model(own); lr = 1.0))
        gradients(number) = (first = (weight = fill(Float32(number), 2, 3), bias = Float32[0, number]),
            rest = ((scale = [number],), Dict("shift" => Float32[number])))
        @test isnan(step!(own, optimizer, gradients(1.0))) && layer.weight[1] == 1
        @test isapprox(step!(own, optimizer, gradients(3.0)), sqrt(2^2 * 9); rtol = 1e-5)
        @test layer.weight == [-1 0 1; 2 3 4] && layer.bias == [1, 0] && tree.rest[1].scale == [-0.5] && tree.rest[2]["shift"] == [0]
        step!(own, optimizer, gradients(0.0))
        @test step!(own, optimizer, gradients(2.0); max_grad_norm = 0.3) ≈ 3 atol = 1e-5
        @test layer.bias ≈ [1, -0.1]
        missing_one = (first = (weight = zeros(Float32, 2, 3), bias = nothing), rest = ((scale = [0.0],), Dict("shift" => Float32[0])))
        @test occursin("first.bias", (@test_throws AccelError step!(own, optimizer, missing_one)).value.message)
        step!(own, optimizer, missing_one; allow_missing = true)
        wrong = (first = (weight = zeros(Float32, 3, 2), bias = Float32[0, 0]), rest = ((scale = [0.0],), Dict("shift" => Float32[0])))
        said = (@test_throws DimensionMismatch step!(own, optimizer, wrong)).value.msg
        @test said == "the gradient of first.weight has the size (3, 2); expected (2, 3)" # as the array has it, not its tensor
        @test sprint(show, own) == "Parameters(4 arrays)"
        @test occursin("no arrays of floating point", (@test_throws ArgumentError Parameters(state, (count = [1],))).value.msg)
        @test_throws AccelError Parameters(state, tree) # they are registered already
        close(own)
    end
end

@testset "gradients of Julia's" begin
    State(cpu = true) do state
        weight = Float32[1 2; 3 4]
        module_ = Model("Own"; weight = Tensor(weight; reversed = true))
        gradients = Parameters(state, module_)
        optimizer = prepare(state, SGD(module_; lr = 1.0))
        memory = view_array(gradient(gradients, 1))
        Accel.accumulate(state) do
            memory .= 1
            grad_ready!(gradients, 1)
            synchronize!(gradients)
            step!(optimizer)
        end
        @test weight == [0 1; 2 3]
        Accel.accumulate(state) do
            grad_ready!(gradients, 1, Float32[1 0; 0 0])
            synchronize!(gradients)
            step!(optimizer)
        end
        @test weight == [-1 1; 2 3]
        @test_throws AccelError Accel.accumulate(() -> synchronize!(gradients), state)
    end
end
