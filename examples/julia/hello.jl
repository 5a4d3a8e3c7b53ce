# Every process says its rank, and all of them see all ranks:
#
#     accel launch --num-processes 2 -- julia --project=bindings/julia examples/julia/hello.jl
using Accel

State() do state
    println(state, "[", join(gather(state, process_index(state)), ","), "]")
end
