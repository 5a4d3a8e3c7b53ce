# Trains a network whose gradients are Julia's own, in arrays of Julia: LibTorch's autograd has no part in it. So does a framework
# with an autograd of its own.
#
#     accel launch --num-processes 2 -- julia --project=bindings/julia examples/julia/own_gradients.jl
#
# A layer of tanh learns sin(3 x). The processes share each batch, so the losses do not depend on their number.
using Accel, Accel.Optimizers, Printf, Random

network(hidden, random) = (
    inner = (weight = 3 .* uniform(random, hidden), bias = uniform(random, hidden)),
    outer = (weight = 0.2f0 .* uniform(random, hidden), bias = zeros(Float32, 1)))
uniform(random, n) = 2 .* rand(random, Float32, n) .- 1

"""The mean squared error, and its gradients: a named tuple of the form of the network's."""
function learn(network, x, y)
    (inner, outer) = network
    hidden = tanh.(inner.weight .* x' .+ inner.bias) # a column for each sample
    difference = (outer.weight' * hidden)' .+ outer.bias .- y
    down = 2 .* difference ./ length(x)
    inside = outer.weight .* down' .* (1 .- hidden .^ 2)
    gradients = (inner = (weight = inside * x, bias = vec(sum(inside; dims = 2))), outer = (weight = hidden * down, bias = [sum(down)]))
    return sum(abs2, difference) / length(x), gradients
end

const BATCH, STEPS = 48, 600

State(cpu = true) do state
    net = network(24, MersenneTwister(0))
    # The arrays stay where they are: what the optimizer writes is in them.
    parameters = Parameters(state, net)
    optimizer = prepare(state, Adam(Model(parameters); lr = 0.01))

    random = MersenneTwister(1) # the same in every process, which takes its share
    share = process_index(state)+1:num_processes(state):BATCH
    for step in 1:STEPS
        x = (2 .* rand(random, Float32, BATCH) .- 1)[share]
        loss, gradients = learn(net, x, sin.(3 .* x))
        step!(parameters, optimizer, gradients; max_grad_norm = 1.0)
        if step % 100 == 0
            mean = Accel.reduce(state, loss; by = :mean)
            is_main_process(state) && @printf("step %d loss: %.4f\n", step, mean)
        end
    end
end
