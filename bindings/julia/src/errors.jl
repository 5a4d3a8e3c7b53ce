# SPDX-License-Identifier: Apache-2.0
# Errors of the library are `AccelError`s. What a callback throws goes through C as a status, and comes out of the outer call as
# it was thrown.

"""An error of the library: `status`, `message`, the `call` of C that failed, and the `rank` that reported it, or -1."""
const AccelError = LibAccel.AccelError

"""An exception on its way from a callback to the call around it."""
struct Carried
    status::Int32
    exception::Any
    backtrace::Vector
end

status_of(exception::AccelError) = exception.status
status_of(::OutOfMemoryError) = LibAccel.ACCEL_ERROR_OUT_OF_MEMORY
status_of(::Any) = LibAccel.ACCEL_ERROR_USER

message_of(exception::AccelError) = exception.message
message_of(exception) = first(split(sprint(showerror, exception), '\n'))

"""In the `catch` of a callback: keeps the exception, and returns the status that stands for it in C."""
function carry(exception)
    status = status_of(exception)
    task_local_storage(:accel_carried, Carried(status, exception, catch_backtrace()))
    LibAccel.accel_error_set(status, replace(message_of(exception), '\0' => ' '))
    return status
end

"""Throws what a callback threw, if that is why a call failed. Its own trace is shown as its cause."""
function throw_carried(status::Int32)
    carried = pop!(task_local_storage(), :accel_carried, nothing)
    (carried === nothing || carried.status != status) && return nothing
    try
        throw(CapturedException(carried.exception, carried.backtrace))
    catch
        throw(carried.exception)
    end
end

"""After a call that went on although a callback failed."""
forget_carried() = (pop!(task_local_storage(), :accel_carried, nothing); nothing)

@noinline refuse(parts...) = throw(ArgumentError(string(parts...)))

"""The exception that a callback without a status leaves: the outer call will fail with this one."""
function carried_as(status::Int32)
    carried = task_local_storage(:accel_carried)
    task_local_storage(:accel_carried, Carried(status, carried.exception, carried.backtrace))
    return nothing
end

"""A count of C, whose -1 stands for the error of the thread."""
counted(count::Integer, call::String) = count < 0 ? LibAccel.fail(call) : Int(count)
