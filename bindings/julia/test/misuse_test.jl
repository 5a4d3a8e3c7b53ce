# SPDX-License-Identifier: Apache-2.0
@testset "after close" begin
    tensor, model, optimizer = Tensor([1.0]), Linear(1, 1), SGD(Linear(1, 1))
    foreach(close, (tensor, model, optimizer))
    @test !isopen(tensor) && sprint(show, tensor) == "Tensor(closed)"
    @test status_of(() -> size(tensor)) == L.ACCEL_ERROR_INVALID_HANDLE
    @test status_of(() -> tensor + tensor) == L.ACCEL_ERROR_INVALID_HANDLE
    @test status_of(() -> model(Tensor([1.0]))) == L.ACCEL_ERROR_INVALID_HANDLE
    @test status_of(() -> step!(optimizer)) == L.ACCEL_ERROR_INVALID_HANDLE
    @test status_of(() -> to_json([tensor])) == L.ACCEL_ERROR_INVALID_HANDLE
    before = length(Accel.KEPT)
    @test status_of(() -> set_forward!(identity, model)) == L.ACCEL_ERROR_INVALID_HANDLE && length(Accel.KEPT) <= before
    close(tensor)
    state = State(cpu = true)
    close(state)
    @test status_of(() -> gather(state, Tensor([1]))) == L.ACCEL_ERROR_INVALID_HANDLE && L.WAITING[] == 0
end

@testset "wrong types" begin
    @test_throws MethodError size(Linear(1, 1))
    @test_throws MethodError prepare(State(cpu = true), "model")
    @test_throws ArgumentError Tensor(["text"])
    @test_throws ArgumentError Tensor(Any[1, 2])
    @test_throws ArgumentError to(Tensor([1.0]), String)
    @test_throws ArgumentError State(cpu = true, mixed_precision = :fp7)
    said = (@test_throws ArgumentError State(cpu = true, no_such_option = 1)).value.msg
    @test startswith(said, "no_such_option: unknown keyword; expected some of ") && occursin("mixed_precision", said)
    @test_throws MethodError cross_entropy([1.0], [1])
    @test status_of(() -> aten.cross_entropy_loss(Tensor([1.0]), Tensor([1.0 2.0]))) < 0
    @test status_of(() -> gather(State(cpu = true), ["text"])) == L.ACCEL_ERROR_TYPE_MISMATCH
    @test status_of(() -> requires_grad!(Tensor([1]))) < 0
    @test_throws Exception Device("toaster")
end

@testset "wrong shapes" begin
    @test status_of(() -> Linear(4, 3)(Tensor(ones(Float32, 2, 5)))) < 0
    @test status_of(() -> item(Tensor([1.0, 2.0]))) == L.ACCEL_ERROR_SHAPE_MISMATCH
    @test status_of(() -> backward(requires_grad!(Tensor([1.0, 2.0])))) == L.ACCEL_ERROR_SHAPE_MISMATCH
    @test status_of(() -> copyto!(Tensor([1.0, 2.0]), [1.0, 2.0, 3.0])) == L.ACCEL_ERROR_SHAPE_MISMATCH
    @test status_of(() -> Tensor(undef, Float32, -1)) < 0
end

@testset "what it says" begin
    problem = try
        Linear(4, 3)["wieght"]
    catch exception
        exception
    end
    @test problem.call == "accel_module_tensor" && problem.status == L.ACCEL_ERROR_NOT_FOUND && problem.rank == -1
    @test occursin("wieght", sprint(showerror, problem)) && occursin("ACCEL_ERROR_NOT_FOUND", sprint(showerror, problem))
end

@testset "scopes end in every way" begin
    x = requires_grad!(Tensor([1.0]))
    @test_throws ErrorException no_grad(() -> error("out of the block"))
    @test requires_grad(x .* 2)
    @test no_grad(() -> inference_mode(() -> 5)) == 5
    State(cpu = true) do state
        @test main_process_first(() -> 3, state) == 3
        @test autocast(() -> 4, state) == 4
    end
end
