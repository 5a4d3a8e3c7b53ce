// The store of a job as its clients see it, and the meeting of the ranks.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/rendezvous/job_start.hpp"
#include "comm/rendezvous/rendezvous.hpp"
#include "comm/rendezvous/rendezvous_endpoints.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/store_client.hpp"
#include "comm/rendezvous/store_server.hpp"
#include "expect_error.hpp"
#include "launch/ranks/claimed_port.hpp"
#include "os/file_descriptor.hpp"

namespace accel::comm {
namespace store_test {

class Store : public testing::Test {
 protected:
  c10::intrusive_ptr<StoreClient> client(std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
    return c10::make_intrusive<StoreClient>(Address{"127.0.0.1", port_}, timeout);
  }
  static std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

  FileDescriptor listener_ = listen_on("127.0.0.1", 0);
  int port_ = port_of(listener_);
};

class StoreWithoutMemory : public c10d::HashStore {
 public:
  int64_t add(const std::string& key, int64_t value) override {
    if (key == "started") throw std::bad_alloc();
    return c10d::HashStore::add(key, value);
  }
};

// Rank 0 would wait for it until the deadline.
// Regression: rank 0 waited until the deadline for a rank that had no memory to say that it had started.
TEST(StoreRendezvous, ARankThatCannotSayThatItHasStartedFails) {
  JobStart start(c10::make_intrusive<StoreWithoutMemory>(), 1, 2, Deadline(std::chrono::seconds(20)), {});
  EXPECT_THROW(start.end(), std::bad_alloc);
}

TEST_F(Store, KeepsValues) {
  const StoreServer server(std::move(listener_));
  const auto first = client(), second = client();
  first->set("a", bytes("1"));
  EXPECT_EQ(first->add("count", 5), 5);
  EXPECT_EQ(second->add("count", -7), -2);
  EXPECT_EQ(second->get("a"), bytes("1"));
  EXPECT_EQ(second->compareSet("a", bytes("2"), bytes("3")), bytes("1"));
  EXPECT_EQ(second->compareSet("a", bytes("1"), bytes("3")), bytes("3"));
  EXPECT_EQ(second->compareSet("b", bytes("1"), bytes("3")), bytes("1"));
  EXPECT_FALSE(second->check({"a", "b"}));
  EXPECT_EQ(second->compareSet("b", {}, bytes("4")), bytes("4"));
  EXPECT_TRUE(second->check({"a", "b"}));
  second->append("b", bytes("5"));
  second->multiSet({"c", "d"}, {bytes(std::string(1 << 20, 'c')), {}});
  const auto values = second->multiGet({"b", "c", "d"});
  EXPECT_EQ(values[0], bytes("45"));
  EXPECT_EQ(values[1].size(), 1U << 20);
  EXPECT_TRUE(values[2].empty());
  EXPECT_EQ(second->getNumKeys(), 5);
  EXPECT_TRUE(second->deleteKey("d"));
  EXPECT_FALSE(second->deleteKey("d"));
}

TEST_F(Store, WaitsEndWhenTheKeysAreThereOrInTime) {
  const StoreServer server(std::move(listener_));
  const auto first = client(), second = client();
  tests::expect_error(Status::kTimeout, "within 20 ms", [&] { first->wait({"x"}, std::chrono::milliseconds(20)); });
  second->set("x", bytes("1"));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    second->set("y", bytes("2"));
  });
  first->wait({"x", "y", "y"});
  other.join();
  EXPECT_EQ(first->get("y"), bytes("2"));
}

TEST_F(Store, AServerThatSaysNothingOrIsGoneIsAnError) {
  tests::expect_error(Status::kTimeout, "did not answer within 100 ms",
                      [&] { client(std::chrono::milliseconds(100)); });
  auto server = std::make_unique<StoreServer>(std::move(listener_));
  const auto found = client();
  server.reset();
  for (int i = 0; i < 2; i++) tests::expect_error(Status::kPeerLost, " is gone", [&] { found->add("x", 1); });
}

TEST(StoreRendezvous, NamesTheRanksThatDidNotCome) {
  const launch::ClaimedPort port;
  RendezvousOptions options;
  options.host = "127.0.0.1";
  options.port = port.number();
  options.size = 3;
  try {
    rendezvous(options, Deadline(std::chrono::milliseconds(300)));
    FAIL() << "two ranks are missing";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kTimeout);
    EXPECT_NE(error.message().find("1, 2"), std::string::npos) << error.message();
  }
}

TEST(StoreRendezvous, SaysThatRankZeroCannotBeReached) {
  const launch::ClaimedPort port;
  RendezvousOptions options;
  options.host = "localhost";
  options.port = port.number();
  options.rank = 1;
  options.size = 2;
  try {
    rendezvous(options, Deadline(std::chrono::milliseconds(200)));
    FAIL() << "nobody serves";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kTimeout);
    EXPECT_NE(error.message().find("127.0.0.1:" + std::to_string(port.number())), std::string::npos) << error.message();
  }
}

TEST(StoreRendezvous, OneAddressServesGroupAfterGroup) {
  const launch::ClaimedPort port;
  for (int group = 0; group < 3; group++) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; rank++)
      ranks.emplace_back([rank, &port] {
        RendezvousOptions options;
        options.host = "127.0.0.1";
        options.port = port.number();
        options.rank = rank;
        options.size = 2;
        const RendezvousResult joined = rendezvous(options, Deadline(std::chrono::seconds(20)));
        BackendCommunicator communicator(joined.store, rank, 2, std::chrono::seconds(20), "ucx");
        joined.start->end();
        at::Tensor one = at::ones({1});
        communicator.all_reduce(one, ReduceOp::kSum);
        EXPECT_EQ(one.item<float>(), 2);
        communicator.barrier();
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

}  // namespace store_test
}  // namespace accel::comm
