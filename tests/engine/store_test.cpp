// SPDX-License-Identifier: Apache-2.0
// The store of a job as its clients see it, and the meeting of the ranks.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "base/authentication_code.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/backend/backend_communicator.hpp"
#include "comm/rendezvous/job_start.hpp"
#include "comm/rendezvous/rendezvous.hpp"
#include "comm/rendezvous/rendezvous_endpoints.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/store_client.hpp"
#include "comm/rendezvous/store_identity.hpp"
#include "comm/rendezvous/store_proof.hpp"
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

// A client that sends what it likes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(connect_to({"127.0.0.1", port}, std::chrono::seconds(20)).socket) {
    send_bytes(std::string("\x00\xce\xf7\x85\x3c", 5));  // what clients of a store begin with
  }

  void send_bytes(const std::string& bytes) const { send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void challenge(const std::string& who, const std::string& number) const {
    send_bytes('\xa0' + with_size(who) + with_size(number));
  }
  void prove(const std::string& code) const { send_bytes('\xa1' + with_size(code)); }
  void ask_number_of_keys() const { send_bytes("\x07"); }

  // Empty where the server has closed the connection.
  std::string receive_bytes(size_t size) const {
    std::string bytes(size, '\0');
    const ssize_t received = recv(socket_.number(), bytes.data(), size, MSG_WAITALL);
    return received == static_cast<ssize_t>(size) ? bytes : std::string();
  }
  std::string receive_text() const {
    const std::string size = receive_bytes(8);
    return size.empty() ? size : receive_bytes(static_cast<unsigned char>(size[0]));
  }
  bool is_closed() const { return receive_bytes(1).empty(); }

 private:
  static std::string with_size(const std::string& text) {
    return std::string(1, static_cast<char>(text.size())) + std::string(7, '\0') + text;
  }

  const FileDescriptor socket_;
};

TEST_F(Store, WithASecretServesThoseThatKnowIt) {
  const StoreServer server(std::move(listener_), "the secret of the job");
  const auto known = [&](const std::string& secret) {
    return c10::make_intrusive<StoreClient>(Address{"127.0.0.1", port_}, std::chrono::seconds(20),
                                            StoreIdentity{"rank 1 of 3", secret});
  };
  const auto member = known("the secret of the job");
  member->set("a", bytes("1"));
  EXPECT_EQ(member->clone()->get("a"), bytes("1"));
  tests::expect_error(Status::kPeerLost, " is gone", [&] { client(); });
  for (const char* const secret : {"", "the secret of another job"})
    tests::expect_error(Status::kInvalidState, "rank 1 of 3 belongs to another job", [&] { known(secret); });
  EXPECT_EQ(server.strangers(), 1);  // the others have seen themselves that it is not their store
  EXPECT_EQ(member->get("a"), bytes("1"));
}

TEST_F(Store, WithoutASecretTurnsAwayThoseThatExpectOne) {
  const StoreServer server(std::move(listener_));
  tests::expect_error(Status::kInvalidState, "another job", [&] {
    StoreClient(Address{"127.0.0.1", port_}, std::chrono::seconds(20), StoreIdentity{"rank 1 of 3", "a secret"});
  });
}

TEST_F(Store, TakesNoCodeThatWasHeardOrSentBack) {
  const std::string secret = "the secret of the job", number(32, '1');
  const StoreServer server(std::move(listener_), secret);
  const RawClient honest(port_);
  honest.challenge("rank 1 of 3", number);
  const StoreChallenge heard{"rank 1 of 3", number, honest.receive_text()};
  EXPECT_EQ(honest.receive_text(), heard.server_code(secret));
  honest.prove(heard.client_code(secret));
  honest.ask_number_of_keys();
  EXPECT_EQ(honest.receive_bytes(8), std::string(8, '\0'));

  const RawClient replays(port_);
  replays.challenge("rank 1 of 3", number);
  replays.receive_text();
  const std::string code = replays.receive_text();
  replays.prove(heard.client_code(secret));
  EXPECT_TRUE(replays.is_closed());

  const RawClient reflects(port_);
  reflects.challenge("rank 1 of 3", number);
  reflects.receive_text();
  reflects.prove(reflects.receive_text());
  EXPECT_TRUE(reflects.is_closed());

  const RawClient claims_another_rank(port_);
  claims_another_rank.challenge("rank 2 of 3", number);
  StoreChallenge other{"rank 1 of 3", number, claims_another_rank.receive_text()};
  claims_another_rank.receive_text();
  claims_another_rank.prove(other.client_code(secret));
  EXPECT_TRUE(claims_another_rank.is_closed());

  const RawClient asks_twice(port_);
  for (int i = 0; i < 2; i++) asks_twice.challenge("rank 1 of 3", number);
  asks_twice.receive_text();
  asks_twice.receive_text();
  EXPECT_TRUE(asks_twice.is_closed());

  const RawClient proves_at_once(port_);
  proves_at_once.prove(code);
  EXPECT_TRUE(proves_at_once.is_closed());
  const RawClient asks_at_once(port_);
  asks_at_once.ask_number_of_keys();
  EXPECT_TRUE(asks_at_once.is_closed());
  const RawClient sends_much(port_);
  sends_much.send_bytes('\xa0' + std::string("\xff\xff\0\0\0\0\0\0", 8) + std::string(8192, 'x'));
  EXPECT_TRUE(sends_much.is_closed());
}

TEST_F(Store, AClientThatShowsNothingLosesItsConnectionAndOthersDoNot) {
  const std::string secret = "the secret of the job";
  const StoreServer server(std::move(listener_), secret, std::chrono::milliseconds(20));
  const auto member = c10::make_intrusive<StoreClient>(Address{"127.0.0.1", port_}, std::chrono::seconds(20),
                                                       StoreIdentity{"rank 1 of 3", secret});
  const RawClient silent(port_), slow(port_);
  slow.send_bytes("\xa0");
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(slow.is_closed());
  EXPECT_EQ(server.strangers(), 2);
  member->set("a", bytes("1"));
  EXPECT_EQ(member->get("a"), bytes("1"));
}

// Regression: a rank lost its connection when the server, or it, had stood still while it introduced itself.
TEST_F(Store, AClientThatIsSlowButNotSilentIsServed) {
  const std::string secret = "the secret of the job", number(32, '1');
  const auto pause = std::chrono::milliseconds(1200);
  const StoreServer server(std::move(listener_), secret, std::chrono::milliseconds(2000));
  const RawClient slow(port_);
  std::this_thread::sleep_for(pause);
  slow.challenge("rank 1 of 3", number);
  const StoreChallenge challenge{"rank 1 of 3", number, slow.receive_text()};
  slow.receive_text();
  std::this_thread::sleep_for(pause);
  slow.prove(challenge.client_code(secret));
  slow.ask_number_of_keys();
  EXPECT_EQ(slow.receive_bytes(8), std::string(8, '\0'));
}

TEST_F(Store, AClientThatSendsByteAfterByteLosesItsConnection) {
  const StoreServer server(std::move(listener_), "the secret of the job", std::chrono::seconds(20));
  const RawClient client(port_);
  client.send_bytes("\xa0@" + std::string(7, '\0'));
  for (int i = 0; i < 40; i++) {
    client.send_bytes("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(client.is_closed());
}

TEST_F(Store, AThousandStrangersDisturbNobody) {
  const std::string secret = "the secret of the job";
  const StoreServer server(std::move(listener_), secret);
  const auto member = c10::make_intrusive<StoreClient>(Address{"127.0.0.1", port_}, std::chrono::seconds(20),
                                                       StoreIdentity{"rank 1 of 3", secret});
  for (int i = 0; i < 1000; i++) {
    const RawClient stranger(port_);
    stranger.challenge("rank 1 of 3", std::string(32, '1'));
    stranger.receive_text();
    stranger.receive_text();
    stranger.prove(random_digits(32));
    ASSERT_TRUE(stranger.is_closed());
    ASSERT_EQ(member->add("count", 1), i + 1);
  }
  EXPECT_EQ(server.strangers(), 1000);
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
