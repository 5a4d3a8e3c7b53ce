// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>

#include "base/current_call.hpp"
#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/collectives.hpp"
#include "comm/group.hpp"
#include "expect_error.hpp"
#include "os/interruption.hpp"
#include "rank_threads.hpp"
#include "recording_communicator.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace comm_test {

using tests::messages_of;
using tests::run_ranks;

TEST(CommCommunicator, BareCollectivesAgreeWithAPlainComputation) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const int rank = communicator->rank();
      at::Tensor sum = at::arange(10, at::kFloat) + rank;
      communicator->all_reduce(sum, ReduceOp::kSum);
      EXPECT_TRUE(at::equal(sum, at::arange(10, at::kFloat) * size + size * (size - 1) / 2));

      at::Tensor gathered = at::empty({size, 3}, at::kLong);
      communicator->all_gather(at::full({3}, rank, at::kLong), gathered);
      for (int other = 0; other < size; other++) EXPECT_TRUE(gathered[other].eq(other).all().item<bool>());

      at::Tensor part = at::empty({2}, at::kFloat);
      communicator->run(Collective::reduce_scatter(at::arange(2 * size, at::kFloat), ReduceOp::kMean, part));
      EXPECT_TRUE(at::equal(part, at::arange(2 * rank, 2 * rank + 2, at::kFloat)));

      at::Tensor exchanged = at::empty({size}, at::kInt);
      communicator->run(Collective::all_to_all(at::full({size}, rank, at::kInt), exchanged));
      EXPECT_TRUE(at::equal(exchanged, at::arange(size, at::kInt)));

      at::Tensor own = at::empty({1}, at::kDouble);
      communicator->run(Collective::scatter(rank == 0 ? at::arange(size, at::kDouble) : at::Tensor(), 0, own));
      EXPECT_EQ(own.item<double>(), rank);

      at::Tensor word = at::full({4}, rank, at::kShort);
      communicator->broadcast(word, size - 1);
      EXPECT_TRUE(word.eq(size - 1).all().item<bool>());
    });
  }
}

TEST(CommCommunicator, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  BackendCommunicator alone;
  at::Tensor matrix = at::zeros({4, 4});
  EXPECT_THROW(alone.all_reduce(matrix.t(), ReduceOp::kSum), Error);
  EXPECT_THROW(alone.all_reduce(matrix, ReduceOp::kAnd), Error);
  EXPECT_THROW(alone.all_reduce(matrix, static_cast<ReduceOp>(77)), Error);
  EXPECT_THROW(alone.broadcast(matrix, 1), Error);
  EXPECT_THROW(alone.all_gather(at::zeros({3}), matrix), Error);
  EXPECT_THROW(alone.send(matrix, 0, 0), Error);
}

TEST(CommCommunicator, AnInterruptionEndsTheWaitsOfAllRanks) {
  const auto messages = messages_of(3, std::chrono::seconds(60), [](Communicator& communicator) {
    if (communicator.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      interrupt();
    }
    communicator.barrier();
  });
  for (const std::string& message : messages)
    EXPECT_NE(message.find("aborted the group"), std::string::npos) << message;
}

TEST(CommCollectives, AForeignTensorMayBeOnCpuZero) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    std::vector<float> memory(4096, 1.0F);  // too large to travel with others
    const at::Device zero(at::kCPU, 0);
    const at::Tensor foreign = at::for_blob(memory.data(), {4096})
                                   .options(at::device(zero).dtype(at::kFloat))
                                   .target_device(zero)
                                   .make_tensor();
    ASSERT_NE(foreign.device(), at::Device(at::kCPU));
    EXPECT_EQ(gather(*communicator, foreign).toTensor().sum().item<float>(), 8192);
  });
}

TEST(CommCollectives, RanksThatDisagreeAllHearOfIt) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    at::Tensor tensor = at::zeros({3 + communicator->rank()});
    try {
      communicator->all_reduce(tensor, ReduceOp::kSum);
      ADD_FAILURE() << "different shapes were accepted";
    } catch (const CollectiveError& error) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch) << error.what();
    }
    at::Tensor same = at::ones({3});
    communicator->all_reduce(same, ReduceOp::kSum);  // the group is as good as before
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
        reduce(*communicator, at::full({2}, 3 + communicator->rank(), at::kLong), ReduceOp::kMean, 1.0);
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

TEST(CommCollectives, SmallTensorsOfATreeTravelTogether) {
  for (const int size : {2, 3}) {
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const double rank = communicator->rank();
      auto list = tree::new_list();
      list.push_back(at::full({2, 3}, rank, at::kBFloat16));
      list.push_back(at::full({1 << 14}, rank, at::kFloat));  // goes by itself
      list.push_back(at::full({}, rank, at::kDouble));
      list.push_back(at::empty({0, 4}));
      const auto before = communicator->flight_record()->latest_done(1000);
      const c10::IValue gathered = gather(*communicator, list);
      EXPECT_EQ(communicator->flight_record()->latest_done(1000)->sequence, before ? before->sequence + 2 : 1);
      const auto all = gathered.toListRef();
      EXPECT_EQ(all[0].toTensor().sizes(), at::IntArrayRef({2 * size, 3}));
      EXPECT_EQ(all[0].toTensor()[2 * size - 1][2].item<float>(), size - 1);
      EXPECT_EQ(all[1].toTensor().numel(), size << 14);
      EXPECT_TRUE(at::equal(all[2].toTensor(), at::arange(size, at::kDouble)));
      EXPECT_EQ(all[3].toTensor().sizes(), at::IntArrayRef({0, 4}));
    });
  }
}

// How many operations a call takes.
template <typename Call>
uint64_t operations_of(Communicator& communicator, const Call& call) {
  communicator.barrier();
  const uint64_t before = communicator.flight_record()->latest_done(~uint64_t{0})->sequence;
  call();
  return communicator.flight_record()->latest_done(~uint64_t{0})->sequence - before;
}

TEST(CommCollectives, ManySmallLeavesAreOneReductionADtype) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const double rank = communicator->rank();
    auto list = tree::new_list();
    for (int64_t leaf = 0; leaf < 50; leaf++) list.push_back(at::full({leaf, 2}, rank + 1, at::kFloat));
    for (int64_t leaf = 0; leaf < 50; leaf++) list.push_back(at::full({2, 2}, rank + leaf, at::kLong).t());
    list.push_back(at::full({1 << 14}, rank, at::kDouble));  // goes by itself
    c10::IValue sum;
    // The shapes, the floats, the integers, and the large one.
    EXPECT_EQ(operations_of(*communicator, [&] { sum = reduce(*communicator, list, ReduceOp::kSum, 1.0); }), 4U);
    const auto leaves = sum.toListRef();
    for (int64_t leaf = 0; leaf < 50; leaf++) {
      EXPECT_TRUE(at::equal(leaves[leaf].toTensor(), at::full({leaf, 2}, 3.0, at::kFloat)));
      EXPECT_TRUE(at::equal(leaves[50 + leaf].toTensor(), at::full({2, 2}, 1 + 2 * leaf, at::kLong)));
    }
    EXPECT_TRUE(leaves[100].toTensor().eq(1).all().item<bool>());
    EXPECT_EQ(list.get(1).toTensor()[0][0].item<float>(), rank + 1) << "the input is kept";

    EXPECT_EQ(operations_of(*communicator, [&] { broadcast(*communicator, list, 1); }), 3U);
    for (int64_t leaf = 0; leaf < 50; leaf++) {
      EXPECT_TRUE(list.get(leaf).toTensor().eq(2).all().item<bool>());
      EXPECT_TRUE(list.get(50 + leaf).toTensor().eq(1 + leaf).all().item<bool>());
    }
  });
}

TEST(CommCollectives, SmallLeavesThatDifferAreAMismatchInReduceAndBroadcast) {
  for (const bool reduces : {true, false}) {
    const auto messages = messages_of(3, std::chrono::seconds(60), [&](Communicator& communicator) {
      auto list = tree::new_list();
      for (const int64_t rows : {2, 3})  // as many bytes on all ranks
        list.push_back(at::zeros({communicator.rank() == 2 ? 5 - rows : rows}));
      if (reduces)
        reduce(communicator, list, ReduceOp::kMean, 1.0);
      else
        broadcast(communicator, list, 0);
    });
    for (const std::string& message : messages)
      EXPECT_NE(message.find("rank 2 has other shapes or dtypes than rank 0"), std::string::npos) << message;
  }
}

TEST(CommCollectives, AFactorOfIntegersIsTruncated) {
  for (const int size : {1, 2})
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const at::Tensor tensor = at::tensor({3, -3}, at::kInt);
      const at::Tensor half = reduce(*communicator, tensor, ReduceOp::kMax, 0.5).toTensor();
      EXPECT_TRUE(at::equal(half, at::tensor({1, -1}, at::kInt)));
      EXPECT_THROW(reduce(*communicator, tensor, ReduceOp::kSum, INFINITY), Error);
      EXPECT_THROW(reduce(*communicator, tensor.to(at::kBool), ReduceOp::kSum, 0.5), Error);
      EXPECT_THROW(reduce(*communicator, tensor.to(at::kFloat), ReduceOp::kXor, 1.0), Error);
      EXPECT_THROW(gather(*communicator, at::eye(2).to_sparse()), Error);
    });
}

TEST(CommCollectives, GathersRowsThatDifferByRank) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const int rank = communicator->rank();
      auto list = tree::new_list();
      list.push_back(at::full({rank, 2}, rank, at::kFloat));  // none on rank 0
      list.push_back(at::full({}, rank, at::kLong));
      const c10::IValue gathered = gather_uneven(*communicator, list);
      if (size == 1) return;
      const at::Tensor rows = gathered.toListRef()[0].toTensor();
      EXPECT_EQ(rows.size(0), size * (size - 1) / 2);
      EXPECT_EQ(rows.sum().item<float>(), size == 2 ? 2 : 10);
      EXPECT_TRUE(at::equal(gathered.toListRef()[1].toTensor(), at::arange(size, at::kLong)));
    });
  }
}

// The others know neither who has the tensor nor its shape and dtype.
TEST(CommCollectives, CopiesTheTensorOfTheOnlyRankThatHasOne) {
  const auto copy = [](Communicator& group, const at::Tensor& own) {
    return run(group, rounds::copy_tensor_to_devices(group, own)).toTensor();
  };
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const bool holds = communicator->rank() == size - 1;
      for (const at::Tensor& whole : {at::arange(6, at::kShort).view({1, 2, 3}).transpose(0, 2), at::full({}, 2.5),
                                      at::zeros({0, 4}, at::kBool), at::ones({100000})}) {
        const at::Tensor found = copy(*communicator, holds ? whole : at::Tensor());
        EXPECT_EQ(found.scalar_type(), whole.scalar_type());
        EXPECT_TRUE(at::equal(found, whole)) << found;
      }
      tests::expect_error(Status::kInvalidArgument, "0 ranks have a tensor",
                          [&] { copy(*communicator, at::Tensor()); });
      if (size > 1)
        tests::expect_error(Status::kInvalidArgument, text(size, " ranks have a tensor; expected one"),
                            [&] { copy(*communicator, at::ones({2})); });
    });
  }
}

TEST(CommCollectives, AMismatchSaysWhichRankWasInWhichCall) {
  const auto messages = messages_of(4, std::chrono::seconds(60), [](Communicator& communicator) {
    communicator.barrier();
    const CurrentCall current(communicator.rank() == 1 ? "accel_save_state" : "accel_reduce");
    at::Tensor tensor = at::zeros({3});
    if (communicator.rank() == 1)
      communicator.barrier();
    else
      communicator.all_reduce(tensor, ReduceOp::kSum);
  });
  for (const std::string& message : messages)
    EXPECT_EQ(message.rfind("rank 1 is in save_state #1, ranks 0, 2, 3 wait in reduce #1; ", 0), 0U) << message;
}

TEST(CommCollectives, SmallTensorsOfOtherShapesAreAMismatchEvenWithAsManyBytes) {
  for (const int64_t rows : {3, 5}) {
    const auto messages = messages_of(2, std::chrono::seconds(60), [&](Communicator& communicator) {
      auto list = tree::new_list();
      const bool other = communicator.rank() == 1;
      list.push_back(at::zeros({other ? rows : 2}));
      list.push_back(at::zeros({other ? 2 : 3}));
      gather(communicator, list);
    });
    EXPECT_NE(messages[0].find("float32[2], float32[3]"), std::string::npos) << messages[0];
    EXPECT_NE(messages[1].find(rows == 3 ? "float32[3], float32[2]" : "float32[5], float32[2]"), std::string::npos)
        << messages[1];
  }
}

TEST(CommCollectives, DebugModeListsTheShapesOfAllRanks) {
  const auto messages = messages_of(2, std::chrono::seconds(60), [](Communicator& communicator) {
    communicator.group().debug = true;
    gather(communicator, at::zeros({3 + communicator.rank(), 2}));
  });
  for (const std::string& message : messages)
    EXPECT_NE(message.find("operation: gather; input shapes: process 0: [[3,2]], process 1: [[4,2]]"),
              std::string::npos)
        << message;
}

// An all-reduce as a call that is started; the result is the first number of its sum.
std::shared_ptr<Work> start_sum(const std::shared_ptr<Communicator>& communicator, const at::Tensor& tensor) {
  return start(communicator, [tensor] {
    return Round({Collective::all_reduce(tensor, ReduceOp::kSum)},
                 [tensor](const std::exception_ptr& error) -> Outcome {
                   rethrow(error);
                   return c10::IValue(tensor.view({-1})[0].item<float>());
                 });
  });
}

TEST(CommWork, CallsRunInTheOrderOfTheirStart) {
  for (const int size : {1, 2}) {
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      at::Tensor tensor = at::ones({1});
      std::vector<std::shared_ptr<Work>> works;
      for (int i = 0; i < 20; i++) works.push_back(start_sum(communicator, tensor));
      at::Tensor after = tensor;
      communicator->all_reduce(after, ReduceOp::kSum);  // a blocking call comes after all of them
      double expected = 1;
      for (const auto& work : works) {
        ASSERT_TRUE(work->ended());
        EXPECT_EQ(work->result().toDouble(), expected *= size);
      }
      EXPECT_EQ(after.item<float>(), expected * size);
    });
  }
}

TEST(CommWork, CallsOfSeveralRoundsComeInTheirTurn) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const int rank = communicator->rank();
      const at::Tensor rows = at::full({rank + 1, 2}, rank, at::kFloat), sum = at::ones({1});
      const std::string text(1000 + rank, 'a');  // too long for the first round
      const Communicator& group = *communicator;
      std::vector<std::shared_ptr<Work>> works;
      for (int i = 0; i < 10; i++) {
        works.push_back(start(communicator, [&] { return rounds::gather_uneven(group, rows); }));
        works.push_back(start_sum(communicator, sum));
        works.push_back(start(communicator, [&] { return rounds::gather_object(group, text); }));
        if (i % 3 == rank % 3)
          std::this_thread::sleep_for(std::chrono::milliseconds(2));  // ranks differ in what is open
      }
      communicator->barrier();
      double expected = 1;
      for (size_t i = 0; i < works.size(); i += 3) {
        EXPECT_EQ(works[i]->result().toTensor().size(0), size * (size + 1) / 2);
        EXPECT_EQ(works[i + 1]->result().toDouble(), expected *= size);
        EXPECT_EQ(works[i + 2]->result().toListRef()[size - 1].toStringRef().size(), 999U + size);
      }
    });
  }
}

TEST(CommWork, CarriesItsErrorAndRunsItsCallbacksWhereTheyAreAskedFor) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto work = start_sum(communicator, at::zeros({3 + communicator->rank()}));
    WorkList& works = *communicator->group().works;
    works.add(work);
    std::thread::id called;
    work->add_callback([&](const std::exception_ptr& error) {
      EXPECT_TRUE(error);
      called = std::this_thread::get_id();
    });
    while (works.progress(std::chrono::seconds(1))) {
    }
    EXPECT_EQ(called, std::this_thread::get_id());
    EXPECT_THROW(work->result(), CollectiveError);
    communicator->barrier();  // the group goes on
  });
}

// A work that ends while callbacks of others run has callbacks that nobody has run yet.
// Regression: the communication thread kept the results of a call, if it was interrupted just after its end: a rank
// took one bucket more.
TEST(CommWork, LetsGoOfItsTensorsBeforeItEnds) {
  run_ranks(2, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const at::Tensor part = at::ones({1000}), whole = at::empty({2000});
    std::vector<Collective> gather{Collective::all_gather(part, whole)};
    const std::shared_ptr<Work> work = communicator->start(gather);
    gather.clear();
    std::promise<size_t> owners;
    work->on_end([&](const std::exception_ptr& /*error*/) { owners.set_value(part.use_count() + whole.use_count()); });
    EXPECT_EQ(owners.get_future().get(), 2U);
  });
}

// Regression: `accel_progress()` said that all had ended when the last work ended just then, whose callback was never
// called.
TEST(CommWork, ProgressIsNotDoneWhileAWorkHasCallbacksToRun) {
  const auto works = std::make_shared<WorkList>();
  const auto first = std::make_shared<Work>(), last = std::make_shared<Work>();
  works->add(first);
  works->add(last);
  bool called = false;
  first->add_callback([&](const std::exception_ptr&) { last->complete({}, nullptr); });
  last->add_callback([&](const std::exception_ptr&) { called = true; });
  first->complete({}, nullptr);
  EXPECT_TRUE(works->progress(std::chrono::microseconds(0)));
  EXPECT_FALSE(called);
  EXPECT_FALSE(works->progress(std::chrono::microseconds(0)));
  EXPECT_TRUE(called);
}

// Ranks that disagree about a part of a tree leave the rest of it, however long it is, and what was posted behind it.
TEST(CommWork, AMismatchInATreeLeavesTheRanksInStep) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const int rank = communicator->rank();
    for (const bool blocks : {true, false}) {
      auto list = tree::new_list();
      for (int leaf = 0; leaf < 5; leaf++) list.push_back(at::ones({(1 << 14) + (leaf == 1 ? rank : 0)}));
      auto shorter = tree::new_list();
      for (int leaf = 0; leaf < 4 - rank; leaf++) shorter.push_back(at::ones({1 << 14}));
      for (const auto& tree : {list, shorter}) {
        if (blocks && rank == 0) {
          EXPECT_THROW(reduce(*communicator, tree, ReduceOp::kSum, 1.0), CollectiveError);
        } else {
          const Communicator& group = *communicator;
          const auto work = start(communicator, [&] { return rounds::reduce(group, tree, ReduceOp::kSum, 1.0); });
          const auto behind = blocks ? nullptr : start_sum(communicator, at::ones({1}));
          work->wait();
          EXPECT_THROW(work->result(), CollectiveError);
          if (!blocks) {
            behind->wait();
            EXPECT_EQ(behind->result().toDouble(), 2);
          }
        }
        at::Tensor after = at::ones({1});
        communicator->all_reduce(after, ReduceOp::kSum);
        EXPECT_EQ(after.item<float>(), 2);
      }
    }
  });
}

// Rank 1 comes to a collective of 16 MiB only when rank 0 has ended one of another group.
// Regression: a collective that was started held up every blocking call and gradient bucket until it had ended.
TEST(CommWork, CollectivesOfTwoGroupsOverlap) {
  for (const bool blocks : {false, true}) {
    std::promise<void> ended;
    const auto has_ended = ended.get_future().share();
    run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const auto other = create_group(*communicator, {0, 1});
      const at::Tensor first = at::ones({4 << 20}), second = at::ones({4 << 20});
      std::shared_ptr<Work> work;
      if (communicator->rank() == 0) work = start_sum(communicator, first);
      if (blocks) {
        other->all_reduce(second, ReduceOp::kSum);
      } else {
        const auto overtaking = start_sum(other, second);
        overtaking->wait();
        overtaking->result();
      }
      EXPECT_TRUE(second.eq(2).all().item<bool>());
      if (communicator->rank() == 0) {
        EXPECT_FALSE(work->ended());
        ended.set_value();
      } else {
        ASSERT_EQ(has_ended.wait_for(std::chrono::seconds(60)), std::future_status::ready);
        work = start_sum(communicator, first);
      }
      work->wait();
      EXPECT_EQ(work->result().toDouble(), 2);
      EXPECT_TRUE(first.eq(2).all().item<bool>());
    });
  }
}

// What the gradient reducer does with a bucket, while a collective is under way to which rank 1 has not come.
TEST(CommWork, ABucketIsPostedBehindACollectiveUnderWay) {
  std::promise<void> posted;
  const auto is_posted = posted.get_future().share();
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const at::Tensor part = at::ones({1 << 20}), whole = at::empty({2 << 20});
    const at::Tensor bucket = at::ones({1 << 20});
    if (communicator->rank() == 1) {
      ASSERT_EQ(is_posted.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    }
    const auto gathering = communicator->start(Collective::all_gather(part, whole));
    const auto reducing = communicator->start(Collective::all_reduce(bucket, ReduceOp::kSum));
    if (communicator->rank() == 0) {
      EXPECT_FALSE(gathering->ended());
      posted.set_value();
    }
    reducing->wait();
    EXPECT_TRUE(gathering->ended());
    EXPECT_TRUE(bucket.eq(2).all().item<bool>());
    EXPECT_TRUE(whole.eq(1).all().item<bool>());
  });
}

TEST(CommWork, TwoRanksMaySendBeforeTheyReceive) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const int other = 1 - communicator->rank();
    const at::Tensor sent = at::full({1 << 20}, communicator->rank(), at::kFloat), received = at::empty({1 << 20});
    const auto sending = communicator->start(Collective::send(sent, other, 3));
    const auto receiving = communicator->start(Collective::receive(received, other, 3));
    ASSERT_TRUE(receiving->wait(std::chrono::seconds(60)) && sending->wait(std::chrono::seconds(60)));
    receiving->result();
    EXPECT_TRUE(received.eq(other).all().item<bool>());
  });
}

TEST(CommWork, WhatHasNotEndedFailsWhenTheGroupIsLeft) {
  const auto messages = messages_of(2, std::chrono::seconds(60), [](Communicator& communicator) {
    const at::Tensor tensor = at::ones({3});
    const auto first = communicator.start(Collective::all_reduce(tensor, ReduceOp::kSum));
    first->wait();
    EXPECT_EQ(tensor[0].item<float>(), 2);
    first->result();
    if (communicator.rank() == 1) return;
    const auto second = communicator.start(Collective::all_reduce(tensor, ReduceOp::kSum));
    const auto third = communicator.start(Collective::barrier());
    communicator.shutdown();
    EXPECT_THROW(second->result(), CollectiveError);
    EXPECT_THROW(third->result(), CollectiveError);
    EXPECT_THROW(communicator.start(Collective::barrier()), Error);
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

using Kind = Collective::Kind;

TEST(CommRounds, ATreeIsPostedAsOneCall) {
  const auto communicator = std::make_shared<tests::RecordingCommunicator>(0, 4);
  auto list = tree::new_list();
  for (const auto dtype : {at::kFloat, at::kLong, at::kFloat}) list.push_back(at::ones({3}, dtype));
  for (int large = 0; large < 2; large++) list.push_back(at::ones({1 << 14}));
  const auto gathering = start(communicator, [&] { return rounds::gather(*communicator, list); });
  const auto reducing = start(communicator, [&] { return rounds::reduce(*communicator, list, ReduceOp::kSum, 1.0); });
  const auto broadcasting = start(communicator, [&] { return rounds::broadcast(*communicator, list, 0); });
  ASSERT_EQ(communicator->posted.size(), 3U);
  EXPECT_EQ(communicator->posted[0].kinds(), std::vector<Kind>(3, Kind::kAllGather));
  const std::vector<Kind> reduced{Kind::kAllGather, Kind::kAllReduce, Kind::kAllReduce, Kind::kAllReduce,
                                  Kind::kAllReduce};
  EXPECT_EQ(communicator->posted[1].kinds(), reduced);
  const std::vector<Kind> sent{Kind::kAllGather, Kind::kBroadcast, Kind::kBroadcast, Kind::kBroadcast};
  EXPECT_EQ(communicator->posted[2].kinds(), sent);
  communicator->posted[1].work->complete({}, nullptr);
  EXPECT_FALSE(gathering->ended());
  EXPECT_TRUE(reducing->ended());
  EXPECT_EQ(reducing->result().toListRef().size(), 5U);
}

TEST(CommRounds, WhatComesAfterSeveralRoundsIsPostedAfterTheLast) {
  const auto communicator = std::make_shared<tests::RecordingCommunicator>(0, 2);
  auto& posted = communicator->posted;
  const at::Tensor rows = at::ones({0, 2});
  const auto uneven = start(communicator, [&] { return rounds::gather_uneven(*communicator, rows); });
  const auto sum = start(communicator, [&] { return rounds::reduce(*communicator, rows, ReduceOp::kSum, 1.0); });
  ASSERT_EQ(posted.size(), 1U);
  posted[0].collectives[0].output.zero_();  // the lengths of all ranks
  posted[0].work->complete({}, nullptr);
  ASSERT_EQ(posted.size(), 3U);
  EXPECT_EQ(posted[1].kinds(), std::vector<Kind>(2, Kind::kBroadcast));
  EXPECT_EQ(posted[2].kinds(), std::vector<Kind>(1, Kind::kAllReduce));
  EXPECT_FALSE(uneven->ended() || sum->ended());
  posted[1].work->complete({}, nullptr);
  posted[2].work->complete({}, std::make_exception_ptr(std::runtime_error("lost")));
  EXPECT_TRUE(uneven->ended());
  EXPECT_THROW(sum->result(), std::runtime_error);
}

TEST(CommGroup, ItsMembersWorkTogether) {
  run_ranks(4, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const int rank = communicator->rank();
    for (int time = 0; time < 2; time++) {
      if (rank == 2) break;
      const auto group = create_group(*communicator, {3, 0, 1});
      EXPECT_EQ(group->size(), 3);
      EXPECT_EQ(group->rank(), rank == 3 ? 0 : rank + 1);
      at::Tensor sum = at::full({1}, rank, at::kFloat);
      group->all_reduce(sum, ReduceOp::kSum);
      EXPECT_EQ(sum.item<float>(), 4);
    }
    const auto half = split_group(*communicator, rank % 2, -rank);  // the order is turned round
    EXPECT_EQ(half->size(), 2);
    EXPECT_EQ(half->rank(), rank < 2 ? 1 : 0);
    at::Tensor sum = at::full({1}, rank, at::kFloat);
    half->all_reduce(sum, ReduceOp::kSum);
    EXPECT_EQ(sum.item<float>(), rank % 2 == 0 ? 2 : 4);
    communicator->barrier();
  });
}

// Of this process, by their name.
int64_t threads_called(const std::string& name) {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::count_if(begin(threads), end(threads), [&](const auto& thread) {
    std::ifstream file(thread.path() / "comm");
    std::string found;
    return std::getline(file, found) && found == name;
  });
}

// Regression: each group had a thread and connections of its own.
TEST(CommGroup, AllGroupsOfARankHaveOneProgressThread) {
  constexpr int kRanks = 2, kGroups = 8;
  run_ranks(kRanks, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    communicator->barrier();
    EXPECT_EQ(threads_called("accel-ucx"), kRanks);
    std::vector<std::shared_ptr<Communicator>> groups{communicator};
    while (groups.size() <= kGroups) groups.push_back(create_group(*groups[groups.size() / 2], {1, 0}));
    std::vector<std::shared_ptr<Work>> works;
    const int own = communicator->rank();
    for (int i = 0; i < 3; i++)  // one order of the groups on rank 0, the opposite one on rank 1
      for (size_t place = 0; place < groups.size(); place++)
        works.push_back(start_sum(groups[own == 0 ? place : groups.size() - 1 - place], at::ones({100000})));
    for (const auto& work : works) {
      work->wait();
      EXPECT_EQ(work->result().toDouble(), 2);
    }
    EXPECT_EQ(threads_called("accel-ucx"), kRanks);
    communicator->barrier();
  });
}

// Two threads of each rank block in groups of their own.
TEST(CommGroup, CallsOfTwoThreadsBlockOnlyTheirOwn) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const auto other = create_group(*communicator, {0, 1});
    const auto calls = [](Communicator& group, bool sleeps) {
      for (int i = 0; i < 200; i++) {
        const at::Tensor tensor = at::ones({i % 7 == 0 ? 300000 : i});
        if (sleeps && i % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        group.all_reduce(tensor, ReduceOp::kSum);
        EXPECT_TRUE(tensor.eq(2).all().item<bool>());
        const int peer = 1 - group.rank();
        const at::Tensor sent = at::full({i}, i), received = at::empty({i}, sent.options());
        const auto sending = group.start(Collective::send(sent, peer, i));
        group.receive(received, peer, i);
        EXPECT_TRUE(at::equal(sent, received));
        sending->wait();
      }
    };
    std::thread beside([&] { calls(*other, communicator->rank() == 0); });
    calls(*communicator, communicator->rank() == 1);
    beside.join();
  });
}

TEST(CommGroup, TheEndOfOneLeavesTheOthers) {
  std::promise<void> aborted;
  const auto is_aborted = aborted.get_future().share();
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    const bool aborts = communicator->rank() == 0;
    const auto failing = create_group(*communicator, {0, 1}), leaving = create_group(*communicator, {0, 1});
    leaving->barrier();
    leaving->shutdown();
    std::shared_ptr<Work> open;
    if (aborts) open = start_sum(communicator, at::ones({1 << 20}));
    const at::Tensor tensor = at::ones({1 << 20});
    const auto lost = failing->start(Collective::receive(tensor, 1 - failing->rank(), 0));
    if (aborts) {
      const auto never = start_sum(failing, tensor);
      failing->abort();
      never->wait();
      EXPECT_THROW(never->result(), CollectiveError);
      EXPECT_FALSE(open->ended());
      aborted.set_value();
    } else {
      ASSERT_EQ(is_aborted.wait_for(std::chrono::seconds(60)), std::future_status::ready);
      EXPECT_THROW(failing->barrier(), CollectiveError);
      open = start_sum(communicator, at::ones({1 << 20}));
    }
    lost->wait();
    EXPECT_THROW(lost->result(), CollectiveError);
    open->wait();
    EXPECT_EQ(open->result().toDouble(), 2);
    const auto next = create_group(*communicator, {0, 1});
    next->barrier();
    const at::Tensor sum = at::ones({1 << 20});
    next->all_reduce(sum, ReduceOp::kSum);
    EXPECT_TRUE(sum.eq(2).all().item<bool>());
  });
}

TEST(CommGroup, OutlivesTheOneThatItWasMadeOf) {
  const auto messages = messages_of(2, std::chrono::seconds(60), [](Communicator& communicator) {
    const auto group = create_group(communicator, {0, 1});
    group->barrier();
    communicator.shutdown();
    const auto next = create_group(*group, {1, 0});
    for (const auto& one : {group, next}) {
      const at::Tensor sum = at::ones({1 << 20});
      one->all_reduce(sum, ReduceOp::kSum);
      EXPECT_TRUE(sum.eq(2).all().item<bool>());
    }
    next->barrier();
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

TEST(CommGroup, RefusesRanksThatMakeNone) {
  run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
    EXPECT_THROW(create_group(*communicator, {0, 2}), Error);
    EXPECT_THROW(create_group(*communicator, {0, 0, 1}), Error);
    EXPECT_THROW(create_group(*communicator, {1 - communicator->rank()}), Error);
    EXPECT_THROW(create_group(*communicator, {}), Error);
  });
}

TEST(CommGroup, SurvivorsGoOnWithoutTheLostRank) {
  std::atomic<int> survivors{0};
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; rank++)
    ranks.emplace_back([&, rank] {
      BackendCommunicator communicator(store, rank, 3, std::chrono::seconds(30), "ucx");
      communicator.barrier();
      if (rank == 1) return;  // leaves
      const auto group = shrink_group(communicator, std::chrono::seconds(2));
      EXPECT_EQ(group->size(), 2);
      EXPECT_EQ(group->rank(), rank / 2);
      at::Tensor sum = at::full({1}, rank, at::kFloat);
      group->all_reduce(sum, ReduceOp::kSum);
      EXPECT_EQ(sum.item<float>(), 2);
      group->barrier();
      survivors++;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(survivors, 2);
}

// Who passes nothing must not be the only one to know.
// Regression: a rank that passed no tensors to `gather()` returned at once, and the others found out in the next call.
// Regression: a rank without tensors was said to have called `wait_for_everyone`.
TEST(CommCollectives, ATreeWithoutTensorsAgainstATensorIsFoundAtOnceOnAllRanks) {
  const std::function<void(Communicator&, const c10::IValue&)> calls[] = {
      [](Communicator& communicator, const c10::IValue& value) { gather(communicator, value); },
      [](Communicator& communicator, const c10::IValue& value) { gather_uneven(communicator, value); },
      [](Communicator& communicator, const c10::IValue& value) { reduce(communicator, value, ReduceOp::kSum, 1.0); },
      [](Communicator& communicator, const c10::IValue& value) { broadcast(communicator, value, 0); },
      [](Communicator& communicator, const c10::IValue& value) {
        pad_across_processes(communicator, value, 0, 0.0, false);
      }};
  for (const auto& call : calls)
    for (const bool is_refused : {false, true})
      run_ranks(2, [&](const std::shared_ptr<comm::Communicator>& communicator) {
        const c10::IValue nothing = is_refused ? c10::IValue() : c10::IValue(tree::new_list());
        try {
          call(*communicator, communicator->rank() == 0 ? nothing : c10::IValue(at::ones({2})));
          ADD_FAILURE() << "rank " << communicator->rank() << " did not find out";
        } catch (const CollectiveError& error) {
          EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch) << error.what();
          const char* const reason = is_refused ? "rank 0 passes what is refused: " : "rank 0 passes no tensors";
          const std::string message = error.what();
          EXPECT_NE(
              message.find(communicator->rank() == 0 ? reason : "rank 0 called wait_for_everyone or passed no tensor"),
              std::string::npos)
              << message;
        }
        if (is_refused)
          EXPECT_THROW(call(*communicator, nothing), Error);  // all pass the same: nobody waits
        else
          call(*communicator, nothing);  // the group goes on
      });
}

TEST(CommCollectives, PaddingTensorsOfDifferentNumbersOfDimensionsIsAMismatch) {
  for (const int64_t dim : {0, 1, 5})
    run_ranks(3, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      auto list = tree::new_list();
      list.push_back(at::ones({2}));
      list.push_back(communicator->rank() == 2 ? at::ones({2, 1}) : at::ones({3}));
      try {
        pad_across_processes(*communicator, list, dim, 0.0, false);
        ADD_FAILURE() << "rank " << communicator->rank() << " did not find out";
      } catch (const CollectiveError& error) {
        EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch);
        EXPECT_STREQ(error.what(),
                     "tensor 1 has 1 dimensions on rank 0 and 2 on rank 2; expected equally many on all ranks");
      }
      communicator->barrier();  // the group goes on
    });
}

TEST(CommCollectives, OneRankGivesTheTypesOfMany) {
  for (const int size : {1, 2})
    run_ranks(size, [&](const std::shared_ptr<comm::Communicator>& communicator) {
      const at::Tensor scalar = at::ones({}).requires_grad_(), square = at::ones({2, 2}).t();
      auto list = tree::new_list();
      list.push_back(scalar);
      list.push_back(square);
      for (const auto& join : {gather, gather_uneven}) {
        const c10::IValue joined = join(*communicator, list);
        const at::Tensor row = joined.toListRef()[0].toTensor(), rows = joined.toListRef()[1].toTensor();
        EXPECT_EQ(row.sizes(), at::IntArrayRef({size}));
        EXPECT_FALSE(row.requires_grad());
        EXPECT_TRUE(rows.is_contiguous());
      }
      const c10::IValue objects = gather_object(*communicator, std::string("text"));
      EXPECT_TRUE(objects.isList());
      EXPECT_EQ(objects.toListRef().size(), static_cast<size_t>(size));
      c10::impl::GenericDict map = tree::new_map();
      map.insert(std::string("pair"), c10::ivalue::Tuple::create({c10::IValue(1), c10::IValue(2)}));
      const c10::IValue maps = gather_object(*communicator, map);
      EXPECT_TRUE(maps.toListRef()[0].toGenericDict().at(std::string("pair")).isTuple());
    });
}

// Regression: where ranks scaled by different factors, the message named the wrong ones.
TEST(CommCollectives, ScalesThatDifferAreNamed) {
  const auto messages = messages_of(2, std::chrono::seconds(20), [](Communicator& communicator) {
    reduce(communicator, c10::IValue(at::ones({2})), ReduceOp::kSum, communicator.rank() == 0 ? 1.0 : 0.5);
  });
  EXPECT_NE(messages[0].find("times 1,"), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("times 0.5"), std::string::npos) << messages[0];
}

// Regression: a loss in `accel_wait_for_everyone()` was one "during barrier".
TEST(CommCollectives, ALossIsReportedWithTheFunctionOfTheHeader) {
  const auto messages = messages_of(2, std::chrono::seconds(1), [](Communicator& communicator) {
    const CurrentCall call("accel_save_state");
    if (communicator.rank() == 0) communicator.barrier();
  });
  EXPECT_NE(messages[0].find("save_state #0 on rank 0 timed out"), std::string::npos) << messages[0];
}

}  // namespace comm_test
}  // namespace accel::comm
