# SPDX-License-Identifier: Apache-2.0
"""    infer_auto_device_map(model, max_memory = nothing; options...)

Fills one device after the other with the modules of a model in their order. Gives the device map, and why each part is where it is;
`options` are those of `resolve_device_map`."""
function infer_auto_device_map(model::Model, max_memory = nothing; options...)
    why = Ref(NONE)
    map = result() do out
        lend_or_null(max_memory) do memory
            with_options(LibAccel.accel_device_map_options_t; options...) do given
                LibAccel.accel_infer_auto_device_map(model, memory, given, out, why)
            end
        end
    end
    return map, taken(why[])
end
