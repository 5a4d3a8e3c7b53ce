# SPDX-License-Identifier: Apache-2.0
# Workload call_overhead in Julia: nanoseconds of one accel_tensor_numel(), or with the argument "operator" of one addition of four
# numbers by an Op, which is closed at once as the program in C does; the least of the rounds.
using Accel
using Accel: LibAccel

const CALLS = 1_000_000
const ROUNDS = 10

count_elements(tensor, count, calls) = foreach(_ -> LibAccel.accel_tensor_numel(tensor, count), 1:calls)
add(tensor, op, calls) = foreach(_ -> close(op(tensor, tensor)::Tensor), 1:calls)

function least(work, calls, arguments...)
    work(arguments..., 1)
    return minimum((@elapsed work(arguments..., calls)) * 1e9 / calls for _ in 1:ROUNDS)
end

println(ARGS == ["operator"] ? least(add, CALLS ÷ 20, Tensor(ones(Float32, 4)), Accel.Op("aten::add.Tensor")) :
        least(count_elements, CALLS, Tensor(ones(Float32, 4)), Ref{Int64}(0)))
