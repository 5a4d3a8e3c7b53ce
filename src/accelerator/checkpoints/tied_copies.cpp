// SPDX-License-Identifier: Apache-2.0
#include "accelerator/checkpoints/tied_copies.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "accelerator/checkpoints/stage_numbers.hpp"
#include "base/error.hpp"
#include "checkpoint/files/content_hash.hpp"
#include "checkpoint/run_on_all_ranks.hpp"
#include "comm/collectives.hpp"
#include "comm/job_rank.hpp"
#include "parallel/stage_pipeline.hpp"

namespace accel::accelerator {
namespace {

int64_t hash_of_bits(const at::Tensor& tensor) {
  const at::Tensor bits = tensor.detach().cpu().contiguous();
  return static_cast<int64_t>(checkpoint::hash_of(bits.const_data_ptr(), bits.nbytes()));
}

// Says how the copies of a parameter differ; empty if they do not. Collective among its ranks.
std::string difference_of(const parallel::TiedCopy& tie) {
  const at::Tensor hashes =
      comm::gather_rows(*tie.ranks, at::full({1}, hash_of_bits(tie.parameter), at::kLong)).contiguous();
  const int64_t* const of_ranks = hashes.const_data_ptr<int64_t>();
  for (int rank = 1; rank < tie.ranks->size(); rank++)
    if (of_ranks[rank] != of_ranks[0])
      return text("the copies of '", tie.name, "' on rank ", comm::job_rank(*tie.ranks, 0), " and rank ",
                  comm::job_rank(*tie.ranks, rank), " differ");
  return {};
}

}  // namespace

void require_equal_copies(const std::vector<parallel::ParallelModelPtr>& models, const checkpoint::Ranks& ranks) {
  if (std::none_of(models.begin(), models.end(), [](const auto& model) { return is_in_stages(*model); })) return;
  checkpoint::run_on_all_ranks(ranks, [&models]() -> std::string {
    std::string difference;  // thrown behind the last exchange, as a rank may have copies of several parameters
    for (const parallel::ParallelModelPtr& model : models) {
      if (!is_in_stages(*model)) continue;
      model->finish_step();
      for (const parallel::TiedCopy& tie : model->pipeline()->ties()) {
        const std::string found = difference_of(tie);
        if (difference.empty()) difference = found;
      }
    }
    require(
        difference.empty(), Status::kCorrupt, difference,
        ", and a checkpoint holds one of them; expected equal bits, which steps keep: give both the same values, or "
        "load a checkpoint");
    return {};
  });
}

}  // namespace accel::accelerator
