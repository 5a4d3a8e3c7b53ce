# Trains a model from a folder of Hugging Face further: on a text, or on chats, one {"messages": [...]} in each line of a file that ends
# with .jsonl, as the folder's template writes them.
#
#     accel launch --num-processes 2 --mixed-precision bf16 -- julia --project=bindings/julia examples/julia/finetune.jl FOLDER \
#         chats.jsonl OUTPUT --steps 1000
#
# Run again after an interruption, it goes on from its last checkpoint in OUTPUT. In the end OUTPUT has the files of a model that is opened
# like FOLDER. With --lora RANK only an adapter of that rank is trained, and OUTPUT has PEFT's files of it; with --quantize KIND, too, the
# weights below it are quantized as they are read (QLoRA).
using Accel, Accel.Autograd, Accel.Checkpoints, Accel.Data, Accel.Layers, Accel.Optimizers, Accel.Training, Printf

const USAGE = "usage: finetune.jl FOLDER TEXT|CHATS.jsonl OUTPUT [--steps 100] [--batch 4] [--length 256] [--lr 1e-5] " *
    "[--save-every 50] [--seed 0] [--lora 0 [--quantize nf4|fp4|int4|int8]]"
const NO_LABEL = -100 # fills short rows; the loss leaves it out

"""Batches of (tokens, next tokens)."""
function make_loader(folder, data, length, batch, seed)
    rows = endswith(data, ".jsonl") ? ChatDataset : EncodedTextDataset
    return DataLoader(rows(data, Tokenizer(folder), length); batchsize = batch, shuffle = true, seed = seed, collate = :pad,
        padding_value = NO_LABEL)
end

"""The next batch, which may be the first one of the next epoch."""
function next_batch(loader)
    step = iterate(loader)
    return first(step === nothing ? iterate(loader) : step)
end

"""Returns the mean of the processes' losses."""
function train_step(state, model, optimizer, loader)
    tokens, labels = next_batch(loader)
    loss = Accel.accumulate(state, model) do
        loss = cross_entropy(model(aten.clamp_min(tokens, 0)), labels)
        backward(state, loss)
        clip_grad_norm!(state, model, 1)
        step!(optimizer)
        zero_grad!(optimizer)
        loss
    end
    return item(Accel.reduce(state, loss; by = :mean))
end

length(ARGS) >= 3 && isodd(length(ARGS)) || error(USAGE)
folder, data, output = ARGS
given = Dict(ARGS[4:2:end] .=> ARGS[5:2:end])
keys(given) ⊆ ("--steps", "--batch", "--length", "--lr", "--save-every", "--seed", "--lora", "--quantize") || error(USAGE)
number(name, default) = parse(typeof(default), get(given, name, string(default)))
steps, save_every, lora = number("--steps", 100), number("--save-every", 50), number("--lora", 0)
quantization = haskey(given, "--quantize") ? (kind = Symbol(given["--quantize"]),) : NamedTuple()
isempty(quantization) || (quantization.kind in (:nf4, :fp4, :int4, :int8) && lora > 0) || error(USAGE) # quantized weights are not trained

State() do state # the launcher says which precision
    say(parts...) = is_main_process(state) && (println(parts...); flush(stdout))
    project!(state; project_dir = output, automatic_checkpoint_naming = true, total_limit = 2)
    seed = number("--seed", 0)
    seed!(state, seed)
    network = from_folder(folder; quantization...)
    to!(network, Float32, Accel.device(state))
    lora > 0 && add_adapter!(network, "finetuned"; rank = lora, alpha = 2.0 * lora)
    model, optimizer, loader = prepare(state, network, AdamW(network; lr = number("--lr", 1e-5)),
        make_loader(folder, data, number("--length", 256), number("--batch", 4), seed))
    done = 0 # steps, which checkpoints keep
    register_for_checkpointing!(state, "step", () -> done, saved -> done = saved)
    try
        load_state!(state, nothing) # the newest checkpoint
    catch error
        error isa AccelError && error.status == Accel.LibAccel.ACCEL_ERROR_NOT_FOUND || rethrow()
    end

    say("from step: ", done)
    while done < steps
        loss = train_step(state, model, optimizer, loader)
        done += 1
        say("step $done loss: ", @sprintf("%.4f", loss))
        done % save_every == 0 && done < steps && save_state(state, nothing)
    end
    lora > 0 ? save_adapter(state, model, "finetuned", output) : save_model_folder(state, model, folder, output)
    say("saved: ", output)
end
