#include "parallel/context/block_exchange.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/collective.hpp"
#include "comm/work.hpp"

namespace accel::parallel {
namespace {

using comm::Collective;
using comm::Work;

// Tags of the two kinds of messages.
constexpr int kBlockTag = 0x434B;
constexpr int kGradientTag = 0x4347;

// Waits for the work; an error of it is thrown.
void finish(std::shared_ptr<Work>& work) {
  if (work == nullptr) return;
  const std::shared_ptr<Work> ended = std::exchange(work, nullptr);
  ended->wait();
  ended->result();
}

// Messages that are under way when an error ends a step keep their tensors themselves.
class RingExchange final : public BlockExchange {
 public:
  RingExchange(const at::Tensor& own, RankGroup group)
      : group_(std::move(group)),
        next_rank_((group_->rank() + 1) % group_->size()),
        former_rank_((group_->rank() + group_->size() - 1) % group_->size()),
        arriving_(own) {}

  at::Tensor block(int64_t step) override {
    finish(shift_);
    const at::Tensor present = std::move(arriving_);
    if (step + 1 < group_->size()) {
      arriving_ = at::empty_like(present);
      shift_ = group_->start(
          {Collective::send(present, next_rank_, kBlockTag), Collective::receive(arriving_, former_rank_, kBlockTag)});
    }
    return present;
  }

  // Rank r + 1 begins the sum of rank r's block, the others add to it, and it is at home after the last step.
  void add_gradient(int64_t step, const at::Tensor& gradient) override {
    if (step == 0) {
      own_ = gradient;
      return;
    }
    if (step > 1) {
      finish(shift_of_sum_);
      gradient.add_(sum_);
    }
    sum_ = at::empty_like(gradient);
    shift_of_sum_ = group_->start(
        {Collective::send(gradient, next_rank_, kGradientTag), Collective::receive(sum_, former_rank_, kGradientTag)});
  }

  at::Tensor own_gradient() override {
    finish(shift_of_sum_);
    return sum_.defined() ? own_.add_(sum_) : own_;
  }

 private:
  const RankGroup group_;
  const int next_rank_, former_rank_;
  at::Tensor arriving_;  // the block of the next step
  std::shared_ptr<Work> shift_;
  at::Tensor own_;  // this rank's part of its own gradient
  at::Tensor sum_;  // the gradients of a block by the ranks before
  std::shared_ptr<Work> shift_of_sum_;
};

class GatheredBlocks final : public BlockExchange {
 public:
  GatheredBlocks(at::Tensor own, RankGroup group) : group_(std::move(group)), own_(std::move(own)) {
    if (group_->size() == 1) return;
    blocks_ = at::empty(sizes_of_all(own_), own_.options());
    gathering_ = group_->start(Collective::all_gather(own_, blocks_));
  }

  at::Tensor block(int64_t step) override {
    if (step == 0) return own_;
    finish(gathering_);
    return blocks_.select(0, owner(step));
  }

  void add_gradient(int64_t step, const at::Tensor& gradient) override {
    if (!gradients_.defined()) gradients_ = at::empty(sizes_of_all(gradient), gradient.options());
    gradients_.select(0, owner(step)).copy_(gradient);
  }

  at::Tensor own_gradient() override {
    const at::Tensor sum = at::empty(gradients_.sizes().slice(1), gradients_.options());
    if (group_->size() == 1) return gradients_.select(0, 0);
    group_->run(Collective::reduce_scatter(gradients_, comm::ReduceOp::kSum, sum));
    return sum;
  }

 private:
  int64_t owner(int64_t step) const { return (group_->rank() + group_->size() - step) % group_->size(); }
  std::vector<int64_t> sizes_of_all(const at::Tensor& block) const {
    std::vector<int64_t> sizes = block.sizes().vec();
    sizes.insert(sizes.begin(), group_->size());
    return sizes;
  }

  const RankGroup group_;
  const at::Tensor own_;
  at::Tensor blocks_, gradients_;
  std::shared_ptr<Work> gathering_;
};

}  // namespace

std::unique_ptr<BlockExchange> exchange_blocks(BlockTransport transport, const at::Tensor& own,
                                               const RankGroup& group) {
  switch (transport) {
    case BlockTransport::kAllGather:
      return std::make_unique<GatheredBlocks>(own, group);
    case BlockTransport::kRing:
      return std::make_unique<RingExchange>(own, group);
  }
  fail(Status::kInternal, "an exchange of blocks by an unknown transport");
}

}  // namespace accel::parallel
