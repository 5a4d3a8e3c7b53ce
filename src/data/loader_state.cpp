// SPDX-License-Identifier: Apache-2.0
#include "data/loader_state.hpp"

#include "base/error.hpp"
#include "tensor/tree.hpp"

namespace accel::data {
namespace {

int64_t read_count(const c10::impl::GenericDict& map, const char* key) {
  const auto entry = map.find(key);
  require(entry != map.end() && entry->value().isInt() && entry->value().toInt() >= 0, Status::kInvalidArgument,
          "the state of a loader lacks \"", key, "\"; expected an integer of at least 0");
  return entry->value().toInt();
}

}  // namespace

c10::IValue to_value(const LoaderState& state) {
  auto map = tree::new_map();
  map.insert("epoch", state.epoch);
  map.insert("batches", state.batches);
  map.insert("samples", state.position.samples);
  if (state.seed) map.insert("seed", *state.seed);
  if (!state.position.readers.empty()) {
    auto readers = tree::new_list();
    for (const int64_t taken : state.position.readers) readers.push_back(taken);
    map.insert("readers", readers);
    map.insert("rest", state.position.rest);
  }
  return map;
}

LoaderState read_loader_state(const c10::IValue& value) {
  require(value.isGenericDict(), Status::kInvalidArgument, "the state of a loader is a ", tree::kind_name(value),
          "; expected a map with epoch and samples");
  const auto map = value.toGenericDict();
  LoaderState state;
  state.epoch = read_count(map, "epoch");
  state.batches = read_count(map, "batches");
  state.position.samples = read_count(map, "samples");
  if (const auto seed = map.find("seed"); seed != map.end()) {
    require(seed->value().isInt(), Status::kInvalidArgument, "\"seed\" in the state of a loader is a ",
            tree::kind_name(seed->value()), "; expected an integer");
    state.seed = seed->value().toInt();
  }
  const auto readers = map.find("readers");
  if (readers == map.end()) return state;
  require(readers->value().isList() && !readers->value().toListRef().empty(), Status::kInvalidArgument,
          "\"readers\" in the state of a loader is not a list of integers");
  for (const auto& taken : readers->value().toListRef()) {
    require(taken.isInt() && taken.toInt() >= 0, Status::kInvalidArgument,
            "\"readers\" in the state of a loader holds a ", tree::kind_name(taken),
            "; expected integers of at least 0");
    state.position.readers.push_back(taken.toInt());
  }
  state.position.rest = read_count(map, "rest");
  return state;
}

}  // namespace accel::data
