// SPDX-License-Identifier: Apache-2.0
#include "comm/mesh.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/backend/backend_communicator.hpp"
#include "expect_error.hpp"
#include "rank_threads.hpp"

namespace accel::comm {
namespace mesh_test {

using tests::expect_error;
using tests::run_ranks;

const std::vector<MeshAxis> kAxes = {{"replicate", 2}, {"shard", 1}, {"context", 2}, {"tensor", 2}};

TEST(Mesh, CoordinatesAreRowMajor) {
  run_ranks(8, [](const std::shared_ptr<Communicator>& ranks) {
    const Mesh mesh(ranks, kAxes);
    EXPECT_EQ(mesh.coordinate("tensor"), ranks->rank() % 2);
    EXPECT_EQ(mesh.coordinate("context"), ranks->rank() / 2 % 2);
    EXPECT_EQ(mesh.coordinate("replicate"), ranks->rank() / 4);
    EXPECT_EQ(mesh.coordinate("shard"), 0);
    // In the order of the mesh, however they are listed.
    EXPECT_EQ(mesh.coordinate("context,replicate"), ranks->rank() / 2);
    EXPECT_EQ(mesh.coordinate("replicate,tensor"), ranks->rank() / 4 * 2 + ranks->rank() % 2);
    EXPECT_EQ(mesh.coordinate("replicate,tensor", 5), 3);
    EXPECT_EQ(mesh.size("replicate,shard"), 2);
    EXPECT_EQ(mesh.size("replicate,context,tensor"), 8);
    if (ranks->rank() == 6) {
      EXPECT_EQ(mesh.describe(), "replicate 2, shard 1, context 2, tensor 2; this rank is at 1, 0, 1, 0");
    }
  });
}

TEST(Mesh, AGroupHasTheRanksThatDifferInItsAxesAlone) {
  run_ranks(8, [](const std::shared_ptr<Communicator>& ranks) {
    Mesh mesh(ranks, kAxes);
    for (const std::string axes : {"replicate", "context", "tensor", "replicate,context", "context,tensor"}) {
      const std::shared_ptr<Communicator> group = mesh.group(axes);
      EXPECT_EQ(group->size(), mesh.size(axes)) << axes;
      EXPECT_EQ(group->rank(), mesh.coordinate(axes)) << axes;
      int64_t expected = 0;
      for (int64_t rank = 0; rank < ranks->size(); rank++) {
        bool is_member = true;
        for (const MeshAxis& axis : kAxes)
          is_member = is_member && (axes.find(axis.name) != std::string::npos ||
                                    mesh.coordinate(axis.name, rank) == mesh.coordinate(axis.name));
        if (is_member) expected += rank;
      }
      at::Tensor sum = at::full({1}, ranks->rank(), at::kLong);
      group->all_reduce(sum, ReduceOp::kSum);
      EXPECT_EQ(sum.item<int64_t>(), expected) << axes;
    }
  });
}

TEST(Mesh, AGroupIsFormedOnce) {
  run_ranks(4, [](const std::shared_ptr<Communicator>& ranks) {
    Mesh mesh(ranks, {{"pipeline", 1}, {"replicate", 2}, {"tensor", 2}});
    const std::shared_ptr<Communicator> group = mesh.group("tensor");
    EXPECT_EQ(mesh.group("tensor"), group);
    EXPECT_EQ(mesh.group("pipeline,tensor"), group);  // the same ranks
    EXPECT_NE(mesh.group("replicate"), group);
    EXPECT_EQ(mesh.group("replicate,tensor"), ranks);
    EXPECT_EQ(mesh.group("pipeline")->size(), 1);
    EXPECT_EQ(mesh.group("pipeline"), mesh.group("pipeline"));
  });
}

// replicate 1, shard 4, tensor 2, and over the same ranks expert_shard 2, expert 4.
TEST(Mesh, SecondGridHasAxesOfTheSameRanks) {
  run_ranks(8, [](const std::shared_ptr<Communicator>& ranks) {
    Mesh mesh(ranks, {{"replicate", 1}, {"shard", 4}, {"tensor", 2}});
    mesh.add_grid({{"replicate", 1}, {"expert_shard", 2}, {"expert", 4}});
    const int rank = ranks->rank();
    EXPECT_EQ(mesh.axes().size(), 3);
    EXPECT_EQ(mesh.size("expert"), 4);
    EXPECT_EQ(mesh.coordinate("expert"), rank % 4);
    EXPECT_EQ(mesh.coordinate("expert_shard"), rank / 4);
    EXPECT_EQ(mesh.group("expert")->size(), 4);
    EXPECT_EQ(mesh.group("expert,expert_shard"), ranks);
    EXPECT_EQ(mesh.size("tensor,expert"), 4);  // ranks 0 to 3 have both within them
    EXPECT_EQ(mesh.size("shard,expert"), 8);
    // Of those that have the same experts, and of those that have the same rows of other parameters.
    EXPECT_EQ(mesh.is_first_along("expert", "expert"), true);
    EXPECT_EQ(mesh.is_first_along("expert", ""), rank % 4 == 0);
    EXPECT_EQ(mesh.is_first_along_others("expert"), rank < 4);
    EXPECT_EQ(mesh.is_first_along("shard,expert,expert_shard", "shard"), rank % 2 == 0);
    EXPECT_EQ(mesh.is_first_along("shard,expert,expert_shard", "expert,expert_shard"), true);
    expect_error(Status::kInvalidArgument, "expected sizes whose product", [&] {
      mesh.add_grid({{"expert_shard", 3}, {"expert", 2}});
    });
  });
}

TEST(Mesh, RefusesAxesThatDoNotFit) {
  const auto alone = std::make_shared<BackendCommunicator>();
  const auto refuse = [&](const std::string& part, const std::vector<MeshAxis>& axes) {
    expect_error(Status::kInvalidArgument, part, [&] { Mesh(alone, axes); });
  };
  refuse("2 (replicate) x 3 (tensor) and there is 1 rank; expected sizes whose product",
         {{"replicate", 2}, {"tensor", 3}});
  refuse("'tensor' of a mesh has size 0; expected at least 1", {{"tensor", 0}});
  refuse("two axes called 'tensor'", {{"tensor", 1}, {"tensor", 1}});
  refuse("axis 1 of a mesh is called 'a,b'", {{"tensor", 1}, {"a,b", 1}});
  refuse("no axis; expected at least one", {});
  const int64_t huge = int64_t{1} << 40;
  refuse("expected sizes whose product", {{"replicate", huge}, {"shard", huge}, {"tensor", huge}});
}

TEST(Mesh, NamesTheAxesThatItHas) {
  Mesh mesh(std::make_shared<BackendCommunicator>(), {{"replicate", 1}, {"tensor", 1}});
  expect_error(Status::kNotFound, "no axis 'tenser'; its axes are 1 (replicate) x 1 (tensor)",
               [&] { mesh.size("replicate,tenser"); });
  expect_error(Status::kInvalidArgument, "axes is empty", [&] { mesh.group(""); });
}

}  // namespace mesh_test
}  // namespace accel::comm
