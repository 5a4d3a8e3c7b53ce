# Makes a small GPT-2 and keeps it in a folder as configuration and weights, then loads it from there, as any other GPT-2, and embeds
# texts with it. The processes share the texts:
#
#     accel launch --num-processes 2 -- julia --project=bindings/julia examples/julia/embed.jl FOLDER
using Accel, Accel.Checkpoints, Accel.Collectives, Accel.Layers, Accel.Values, LinearAlgebra, Printf

const CONFIG = """{"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2}"""
const TEXTS = ["the cat sat on the mat", "a cat sat on a mat", "gradients are averaged"]

function make_model(state, folder)
    seed!(state, 7)
    save_model(state, from_config(CONFIG), folder)
    write(joinpath(folder, "config.json"), CONFIG)
end

function load_model(folder)
    model = from_config(joinpath(folder, "config.json"))
    load_state_dict!(model, load(joinpath(folder, "model.safetensors")))
    return train!(model, false)
end

"""A function that gives the mean of the last hidden states, which a hook keeps: [1, width]."""
function embedder(model)
    hidden = nothing
    add_hook!(child(model, "transformer.ln_f")) do self, output
        hidden = output
        nothing
    end
    return function (text)
        tokens = Int64.(codeunits(text))
        model(Tensor(reshape(tokens, :, 1); reversed = true))
        return aten.mean(hidden, [1])
    end
end

similarity(a, b) = dot(a, b) / (norm(a) * norm(b))

length(ARGS) == 1 || error("usage: embed.jl FOLDER")

State(cpu = true) do state
    on_main_process(() -> make_model(state, ARGS[1]), state)
    wait_for_everyone(state)
    model = load_model(ARGS[1])
    say(parts...) = is_main_process(state) && println(parts...)
    say("parameters: ", num_parameters(model))
    all = no_grad() do
        embed = embedder(model)
        # The share of this process.
        mine = concatenate([embed(TEXTS[i]) for i in split_range(state, length(TEXTS))])
        Float64.(Array(gather_uneven(state, mine)))
    end
    for i in axes(all, 1)
        say("text $i: ", join((@sprintf("%.4f", number) for number in all[i, 1:4]), " "))
    end
    for i in 2:size(all, 1)
        say("similarity 1 $i: ", @sprintf("%.4f", similarity(all[1, :], all[i, :])))
    end
end
