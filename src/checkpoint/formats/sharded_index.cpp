// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/sharded_index.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <unordered_map>
#include <unordered_set>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "json/json.hpp"
#include "json/json_writer.hpp"

namespace accel::checkpoint {
namespace {

constexpr const char* kIndexMetadata = "metadata";
constexpr const char* kTotalSize = "total_size";
constexpr const char* kWeightMap = "weight_map";

std::string file_name(const std::string& pattern, const std::string& suffix) {
  constexpr std::string_view kSuffix = "{suffix}";
  std::string name = pattern;
  return name.replace(name.find(kSuffix), kSuffix.size(), suffix);
}

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::string print_sharded_index(const ShardedIndex& index) {
  auto sorted = index.weight_map;
  std::sort(sorted.begin(), sorted.end());
  std::string json = text("{\n  \"", kIndexMetadata, "\": {\n    \"", kTotalSize, "\": ", index.total_size,
                          "\n  },\n  \"", kWeightMap, "\": {");
  const char* separator = "\n";
  for (const auto& [name, file] : sorted) {
    json += text(separator, "    ");
    append_json_text(json, name, JsonEscapes::kAscii);
    json += ": ";
    append_json_text(json, file, JsonEscapes::kAscii);
    separator = ",\n";
  }
  return json + (sorted.empty() ? "" : "\n  ") + "}\n}\n";
}

ShardedIndex parse_sharded_index(std::string_view document, const std::string& source) {
  const auto corrupt = [&](const auto&... parts) {
    fail(Status::kCorrupt, "'", source, "' is not an index of a model: ", parts...);
  };
  Json json;
  try {
    json = parse_json(document, "its JSON");
  } catch (const Error& error) {
    corrupt(error.message());
  }
  if (json.members() == nullptr) corrupt("it is not a JSON object");
  const Json* const map = json_member(json, kWeightMap);
  if (map == nullptr || map->members() == nullptr) corrupt("it has no '", kWeightMap, "'");
  ShardedIndex index;
  std::unordered_set<std::string_view> names;
  for (const auto& [name, file] : *map->members()) {
    if (file.text() == nullptr || !is_plain_file_name(*file.text()))
      corrupt("the file of '", name, "' is not a name of a file beside it");
    if (!names.insert(name).second) corrupt("it has '", name, "' twice");
    index.weight_map.emplace_back(name, *file.text());
  }
  const Json* const metadata = json_member(json, kIndexMetadata);
  const Json* const total =
      metadata == nullptr || metadata->members() == nullptr ? nullptr : json_member(*metadata, kTotalSize);
  if (total != nullptr && total->integer().value_or(-1) >= 0)
    index.total_size = static_cast<uint64_t>(*total->integer());
  return index;
}

ShardedModel split_into_shards(const NamedTensors& tensors, uint64_t max_shard_size, const std::string& pattern) {
  require(max_shard_size > 0, Status::kInvalidArgument, "max_shard_size is 0; expected at least 1 byte");
  // The shards in their order; the one that is being filled gets its place when it is closed.
  std::vector<std::vector<size_t>> shards;
  std::vector<size_t> current;
  uint64_t current_size = 0;
  std::unordered_map<const void*, std::vector<size_t>> sharing;  // by storage, in order; the first has a place
  ShardedModel model;
  for (size_t i = 0; i < tensors.size(); i++) {
    const at::Tensor& tensor = tensors[i].second;
    if (tensor.numel() > 0) {
      std::vector<size_t>& others = sharing[tensor.storage().unsafeGetStorageImpl()];
      others.push_back(i);
      if (others.size() > 1) continue;
    }
    const uint64_t size = tensor.nbytes();
    model.index.total_size += size;
    if (size > max_shard_size) {
      shards.push_back({i});
      continue;
    }
    if (current_size + size > max_shard_size) {
      shards.push_back(std::move(current));
      current.clear();
      current_size = 0;
    }
    current.push_back(i);
    current_size += size;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));

  for (size_t number = 0; number < shards.size(); number++) {
    std::array<char, 64> suffix{};
    if (shards.size() > 1) std::snprintf(suffix.data(), suffix.size(), "-%05zu-of-%05zu", number + 1, shards.size());
    Shard shard{file_name(pattern, suffix.data()), {}};
    for (const size_t i : shards[number]) {
      shard.tensors.push_back(tensors[i]);
      const auto found = sharing.find(tensors[i].second.storage().unsafeGetStorageImpl());
      if (found == sharing.end() || found->second.front() != i) continue;
      for (size_t other = 1; other < found->second.size(); other++)
        shard.tensors.push_back(tensors[found->second[other]]);
    }
    if (shards.size() > 1)
      for (const auto& [name, tensor] : shard.tensors) model.index.weight_map.emplace_back(name, shard.file);
    model.shards.push_back(std::move(shard));
  }
  return model;
}

uint64_t parse_shard_size(const std::string& size) {
  const auto wrong = [&]() {
    fail(Status::kInvalidArgument, "max_shard_size is '", size,
         "'; expected a number of bytes, or of TB, GB, MB or KB, as \"10GB\"");
  };
  uint64_t plain = 0;
  const auto whole = std::from_chars(size.data(), size.data() + size.size(), plain);
  if (whole.ec == std::errc() && whole.ptr == size.data() + size.size() && plain > 0) return plain;
  const auto is_space = [](char byte) { return byte == ' '; };
  const auto begin = std::find_if_not(size.begin(), size.end(), is_space);
  const auto end = std::find_if_not(size.rbegin(), size.rend(), is_space).base();
  if (end - begin < 3) wrong();
  std::string unit(end - 2, end);
  for (char& letter : unit) letter = static_cast<char>(letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter);
  constexpr std::pair<std::string_view, double> kUnits[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}};
  const auto* const found =
      std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& entry) { return entry.first == unit; });
  auto number_end = end - 2;
  while (number_end > begin && is_space(*(number_end - 1))) --number_end;
  double number = 0;
  const char* const first = size.data() + (begin - size.begin());
  const char* const last = size.data() + (number_end - size.begin());
  const auto result = number_from_chars(first, last, number);
  if (found == std::end(kUnits) || result.ec != std::errc() || result.ptr != last) wrong();
  const double bytes = number * found->second;
  if (!(bytes >= 1 && bytes < 9e18)) wrong();
  return static_cast<uint64_t>(bytes);
}

}  // namespace accel::checkpoint
