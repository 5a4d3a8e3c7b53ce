# SPDX-License-Identifier: Apache-2.0
# Types of elements are Julia's own; devices are those of C.

"""The upper half of a Float32, for storage; compute with `Float32(x)`."""
primitive type BFloat16 <: AbstractFloat 16 end

BFloat16(x::Float32) = isnan(x) ? reinterpret(BFloat16, 0x7fc0) :
    reinterpret(BFloat16, ((reinterpret(UInt32, x) + 0x7fff + ((reinterpret(UInt32, x) >> 16) & 1)) >> 16) % UInt16)
BFloat16(x::Real) = BFloat16(Float32(x))
Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(reinterpret(UInt16, x)) << 16)
Base.Float64(x::BFloat16) = Float64(Float32(x))
Base.promote_rule(::Type{BFloat16}, ::Type{Float32}) = Float32
Base.promote_rule(::Type{BFloat16}, ::Type{Float64}) = Float64
Base.:(==)(a::BFloat16, b::BFloat16) = Float32(a) == Float32(b)
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")

const ELEMENTS = (
    UInt8 => 1, Int8 => 2, Int16 => 3, Int32 => 4, Int64 => 5, Float16 => 6, Float32 => 7, Float64 => 8, ComplexF16 => 9,
    ComplexF32 => 10, ComplexF64 => 11, Bool => 12, BFloat16 => 13, UInt16 => 19, UInt32 => 20, UInt64 => 21,
)

for (type, code) in ELEMENTS
    @eval dtype_code(::Type{$type}) = Int32($code)
end
dtype_code(type::Type) = refuse("a tensor cannot have elements of ", type, "; expected one of ", join(first.(ELEMENTS), ", "))
"""For types that Julia does not have: "float8_e4m3fn"."""
dtype_code(name::AbstractString) = output(out -> LibAccel.accel_dtype_from_name(name, out), Int32)

function element_type(code::Integer)
    for (type, known) in ELEMENTS
        known == code && return type
    end
    name = LibAccel.accel_dtype_name(code)
    refuse("Julia has no type for elements of ", name == C_NULL ? code : unsafe_string(name), "; convert the tensor with to(tensor, Float32)")
end

"""    Device("cuda:1")"""
const Device = LibAccel.accel_device_t

LibAccel.accel_device_t(name::AbstractString) = output(out -> LibAccel.accel_device_parse(name, out), Device)
const CPU = Device(LibAccel.ACCEL_DEVICE_CPU, -1)
const META = Device(LibAccel.ACCEL_DEVICE_META, -1)
as_device(device::Device) = device
as_device(name::AbstractString) = Device(name)

"""A device of which C gives the address; the error of the thread where there is none."""
device_at(address::Ptr{Device}, call::String) = address == C_NULL ? LibAccel.fail(call) : unsafe_load(address)
function device_name(device::Device)
    name = LibAccel.accel_device_type_name(getfield(device, :type))
    return string(name == C_NULL ? "unknown" : unsafe_string(name), device.index < 0 ? "" : ":$(device.index)")
end
Base.show(io::IO, device::Device) = print(io, "Device(\"", device_name(device), "\")")
"""The device of a kind that this thread uses when no index is given: `current_device("cuda")`."""
current_device(kind::AbstractString) = output(out -> LibAccel.accel_device_current(getfield(Device(kind), :type), out), Device)
"""How many devices of a kind can be used now: `device_count("cuda")`."""
device_count(kind::AbstractString) = LibAccel.accel_device_count(getfield(Device(kind), :type))
