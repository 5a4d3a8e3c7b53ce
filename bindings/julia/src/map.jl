"""A map with strings as keys that keeps their order, as the library's maps do."""
struct Map <: AbstractDict{String,Any}
    names::Vector{String}
    items::Vector{Any}
    places::Dict{String,Int}
end
Map() = Map(String[], Any[], Dict{String,Int}())
function Map(pairs)
    map = Map()
    for (name, item) in pairs
        map[string(name)] = item
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
function Base.getindex(map::Map, name::AbstractString)
    place = get(map.places, name, 0)
    place == 0 && throw(KeyError(name))
    return map.items[place]
end
function Base.setindex!(map::Map, item, name::AbstractString)
    place = get!(map.places, name, length(map) + 1)
    if place > length(map)
        push!(map.names, name)
        push!(map.items, item)
    else
        map.items[place] = item
    end
    return map
end
