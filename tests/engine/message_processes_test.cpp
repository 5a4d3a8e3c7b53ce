// SPDX-License-Identifier: Apache-2.0
// Messages between ranks that are processes: one that dies, leaves or gives up while a large message of it waits for
// its receiver, which reads it in the sender's memory.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "comm/communicator.hpp"
#include "os/file_descriptor.hpp"
#include "rank_processes.hpp"

namespace accel::comm {
namespace message_processes_test {

using tests::AcceleratorPtr;

constexpr int64_t kLength = 16 << 20;  // of float: read in many parts, between which other calls have their turn
constexpr int kSender = 0, kReceiver = 1, kTag = 4, kSmallTag = 5;
constexpr auto kNamedWithin = std::chrono::seconds(10);  // on a busy machine

// What the ranks of a test share.
struct Shared {
  std::atomic<int> sender{0};  // its process
  std::atomic<bool> has_given_up{false};
};

class SharedByRanks {
 public:
  SharedByRanks()
      : memory_(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        shared_(new (memory_) Shared) {}
  SharedByRanks(const SharedByRanks&) = delete;
  SharedByRanks& operator=(const SharedByRanks&) = delete;
  ~SharedByRanks() { munmap(memory_, sizeof(Shared)); }
  Shared* operator->() const { return shared_; }

 private:
  void* const memory_;
  Shared* const shared_;
};

void wait_until(const std::atomic<bool>& condition) {
  const auto longest = std::chrono::steady_clock::now() + kNamedWithin;
  while (!condition && std::chrono::steady_clock::now() < longest)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void expect_error(const std::function<void()>& call, CollectiveFailure failure, const std::string& words) {
  const auto begun = std::chrono::steady_clock::now();
  try {
    call();
    ADD_FAILURE() << "no error; expected: " << words;
  } catch (const CollectiveError& error) {
    EXPECT_EQ(error.failure(), failure) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kNamedWithin);
}

std::vector<int> on_two_ranks(std::chrono::milliseconds timeout, const std::function<void(Communicator&)>& body) {
  return tests::on_mesh_of_processes(
      {1, 2, 1}, [&](const AcceleratorPtr& accelerator) { body(*accelerator->state().communicator()); },
      [timeout](StateSettings& settings, int /*rank*/) {
        settings.timeout_ms = static_cast<int64_t>(timeout.count());
      });
}

void wait_for_end_of(pid_t process) {
  const FileDescriptor end(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  pollfd event{end.number(), POLLIN, 0};
  if (end.is_open()) poll(&event, 1, -1);
}

// The receiver's part of a test: `meanwhile` runs when a part of the large message has been read, on the thread that
// reads it. The small one is sent behind the large one, so that it ends when it is its turn between two parts.
void receive_large(Communicator& group, const std::function<void(const at::Tensor& large)>& meanwhile) {
  const at::Tensor large = at::full({kLength}, -1, at::kFloat), small = at::empty({1});
  const auto work = group.start(Collective::receive(large, kSender, kTag));
  group.start(Collective::receive(small, kSender, kSmallTag))->on_end([&](const std::exception_ptr&) {
    meanwhile(large);
  });
  group.barrier();
  work->synchronize();
}

std::shared_ptr<Work> send_large(Communicator& group) {
  group.barrier();
  auto work = group.start(Collective::send(at::full({kLength}, 7, at::kFloat), kReceiver, kTag));
  group.start(Collective::send(at::empty({1}), kReceiver, kSmallTag));
  return work;
}

bool is_read_in_part(const at::Tensor& large) {
  return large[0].item<float>() == 7 && large[kLength - 1].item<float>() == -1;
}

TEST(MessageProcesses, ASenderThatDiesWhileItsMessageIsReadIsNamed) {
  const SharedByRanks shared;
  const auto ends = on_two_ranks(std::chrono::seconds(60), [&](Communicator& group) {
    if (group.rank() == kSender) {
      shared->sender = getpid();
      send_large(group)->synchronize();
      ADD_FAILURE() << "sent";
      return;
    }
    const auto kill_sender = [&](const at::Tensor& large) {
      EXPECT_TRUE(is_read_in_part(large));
      kill(shared->sender, SIGKILL);
      wait_for_end_of(shared->sender);
    };
    expect_error([&] { receive_large(group, kill_sender); }, CollectiveFailure::kPeerLost, "rank 0 is lost");
  });
  EXPECT_EQ(ends, (std::vector<int>{SIGKILL, 0}));
}

TEST(MessageProcesses, ASenderThatGivesUpWhileItsMessageIsReadIsNamed) {
  const SharedByRanks shared;
  const auto ends = on_two_ranks(std::chrono::milliseconds(1500), [&](Communicator& group) {
    if (group.rank() == kSender) {
      expect_error([&] { send_large(group)->synchronize(); }, CollectiveFailure::kTimeout,
                   "send to rank 1 with tag 4 on rank 0 timed out after 1500 ms");
      shared->has_given_up = true;
      return;
    }
    const auto wait_for_sender = [&](const at::Tensor& large) {
      EXPECT_TRUE(is_read_in_part(large));
      wait_until(shared->has_given_up);
    };
    // Its own deadline has passed as well; who gave up first is what it tells.
    expect_error([&] { receive_large(group, wait_for_sender); }, CollectiveFailure::kTimeout,
                 "rank 0 gave up the group");
  });
  EXPECT_EQ(ends, (std::vector<int>{0, 0}));
}

TEST(MessageProcesses, AReceiverThatNeverComesIsNamed) {
  const SharedByRanks shared;
  const auto ends = on_two_ranks(std::chrono::milliseconds(1000), [&](Communicator& group) {
    if (group.rank() == kSender) {
      expect_error([&] { group.send(at::full({kLength}, 7, at::kFloat), kReceiver, kTag); },
                   CollectiveFailure::kTimeout, "send to rank 1 with tag 4 on rank 0 timed out after 1000 ms");
      shared->has_given_up = true;
    } else {
      wait_until(shared->has_given_up);
      expect_error([&] { group.receive(at::empty({1}), kSender, kSmallTag); }, CollectiveFailure::kTimeout,
                   "rank 0 gave up the group: send to rank 1 with tag 4");
    }
  });
  EXPECT_EQ(ends, (std::vector<int>{0, 0}));
}

TEST(MessageProcesses, AReceiverThatDiesBeforeItReadsIsNamed) {
  const auto ends = on_two_ranks(std::chrono::seconds(60), [&](Communicator& group) {
    if (group.rank() == kSender)
      expect_error([&] { send_large(group)->synchronize(); }, CollectiveFailure::kPeerLost, "rank 1 is lost");
    else
      receive_large(group, [](const at::Tensor&) { raise(SIGKILL); });
  });
  EXPECT_EQ(ends, (std::vector<int>{0, SIGKILL}));
}

TEST(MessageProcesses, ASenderThatLeavesWithAMessageThatNobodyReadIsNamed) {
  const auto ends = on_two_ranks(std::chrono::seconds(5), [&](Communicator& group) {
    if (group.rank() == kSender) {
      const auto work = group.start(Collective::send(at::full({kLength}, 7, at::kFloat), kReceiver, kTag));
      group.shutdown();
      expect_error([&] { work->synchronize(); }, CollectiveFailure::kAborted, "shut the group down while calls were");
    } else {
      expect_error([&] { group.receive(at::empty({1}), kSender, kSmallTag); }, CollectiveFailure::kAborted,
                   "rank 0 shut the group down");
    }
  });
  EXPECT_EQ(ends, (std::vector<int>{0, 0}));
}

}  // namespace message_processes_test
}  // namespace accel::comm
