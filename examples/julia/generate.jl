# Continues a text with a model from a folder of Hugging Face, and prints the words as they come:
#
#     julia --project=bindings/julia examples/julia/generate.jl FOLDER "Once upon a time" --max-tokens 200 --temperature 0.8 --top-p 0.95
#
# The most likely tokens are taken, or with a temperature tokens are drawn.
using Accel, Accel.Data, Accel.Layers, Accel.Values

const USAGE = "usage: generate.jl FOLDER PROMPT [--temperature 0] [--top-p 1] [--max-tokens 100] [--seed 0]"

length(ARGS) >= 2 && iseven(length(ARGS)) || error(USAGE)
folder, prompt = ARGS
given = Dict(ARGS[3:2:end] .=> ARGS[4:2:end])
keys(given) ⊆ ("--temperature", "--top-p", "--max-tokens", "--seed") || error(USAGE)
number(name, default) = parse(typeof(default), get(given, name, string(default)))
text(part) = part isa String ? part : String(part.data) # bytes, where it contains a NUL
temperature = number("--temperature", 0.0)
sampling = temperature == 0 ? (;) : (sample = true, temperature = temperature)

State() do state
    tokenizer = Tokenizer(folder)
    model = from_folder(folder)
    to!(model, Accel.device(state))
    train!(model, false)
    ids = send_to_device(encode_batch(tokenizer, [prompt])["input_ids"], Accel.device(state))
    stream = DecodeStream(tokenizer; skip_special_tokens = true)
    # A character may be several tokens: the stream gives what a token completes.
    generate(model, ids; max_new_tokens = number("--max-tokens", 100), top_p = number("--top-p", 1.0), seed = number("--seed", 0),
        stop_tokens = describe(tokenizer)["eos_token_ids"], sampling...) do token
        print(text(step!(stream, item(token))))
        flush(stdout)
        nothing
    end
    println(text(finish(stream)))
end
