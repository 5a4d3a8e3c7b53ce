# SPDX-License-Identifier: Apache-2.0
# Scopes are `do` blocks. They belong to a thread of the operating system, so a task stays on its thread inside.

function scoped(body::Function, open::Function, arguments...)
    task = current_task()
    was_sticky = task.sticky
    task.sticky = true
    try
        scope = output(open, Ptr{LibAccel.accel_scope_t})
        return end_after(body, scope, arguments...)
    finally
        task.sticky = was_sticky
    end
end

function end_after(body, scope, arguments...)
    local result
    try
        result = body(arguments...)
    catch
        # The exception of the body is the one to hear of.
        ccall(LibAccel.@address(accel_scope_end), Int32, (Ptr{LibAccel.accel_scope_t},), scope)
        rethrow()
    end
    LibAccel.accel_scope_end(scope)
    return result
end

