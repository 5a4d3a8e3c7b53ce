# A run that is saved, thrown away and resumed continues as if nothing had happened, bit for bit:
#
#     accel launch --num-processes 2 -- julia --project=bindings/julia examples/julia/checkpoint.jl FOLDER
using Accel, Accel.Autograd, Accel.Data, Accel.Layers, Accel.Optimizers, Printf
include("digits.jl")

"""Everything that trains, prepared."""
function begin_run(state, seed)
    seed!(state, seed)
    network = Sequential(Linear(SEGMENTS, 32), Activation("relu"), Dropout(0.1), Linear(32, 10))
    optimizer = AdamW(network; lr = 0.01)
    loader = DataLoader(make_digits(UInt32(1), 96); batchsize = 8, shuffle = true)
    return prepare(state, network, optimizer, Scheduler(:cosine, optimizer, 2, 12, 0), loader)
end

"""The next batch, which may be the first one of the next epoch."""
function next_batch(loader)
    step = iterate(loader)
    return first(step === nothing ? iterate(loader) : step)
end

"""Returns the mean of the processes' losses."""
function train_step(state, (model, optimizer, scheduler, loader))
    features, labels = next_batch(loader)
    loss = Accel.accumulate(state, model) do
        loss = cross_entropy(model(features), labels)
        backward(state, loss)
        step!(optimizer)
        step!(scheduler)
        zero_grad!(optimizer)
        loss
    end
    return item(Accel.reduce(state, loss; by = :mean))
end

length(ARGS) == 1 || error("usage: checkpoint.jl FOLDER")

State(cpu = true) do state
    say(parts...) = is_main_process(state) && println(parts...)
    run = begin_run(state, 0)
    losses = map(1:6) do step
        loss = train_step(state, run)
        say("step $step loss: ", @sprintf("%.4f", loss))
        step == 3 && save_state(state, ARGS[1])
        loss
    end
    foreach(close, run)
    free_memory!(state)
    say("saved after step: 3")

    run = begin_run(state, 1) # other weights, which are replaced
    load_state!(state, ARGS[1])
    equal = all(4:6) do step
        loss = train_step(state, run)
        say("resumed step $step loss: ", @sprintf("%.4f", loss))
        loss == losses[step]
    end
    say("equal: ", equal)
end
