# SPDX-License-Identifier: Apache-2.0
# The usual functions of LinearAlgebra; all go through autograd. Others are LibTorch's: aten.linalg_NAME.
using LinearAlgebra: LinearAlgebra

LinearAlgebra.norm(a::Tensor, p::Real = 2) = aten.linalg_vector_norm(floating(a), p)
LinearAlgebra.dot(a::Tensor, b::Tensor) = @op("aten::vdot")(vec(a), vec(b))::Tensor
LinearAlgebra.dot(a::Tensor, b::AbstractArray) = LinearAlgebra.dot(a, Tensor(b))
LinearAlgebra.dot(a::AbstractArray, b::Tensor) = LinearAlgebra.dot(Tensor(a), b)
LinearAlgebra.tr(a::Tensor) = @op("aten::trace")(a)::Tensor
LinearAlgebra.det(a::Tensor) = @op("aten::linalg_det")(a)::Tensor
LinearAlgebra.diag(a::Tensor, k::Integer = 0) = copy(aten.diagonal(a, k))
Base.inv(a::Tensor) = @op("aten::linalg_inv")(a)::Tensor
Base.:\(a::Tensor, b::Tensor) = aten.linalg_solve(a, b)
