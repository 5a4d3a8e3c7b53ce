#include "parallel/context/block_exchange.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <exception>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "comm/collective_error.hpp"
#include "comm/work.hpp"
#include "trace/span.hpp"
#include "trace/step_times.hpp"

namespace accel::parallel {
namespace {

using comm::Collective;
using comm::Work;

// Tags of the two kinds of messages.
constexpr int kBlockTag = 0x434B;
constexpr int kGradientTag = 0x4347;

constexpr int64_t kBlockPositions = 3;  // the dimension of a block, [keys and values, batch, heads, positions, size]

// Waits for the work. Returns its error.
std::exception_ptr error_of(std::shared_ptr<Work>& work, const comm::Communicator& group) {
  if (work == nullptr) return nullptr;
  const std::shared_ptr<Work> ended = std::exchange(work, nullptr);
  const StepTimes::Section waiting(*group.step_times(), StepPart::kCommunication);
  const Span waited(SpanKind::kWait, "wait for block");
  ended->wait();
  return ended->error();
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
              comm::CollectiveFailure::kMismatch, group_->rank(),
              text("attention over a split sequence: rank ", group_->rank(), " has ", own[place],
                   place == 0 ? " positions" : " bytes of keys and values", " and rank ", rank, " has ", other[place],
                   "; expected as many on all ranks"));
    }
  }

 private:
  const RankGroup group_;
  const at::Tensor own_, all_;
  std::shared_ptr<Work> gathering_;
};

// Messages that are under way when an error ends a step keep their tensors themselves.
class RingExchange final : public BlockExchange {
 public:
  RingExchange(const at::Tensor& own, RankGroup group, at::ScalarType exact, bool compares)
      : group_(std::move(group)),
        next_rank_((group_->rank() + 1) % group_->size()),
        former_rank_((group_->rank() + group_->size() - 1) % group_->size()),
        sizes_(own.sizes().vec()),
        exact_(own.options().dtype(exact)),
        arriving_(own) {
    if (compares && group_->size() > 2) comparison_ = std::make_unique<BlockComparison>(own, group_);
  }

  // The comparison ends before the second message, so that none is left for a later exchange.
  at::Tensor block(int64_t step) override {
    const std::exception_ptr error = error_of(shift_, *group_);
    if (step == 1 && comparison_ != nullptr) comparison_->finish_comparison();
    if (error) std::rethrow_exception(error);
    const at::Tensor present = std::move(arriving_);
    if (step + 1 < group_->size()) shift_ = start_shift(present, arriving_, kBlockTag);
    return present;
  }

  at::Tensor gradient_memory(int64_t step) override {
    at::Tensor& gradient = step == 0 ? own_ : added_;
    gradient = at::empty(sizes_, exact_);
    return gradient;
  }

  // Rank r + 1 begins the sum of rank r's block, the others add to it, and it is at home after the last step.
  void add_gradient(int64_t step) override {
    if (step == 0) return;
    if (step > 1) {
      finish(shift_of_sum_, *group_);
      added_.add_(sum_);
    }
    shift_of_sum_ = start_shift(added_, sum_, kGradientTag);
  }

  at::Tensor own_gradient() override {
    finish(shift_of_sum_, *group_);
    return sum_.defined() ? own_.add_(sum_) : own_;
  }

 private:
  // Two ranks pass on what a gather moves too, which reads from memory that they share, and compares their shapes.
  std::shared_ptr<Work> start_shift(const at::Tensor& sent, at::Tensor& received, int tag) const {
    if (group_->size() == 2) {
      std::vector<int64_t> sizes = sizes_;
      sizes.insert(sizes.begin(), 2);
      const at::Tensor both = at::empty(sizes, sent.options());
      received = both.select(0, former_rank_);
      return group_->start(Collective::all_gather(sent, both));
    }
    received = at::empty_like(sent);
    return group_->start({Collective::send(sent, next_rank_, tag), Collective::receive(received, former_rank_, tag)});
  }

  const RankGroup group_;
  const int next_rank_, former_rank_;
  const std::vector<int64_t> sizes_;
  const at::TensorOptions exact_;
  std::unique_ptr<BlockComparison> comparison_;
  at::Tensor arriving_;  // the block of the next step
  std::shared_ptr<Work> shift_;
  at::Tensor own_, added_;  // this rank's part of the gradients of its block, and of the one before
  at::Tensor sum_;          // the gradients of a block by the ranks before
  std::shared_ptr<Work> shift_of_sum_;
};

class GatheredBlocks final : public BlockExchange {
 public:
  GatheredBlocks(at::Tensor own, RankGroup group, at::ScalarType exact)
      : group_(std::move(group)), own_(std::move(own)), exact_(own_.options().dtype(exact)) {
    if (group_->size() == 1) return;
    blocks_ = at::empty(sizes_of_all(), own_.options());
    gathering_ = group_->start(Collective::all_gather(own_, blocks_));
  }

  at::Tensor block(int64_t step) override {
    if (step == 0) return own_;
    finish(gathering_, *group_);
    return blocks_.select(0, owner(step));
  }

  at::Tensor gradient_memory(int64_t step) override {
    if (!gradients_.defined()) gradients_ = at::empty(sizes_of_all(), exact_);
    return gradients_.select(0, owner(step));
  }

  void add_gradient(int64_t /*step*/) override {}

  at::Tensor own_gradient() override {
    if (group_->size() == 1) return gradients_.select(0, 0);
    at::Tensor sum = at::empty(own_.sizes(), exact_);
    group_->run(Collective::reduce_scatter(gradients_, comm::ReduceOp::kSum, sum));
    return sum;
  }

 private:
  int64_t owner(int64_t step) const { return (group_->rank() + group_->size() - step) % group_->size(); }
  std::vector<int64_t> sizes_of_all() const {
    std::vector<int64_t> sizes = own_.sizes().vec();
    sizes.insert(sizes.begin(), group_->size());
    return sizes;
  }

  const RankGroup group_;
  const at::Tensor own_;
  const at::TensorOptions exact_;
  at::Tensor blocks_, gradients_;
  std::shared_ptr<Work> gathering_;
};

}  // namespace

std::unique_ptr<BlockExchange> exchange_blocks(BlockTransport transport, const at::Tensor& own, const RankGroup& group,
                                               at::ScalarType exact, bool compares) {
  switch (transport) {
    case BlockTransport::kAllGather:  // whose ranks compare what they gather
      return std::make_unique<GatheredBlocks>(own, group, exact);
    case BlockTransport::kRing:
      return std::make_unique<RingExchange>(own, group, exact, compares);
  }
  fail(Status::kInternal, "an exchange of blocks by an unknown transport");
}

}  // namespace accel::parallel
