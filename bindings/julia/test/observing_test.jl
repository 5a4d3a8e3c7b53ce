# SPDX-License-Identifier: Apache-2.0
# Loggers, progress bars, step reports.
using Logging
state = State(cpu = true)

@testset "a logger is heard" begin
    heard = []
    logger = Accel.Logger(state, "train"; level = 20) do level, name, message
        push!(heard, (level, name, message))
    end
    @test is_logged(logger, 20) && !is_logged(logger, 10)
    log_message(logger, 20, "one")
    log_message(logger, 10, "too low")
    log_message(logger, 40, "order"; ranks = :in_order)
    warning_once(logger, "once"; ranks = :all_processes)
    warning_once(logger, "once"; ranks = :all_processes)
    @test heard == [(20, "train", "one"), (40, "train", "[RANK 0] order"), (30, "train", "[RANK 0] once")]
    @test status_of(() -> Accel.Logger(state, "x"; level = 101)) == L.ACCEL_ERROR_INVALID_ARGUMENT
end

@testset "the library's own messages are Julia's" begin
    Accel.tell()
    warn() = (get_max_memory(Dict(77 => "1GB", "cpu" => "1GB")); Accel.tell())
    text = r"accelerator 77 of max_memory is not there"
    @test_logs (:warn, text) warn()
    @test_logs warn_is_off() = (engine_messages!(false); warn(); engine_messages!())
    @test_logs (:warn, text) get_max_memory(Dict(77 => "1GB", "cpu" => "1GB")) |> _ -> first(DataLoader(Dataset(1:2)))
    records = Test.TestLogger()
    with_logger(records) do
        # From other threads, many at once: none is lost, none is cut.
        Threads.@threads for i in 1:200
            get_max_memory(Dict(100 + i => "1GB"))
        end
        Accel.tell()
    end
    @test sort([parse(Int, match(r"accelerator (\d+)", record.message)[1]) for record in records.logs]) == 101:300
    @test all(record -> record.group === :accel && record.level == Logging.Warn, records.logs)
    with_logger(RankLogger(state)) do
        warn() # the sinks hear it, and it is not told again
        Accel.tell()
    end
    @test isempty(Accel.new_lines())
end

@testset "Julia's logging goes to sinks" begin
    mktempdir() do folder
        path = joinpath(folder, "rank{rank}.jsonl")
        sink = log_sink_add(state; path = path, kind = :json_lines)
        with_logger(RankLogger(state; ranks = :all_processes)) do
            @debug "too low"
            @info "three" x = 3
            try
                error("caught")
            catch exception
                @error "failed" exception = (exception, catch_backtrace())
            end
        end
        log_sink_remove(sink)
        lines = from_json.(readlines(joinpath(folder, "rank0.jsonl")))
        @test [line["level"] for line in lines] == ["INFO", "ERROR"]
        @test lines[1]["message"] == "three\nx = 3"
        @test lines[1]["logger"] == "julia"
        @test occursin("caught", lines[2]["message"])
    end
    @test_throws ArgumentError RankLogger(state; ranks = :in_order)
end

@testset "a bar counts a loop" begin
    lines = []
    bar = ProgressBar(state, "count", 3; interval_ms = 0) do line, is_last
        push!(lines, (line, is_last))
    end
    values!(bar, Dict("loss" => 0.5))
    @test collect(progress(bar, [10, 20, 30])) == [10, 20, 30]
    @test count(last, lines) == 1
    @test occursin("3/3 [", lines[end][1]) && occursin("loss 0.5", lines[end][1])
    @test progress_report(bar)["count"] == 3
    @test status_of(() -> next!(bar)) == L.ACCEL_ERROR_INVALID_STATE
    @test sum(progress(state, (i for i in 1:10 if isodd(i)); label = "quiet")) == 25
end

@testset "a step report has a table" begin
    count_tokens(state, 10)
    report = step_report_of_ranks(state)
    @test report["slowest_rank"] === nothing
    @test occursin("tokens/s", step_report_table(report))
end
close(state)
