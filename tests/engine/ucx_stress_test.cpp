// Random collectives on three groups at once, each checked against a plain computation.
#include <ATen/ATen.h>

#include <cstring>
#include <random>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "ucx_fixture.hpp"

namespace accel::comm {
namespace {

constexpr int kRanks = 4;
constexpr int kGroups = 3;
constexpr int kCalls = 1500;

// What all ranks know of a call: they draw the same numbers.
struct Draw {
  explicit Draw(std::mt19937& numbers)
      : operation(static_cast<int>(numbers() % 7)),
        group(static_cast<int>(numbers() % kGroups)),
        root(static_cast<int>(numbers() % kRanks)),
        dtype(numbers() % 2 ? at::kLong : at::kFloat),
        strided(numbers() % 4 == 0),
        salt(static_cast<int64_t>(numbers() % 1000)) {
    constexpr int64_t kLimits[] = {1, 40, 3000, 60000};  // nothing, small, some chunks, many
    numel = static_cast<int64_t>(numbers()) % kLimits[numbers() % 4];
    if (numbers() % 40 == 0) numel = 400000;  // more chunks than a rank has slots
  }
  int operation, group, root;
  at::ScalarType dtype;
  bool strided;
  int64_t salt;
  int64_t numel = 0;
};

// Whole numbers, so that sums are exact.
at::Tensor values(const Draw& draw, int rank, int64_t numel) {
  return (at::arange(numel, at::kLong) * (rank + 3) + draw.salt + rank).remainder(97).to(draw.dtype);
}

// The same numbers in every second place of a larger tensor where the call is drawn as strided.
at::Tensor placed(const Draw& draw, const at::Tensor& numbers) {
  if (!draw.strided) return numbers.clone();
  at::Tensor view = at::zeros({numbers.numel(), 2}, numbers.options()).select(1, 1);
  view.copy_(numbers);
  return view;
}

at::Tensor sum_of_all(const Draw& draw, int64_t numel) {
  at::Tensor sum = values(draw, 0, numel);
  for (int rank = 1; rank < kRanks; rank++) sum += values(draw, rank, numel);
  return sum;
}

at::Tensor joined(const Draw& draw) {
  Tensors all;
  for (int rank = 0; rank < kRanks; rank++) all.push_back(values(draw, rank, draw.numel));
  return at::cat(all);
}

void run_and_check(c10d::Backend& backend, const Draw& draw, int rank) {
  Tensors tensors{placed(draw, values(draw, rank, draw.numel))};
  at::Tensor right = values(draw, rank, draw.numel);
  if (draw.operation == 0) {
    backend.allreduce(tensors, at_once<c10d::AllreduceOptions>())->wait();
    right = sum_of_all(draw, draw.numel);
  } else if (draw.operation == 1) {
    auto options = at_once<c10d::ReduceOptions>();
    options.rootRank = draw.root;
    backend.reduce(tensors, options)->wait();
    if (rank == draw.root) right = sum_of_all(draw, draw.numel);
  } else if (draw.operation == 2) {
    auto options = at_once<c10d::BroadcastOptions>();
    options.rootRank = draw.root;
    backend.broadcast(tensors, options)->wait();
    right = values(draw, draw.root, draw.numel);
  } else if (draw.operation == 3) {
    at::Tensor output = placed(draw, at::zeros({draw.numel * kRanks}, draw.dtype));
    backend._allgather_base(output, tensors[0], at_once<c10d::AllgatherOptions>())->wait();
    tensors[0] = output;
    right = joined(draw);
  } else if (draw.operation == 4) {
    at::Tensor input = placed(draw, values(draw, rank, draw.numel * kRanks));
    backend._reduce_scatter_base(tensors[0], input, at_once<c10d::ReduceScatterOptions>())->wait();
    right = sum_of_all(draw, draw.numel * kRanks).narrow(0, rank * draw.numel, draw.numel);
  } else if (draw.operation == 5) {
    auto options = at_once<c10d::ScatterOptions>();
    options.rootRank = draw.root;
    std::vector<Tensors> inputs(rank == draw.root ? 1 : 0);
    for (int peer = 0; rank == draw.root && peer < kRanks; peer++)
      inputs[0].push_back(placed(draw, values(draw, peer, draw.numel)));
    tensors[0].zero_();
    backend.scatter(tensors, inputs, options)->wait();
  } else {
    const auto work = backend.allreduce(tensors, c10d::AllreduceOptions());  // on the group's thread
    work->wait();
    right = sum_of_all(draw, draw.numel);
  }
  ASSERT_TRUE(at::equal(tensors[0], right))
      << "operation " << draw.operation << " of " << draw.numel << " in group " << draw.group;
}

TEST(UcxStress, RandomCallsOnThreeGroups) {
  const auto environment = backend_environment();
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> failures(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; rank++)
    threads.emplace_back([&, rank] {
      try {
        std::vector<BackendPointer> groups;
        for (int group = 0; group < kGroups; group++)
          groups.push_back(make_backend(c10::make_intrusive<c10d::PrefixStore>("group" + std::to_string(group), store),
                                        rank, kRanks, 60000));
        std::mt19937 numbers(2025);
        for (int call = 0; call < kCalls && !testing::Test::HasFatalFailure(); call++) {
          const Draw draw(numbers);
          run_and_check(*groups[draw.group], draw, rank);
        }
        for (const auto& group : groups) group->shutdown();
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace
}  // namespace accel::comm
