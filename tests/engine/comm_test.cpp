#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/collectives.hpp"
#include "comm/rendezvous.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace {

using testing::run_ranks;

TEST(CommCommunicator, BareCollectivesAgreeWithAPlainComputation) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const int rank = communicator->rank();
      at::Tensor sum = at::arange(10, at::kFloat) + rank;
      communicator->all_reduce(sum, Reduction::kSum);
      EXPECT_TRUE(at::equal(sum, at::arange(10, at::kFloat) * size + size * (size - 1) / 2));

      at::Tensor gathered = at::empty({size, 3}, at::kLong);
      communicator->all_gather(at::full({3}, rank, at::kLong), gathered);
      for (int other = 0; other < size; other++) EXPECT_TRUE(gathered[other].eq(other).all().item<bool>());

      at::Tensor part = at::empty({2}, at::kFloat);
      communicator->reduce_scatter(at::arange(2 * size, at::kFloat), Reduction::kMean, part);
      EXPECT_TRUE(at::equal(part, at::arange(2 * rank, 2 * rank + 2, at::kFloat)));

      at::Tensor exchanged = at::empty({size}, at::kInt);
      communicator->all_to_all(at::full({size}, rank, at::kInt), exchanged);
      EXPECT_TRUE(at::equal(exchanged, at::arange(size, at::kInt)));

      at::Tensor own = at::empty({1}, at::kDouble);
      communicator->scatter(rank == 0 ? at::arange(size, at::kDouble) : at::Tensor(), 0, own);
      EXPECT_EQ(own.item<double>(), rank);

      at::Tensor word = at::full({4}, rank, at::kShort);
      communicator->broadcast(word, size - 1);
      EXPECT_TRUE(word.eq(size - 1).all().item<bool>());
    });
  }
}

TEST(CommCommunicator, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  Communicator alone;
  at::Tensor matrix = at::zeros({4, 4});
  EXPECT_THROW(alone.all_reduce(matrix.t(), Reduction::kSum), Error);
  EXPECT_THROW(alone.all_reduce(matrix, Reduction::kAnd), Error);
  EXPECT_THROW(alone.all_reduce(matrix, static_cast<Reduction>(77)), Error);
  EXPECT_THROW(alone.broadcast(matrix, 1), Error);
  EXPECT_THROW(alone.all_gather(at::zeros({3}), matrix), Error);
  EXPECT_THROW(alone.send(matrix, 0, 0), Error);
}

TEST(CommCollectives, RanksThatDisagreeAllHearOfIt) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    at::Tensor tensor = at::zeros({3 + communicator->rank()});
    try {
      communicator->all_reduce(tensor, Reduction::kSum);
      ADD_FAILURE() << "different shapes were accepted";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch) << error.what();
    }
    at::Tensor same = at::ones({3});
    communicator->all_reduce(same, Reduction::kSum);  // the group is as good as before
    EXPECT_TRUE(at::equal(same, at::full({3}, 2.0)));
  });
}

TEST(CommCollectives, TreesKeepTheirStructure) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    auto map = tree::new_map();
    map.insert("loss", at::full({}, static_cast<double>(communicator->rank())));
    auto list = tree::new_list();
    list.push_back(at::full({1, 2}, communicator->rank(), at::kInt).t());  // not contiguous
    map.insert("more", list);
    const c10::IValue gathered = gather(*communicator, map);
    EXPECT_TRUE(at::equal(gathered.toGenericDict().at("loss").toTensor(), at::arange(2, at::kFloat)));
    EXPECT_EQ(gathered.toGenericDict().at("more").toListRef()[0].toTensor().sizes(), at::IntArrayRef({4, 1}));
    EXPECT_THROW(gather(*communicator, c10::IValue(3)), Error);
  });
}

TEST(CommCollectives, IntegersCanBeAveraged) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const c10::IValue mean =
        reduce(*communicator, at::full({2}, 3 + communicator->rank(), at::kLong), Reduction::kMean, 1.0);
    EXPECT_TRUE(at::equal(mean.toTensor(), at::full({2}, 3, at::kLong)));
  });
}

TEST(CommCollectives, BroadcastWritesThroughViews) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    at::Tensor whole = at::full({3, 2}, communicator->rank(), at::kFloat);
    broadcast(*communicator, whole.select(1, 0), 1);
    EXPECT_TRUE(whole.select(1, 0).eq(1).all().item<bool>());
    EXPECT_TRUE(whole.select(1, 1).eq(communicator->rank()).all().item<bool>());
  });
}

TEST(CommRendezvous, NamesTheRanksThatDidNotCome) {
  RendezvousOptions options;
  options.host = "127.0.0.1";
  options.port = 29877;
  options.size = 3;
  try {
    rendezvous(options, Deadline(std::chrono::milliseconds(300)));
    FAIL() << "two ranks are missing";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kTimeout);
    EXPECT_NE(error.message().find("1, 2"), std::string::npos) << error.message();
  }
}

TEST(CommRendezvous, SaysThatRankZeroCannotBeReached) {
  RendezvousOptions options;
  options.host = "localhost";
  options.port = 29878;
  options.rank = 1;
  options.size = 2;
  try {
    rendezvous(options, Deadline(std::chrono::milliseconds(200)));
    FAIL() << "nobody serves";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kTimeout);
    EXPECT_NE(error.message().find("127.0.0.1:29878"), std::string::npos) << error.message();
  }
}

TEST(CommRendezvous, OneAddressServesGroupAfterGroup) {
  for (int group = 0; group < 3; group++) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; rank++)
      ranks.emplace_back([rank] {
        RendezvousOptions options;
        options.host = "127.0.0.1";
        options.port = 29879;
        options.rank = rank;
        options.size = 2;
        const auto store = rendezvous(options, Deadline(std::chrono::seconds(20)));
        Communicator communicator(store, rank, 2, std::chrono::seconds(20), "ucx");
        at::Tensor one = at::ones({1});
        communicator.all_reduce(one, Reduction::kSum);
        EXPECT_EQ(one.item<float>(), 2);
        communicator.barrier();
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

}  // namespace
}  // namespace accel::comm
