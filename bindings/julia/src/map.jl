# SPDX-License-Identifier: Apache-2.0
const Key = Union{String,Int}

"""A map with strings or integers as keys that keeps their order, as the library's maps do."""
struct Map <: AbstractDict{Key,Any}
    names::Vector{Key}
    items::Vector{Any}
    places::Dict{Key,Int}
end
Map() = Map(Key[], Any[], Dict{Key,Int}())
key_of(name) = name isa Integer ? Int(name) : string(name)
function Map(pairs)
    map = Map()
    for (name, item) in pairs
        map[key_of(name)] = item
    end
    return map
end
Map(pairs::Pair...) = Map(pairs)

Base.length(map::Map) = length(map.names)
Base.iterate(map::Map, place = 1) = place > length(map) ? nothing : (map.names[place] => map.items[place], place + 1)
Base.haskey(map::Map, name) = haskey(map.places, name)
Base.keys(map::Map) = map.names
Base.values(map::Map) = map.items
function Base.get(map::Map, name, default)
    place = get(map.places, name, 0)
    return place == 0 ? default : map.items[place]
end
function Base.getindex(map::Map, name::Union{AbstractString,Integer})
    place = get(map.places, name, 0)
    place == 0 && throw(KeyError(name))
    return map.items[place]
end
function Base.setindex!(map::Map, item, name::Union{AbstractString,Integer})
    place = get!(map.places, key_of(name), length(map) + 1)
    if place > length(map)
        push!(map.names, key_of(name))
        push!(map.items, item)
    else
        map.items[place] = item
    end
    return map
end
