# Trains a small network on the digits of a clock, on as many processes as the launcher starts:
#
#     accel launch --num-processes 2 -- julia --project=bindings/julia examples/julia/train.jl
using Accel, Accel.Autograd, Accel.Data, Accel.Layers, Accel.Optimizers, Printf
include("digits.jl")

"""One pass over the data. Returns the mean of the loss, over the processes too."""
function train_epoch(state, model, optimizer, loader)
    total = 0.0
    for (features, labels) in loader
        Accel.accumulate(state, model) do
            loss = cross_entropy(model(features), labels)
            backward(state, loss)
            step!(optimizer)
            zero_grad!(optimizer)
            total += item(loss)
        end
    end
    return Accel.reduce(state, total / length(loader); by = :mean)
end

"""Counts the test samples, each of which comes to one process, and those that are recognised."""
function evaluate(state, model, loader)
    samples = correct = 0
    train!(model, false)
    no_grad() do
        for (features, labels) in loader
            predictions = aten.argmax(model(features), 1)
            # Without what was repeated to fill the last batch.
            predicted, expected = gather_for_metrics(state, (predictions, labels))
            samples += length(expected)
            correct += count(Array(predicted .== expected))
        end
    end
    return samples, correct
end

State(cpu = true, gradient_accumulation_steps = 2) do state
    seed!(state, 0)
    network = Sequential(Linear(SEGMENTS, 32), Activation("relu"), Linear(32, 10))
    model, optimizer, training, test = prepare(state, network, AdamW(network; lr = 0.01),
        DataLoader(make_digits(UInt32(1), 1000); batchsize = 16, shuffle = true),
        DataLoader(make_digits(UInt32(2), 203); batchsize = 16))

    say(parts...) = is_main_process(state) && println(parts...)
    say("processes: ", num_processes(state))
    say("parameters: ", num_parameters(model))
    for epoch in 1:3
        say("epoch $epoch loss: ", @sprintf("%.4f", train_epoch(state, model, optimizer, training)))
    end
    samples, correct = evaluate(state, model, test)
    say("test samples: ", samples)
    say("accuracy: ", @sprintf("%.4f", correct / samples))
end
