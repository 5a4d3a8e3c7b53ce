// SPDX-License-Identifier: Apache-2.0
#include "parallel/same_plan.hpp"

#include <ATen/core/ivalue.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {

void check_same_plan(const std::vector<std::string>& lines, comm::Communicator& ranks, const char* kind) {
  auto own = tree::new_list();
  for (const std::string& line : lines) own.push_back(line);
  const c10::IValue gathered = comm::gather_object(ranks, tree::new_list({own}));
  std::vector<std::vector<std::string>> all;
  size_t most = 0;
  for (const c10::IValue& of_rank : tree::sequence_items(gathered)) {
    all.emplace_back();
    for (const c10::IValue& line : tree::sequence_items(of_rank)) all.back().push_back(line.toStringRef());
    most = std::max(most, all.back().size());
  }
  for (auto& of_rank : all) of_rank.resize(most, "nothing further");
  for (size_t rank = 1; rank < all.size(); rank++)
    for (size_t i = 0; i < most; i++)
      require(all[rank][i] == all[0][i], Status::kCollectiveMismatch, "rank ", rank, " ", kind, " has ", all[rank][i],
              ", and rank 0 has ", all[0][i], "; expected one plan with its options on all ranks");
}

}  // namespace accel::parallel
