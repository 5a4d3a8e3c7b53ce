# Generates tokens with a Llama from a folder with its config.json and safetensors, also when it is larger than the accelerator or the
# memory:
#
#     julia --project=bindings/julia examples/julia/big_model.jl FOLDER --tokens 1,15043,29892 --max-memory '{"0": "8GiB", "cpu": "16GiB"}'
#     julia --project=bindings/julia examples/julia/big_model.jl FOLDER --device-map '{"model.layers": "disk", "": "cpu"}'
using Accel, Accel.BigModels, Accel.Layers, Accel.Values, Printf

const USAGE = "usage: big_model.jl FOLDER [--tokens 1,2,3] [--new-tokens 8] [--max-memory JSON] [--device-map JSON]"

"""A function that gives the most probable token after some, and keeps the keys and values of all that it has seen."""
function generator(model)
    past = []
    return function (tokens)
        logits, past = model(Tensor(reshape(tokens, :, 1); reversed = true), past)
        return item(aten.argmax(aten.select(logits, 1, -1)))
    end
end

"""The most memory that the process has had, mapped files included."""
function peak_mebibytes()
    line = first(filter(startswith("VmHWM:"), readlines("/proc/self/status")))
    return parse(Int, split(line)[2]) ÷ 1024
end

isodd(length(ARGS)) || error(USAGE)
folder = ARGS[1]
given = Dict(ARGS[2:2:end] .=> ARGS[3:2:end])
keys(given) ⊆ ("--tokens", "--new-tokens", "--max-memory", "--device-map") || error(USAGE)
json(name, otherwise) = haskey(given, name) ? from_json(given[name]) : otherwise
tokens = parse.(Int64, split(get(given, "--tokens", "1"), ','))
new_tokens = parse(Int, get(given, "--new-tokens", "8"))

State() do state
    model = init_empty_weights() do
        from_config(joinpath(folder, "config.json"))
    end
    train!(model, false)
    map = load_checkpoint_and_dispatch!(state, model, folder, json("--device-map", "auto"), json("--max-memory", nothing);
        no_split_module_classes = "LlamaDecoderLayer")
    println("parameters: ", num_parameters(model))
    println("device map: ", to_json(map))
    no_grad() do
        next = generator(model)
        token = next(tokens)
        start = time()
        print("tokens: ", token)
        for _ in 2:new_tokens
            token = next([token])
            print(" ", token)
            flush(stdout)
        end
        @printf("\ntokens a second: %.1f\n", (new_tokens - 1) / (time() - start))
    end
    println("peak memory in MiB: ", peak_mebibytes())
end
