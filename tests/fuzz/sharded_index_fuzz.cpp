// SPDX-License-Identifier: Apache-2.0
// Any bytes as the index of a model: an error that says what is wrong, or names of files beside it, which come back the
// same when the index is written again.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/formats/sharded_index.hpp"
#include "fuzz_target.hpp"

namespace sharded_index_fuzz {

using namespace accel::checkpoint;

FUZZ_TARGET(sharded_index) {
  try {
    ShardedIndex index = parse_sharded_index({reinterpret_cast<const char*>(data), size}, "input");
    for (const auto& [name, file] : index.weight_map) check(!file.empty() && file.find('/') == std::string::npos);
    const ShardedIndex again = parse_sharded_index(print_sharded_index(index), "printed");
    std::sort(index.weight_map.begin(), index.weight_map.end());
    check(again.weight_map == index.weight_map && again.total_size == index.total_size);
  } catch (const accel::Error& error) {
    check(error.status() == accel::Status::kCorrupt && error.message().find("'input'") != std::string::npos);
  }
  return 0;
}

}  // namespace sharded_index_fuzz
