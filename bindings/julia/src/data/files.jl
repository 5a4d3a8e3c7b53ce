# SPDX-License-Identifier: Apache-2.0
# Datasets of files. A path is that of a file, or of a folder: then all files below it that end with `suffix`, in the order of their
# paths. Large files are mapped, and must not be shortened meanwhile.

"""    map_file(path), map_file(path, UInt16)

A tensor that lies in a mapped file: .npy, or numbers of the given type without a header. Writing to it does not change the file."""
map_file(path::AbstractString) = made(Tensor, out -> LibAccel.accel_tensor_map_file(path, LibAccel.ACCEL_UNSET, out))
map_file(path::AbstractString, dtype) = made(Tensor, out -> LibAccel.accel_tensor_map_file(path, dtype_code(dtype), out))

"""    CsvDataset(path; suffix = nothing, delimiter = ',', has_header = true, skip_malformed = false, missing, types)

Comma-separated values; an item is a map from columns to cells. `missing` is what an empty cell of a column of numbers means; `types`
maps columns to \"int64\", \"float32\", ..., \"text\", and the others have the narrowest type that holds their first 1000 cells."""
function CsvDataset(path::AbstractString; suffix = nothing, delimiter::Char = ',', types = nothing, options...)
    made_with(value) = with_options(LibAccel.accel_csv_options_t; delimiter = Int32(delimiter), types = value, options...) do given
        made(Dataset, out -> LibAccel.accel_dataset_csv(path, something(suffix, C_NULL), given, out))
    end
    return types === nothing ? made_with(C_NULL) : lend(made_with, Map(name => column_type(type) for (name, type) in pairs(types)))
end
column_type(name::AbstractString) = name
column_type(::Type{<:AbstractString}) = "text"
column_type(type::Type) = unsafe_string(LibAccel.accel_dtype_name(dtype_code(type)))

