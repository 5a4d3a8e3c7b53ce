# SPDX-License-Identifier: Apache-2.0
# The library's own messages as @info, @warn and @error. They may come from threads on which Julia must not run, so the library writes
# them to a file that is nothing but memory, and never waits. Julia reads it in between: after batches, collectives and states, and
# five times a second while a task has time.
using Logging: Logging

mutable struct Messages
    file::Cint      # of memfd_create(), or -1
    done::Int       # bytes that were read
    wanted::Bool
    guard::Threads.SpinLock
end
const MESSAGES = Messages(-1, 0, true, Threads.SpinLock())

const CLOSE_ON_EXEC = Cuint(1)
const PUNCH_HOLE = Cint(3) # the memory is given back, and the file keeps its size
const HOLE_BYTES = 1 << 20

"""
    engine_messages!(wanted = true; level = nothing)

Whether the library's own messages come as `@info`, `@warn` and `@error`, as they do from the first `State` on. They have the group
`:accel`, and go to the logger of the task that looks. `level`, such as `Logging.Info`, is the lowest that the library reports:
warnings at first."""
function engine_messages!(wanted::Bool = true; level = nothing)
    MESSAGES.wanted = wanted
    level === nothing || LibAccel.accel_set_log_level(engine_level(level))
    return nothing
end

"""Begins to listen, with the first state of the process."""
function listen(state)
    (MESSAGES.file < 0 && MESSAGES.wanted) || return state
    MESSAGES.file = ccall(:memfd_create, Cint, (Cstring, Cuint), "messages of libaccel", CLOSE_ON_EXEC)
    MESSAGES.file < 0 && return state # an old kernel
    log_sink_add(state; kind = :json_lines, path = "/proc/self/fd/$(MESSAGES.file)")
    Timer(_ -> tell(), 0.2; interval = 0.2)
    return state
end

"""Reports what the library has said since."""
function tell()
    MESSAGES.file < 0 && return nothing
    for line in new_lines()
        message = from_json(line)
        MESSAGES.wanted && message["logger"] == "accel" &&
            Logging.@logmsg julia_level(message["level"]) message["message"] _module = Accel _group = :accel _file = nothing _line = nothing
    end
    return nothing
end
julia_level(name) = get(Dict("DEBUG" => Logging.Debug, "INFO" => Logging.Info, "WARNING" => Logging.Warn), name, Logging.Error)

# What is logged runs after the lock is given back: a logger may do what it likes.
function new_lines()
    trylock(MESSAGES.guard) || return String[]
    try
        text = unread()
        last = findlast(==(UInt8('\n')), text)
        last === nothing && return String[]
        MESSAGES.done += last
        MESSAGES.done > HOLE_BYTES && ccall(:fallocate, Cint, (Cint, Cint, Int64, Int64), MESSAGES.file, PUNCH_HOLE, 0, MESSAGES.done)
        return split(String(text[1:last]), '\n'; keepempty = false)
    finally
        unlock(MESSAGES.guard)
    end
end

function unread()
    size = ccall(:lseek, Int64, (Cint, Int64, Cint), MESSAGES.file, 0, 2) # to the end, which tells where it is
    text = Vector{UInt8}(undef, max(0, size - MESSAGES.done))
    isempty(text) && return text
    count = ccall(:pread, Cssize_t, (Cint, Ptr{UInt8}, Csize_t, Int64), MESSAGES.file, text, length(text), MESSAGES.done)
    return resize!(text, max(0, count))
end
