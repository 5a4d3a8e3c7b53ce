// SPDX-License-Identifier: Apache-2.0
// Random collectives on three groups at once, each checked against a plain computation.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include <random>
#include <string>

#include "base/error.hpp"
#include "ucx_fixture.hpp"

namespace accel::comm {
namespace ucx_stress_test {

constexpr int kGroups = 3;
constexpr unsigned kSeed = 2025;
constexpr int64_t kLargest = 300000;  // more chunks than a rank has slots
constexpr int64_t kOffsets = 4096;

enum class Kind { kAllReduce, kStarted, kReduce, kBroadcast, kAllGather, kGather, kReduceScatter, kScatter, kAllToAll };
constexpr int kKinds = 9;

// What all ranks know of a call: they draw the same numbers.
struct Draw {
  Draw(std::mt19937& numbers, int ranks)
      : kind(static_cast<Kind>(numbers() % kKinds)),
        group(static_cast<int>(numbers() % kGroups)),
        root(static_cast<int>(numbers() % ranks)),
        dtype(numbers() % 2 ? at::kLong : at::kFloat),
        strided(numbers() % 4 == 0),
        salt(static_cast<int64_t>(numbers() % kOffsets)) {
    constexpr int64_t kLimits[] = {1, 40, 3000, 3000, 20000};  // nothing, small, some chunks, many
    numel = static_cast<int64_t>(numbers()) % kLimits[numbers() % 5];
    if (numbers() % 200 == 0) numel = kLargest;
  }
  Kind kind;
  int group, root;
  at::ScalarType dtype;
  bool strided;
  int64_t salt;
  int64_t numel = 0;
};

// The numbers that the ranks have: parts of one row of whole numbers, so that sums are exact and cost little to model.
class Model {
 public:
  explicit Model(int ranks) : ranks_(ranks) {
    whole_ = (at::arange(kLargest * ranks + kOffsets, at::kLong) * 31).remainder(97);
    floats_ = whole_.to(at::kFloat);
  }
  at::Tensor values(const Draw& draw, int rank, int64_t numel) const {
    return (draw.dtype == at::kLong ? whole_ : floats_).narrow(0, (draw.salt + rank * 977) % kOffsets, numel);
  }
  at::Tensor sum(const Draw& draw, int64_t start, int64_t numel) const {
    at::Tensor sum = values(draw, 0, start + numel).narrow(0, start, numel).clone();
    for (int rank = 1; rank < ranks_; rank++) sum += values(draw, rank, start + numel).narrow(0, start, numel);
    return sum;
  }
  at::Tensor joined(const Draw& draw) const {
    Tensors all;
    for (int rank = 0; rank < ranks_; rank++) all.push_back(values(draw, rank, draw.numel));
    return at::cat(all);
  }
  // Part `to` of what each rank has.
  at::Tensor parts(const Draw& draw, int to) const {
    Tensors all;
    for (int rank = 0; rank < ranks_; rank++)
      all.push_back(values(draw, rank, draw.numel * ranks_).narrow(0, draw.numel * to, draw.numel));
    return at::cat(all);
  }

 private:
  const int ranks_;
  at::Tensor whole_, floats_;
};

// The same numbers in every second place of a larger tensor where the call is drawn as strided.
at::Tensor placed(const Draw& draw, const at::Tensor& numbers) {
  if (!draw.strided) return numbers.clone();
  at::Tensor view = at::zeros({numbers.numel(), 2}, numbers.options()).select(1, 1);
  view.copy_(numbers);
  return view;
}

template <typename Options>
Options rooted(const Draw& draw) {
  auto options = at_once<Options>();
  options.rootRank = draw.root;
  return options;
}

void run_and_check(c10d::Backend& backend, const Draw& draw, const Model& model, int call) {
  const int rank = backend.getRank(), ranks = backend.getSize();
  const int64_t numel = draw.numel;
  Tensors tensors{placed(draw, model.values(draw, rank, numel))};
  at::Tensor right = model.values(draw, rank, numel);
  std::vector<Tensors> lists(rank == draw.root ? 1 : 0);
  switch (draw.kind) {
    case Kind::kAllReduce:
      backend.allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
      right = model.sum(draw, 0, numel);
      break;
    case Kind::kStarted:  // on the group's thread
      backend.allreduce(tensors, c10d::AllreduceOptions())->wait();
      right = model.sum(draw, 0, numel);
      break;
    case Kind::kReduce:
      backend.reduce(tensors, rooted<c10d::ReduceOptions>(draw))->wait();
      if (rank == draw.root) right = model.sum(draw, 0, numel);
      break;
    case Kind::kBroadcast:
      backend.broadcast(tensors, rooted<c10d::BroadcastOptions>(draw))->wait();
      right = model.values(draw, draw.root, numel);
      break;
    case Kind::kAllGather: {
      at::Tensor output = placed(draw, at::zeros({numel * ranks}, draw.dtype));
      backend._allgather_base(output, tensors[0], at_once<c10d::AllgatherOptions>())->wait();
      tensors[0] = output;
      right = model.joined(draw);
      break;
    }
    case Kind::kGather:
      for (int peer = 0; rank == draw.root && peer < ranks; peer++)
        lists[0].push_back(placed(draw, at::zeros({numel}, draw.dtype)));
      backend.gather(lists, tensors, rooted<c10d::GatherOptions>(draw))->wait();
      if (rank != draw.root) break;
      tensors[0] = at::cat(lists[0]);
      right = model.joined(draw);
      break;
    case Kind::kReduceScatter: {
      at::Tensor input = placed(draw, model.values(draw, rank, numel * ranks));
      backend._reduce_scatter_base(tensors[0], input, at_once<c10d::ReduceScatterOptions>())->wait();
      right = model.sum(draw, rank * numel, numel);
      break;
    }
    case Kind::kScatter:
      for (int peer = 0; rank == draw.root && peer < ranks; peer++)
        lists[0].push_back(placed(draw, model.values(draw, peer, numel)));
      tensors[0].zero_();
      backend.scatter(tensors, lists, rooted<c10d::ScatterOptions>(draw))->wait();
      break;
    case Kind::kAllToAll: {
      at::Tensor input = placed(draw, model.values(draw, rank, numel * ranks));
      at::Tensor output = placed(draw, at::zeros({numel * ranks}, draw.dtype));
      std::vector<int64_t> equal;
      backend.alltoall_base(output, input, equal, equal, at_once<c10d::AllToAllOptions>())->wait();
      tensors[0] = output;
      right = model.parts(draw, rank);
      break;
    }
  }
  ASSERT_TRUE(at::equal(tensors[0], right))
      << "seed " << kSeed << ", call " << call << ": kind " << static_cast<int>(draw.kind) << " of " << numel
      << " in group " << draw.group << " on rank " << rank;
}

void run_random_calls(const Route& route, int calls) {
  const Model model(route.ranks());
  run_ranks(route, kGroups, [&](const std::vector<BackendPointer>& groups, int) {
    std::mt19937 numbers(kSeed);
    for (int call = 0; call < calls && !testing::Test::HasFatalFailure(); call++) {
      const Draw draw(numbers, route.ranks());
      try {
        run_and_check(*groups[draw.group], draw, model, call);
      } catch (const std::exception& error) {
        throw std::runtime_error(text("seed ", kSeed, ", call ", call, ": ", error.what()));
      }
    }
  });
}

TEST(UcxStress, SharedMemory) { run_random_calls({"aaaa"}, 20000); }
TEST(UcxStress, Messages) { run_random_calls({"aaaa", Between::kMessages}, 3000); }
TEST(UcxStress, Tcp) { run_random_calls({"aaaa", Between::kTcp}, 2000); }
TEST(UcxStress, Hosts) { run_random_calls({"aabb"}, 2000); }
TEST(UcxStress, UnevenHosts) { run_random_calls({"abaa"}, 2000); }

}  // namespace ucx_stress_test
}  // namespace accel::comm
