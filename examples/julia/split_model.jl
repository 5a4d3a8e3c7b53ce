# A model of this program whose layers are split over the processes: each has half of the hidden units, and all work on the same
# batches:
#
#     accel launch --num-processes 2 --parallelism-config-tp-size 2 -- julia --project=bindings/julia examples/julia/split_model.jl
using Accel, Accel.Autograd, Accel.Collectives, Accel.Data, Accel.Layers, Accel.Optimizers, Accel.Processes, Accel.Training, Printf
include("digits.jl")

const HIDDEN = 32

"""Small numbers, the same in every language. A column here is a row of the tensor."""
function weights(random::UInt32, rows, columns)
    next() = random = random * 0x0019660d + 0x3c6ef35f
    return Tensor(Float32[(next() >> 24) / 512f0 - 0.25f0 for _ in 1:columns, _ in 1:rows]; reversed = true)
end

State(cpu = true) do state
    seed!(state, 0)
    tensor_group = group(mesh(state), "tensor")  # the processes that share the layers
    network = Model("FeedForward"; up = weights(UInt32(3), HIDDEN, SEGMENTS), down = weights(UInt32(4), length(DIGITS), HIDDEN),
                    bias = Accel.zeros(Float32, length(DIGITS))) do self, x
        hidden = aten.relu(aten.linear(parallel_copy(tensor_group, x), self["up"]))  # the units of this process
        return aten.add(parallel_reduce(tensor_group, aten.linear(hidden, self["down"])), self["bias"])
    end
    model = prepare(state, network; tensor_parallel = (plan = "up colwise; down rowwise",))
    optimizer = prepare(state, AdamW(network; lr = 0.01))
    loader = prepare(state, DataLoader(make_digits(UInt32(1), 320); batchsize = 16, shuffle = true))

    say(parts...) = is_main_process(state) && println(parts...)
    say("processes: ", num_processes(state))
    say("up here: ", join(size(network["up"]), " x "))
    for epoch in 1:3
        total = 0.0
        for (features, labels) in loader
            loss = cross_entropy(model(features), labels)
            backward(state, loss)
            step!(optimizer)
            zero_grad!(optimizer)
            total += item(loss)
        end
        say("epoch $epoch loss: ", @sprintf("%.4f", total / length(loader)))
    end
    saved = get_state_dict(state, model)  # whole, on the main process
    is_main_process(state) && println("up saved: ", join(size(saved["up"]), " x "))
end
