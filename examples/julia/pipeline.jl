# A model in stages: each process has some of its layers, and the rows of a batch pass from one to the next:
#
#     accel launch --num-processes 2 --parallelism-config-pp-size 2 -- julia --project=bindings/julia examples/julia/pipeline.jl
using Accel, Accel.Data, Accel.Layers, Accel.Optimizers, Accel.Training, Printf
include("digits.jl")

State(cpu = true) do state
    seed!(state, 0)
    network = Sequential(Linear(SEGMENTS, 32), Activation("relu"), Linear(32, 32), Activation("relu"), Linear(32, 10))
    model = prepare(state, network; pipeline = (micro_batches = 4, split = "parameters"))
    optimizer = prepare(state, AdamW(model; lr = 0.01))
    loader = prepare(state, DataLoader(make_digits(UInt32(1), 320); batchsize = 16, shuffle = true))

    say(parts...) = is_main_process(state) && println(parts...)
    say("processes: ", num_processes(state))
    say("parameters here: ", num_parameters(model))
    for epoch in 1:3
        total = 0.0
        for (features, labels) in loader
            total += pipeline_step(state, model, features, labels)  # forwards and backwards of the micro-batches
            step!(optimizer)
            zero_grad!(optimizer)
        end
        say("epoch $epoch loss: ", @sprintf("%.4f", total / length(loader)))
    end
end
