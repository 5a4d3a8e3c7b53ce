# SPDX-License-Identifier: Apache-2.0
@testset "layers" begin
    x = Accel.randn(Float32, 2, 4)
    @test size(Linear(4, 3)(x)) == (2, 3)
    @test collect(keys(parameters(Linear(4, 3; bias = false)))) == ["weight"]
    @test size(Embedding(10, 5)(Accel.rand(0:9, 2, 3))) == (2, 3, 5)
    @test size(Sequential(Linear(4, 8), Activation("gelu"), LayerNorm(8), Linear(8, 1))(x)) == (2, 1)
    @test size(Attention(4, 2; causal = true)(Accel.randn(Float32, 1, 3, 4))) == (1, 3, 4)
    @test size(Conv2d(1, 2, 3; padding = 1)(Accel.randn(Float32, 1, 1, 5, 5))) == (1, 2, 5, 5)
    @test size(BatchNorm(4)(x)) == (2, 4) && size(RMSNorm(4)(x)) == (2, 4)
    dropout = train!(Dropout(1.0), false)
    @test Array(dropout(x)) == Array(x) && !istraining(dropout) && all(iszero, Array(train!(dropout)(x)))
end

@testset "names and state" begin
    model = Sequential(Linear(4, 3), Linear(3, 2))
    @test num_parameters(model) == 23 && kind(model) == "Sequential" && kind(child(model, "1")) == "Linear"
    @test size(model["0.weight"]) == (3, 4)
    other = Sequential(Linear(4, 3), Linear(3, 2))
    load_state_dict!(other, state_dict(model))
    @test Array(other["1.weight"]) == Array(model["1.weight"])
    @test_throws AccelError load_state_dict!(other, (wrong = Tensor([1.0]),))
    tie!(model, "0.bias", "0.bias")
    @test eltype(to!(model, Float64)["0.weight"]) == Float64
    @test collect(keys(modules(model))) == ["", "0", "1"]
    @test occursin("0: Linear", sprint(show, MIME("text/plain"), model))
end

@testset "parameters, buffers, children" begin
    model = Model("Node"; gain = Accel.ones(Float32, 1))
    add_buffer!(model, "count", Accel.zeros(Int64, 1))
    add_child!(model, "inner", Linear(2, 2))
    @test collect(keys(parameters(model))) == ["gain", "inner.weight", "inner.bias"] && collect(keys(buffers(model))) == ["count"]
    @test_throws AccelError add_child!(model, "inner", Linear(2, 2))
    @test_throws AccelError model(Tensor([1.0]))
end

@testset "models without memory" begin
    is_meta(tensor) = Accel.device_name(Accel.device(tensor)) == "meta"
    empty = init_empty_weights() do
        BatchNorm(4)
    end
    @test is_meta(empty["weight"]) && !is_meta(empty["running_mean"])
    @test is_meta(init_empty_weights(() -> BatchNorm(4); include_buffers = true)["running_mean"])
    @test !is_meta(init_empty_weights(() -> init_on_device(() -> Linear(2, 2), "cpu"))["weight"])
    @test !is_meta(Linear(2, 2)["weight"])
end

@testset "a model from a configuration" begin
    model = from_config("""{"model_type": "gpt2", "vocab_size": 8, "n_positions": 8, "n_embd": 4, "n_layer": 1, "n_head": 1}""")
    @test size(model(Accel.rand(0:7, 1, 5))) == (1, 5, 8)
    train!(model, false)
    tokens = Accel.rand(0:7, 1, 3)
    heard = Tensor[]
    generated = generate(model, tokens; max_new_tokens = 4)
    @test size(generated["tokens"]) == (1, 7)
    ended = generate(model, tokens; max_new_tokens = 4) do added
        push!(heard, added)
        length(heard) < 2
    end
    @test length(heard) == 2 && size(ended["tokens"]) == (1, 5)
    @test_throws AccelError from_config("""{"model_type": "unheard of"}""")
end

@testset "save and load" begin
    mktempdir() do folder
        path = joinpath(folder, "x.safetensors")
        save(path, (a = Tensor([1.0 2; 3 4]),); metadata = (format = "pt",))
        @test Array(load(path)["a"]) == [1.0 2; 3 4]
        @test_throws AccelError load(joinpath(folder, "missing"))
    end
end

@testset "device maps" begin
    model = Sequential(Linear(4, 4; bias = false), Linear(4, 8; bias = false))
    @test compute_module_sizes(model; dtype = "float16")[""] == 96 && get_max_layer_size(model)["names"] == ["1"]
    memory = get_max_memory((cpu = "1KiB", var"0" = 150))
    @test memory[0] == 150 && memory["cpu"] == 1024
    map, why = infer_auto_device_map(model, memory; optimal_packing = true, dtype = "float16")
    @test map[""] == 0 && occursin("fits on 0", why["text"])
    @test resolve_device_map(model, "auto", memory)[""] == "cpu"
    @test check_device_map(model, Dict("" => "disk", "0.wieght" => 1)) == ["0.wieght"]
    @test_throws AccelError resolve_device_map(model, Dict("0.wieght" => 1))
    @test find_tied_parameters(model) == [] && !verify_device_map(model)
end

@testset "adapters" begin
    config = """{"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2}"""
    model, tokens = from_config(config), Tensor([1 5 2])
    train!(model, false)
    logits(of = model) = no_grad(() -> Array(of(tokens)))
    plain = logits()
    add_adapter!(model, "one"; rank = 2, init = :random, target_modules = ["q_proj", "v_proj"])
    one = logits()
    add_adapter!(model, "two"; rank = 2, init = :random, target_modules = ".*up_proj", use_dora = true)
    two = logits()
    @test !(plain ≈ one || one ≈ two || two ≈ plain)
    @test collect(keys(adapters(model))) == ["one", "two"] && adapters(model)["two"]["active"]
    @test use_adapters(logits, "one") ≈ one && use_adapters(logits) ≈ plain
    @test activate_adapters!(model, "one") === model && logits() ≈ one
    mktempdir() do folder
        State(cpu = true) do state
            save_adapter(state, model, "one", joinpath(folder, "adapter"))
        end
        other = from_config(config)
        train!(other, false)
        load_state_dict!(other, Map(name => tensor for (name, tensor) in state_dict(model) if !occursin("lora", name)))
        load_adapter!(other, "again", joinpath(folder, "adapter"))
        @test logits(other) ≈ one
    end
    merge_adapters!(model)
    @test_throws AccelError remove_adapter!(model, "one")
    remove_adapter!(unmerge_adapters!(model), "one")
    @test_throws AccelError activate_adapters!(model, "one")
end

@testset "quantized models" begin
    config = """{"model_type": "llama", "vocab_size": 11, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}"""
    model, tokens = from_config(config), Tensor([1 5 2])
    train!(model, false)
    logits() = no_grad(() -> Array(model(tokens)))
    plain = logits()
    names = quantize!(model; kind = :nf4, has_double_quantization = true, skip_modules = ["lm_head", "k_proj"])
    @test length(names) == 6 && "model.layers.0.self_attn.q_proj" in names
    @test !(logits() ≈ plain) && maximum(abs, logits() - plain) < 0.5
    @test_throws AccelError quantize!(model)
    @test_throws AccelError quantize!(from_config(config); skip_modules = ["nowhere"])
    @test_throws AccelError from_folder("nowhere"; group = 64)
end
