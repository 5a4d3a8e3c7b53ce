# SPDX-License-Identifier: Apache-2.0
# Signals, forks and threads: in processes of their own.
using Sockets

@testset "LibTorch of ACCEL_LIBTORCH" begin
    build_info() # loads it
    loaded = match(r"\S*/libtorch_cpu\.so", read("/proc/self/maps", String)).match
    mktempdir() do folder
        symlink(dirname(dirname(loaded)), joinpath(folder, "torch"))
        process, said = withenv(() -> run_program("using Accel, Libdl; print(item(Tensor([1]) .+ 1), join(Libdl.dllist(), '\n'))"),
            "ACCEL_LIBTORCH" => joinpath(folder, "torch"))
        @test success(process) && startswith(said, "2") && occursin(joinpath(folder, "torch", "lib", "libtorch_cpu.so"), said)
    end
    process, said = withenv(() -> run_program("using Accel; Accel.Library.build_info()"), "ACCEL_LIBTORCH" => "/nowhere")
    @test !success(process) && occursin("ACCEL_LIBTORCH=/nowhere: expected the folder of a LibTorch", said)
end

# Memory of the compiler is shared with a forked child: there it may only run what is compiled already.
@testset "a forked child is told to exec" begin
    process, said = run_program("""
        using Accel
        function added(a, b)
            try
                return Int32(item(sum(a .+ b)))
            catch problem
                problem isa AccelError || return Int32(-1)
                told = problem.status == Accel.LibAccel.ACCEL_ERROR_INVALID_STATE && occursin("fork", problem.message)
                return told ? Int32(7) : Int32(1)
            end
        end
        function fork_and_add(a, b)
            child = ccall(:fork, Cint, ())
            child == 0 && ccall(:_exit, Cvoid, (Cint,), added(a, b)::Int32)
            status = Ref{Cint}(0)
            ccall(:waitpid, Cint, (Cint, Ptr{Cint}, Cint), child, status, 0)
            return status[] >> 8
        end
        pair, triple = Tensor([1.0, 1.0]), Tensor([1.0, 1.0, 1.0])
        before = (added(pair, pair), added(pair, triple))
        println(before, " ", fork_and_add(pair, pair), " ", added(pair, pair))
        """)
    @test success(process)
    @test strip(said) == "(4, 1) 7 4"
end

@testset "launch" begin
    process, said = run_program("""
        using Accel
        launch(2; cpu = true) do local_process_index
            State() do state
                total = item(Accel.reduce(state, Tensor([local_process_index + 1])))
                is_main_process(state) && print("sum ", total)
            end
        end
        try
            launch(local_process_index -> local_process_index == 1 && error("mine"), 2)
        catch problem
            print("; ", problem.message)
        end
        """)
    # Julia says more of a process that was ended.
    @test success(process) && occursin("sum 3", said) && occursin("; rank 1 of 2 failed: mine", said)
end

@testset "threads" begin
    process, said = run_program("""
        using Accel
        Threads.nthreads() > 1 || Sys.CPU_THREADS == 1 || error("threads")
        shared = Tensor(ones(100))
        sums = zeros(40)
        Threads.@threads for i in 1:40
            own = Tensor(fill(Float64(i), 100))
            model = Model((self, x) -> no_grad(() -> x .* 2), "Doubles")
            for _ in 1:50
                sums[i] = item(sum(model(own .+ shared)))
            end
            i % 10 == 0 && GC.gc()
        end
        problems = zeros(Int, 40)
        Threads.@threads for i in 1:40
            try
                Tensor(ones(i, 2)) * Tensor(ones(i + 2, 2))
            catch problem
                problems[i] = occursin("\$(i)x2", problem.message)
            end
        end
        println(sums == [200.0 * (i + 1) for i in 1:40], " ", sum(problems))
        """; threads = 4)
    @test success(process)
    @test strip(said) == "true 40"
end

# Two ranks; the other one sleeps, so this one waits.
const WAITS = """
    using Accel
    state = State(cpu = true)
    gather(state, Tensor([1])) # the signal shall not come while it is compiled
    if process_index(state) == 1
        sleep(100)
    end
    println("waits"); flush(stdout)
    """

function with_two_ranks(test, program...)
    port, server = listenany(rand(16384:29000)) # below those that the system gives to programs that connect
    close(server)
    environment = merge(Dict(ENV), Dict("WORLD_SIZE" => "2", "MASTER_ADDR" => "127.0.0.1", "MASTER_PORT" => string(port),
        "LOCAL_WORLD_SIZE" => "2"))
    start(rank, output) = run(pipeline(setenv(`$JULIA $program`, merge(environment, Dict("RANK" => "$rank", "LOCAL_RANK" => "$rank")));
        stdout = output, stderr = output); wait = false)
    output = Pipe()
    other, waiting = start(1, devnull), start(0, output)
    close(output.in)
    try
        @test readline(output) == "waits"
        sleep(0.5)
        kill(waiting, Base.SIGINT)
        took = @elapsed said = read(output, String)
        wait(waiting)
        @test took < 50
        test(waiting, said)
    finally
        kill(other, Base.SIGKILL)
        kill(waiting, Base.SIGKILL)
    end
end

@testset "Ctrl-C interrupts a waiting collective" begin
    with_two_ranks("-e", WAITS * """
        try
            gather(state, Tensor([1]))
        catch problem
            println("caught ", problem)
        end
        """) do process, said
        @test success(process) && strip(said) == "caught InterruptException()"
    end
end

@testset "Ctrl-C ends a program that waits" begin
    mktempdir() do folder
        program = joinpath(folder, "program.jl")
        write(program, WAITS * """
            gather(state, Tensor([1]))
            println("went on")
            """)
        with_two_ranks(program) do process, said
            @test process.exitcode == 130 && !occursin("went on", said)
        end
    end
end
