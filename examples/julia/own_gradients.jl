# Trains a network whose gradients are Julia's own, in arrays of Julia: LibTorch's autograd has no part in it. So does a framework
# with an autograd of its own.
#
#     accel launch --num-processes 2 -- julia --project=bindings/julia examples/julia/own_gradients.jl
#
# A layer of tanh learns sin(3 x). The processes share each batch, so the losses do not depend on their number.
using Accel, Accel.Layers, Accel.Optimizers, Accel.Tensors, Accel.Training, Printf, Random

struct Network
    weight::Vector{Float32}
    bias::Vector{Float32}
    output::Vector{Float32}
    output_bias::Vector{Float32}
end
arrays(network::Network) = [getfield(network, name) for name in fieldnames(Network)]

function Network(hidden::Int, random)
    uniform(n) = 2 .* rand(random, Float32, n) .- 1
    return Network(3 .* uniform(hidden), uniform(hidden), 0.2f0 .* uniform(hidden), zeros(Float32, 1))
end

"""Writes the gradient of the mean squared error into `gradient`; returns the error."""
function learn!(gradient::Network, network::Network, x, y)
    hidden = tanh.(network.weight .* x' .+ network.bias) # a column for each sample
    difference = (network.output' * hidden)' .+ network.output_bias .- y
    down = 2 .* difference ./ length(x)
    inside = network.output .* down' .* (1 .- hidden .^ 2)
    gradient.weight .= inside * x
    gradient.bias .= vec(sum(inside; dims = 2))
    gradient.output .= hidden * down
    gradient.output_bias .= sum(down)
    return sum(abs2, difference) / length(x)
end

const BATCH, STEPS = 48, 600

State(cpu = true) do state
    network = Network(24, MersenneTwister(0))
    # The tensors share the arrays: what the optimizer writes is there at once.
    own = Model("OwnNetwork")
    for name in fieldnames(Network)
        add_parameter!(own, name, Tensor(getfield(network, name)))
    end
    parameters = Parameters(state, own)
    # Written in place, gradients are averaged without a copy.
    gradient_memory = Network((view_array(gradient(parameters, i)) for i in 1:fieldcount(Network))...)
    optimizer = prepare(state, Adam(own; lr = 0.01))

    random = MersenneTwister(1) # the same in every process, which takes its share
    share = process_index(state)+1:num_processes(state):BATCH
    for step in 1:STEPS
        batch = 2 .* rand(random, Float32, BATCH) .- 1
        loss = Accel.accumulate(state) do
            x = batch[share]
            error = learn!(gradient_memory, network, x, sin.(3 .* x))
            foreach(i -> grad_ready!(parameters, i), fieldcount(Network):-1:1)
            synchronize!(parameters)
            clip_grad_norm!(state, own, 1.0)
            step!(optimizer)
            error
        end
        if step % 100 == 0
            mean = Accel.reduce(state, loss; by = :mean)
            is_main_process(state) && @printf("step %d loss: %.4f\n", step, mean)
        end
    end
end
