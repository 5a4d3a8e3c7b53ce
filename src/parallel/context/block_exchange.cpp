// SPDX-License-Identifier: Apache-2.0
#include "parallel/context/block_exchange.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "comm/collective_error.hpp"
#include "comm/in_place_gather.hpp"
#include "comm/job_rank.hpp"
#include "comm/work.hpp"
#include "parallel/regions/exchange_memory.hpp"
#include "trace/span.hpp"
#include "trace/step_times.hpp"

namespace accel::parallel {
namespace {

using comm::Collective;
using comm::Work;

// Tags of the two kinds of messages.
constexpr int kBlockTag = 0x434B;
constexpr int kGradientTag = 0x4347;

constexpr int64_t kMostGradientBytes = 64 << 20;  // of all blocks, in a ring of more than two ranks

constexpr int64_t kBlockPositions = 3;  // the dimension of a block, [keys and values, batch, heads, positions, size]

// Waits for the work. Returns its error.
std::exception_ptr error_of(std::shared_ptr<Work>& work, const comm::Communicator& group) {
  if (work == nullptr) return nullptr;
  const std::shared_ptr<Work> ended = std::exchange(work, nullptr);
  const StepTimes::Section waiting(*group.step_times(), StepPart::kCommunication);
  const Span waited(SpanKind::kWait, "wait for block");
  try {
    ended->synchronize();  // which makes progress itself
  } catch (const std::exception&) {
    return std::current_exception();
  }
  return nullptr;
}

void finish(std::shared_ptr<Work>& work, const comm::Communicator& group) {
  if (const std::exception_ptr error = error_of(work, group)) std::rethrow_exception(error);
}

// Tells each rank the positions and bytes of all blocks, beside the first messages.
class BlockComparison {
 public:
  BlockComparison(const at::Tensor& block, const RankGroup& group)
      : group_(group),
        own_(at::tensor({block.size(kBlockPositions), static_cast<int64_t>(block.nbytes())}, at::kLong)),
        all_(at::empty({group->size(), 2}, at::kLong)),
        gathering_(group->start(Collective::all_gather(own_, all_))) {}

  // Throws the same on all ranks if there are two that differ.
  void finish_comparison() {
    finish(gathering_, *group_);
    const int64_t* const own = own_.const_data_ptr<int64_t>();
    for (int64_t rank = 0; rank < group_->size(); rank++) {
      const int64_t* const other = all_.const_data_ptr<int64_t>() + 2 * rank;
      for (const int place : {0, 1})
        if (other[place] != own[place])
          throw comm::CollectiveError(
              comm::CollectiveFailure::kMismatch, comm::job_rank(*group_, group_->rank()),
              text("attention over a split sequence: rank ", comm::job_rank(*group_, group_->rank()), " has ",
                   own[place], place == 0 ? " positions" : " bytes of keys and values", " and rank ",
                   comm::job_rank(*group_, static_cast<int>(rank)), " has ", other[place],
                   "; expected as many on all ranks"));
    }
  }

 private:
  const RankGroup group_;
  const at::Tensor own_, all_;
  std::shared_ptr<Work> gathering_;
};

// Brings the blocks.
class BlockArrival {
 public:
  BlockArrival() = default;
  virtual ~BlockArrival() = default;
  BlockArrival(const BlockArrival&) = delete;
  BlockArrival& operator=(const BlockArrival&) = delete;
  virtual at::Tensor block(int64_t step) = 0;  // see BlockExchange
};

// Brings the gradients home.
class GradientReturn {
 public:
  GradientReturn() = default;
  virtual ~GradientReturn() = default;
  GradientReturn(const GradientReturn&) = delete;
  GradientReturn& operator=(const GradientReturn&) = delete;
  virtual at::Tensor memory(int64_t step) = 0;  // see BlockExchange
  virtual void add(int64_t step) = 0;
  virtual at::Tensor sum_of_own() = 0;
};

int former_rank(const comm::Communicator& group) { return (group.rank() + group.size() - 1) % group.size(); }

int64_t owner_of(int64_t step, const comm::Communicator& group) {
  return (group.rank() + group.size() - step) % group.size();
}

std::vector<int64_t> sizes_of_all(const comm::Communicator& group, at::IntArrayRef sizes) {
  std::vector<int64_t> all = sizes.vec();
  all.insert(all.begin(), group.size());
  return all;
}

// Passes a tensor to the next rank and gets that of the former one. Two ranks pass on what a gather moves too, which
// goes through memory that they share, and compares their shapes.
std::shared_ptr<Work> start_shift(const RankGroup& group, const at::Tensor& sent, at::Tensor& received, int tag) {
  const int former = former_rank(*group);
  if (group->size() == 2) {
    const at::Tensor both = at::empty(sizes_of_all(*group, sent.sizes()), sent.options());
    received = both.select(0, former);
    return group->start(Collective::all_gather(sent, both));
  }
  received = at::empty_like(sent);
  const int next = (group->rank() + 1) % group->size();
  return group->start({Collective::send(sent, next, tag), Collective::receive(received, former, tag)});
}

// Messages that are under way when an error ends a step keep their tensors themselves.
class PassedBlocks final : public BlockArrival {
 public:
  PassedBlocks(const at::Tensor& own, RankGroup group, bool compares) : group_(std::move(group)), arriving_(own) {
    if (compares && group_->size() > 2) comparison_ = std::make_unique<BlockComparison>(own, group_);
  }

  // The comparison ends before the second message, so that none is left for a later exchange.
  at::Tensor block(int64_t step) override {
    const std::exception_ptr error = error_of(shift_, *group_);
    if (step == 1 && comparison_ != nullptr) comparison_->finish_comparison();
    if (error) std::rethrow_exception(error);
    const at::Tensor present = std::move(arriving_);
    if (step + 1 < group_->size()) shift_ = start_shift(group_, present, arriving_, kBlockTag);
    return present;
  }

 private:
  const RankGroup group_;
  std::unique_ptr<BlockComparison> comparison_;
  at::Tensor arriving_;  // the block of the next step
  std::shared_ptr<Work> shift_;
};

class GatheredBlocks final : public BlockArrival {
 public:
  // `memory` is null where the blocks are copied.
  GatheredBlocks(at::Tensor own, RankGroup group, std::shared_ptr<ExchangeMemory> memory)
      : group_(std::move(group)), memory_(std::move(memory)), own_(std::move(own)) {
    if (group_->size() == 1) return;
    if (memory_ != nullptr) {
      kept_ = memory_->keep_for_readers(own_);
      gathering_ = comm::start_in_place_gather(*group_, own_);
    } else {
      copies_ = at::empty(sizes_of_all(*group_, own_.sizes()), own_.options());
      gathering_ = group_->start(Collective::all_gather(own_, copies_));
    }
  }

  at::Tensor block(int64_t step) override {
    if (step == 0) return own_;
    if (const std::shared_ptr<Work> gathering = gathering_) {
      finish(gathering_, *group_);
      if (memory_ != nullptr) {
        blocks_ = comm::gathered_in_place(*gathering);
        memory_->let_go_of_blocks_before(kept_);
      } else {
        blocks_ = copies_.unbind(0);
      }
    }
    return blocks_[static_cast<size_t>(owner_of(step, *group_))];
  }

 private:
  const RankGroup group_;
  const std::shared_ptr<ExchangeMemory> memory_;
  const at::Tensor own_;
  uint64_t kept_ = 0;  // the number of `own` in the memory
  at::Tensor copies_;
  std::vector<at::Tensor> blocks_;  // by rank
  std::shared_ptr<Work> gathering_;
};

class PassedGradients final : public GradientReturn {
 public:
  PassedGradients(at::IntArrayRef sizes, const at::TensorOptions& exact, RankGroup group)
      : group_(std::move(group)), sizes_(sizes.vec()), exact_(exact) {}

  at::Tensor memory(int64_t step) override {
    at::Tensor& gradient = step == 0 ? own_ : added_;
    gradient = at::empty(sizes_, exact_);
    return gradient;
  }

  // Rank r + 1 begins the sum of rank r's block, the others add to it, and it is at home after the last step.
  void add(int64_t step) override {
    if (step == 0) return;
    if (step > 1) {
      finish(shift_, *group_);
      added_.add_(sum_);
    }
    shift_ = start_shift(group_, added_, sum_, kGradientTag);
  }

  at::Tensor sum_of_own() override {
    finish(shift_, *group_);
    return sum_.defined() ? own_.add_(sum_) : own_;
  }

 private:
  const RankGroup group_;
  const std::vector<int64_t> sizes_;
  const at::TensorOptions exact_;
  at::Tensor own_, added_;  // this rank's part of the gradients of its block, and of the one before
  at::Tensor sum_;          // the gradients of a block by the ranks before
  std::shared_ptr<Work> shift_;
};

class ReducedGradients final : public GradientReturn {
 public:
  // `memory` is null where the ranks do not sum in place.
  ReducedGradients(at::IntArrayRef sizes, const at::TensorOptions& exact, RankGroup group,
                   std::shared_ptr<ExchangeMemory> memory)
      : group_(std::move(group)), memory_(std::move(memory)), sizes_(sizes.vec()), exact_(exact) {}

  at::Tensor memory(int64_t step) override {
    if (!gradients_.defined()) {
      const std::vector<int64_t> sizes = sizes_of_all(*group_, sizes_);
      gradients_ = memory_ != nullptr ? memory_->take(sizes, exact_) : at::empty(sizes, exact_);
    }
    return gradients_.select(0, owner_of(step, *group_));
  }

  void add(int64_t /*step*/) override {}

  at::Tensor sum_of_own() override {
    if (group_->size() == 1) return gradients_.select(0, 0);
    at::Tensor sum = at::empty(sizes_, exact_);
    std::shared_ptr<Work> reducing =
        group_->start(Collective::reduce_scatter(gradients_, comm::ReduceOp::kSum, sum), comm::RunsOn::kCaller);
    finish(reducing, *group_);
    return sum;
  }

 private:
  const RankGroup group_;
  const std::shared_ptr<ExchangeMemory> memory_;
  const std::vector<int64_t> sizes_;
  const at::TensorOptions exact_;
  at::Tensor gradients_;
};

class RoutedExchange final : public BlockExchange {
 public:
  RoutedExchange(std::unique_ptr<BlockArrival> blocks, std::unique_ptr<GradientReturn> gradients)
      : blocks_(std::move(blocks)), gradients_(std::move(gradients)) {}

  at::Tensor block(int64_t step) override { return blocks_->block(step); }
  at::Tensor gradient_memory(int64_t step) override { return gradients_->memory(step); }
  void add_gradient(int64_t step) override { gradients_->add(step); }
  at::Tensor own_gradient() override { return gradients_->sum_of_own(); }

 private:
  const std::unique_ptr<BlockArrival> blocks_;
  const std::unique_ptr<GradientReturn> gradients_;
};

// Null where blocks are copied.
std::shared_ptr<ExchangeMemory> mapped_memory(const BlockRoute& route) {
  return route.memory != nullptr && route.memory->is_mapped() ? route.memory : nullptr;
}

}  // namespace

at::Tensor block_memory(const BlockRoute& route, at::IntArrayRef sizes, const at::TensorOptions& options) {
  const auto memory = mapped_memory(route);
  return memory != nullptr ? memory->take(sizes, options) : at::empty(sizes, options);
}

// Ranks of one host pass nothing on: they read where the blocks are. Their gradients are all in memory at once, which
// is what a ring is not to need where sequences are long.
std::unique_ptr<BlockExchange> exchange_blocks(const BlockRoute& route, const at::Tensor& own, at::ScalarType exact,
                                               bool compares) {
  const auto memory = mapped_memory(route);
  const at::TensorOptions options = own.options().dtype(exact);
  const int64_t gradient_bytes = own.numel() * static_cast<int64_t>(options.dtype().itemsize()) * route.group->size();
  const bool is_ring = route.transport == BlockTransport::kRing;
  const bool passes_gradients =
      is_ring && (memory == nullptr || (route.group->size() > 2 && gradient_bytes > kMostGradientBytes));
  std::unique_ptr<BlockArrival> blocks;
  if (is_ring && memory == nullptr)
    blocks = std::make_unique<PassedBlocks>(own, route.group, compares);
  else  // the ranks compare what they gather
    blocks = std::make_unique<GatheredBlocks>(own, route.group, memory);
  std::unique_ptr<GradientReturn> gradients;
  if (passes_gradients)
    gradients = std::make_unique<PassedGradients>(own.sizes(), options, route.group);
  else
    gradients = std::make_unique<ReducedGradients>(own.sizes(), options, route.group, memory);
  return std::make_unique<RoutedExchange>(std::move(blocks), std::move(gradients));
}

}  // namespace accel::parallel
