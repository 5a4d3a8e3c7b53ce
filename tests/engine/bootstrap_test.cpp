// SPDX-License-Identifier: Apache-2.0
// The start of a job: what ranks learn of each other, and what it costs.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/backend/backend_communicator.hpp"
#include "comm/record/collected_values.hpp"
#include "comm/rendezvous/job_start.hpp"
#include "comm/rendezvous/rendezvous.hpp"
#include "comm/rendezvous/socket.hpp"
#include "comm/rendezvous/store_client.hpp"
#include "comm/rendezvous/store_server.hpp"
#include "launch/ranks/claimed_port.hpp"
#include "os/file_descriptor.hpp"
#include "os/socket_address.hpp"

namespace accel::comm {
namespace bootstrap_test {

using Bytes = std::vector<uint8_t>;

constexpr auto kLimit = std::chrono::seconds(60);

std::string text_of(std::pair<const uint8_t*, size_t> bytes) { return {bytes.first, bytes.first + bytes.second}; }

TEST(Bootstrap, CollectedValuesComeInTheOrderOfTheirKeys) {
  c10d::HashStore store;
  store.set("a", Bytes{'1', '2'});
  store.set("b", Bytes{});
  store.set("c", Bytes(70000, 'x'));
  CollectedValues values(collect_values(store, {"c", "b", "a"}));
  EXPECT_EQ(text_of(values.next()), std::string(70000, 'x'));
  EXPECT_EQ(text_of(values.next()), "");
  EXPECT_EQ(text_of(values.next()), "12");
  EXPECT_EQ(values.next().first, nullptr);
}

TEST(Bootstrap, CollectedValuesThatWereCutOffEnd) {
  c10d::HashStore store;
  store.set("a", Bytes(10, 'x'));
  const Bytes whole = collect_values(store, {"a"});
  for (size_t size = 0; size < whole.size(); size++) {
    CollectedValues values(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)));
    EXPECT_EQ(values.next().first, nullptr) << size;
  }
}

TEST(Bootstrap, ClientsThatReadSlowlyGetALargeValueWhole) {
  FileDescriptor listener = listen_on("127.0.0.1", 0);
  const Address address{"127.0.0.1", port_of(listener)};
  const StoreServer server(std::move(listener));
  const Bytes value(5 << 20, 'x');  // more than the socket takes at once
  std::atomic<int> whole{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; i++)
    clients.emplace_back([&] {
      StoreClient client(address, kLimit);
      for (int round = 0; round < 3; round++) whole += client.get("value") == value;
    });
  StoreClient(address, kLimit).set("value", value);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(whole.load(), 48);
}

// A socket is open to the network of its address and to no other.
TEST(Bootstrap, ListensOnTheInterfaceOfItsAddress) {
  const std::string host = own_host_towards({"203.0.113.1", 9});
  if (host.empty() || is_loopback_host(host)) GTEST_SKIP() << "this host has no network";
  const FileDescriptor listener = listen_on(host, 0);
  EXPECT_TRUE(connect_to({host, port_of(listener)}, kLimit).socket.is_open());
  EXPECT_TRUE(connect_to({"127.0.0.1", port_of(listener)}, kLimit).refused);
}

// All addresses of a name are tried at once: one of them may be none at which somebody listens.
TEST(Bootstrap, ConnectsToTheAddressOfANameThatAnswers) {
  const FileDescriptor listener = listen_on("127.0.0.1", 0);
  EXPECT_TRUE(connect_to({"localhost", port_of(listener)}, kLimit).socket.is_open());
}

TEST(Bootstrap, ListensAtAnAddressOfIPv6) {
  const FileDescriptor probe(socket(AF_INET6, SOCK_STREAM, 0));
  const SocketAddress loopback = resolve("::1", 0).addresses.at(0);
  if (bind(probe.number(), loopback.get(), loopback.length()) != 0) GTEST_SKIP() << "this host has no IPv6";
  const FileDescriptor listener = listen_on("::1", 0);
  EXPECT_TRUE(connect_to({"::1", port_of(listener)}, kLimit).socket.is_open());
  EXPECT_TRUE(connect_to({"127.0.0.1", port_of(listener)}, kLimit).refused);
  EXPECT_EQ(own_host_towards({"::1", 9}), "::1");
}

// An address of this host that it does not have, such as that of a service in front of it.
TEST(Bootstrap, ListensOnAllInterfacesForAnAddressOfSomethingInFront) {
  const FileDescriptor listener = listen_on("203.0.113.1", 0);
  EXPECT_TRUE(connect_to({"127.0.0.1", port_of(listener)}, kLimit).socket.is_open());
}

TEST(Bootstrap, AnArrivalThatCannotBeReadIsAnError) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto start = [&](int rank) {
    return std::make_unique<JobStart>(store, rank, 2, Deadline(kLimit), JobStart::Server());
  };
  start(0)->arrive({"127.0.0.1", 1});
  store->set("arrival/1", Bytes{'?'});
  const auto last = start(1);
  last->arrive({"127.0.0.1", 1});
  try {
    last->wait_for_all();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("a rank arrived as '?'"), std::string::npos) << error.message();
  }
}

// Established connections of this process to a port, by the sockets that it holds.
int connections_to(int port) {
  std::ostringstream wanted;
  wanted << std::uppercase << std::hex << port;
  std::string digits = wanted.str();
  digits.insert(0, 4 - digits.size(), '0');
  std::ifstream table("/proc/self/net/tcp");
  int count = 0;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    const size_t colon = remote.find(':');
    count += state == "01" && colon != std::string::npos && remote.substr(colon + 1) == digits;
  }
  return count;
}

TEST(Bootstrap, SixtyFourRanksFormAGroupWithFewConnections) {
  constexpr int kRanks = 64;
  const launch::ClaimedPort port;
  std::atomic<int> formed{0}, counted{0};
  std::vector<std::string> failures(kRanks);
  std::vector<std::thread> ranks;
  const auto begin = std::chrono::steady_clock::now();
  for (int rank = 0; rank < kRanks; rank++)
    ranks.emplace_back([&, rank] {
      try {
        RendezvousOptions options;
        options.host = "127.0.0.1";
        options.port = port.number();
        options.rank = rank;
        options.size = kRanks;
        const RendezvousResult joined = rendezvous(options, Deadline(kLimit));
        BackendCommunicator communicator(joined.store, rank, kRanks, kLimit, "ucx");
        joined.start->end();
        formed++;
        while (counted.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        communicator.barrier();
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(rank)] = error.what();
        formed++;
      }
    });
  while (formed.load() < kRanks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const int connections = connections_to(port.number());
  counted = 1;
  for (std::thread& rank : ranks) rank.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  EXPECT_LE(seconds, 10.0);
  EXPECT_GE(connections, kRanks);
  EXPECT_LE(connections, 3 * kRanks);
}

}  // namespace bootstrap_test
}  // namespace accel::comm
