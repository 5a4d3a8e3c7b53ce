# A module whose forward is a function of this program. LibTorch's autograd goes through it, and data parallelism, optimizers and
# checkpoints take it as any other:
#
#     accel launch --num-processes 2 -- julia --project=bindings/julia examples/julia/custom_module.jl
using Accel, Accel.Layers, Accel.Optimizers, Accel.Processes, Accel.Values, Printf

State(cpu = true) do state
    seed!(state, 0)
    calls = 0
    affine = Model("Affine"; weight = Accel.zeros(Float32, 1), bias = Accel.zeros(Float32, 1)) do self, inputs...
        length(inputs) == 1 || error("Affine takes 1 input, got ", length(inputs))
        calls += 1
        return inputs[1] .* self["weight"] .+ self["bias"]
    end
    model, optimizer = prepare(state, affine, SGD(affine; lr = 0.5))

    points = Float32[-1 + i / 8 for i in process_index(state):num_processes(state):15]
    x, y = send_to_device((Tensor(points), Tensor(3 .* points .- 1)), device(state))

    say(parts...) = is_main_process(state) && println(parts...)
    say("kind: ", kind(affine))
    for step in 1:100
        loss = aten.mse_loss(model(x), y)
        backward(state, loss)
        step!(optimizer)
        zero_grad!(optimizer)
        if step in (1, 100)
            mean = item(Accel.reduce(state, loss; by = :mean))
            say("step $step loss: ", @sprintf("%.4f", mean))
        end
    end
    say("weight: ", @sprintf("%.4f", item(affine["weight"])))
    say("bias: ", @sprintf("%.4f", item(affine["bias"])))
    say("forward calls: ", calls)

    # What goes wrong inside the function comes out of the call around it.
    try
        model(x, x)
    catch exception
        say("error: ", exception.msg)
    end
end
