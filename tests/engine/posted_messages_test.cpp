// SPDX-License-Identifier: Apache-2.0
// Sends and receives that are posted together, alone or with collectives.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/communicator.hpp"
#include "comm/shorter_message.hpp"
#include "rank_threads.hpp"

namespace accel::comm {
namespace posted_messages_test {

using tests::run_ranks;
using CommunicatorPtr = std::shared_ptr<Communicator>;

constexpr int64_t kLengths[] = {1, 3000, 1 << 20};  // of float: 4 bytes to 4 MiB, below and above what is sent eagerly
constexpr int kUnderWay = 3;

struct Ring {
  explicit Ring(const Communicator& communicator)
      : rank(communicator.rank()),
        next((rank + 1) % communicator.size()),
        former((rank + communicator.size() - 1) % communicator.size()) {}
  int rank, next, former;
};

// What a rank sends as its message `number`.
float value_of(int rank, int number) { return static_cast<float>(100 * rank + number + 1); }

bool is_filled(const at::Tensor& tensor, float value) { return tensor.eq(value).all().item<bool>(); }

// Regression: a call of several messages was done at once, while its receives were under way.
TEST(PostedMessages, ACallOfASendAndAReceiveEndsWhenBothHave) {
  for (const int size : {2, 3, 4})
    run_ranks(size, [](const CommunicatorPtr& communicator) {
      const Ring ring(*communicator);
      for (const int64_t numel : kLengths) {
        std::vector<at::Tensor> received;
        std::vector<std::shared_ptr<Work>> works;
        for (int number = 0; number < kUnderWay; number++) {
          received.push_back(at::full({numel}, -1, at::kFloat));
          // Nobody but the call has the tensor that is sent.
          works.push_back(communicator->start(
              {Collective::send(at::full({numel}, value_of(ring.rank, number), at::kFloat), ring.next, number),
               Collective::receive(received.back(), ring.former, number)}));
          at::full({numel}, -2, at::kFloat);  // would take the memory of the former
        }
        for (int number = 0; number < kUnderWay; number++) {
          works[number]->wait();
          works[number]->result();
          EXPECT_TRUE(is_filled(received[number], value_of(ring.former, number))) << numel << ", " << number;
        }
      }
    });
}

// The thread of the engine takes over where a caller that said it would make the progress computes for long.
TEST(PostedMessages, TheyEndIfTheirCallerDoesNothingMore) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank(), other = 1 - rank;
    for (int round = 0; round < 20; round++)
      for (const int64_t numel : kLengths) {
        const at::Tensor sent = at::full({numel}, value_of(rank, round), at::kFloat), received = at::empty({numel});
        std::vector<std::shared_ptr<Work>> works;
        works.push_back(communicator->start(Collective::receive(received, other, round), RunsOn::kCaller));
        if (round % 2 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        works.push_back(communicator->start(Collective::send(sent, other, round), RunsOn::kCaller));
        for (const auto& work : works) ASSERT_TRUE(work->wait(std::chrono::seconds(20)));
        EXPECT_TRUE(is_filled(received, value_of(other, round))) << numel;
      }
  });
}

// Memory that the sender reads and no other process: a page that is only to be written.
TEST(PostedMessages, AMessageThatCannotBeReadInPlaceIsSent) {
  constexpr int64_t kLength = 1 << 20;
  constexpr size_t kBytes = kLength * sizeof(float);
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    for (int round = 0; round < 2; round++) {
      if (communicator->rank() == 1) {
        const at::Tensor received = at::full({kLength}, -1, at::kFloat);
        communicator->run({Collective::receive(received, 0, 3)});
        EXPECT_TRUE(is_filled(received, 5));
        continue;
      }
      void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(memory, MAP_FAILED);
      const at::Tensor sent = at::from_blob(memory, {kLength}, at::kFloat).fill_(5);
      ASSERT_EQ(mprotect(memory, kBytes, PROT_WRITE), 0);
      communicator->run({Collective::send(sent, 1, 3)});
      munmap(memory, kBytes);
    }
  });
}

// Each rank's block travels round the ring, as in ring attention: the next step sends what the former received.
TEST(PostedMessages, BlocksTravelRoundARing) {
  for (const int size : {2, 3, 4})
    run_ranks(size, [](const CommunicatorPtr& communicator) {
      const Ring ring(*communicator);
      for (const int64_t numel : kLengths) {
        at::Tensor block = at::full({numel}, value_of(ring.rank, 0), at::kFloat);
        for (int step = 1; step <= communicator->size(); step++) {
          const at::Tensor arriving = at::full({numel}, -1, at::kFloat);
          const auto work = communicator->start(
              {Collective::receive(arriving, ring.former, 7), Collective::send(std::move(block), ring.next, 7)});
          work->synchronize();
          block = arriving;
          const int owner = (ring.rank + communicator->size() - step) % communicator->size();
          EXPECT_TRUE(is_filled(block, value_of(owner, 0))) << numel << ", " << step;
        }
      }
    });
}

TEST(PostedMessages, RunWaitsForAllOfThem) {
  for (const int size : {2, 3, 4})
    run_ranks(size, [](const CommunicatorPtr& communicator) {
      const Ring ring(*communicator);
      for (const int64_t numel : kLengths)
        for (int number = 0; number < kUnderWay; number++) {
          const at::Tensor received = at::full({numel}, -1, at::kFloat), second = at::full({numel}, -1, at::kFloat);
          const at::Tensor own = at::full({numel}, value_of(ring.rank, number), at::kFloat);
          communicator->run({Collective::send(own, ring.next, 0), Collective::receive(received, ring.former, 0),
                             Collective::send(own, ring.former, 1), Collective::receive(second, ring.next, 1)});
          EXPECT_TRUE(is_filled(received, value_of(ring.former, number))) << numel;
          EXPECT_TRUE(is_filled(second, value_of(ring.next, number))) << numel;
        }
    });
}

// A rank may need the message before it joins the collective of the same call.
TEST(PostedMessages, AMessageBesideACollectiveWaitsForNone) {
  for (const bool starts : {false, true})
    run_ranks(
        2,
        [starts](const CommunicatorPtr& communicator) {
          for (const int64_t numel : kLengths) {
            const at::Tensor sum = at::ones({numel}), gathered = at::empty({2 * numel});
            const at::Tensor message = at::full({numel}, communicator->rank() == 0 ? 5 : -1, at::kFloat);
            const auto collectives = std::vector{Collective::all_reduce(sum, ReduceOp::kSum),
                                                 Collective::all_gather(at::ones({numel}), gathered)};
            if (communicator->rank() == 0) {
              std::vector<Collective> call = collectives;
              call.insert(call.begin() + 1, Collective::send(message, 1, 0));
              if (starts) {
                const auto work = communicator->start(call);
                work->wait();
                work->result();
              } else {
                communicator->run(call);
              }
            } else {
              communicator->receive(message, 0, 0);
              communicator->run(collectives);
            }
            EXPECT_TRUE(is_filled(message, 5));
            EXPECT_TRUE(is_filled(sum, 2));
            EXPECT_TRUE(is_filled(gathered, 1));
          }
        },
        std::chrono::seconds(20));
}

// Every rank's message to every other, in one call with a barrier.
TEST(PostedMessages, AllRanksSendToAll) {
  run_ranks(4, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank();
    for (const int64_t numel : kLengths) {
      std::vector<at::Tensor> received;
      std::vector<Collective> call{Collective::barrier()};
      for (int peer = 0; peer < communicator->size(); peer++) {
        received.push_back(at::full({numel}, -1, at::kFloat));
        if (peer == rank) continue;
        call.push_back(Collective::receive(received[peer], peer, 0));
        call.push_back(Collective::send(at::full({numel}, value_of(rank, peer), at::kFloat), peer, 0));
      }
      const auto work = communicator->start(call);
      call.clear();
      work->wait();
      work->result();
      for (int peer = 0; peer < communicator->size(); peer++) {
        const float expected = peer == rank ? -1 : value_of(peer, rank);
        EXPECT_TRUE(is_filled(received[peer], expected)) << numel << ", " << peer;
      }
    }
  });
}

// Regression: the errors of messages in one call were lost.
TEST(PostedMessages, TheErrorOfOneIsTheErrorOfTheCall) {
  for (const bool starts : {false, true})
    run_ranks(2, [starts](const CommunicatorPtr& communicator) {
      const int other = 1 - communicator->rank();
      const at::Tensor sent = at::full({5}, communicator->rank(), at::kFloat);
      const at::Tensor longer = at::full({7}, -1, at::kFloat), fitting = at::full({5}, -1, at::kFloat);
      const std::vector<Collective> call{Collective::send(sent, other, 1), Collective::receive(longer, other, 1),
                                         Collective::send(sent, other, 2), Collective::receive(fitting, other, 2)};
      try {
        if (starts) {
          const auto work = communicator->start(call);
          work->wait();
          work->result();
        } else {
          communicator->run(call);
        }
        ADD_FAILURE() << "a receive of another length was expected to fail";
      } catch (const CollectiveError& error) {
        EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch);
        EXPECT_NE(std::string(error.what()).find("with tag 1"), std::string::npos) << error.what();
      }
      EXPECT_TRUE(is_filled(fitting, static_cast<float>(other)));  // the others ended before the call did
      communicator->barrier();                                     // and the group goes on
    });
}

TEST(PostedMessages, AWrongOneIsRefusedBeforeTheOthersArePosted) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int rank = communicator->rank(), other = 1 - rank;
    const at::Tensor sent = at::full({5}, 1, at::kFloat), received = at::full({5}, -1, at::kFloat);
    EXPECT_THROW(communicator->start({Collective::send(sent, other, 3), Collective::receive(received, rank, 3)}),
                 Error);
    EXPECT_THROW(communicator->run({Collective::send(sent, other, 3), Collective::receive(received, other, -1)}),
                 Error);
    // Had one been sent, it would be what arrives here.
    const at::Tensor own = at::full({5}, 9, at::kFloat);
    communicator->run({Collective::send(own, other, 3), Collective::receive(received, other, 3)});
    EXPECT_TRUE(is_filled(received, 9));
  });
}

TEST(PostedMessages, ALateOneFailsTheCallByItsDeadline) {
  const auto messages = tests::messages_of(2, std::chrono::milliseconds(500), [](Communicator& communicator) {
    const int other = 1 - communicator.rank();
    const at::Tensor sent = at::ones({5}), received = at::empty({5}), never = at::empty({5});
    const auto work = communicator.start({Collective::send(sent, other, 0), Collective::receive(received, other, 0),
                                          Collective::receive(never, other, 1)});
    if (!work->wait(std::chrono::seconds(30))) throw std::runtime_error("the call does not end");
    work->result();
  });
  for (const std::string& message : messages) EXPECT_NE(message.find("recv"), std::string::npos) << message;
}

// A large message is read where its sender has it, so that both know the size before a byte is moved.
TEST(PostedMessages, ALargeOneOfAnotherLengthIsAMismatch) {
  for (const int64_t expected : {1, 7, 100, 30000, 2 << 20})
    run_ranks(2, [expected](const CommunicatorPtr& communicator) {
      const at::Tensor sent = at::full({1 << 20}, 1, at::kFloat), received = at::full({expected}, -1, at::kFloat);
      if (communicator->rank() == 0) {
        communicator->send(sent, 1, 4);  // which is taken nevertheless
      } else {
        try {
          communicator->receive(received, 0, 4);
          ADD_FAILURE() << "no error";
        } catch (const CollectiveError& error) {
          EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch) << error.what();
          EXPECT_NE(std::string(error.what()).find("rank 0"), std::string::npos) << error.what();
        }
      }
      communicator->barrier();
      const at::Tensor again = at::full({1 << 20}, communicator->rank(), at::kFloat);
      if (communicator->rank() == 0)
        communicator->send(again, 1, 4);
      else
        communicator->receive(again, 0, 4);
      EXPECT_TRUE(is_filled(again, 0));
    });
}

// The answer to a later and shorter one must not end the send of an earlier one.
TEST(PostedMessages, LargeOnesWithOneTagEndByThemselves) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    constexpr int64_t kNumbers[] = {6 << 20, 50000, 3 << 20, 40000};  // of several parts, and of one
    std::vector<at::Tensor> tensors;
    std::vector<std::shared_ptr<Work>> works;
    const bool sends = communicator->rank() == 0;
    for (size_t i = 0; i < 4; i++) {
      tensors.push_back(at::full({kNumbers[i]}, sends ? value_of(0, static_cast<int>(i)) : -1, at::kFloat));
      works.push_back(
          communicator->start(sends ? Collective::send(tensors[i], 1, 9) : Collective::receive(tensors[i], 0, 9)));
    }
    for (size_t i = 4; i-- > 0;) {
      works[i]->wait();
      works[i]->result();
      if (sends)
        tensors[i].fill_(-2);  // it is the sender's again
      else
        EXPECT_TRUE(is_filled(tensors[i], value_of(0, static_cast<int>(i)))) << i;
    }
  });
}

TEST(PostedMessages, LargeOnesOfOtherStrides) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const at::Tensor memory = at::full({600, 600}, communicator->rank() == 0 ? 3 : -1, at::kFloat);
    if (communicator->rank() == 0)
      communicator->send(memory.t().contiguous(), 1, 0);
    else
      communicator->receive(memory, 0, 0);
    EXPECT_TRUE(is_filled(memory, 3));
  });
}

// Regression: who waited for a message could not count on its memory.
TEST(PostedMessages, TheyLetGoOfTheirTensorsBeforeTheyEnd) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    const int other = 1 - communicator->rank();
    const at::Tensor sent = at::ones({1000}), received = at::empty({1000});
    const auto work = communicator->start({Collective::send(sent, other, 0), Collective::receive(received, other, 0)});
    std::promise<size_t> owners;
    work->on_end(
        [&](const std::exception_ptr& /*error*/) { owners.set_value(sent.use_count() + received.use_count()); });
    EXPECT_EQ(owners.get_future().get(), 2U);
  });
}

// Below and above what is read out of the sender's memory, and nothing at all.
TEST(PostedMessages, AReceiveMayTakeFewerBytes) {
  run_ranks(2, [](const CommunicatorPtr& communicator) {
    ASSERT_TRUE(takes_shorter_messages(*communicator, c10::DeviceType::CPU));
    constexpr int64_t kRoom = 1 << 18;
    int tag = 0;
    for (const int64_t numel : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3000}, int64_t{1} << 17, kRoom}) {
      for (const RunsOn thread : {RunsOn::kCaller, RunsOn::kBackground}) {
        tag++;
        if (communicator->rank() == 0) {
          communicator->send(at::full({numel}, 3, at::kFloat), 1, tag);
          continue;
        }
        const at::Tensor memory = at::full({kRoom}, -1, at::kFloat);
        Collective receive = Collective::receive(memory, 0, tag);
        receive.may_be_shorter = true;
        const auto work = communicator->start(receive, thread);
        work->synchronize();
        work->wait();
        EXPECT_EQ(work->result().toInt(), numel * 4);
        EXPECT_TRUE(is_filled(memory.narrow(0, 0, numel), 3));
        EXPECT_TRUE(is_filled(memory.narrow(0, numel, kRoom - numel), -1));
      }
    }
  });
}

// What is longer is an error there, too.
TEST(PostedMessages, AReceiveThatMayBeShorterTakesNothingLonger) {
  for (const int64_t numel : {int64_t{9}, int64_t{1} << 18})
    run_ranks(2, [numel](const CommunicatorPtr& communicator) {
      if (communicator->rank() == 0) return communicator->send(at::ones({numel}, at::kFloat), 1, 0);
      Collective receive = Collective::receive(at::ones({8}, at::kFloat), 0, 0);
      receive.may_be_shorter = true;
      const auto work = communicator->start(receive, RunsOn::kCaller);
      EXPECT_THROW(work->synchronize(), CollectiveError);
    });
}

}  // namespace posted_messages_test
}  // namespace accel::comm
