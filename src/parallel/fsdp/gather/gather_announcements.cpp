// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp/gather/gather_announcements.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "comm/communicator.hpp"

namespace accel::parallel {
namespace {

constexpr int64_t kEnded = -1;

int64_t announcement_of(size_t group, SentParts sent) {
  return 2 * static_cast<int64_t>(group) + (sent == SentParts::kKept ? 1 : 0);
}

}  // namespace

GatherAnnouncements::GatherAnnouncements(CommunicatorPtr ranks,
                                         const std::vector<std::unique_ptr<ParameterGroup>>& groups)
    : ranks_(std::move(ranks)), groups_(groups) {}

void GatherAnnouncements::begin_micro_batches(bool announces) {
  rounds_.clear();
  saw_end_ = false;
  in_micro_batches_ = true;
  is_active_ = announces;
}

GatherAnnouncements::Round GatherAnnouncements::begin_round(size_t group, int64_t announced) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(ranks_->device());
  Round round{group, at::full({1}, announced, options), at::empty({ranks_->size()}, options), nullptr};
  round.work = ranks_->start({comm::Collective::all_gather(round.announced, round.all)});
  return round;
}

std::vector<int64_t> GatherAnnouncements::finish(const Round& round) {
  round.work->wait();
  round.work->synchronize();
  round.work->result();
  const at::Tensor all = round.all.cpu();
  const int64_t* const values = all.const_data_ptr<int64_t>();
  return {values, values + all.numel()};
}

void GatherAnnouncements::announce(size_t group) {
  if (!is_active_) return;
  if (const auto sent = groups_[group]->gather().prepare_unshard())
    rounds_.push_back(begin_round(group, announcement_of(group, *sent)));
}

void GatherAnnouncements::check(size_t group) {
  if (!is_active_) return;
  const auto own =
      std::find_if(rounds_.begin(), rounds_.end(), [&](const Round& round) { return round.group == group; });
  if (own == rounds_.end()) return;
  for (auto left = std::distance(rounds_.begin(), own) + 1; left > 0; left--) {
    const Round round = std::move(rounds_.front());
    rounds_.pop_front();
    const std::vector<int64_t> announced = finish(round);
    saw_end_ = std::find(announced.begin(), announced.end(), kEnded) != announced.end();
    require(!saw_end_, Status::kCollectiveMismatch, "another rank that shares the parameters of '",
            groups_[round.group]->name(), "' has ended its micro-batches, and this one gathers them");
  }
}

bool GatherAnnouncements::end() {
  if (!std::exchange(is_active_, false)) return false;
  for (const Round& round : std::exchange(rounds_, {})) finish(round);
  while (true) {
    const std::vector<int64_t> announced = finish(begin_round(/*group=*/0, kEnded));
    const auto gathered =
        std::find_if(announced.begin(), announced.end(), [](int64_t value) { return value != kEnded; });
    if (gathered == announced.end()) return saw_end_;
    const size_t group = static_cast<size_t>(*gathered / 2);
    require(*gathered >= 0 && group < groups_.size(), Status::kCollectiveMismatch, "another rank gathers group ",
            *gathered / 2, " of parameters, and this one has ", groups_.size());
    groups_[group]->gather().gather_for_others(*gathered % 2 == 1 ? SentParts::kKept : SentParts::kShards);
  }
}

}  // namespace accel::parallel
