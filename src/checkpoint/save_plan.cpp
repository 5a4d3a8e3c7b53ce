// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save_plan.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/chunk_file.hpp"
#include "checkpoint/folder_layout.hpp"
#include "checkpoint/save_options.hpp"
#include "json/json.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint {
namespace {

// In bytes.
uint64_t size_of(const c10::IValue& state) {
  uint64_t bytes = 0;
  tree::for_each_tensor(state, [&](const at::Tensor& tensor) { bytes += tensor.nbytes(); });
  return bytes;
}

struct Offer {
  size_t entry;
  std::string stem;
  std::string name;  // of the file; empty: the state is left out
  uint64_t bytes = 0;
  bool is_equal_on_all_ranks = false;
  bool has_chunks = false;
};
using Offers = std::vector<Offer>;

// Whether the frozen tensors of a model have a file of their own.
bool is_sharded(const StateEntry& entry, const SaveOptions& options) {
  if (entry.kind != StateKind::kModel || !options.incremental) return false;
  const bool has_both = !entry.frozen.empty() && entry.frozen.size() < entry.state.toGenericDict().size();
  return has_both && options.safe_serialization && options.compression_level == 0 && !has_chunks(entry.state);
}

Offer parse_offer(const Json& offer) {
  return {static_cast<size_t>(json_integer(offer, "entry", 0)),
          json_text(offer, "stem", ""),
          json_text(offer, "name", ""),
          static_cast<uint64_t>(json_integer(offer, "bytes", 0)),
          json_flag(offer, "equal", false),
          json_flag(offer, "chunks", false)};
}

Offers parse_offers(const std::string& text) {
  const Json list = parse_json(text, "the list of a rank's states");
  Offers offers;
  for (const Json& offer : *list.items()) offers.push_back(parse_offer(offer));
  return offers;
}

const Offer* find_stem(const Offers& offers, const std::string& stem) {
  const auto found = std::find_if(offers.begin(), offers.end(), [&](const Offer& offer) { return offer.stem == stem; });
  return found == offers.end() ? nullptr : &*found;
}

void check_offers(const Offers& offers, int rank, const Offers& of_first, int first) {
  for (const Offer& offer : offers)
    require(find_stem(of_first, offer.stem) != nullptr, Status::kInvalidState, "rank ", rank, " has the state '",
            offer.stem, "', and rank ", first,
            ", whose list is saved, has none; prepare and register the same objects on all ranks");
  for (const Offer& whole : of_first) {
    if (!whole.has_chunks) continue;
    const Offer* const part = find_stem(offers, whole.stem);
    require(part != nullptr && !part->name.empty(), Status::kInvalidState, "rank ", rank, " leaves the state '",
            whole.stem, "' out, of which each rank has a part, and rank ", first,
            " does not; leave it out on all ranks, or on none");
  }
}

}  // namespace

std::string offer_files(const TrainingState& state, const SaveOptions& options) {
  Json::Items offers;
  Stems stems;
  for (size_t i = 0; i < state.size(); i++) {
    const StateEntry& entry = state[i];
    if (is_per_rank(entry.kind)) continue;
    if (entry.kind == StateKind::kCustom && !entry.name.empty()) check_custom_name(entry.name);
    const std::string stem = stems.next(entry);
    Json::Members offer = {{"entry", Json::number(static_cast<int64_t>(i))}, {"stem", Json(stem)}};
    if (!entry.is_left_out) {
      offer.emplace_back("name", is_sharded(entry, options) ? index_name(stem)
                                                            : file_name(entry.kind, stem, options.safe_serialization,
                                                                        options.compression_level > 0));
      offer.emplace_back("bytes", Json::number(static_cast<int64_t>(size_of(entry.state))));
      offer.emplace_back("equal", Json(entry.is_equal_on_all_ranks));
      offer.emplace_back("chunks", Json(has_chunks(entry.state)));
    }
    offers.emplace_back(std::move(offer));
  }
  return print_json(Json(std::move(offers)));
}

SavePlan plan_save(const TrainingState& state, const std::vector<std::string>& texts, const Ranks& ranks) {
  std::vector<Offers> offers;
  for (const std::string& text : texts) offers.push_back(parse_offers(text));
  const Offers& first = offers.front();
  for (size_t rank = 1; rank < offers.size(); rank++)
    check_offers(offers[rank], ranks.first_of_folder + static_cast<int>(rank), first, ranks.first_of_folder);

  const auto this_rank = static_cast<size_t>(ranks.writer());
  SavePlan plan;
  plan.random_states = random_states_name(ranks.rank);
  plan.rank_states = rank_state_name(ranks.rank);
  for (const StateEntry& entry : state)
    if (is_per_rank(entry.kind)) plan.bytes += size_of(entry.state);
  std::vector<uint64_t> load(offers.size(), 0);
  for (const Offer& file : first)
    if (!file.is_equal_on_all_ranks) load[0] += file.bytes;
  for (const Offer& file : first) {
    if (file.name.empty()) continue;
    size_t writer = 0;
    for (size_t rank = 1; rank < offers.size() && file.is_equal_on_all_ranks; rank++) {
      const Offer* const other = find_stem(offers[rank], file.stem);
      const bool may_write = other != nullptr && other->is_equal_on_all_ranks && other->name == file.name;
      if (may_write && load[rank] < load[writer]) writer = rank;
    }
    if (file.is_equal_on_all_ranks) load[writer] += file.bytes;
    const Offer* const own = find_stem(offers[this_rank], file.stem);
    const bool writes = writer == this_rank;
    if (own == nullptr || own->name.empty() || !(writes || own->has_chunks)) continue;
    WriteItem item{own->entry, writes ? file.name : "", own->has_chunks ? chunks_name(file.stem, ranks.rank) : "", {}};
    if (writes && is_index(file.name)) item.shards = {shard_name(file.stem, 0), shard_name(file.stem, 1)};
    if (writes) plan.bytes += own->bytes;
    plan.items.push_back(std::move(item));
  }
  return plan;
}

}  // namespace accel::checkpoint
