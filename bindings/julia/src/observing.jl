# SPDX-License-Identifier: Apache-2.0
# Loggers and progress bars: Julia's own logging goes to the engine's sinks, and loops have bars as in ProgressMeter.

run_logger(level, logger, message, block) =
    (callback_status(() -> object_of(block)(Int(level), unsafe_string(logger), unsafe_string(message))); nothing)
logger_callback() = @cfunction(run_logger, Cvoid, (Int32, Ptr{Cchar}, Ptr{Cchar}, Ptr{Cvoid}))

run_progress(line, is_last, block) = (callback_status(() -> object_of(block)(unsafe_string(line), is_last != 0)); nothing)
progress_callback() = @cfunction(run_progress, Cvoid, (Ptr{Cchar}, Int32, Ptr{Cvoid}))

"""
    Logger(state, name; level = nothing)
    Logger(receive, state, name; level = nothing)

A logger whose messages go to the sinks of [`log_sink_add`](@ref), and to `receive(level, name, message)`. Messages below `level` are
left out: 10 is DEBUG, 20 INFO, 30 WARNING, 40 ERROR; without one it is that of ACCELERATE_LOG_LEVEL, else 30.
"""
Logger(state::State, name::AbstractString; level = nothing) = made(Logger, out -> LibAccel.accel_logger_create(state, name,
    level === nothing ? LibAccel.ACCEL_UNSET : Int32(level), C_NULL, C_NULL, C_NULL, out))
Logger(receive::Function, state::State, name::AbstractString; level = nothing) = made(Logger, out ->
    LibAccel.accel_logger_create(state, name, level === nothing ? LibAccel.ACCEL_UNSET : Int32(level), logger_callback(),
        keep(receive, state), destroy(), out))

"""
    RankLogger(state, name = "julia"; level = Logging.Info, ranks = :main_process)

A logger for `Logging.with_logger` and `Logging.global_logger`: `@info` and its like go to the sinks of [`log_sink_add`](@ref), from the
main process or from all.
"""
struct RankLogger <: Logging.AbstractLogger
    logger::Logger
    level::Logging.LogLevel
    ranks::Symbol
end
function RankLogger(state::State, name::AbstractString = "julia"; level::Logging.LogLevel = Logging.Info, ranks::Symbol = :main_process)
    ranks in (:main_process, :all_processes) ||
        throw(ArgumentError("ranks is :$ranks; expected :main_process or :all_processes: macros are not collectives"))
    return RankLogger(Logger(state, name; level = engine_level(level)), level, ranks)
end

"""The engine's number of a level of Julia: Debug, Info, Warn and Error, and what lies between."""
engine_level(level::Logging.LogLevel) = clamp(20 + fld(level.level, 100), 0, 99)

Logging.min_enabled_level(logger::RankLogger) = logger.level
Logging.shouldlog(logger::RankLogger, level, _module, group, id) = is_logged(logger.logger, engine_level(level))
Logging.catch_exceptions(::RankLogger) = true
function Logging.handle_message(logger::RankLogger, level, message, _module, group, id, file, line; maxlog = nothing, details...)
    text = string(message)
    for (name, value) in details
        text *= "\n" * string(name) * " = " * (value isa Tuple{Exception,Any} ? sprint(showerror, value...) : repr(value))
    end
    log_message(logger.logger, engine_level(level), replace(text, '\0' => ' '); ranks = logger.ranks)
    return nothing
end

"""
    ProgressBar(state, label, total = nothing; options...)
    ProgressBar(show, state, label, total = nothing; options...)

A progress bar on stderr, or whose lines `show(line, is_last)` gets. [`next!`](@ref) moves it, [`values!`](@ref) sets what stands behind
the rate, [`finish!`](@ref) ends it. The options are those of [`progress_of_dataloader`](@ref).
"""
ProgressBar(state::State, label::AbstractString, total = nothing; options...) =
    new_bar(state, label, total, C_NULL, C_NULL, C_NULL; options...)
ProgressBar(show::Function, state::State, label::AbstractString, total = nothing; options...) =
    new_bar(state, label, total, progress_callback(), keep(show, state), destroy(); options...)

new_bar(state, label, total, show, data, destroy; options...) = made(ProgressBar, out -> with_options(given ->
    LibAccel.accel_progress_begin(state, label, total === nothing ? LibAccel.ACCEL_UNSET_INT64 : Int64(total), given, show, data,
        destroy, out), LibAccel.accel_progress_options_t; options...))

"""
    progress(state, items; label = "", options...)
    progress(bar, items)

The items of an iterator, with a progress bar that counts them and ends with them; its field `bar` is the bar.

    for batch in progress(state, batches; label = "train")
"""
progress(state::State, items; label = "", options...) =
    progress(ProgressBar(state, label, Base.haslength(items) ? length(items) : nothing; options...), items)
progress(bar::ProgressBar, items) = WithProgress(items, bar)

struct WithProgress{T}
    items::T
    bar::ProgressBar
end
Base.IteratorSize(::Type{WithProgress{T}}) where {T} = Base.IteratorSize(T)
Base.IteratorEltype(::Type{WithProgress{T}}) where {T} = Base.IteratorEltype(T)
Base.eltype(::Type{WithProgress{T}}) where {T} = eltype(T)
Base.length(loop::WithProgress) = length(loop.items)
Base.size(loop::WithProgress, axes...) = size(loop.items, axes...)

Base.iterate(loop::WithProgress) = after(loop, iterate(loop.items))
function Base.iterate(loop::WithProgress, state) # an item is done when the next one is asked for
    next!(loop.bar)
    return after(loop, iterate(loop.items, state))
end
after(loop::WithProgress, following) = (following === nothing && finish!(loop.bar); following)
