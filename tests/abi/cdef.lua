-- Reads api/accel.cdef as any program of LuaJIT does, and calls the library: cdef.lua CDEF LIBRARY
local ffi = require "ffi"
ffi.cdef(assert(io.open(arg[1])):read "*a")
local accel = ffi.load(arg[2])

local function check(status)
  if status < 0 then error(ffi.string(accel.accel_last_error()), 2) end
  return status
end

assert(ffi.sizeof "accel_value_t" == 16 and ffi.sizeof "accel_device_t" == 8)
assert(accel.ACCEL_ERROR_TIMEOUT == -30 and accel.ACCEL_UNSET == -2147483648)

-- Structs by pointer.
local device = ffi.new("accel_device_t", accel.ACCEL_DEVICE_CPU, -1)
local shape, out, count = ffi.new("int64_t[1]", 3), ffi.new "accel_tensor_t *[1]", ffi.new "int64_t[1]"
check(accel.accel_tensor_full(shape, 1, 1.5, accel.ACCEL_DTYPE_FLOAT32, device, out))
local tensor = ffi.gc(out[0], accel.accel_tensor_release)
check(accel.accel_tensor_numel(tensor, count))
assert(count[0] == 3)

-- Values without their union.
local value = ffi.new "accel_value_t"
check(accel.accel_value_int(7, value))
check(accel.accel_value_as_int(value, count))
assert(accel.accel_value_kind(value) == accel.ACCEL_VALUE_INT and count[0] == 7)
check(accel.accel_value_double(1, value))
local refused, message = pcall(function() check(accel.accel_value_as_int(value, count)) end)
assert(not refused and message:find "value is a DOUBLE; expected a INT" or error(message))

local options = ffi.new "accel_state_options_t"
check(accel.accel_options_init("accel_state_options_t", options, ffi.sizeof(options)))
assert(options.cpu == accel.ACCEL_UNSET and options.struct_size == ffi.sizeof(options))
