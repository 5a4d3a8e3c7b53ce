// SPDX-License-Identifier: Apache-2.0
// Addresses of hosts: how users write them, how they are looked up, and what they say.
#include "os/socket_address.hpp"

#include <gtest/gtest.h>

#include <string>

#include "launch/hosts/host_socket.hpp"
#include "launch/plan/endpoint.hpp"

namespace accel {
namespace socket_address_test {

TEST(SocketAddress, EndpointsHaveAHostAndMayHaveAPort) {
  const auto expect = [](const char* text, const std::string& host, const char* port) {
    const launch::Endpoint endpoint = launch::parse_endpoint(text);
    EXPECT_EQ(endpoint.host, host) << text;
    EXPECT_EQ(endpoint.port.value_or("none"), port) << text;
  };
  expect("node1", "node1", "none");
  expect("node1:29500", "node1", "29500");
  expect("node1:", "node1", "");
  expect("10.0.0.1:1", "10.0.0.1", "1");
  expect("[fd00::1]:29500", "fd00::1", "29500");
  expect("[fd00::1]", "fd00::1", "none");
  expect("fd00::1", "fd00::1", "none");
  expect("::1", "::1", "none");
  expect("", "", "none");
  expect(":29500", "", "29500");
  expect("[", "[", "none");
  expect("[]:1", "", "1");
}

TEST(SocketAddress, DigitsOfBothFamiliesAreAddresses) {
  for (const std::string host : {"10.0.0.1", "127.0.0.1", "fd00::1", "::1"}) {
    const Resolved found = resolve(host, 29500);
    ASSERT_EQ(found.addresses.size(), 1U) << host << ": " << found.problem;
    EXPECT_EQ(found.addresses[0].host(), host);
    EXPECT_EQ(found.addresses[0].port(), 29500);
    EXPECT_EQ(found.addresses[0].is_loopback(), host == "127.0.0.1" || host == "::1") << host;
    EXPECT_EQ(found.addresses[0].is_loopback(), is_loopback_host(host)) << host;
    EXPECT_FALSE(found.addresses[0].is_link_local()) << host;
  }
  EXPECT_EQ(resolve("::ffff:127.0.0.2", 1).addresses.at(0).host(), "127.0.0.2");
  EXPECT_TRUE(resolve("::ffff:127.0.0.2", 1).addresses.at(0).is_loopback());
  EXPECT_TRUE(resolve("fe80::1", 1).addresses.at(0).is_link_local());
}

TEST(SocketAddress, ANameThatIsNoneSaysWhy) {
  const Resolved found = resolve("a name with spaces", 1);
  EXPECT_TRUE(found.addresses.empty());
  EXPECT_FALSE(found.problem.empty());
}

TEST(SocketAddress, NamesOfLoopbackNeedNoLookUp) {
  EXPECT_EQ(loopback_address("localhost"), "127.0.0.1");
  EXPECT_EQ(loopback_address("127.0.1.1"), "127.0.0.1");
  EXPECT_EQ(loopback_address("::1"), "::1");
  EXPECT_EQ(loopback_address("node1"), "node1");
}

TEST(SocketAddress, AListenerOfAllAddressesTakesBothFamilies) {
  const launch::Listener listener = launch::listen_at("", 0);
  ASSERT_TRUE(listener.socket.is_open());
  for (const char* const host : {"127.0.0.1", "::1"}) {
    const auto begun = launch::begin_connection_to(host, listener.port, "");
    if (!begun.socket.is_open() && std::string(host) == "::1")
      GTEST_SKIP() << "this host has no IPv6: " << begun.problem;
    ASSERT_TRUE(begun.socket.is_open()) << begun.problem;
    std::string from;
    FileDescriptor accepted;
    while (!accepted.is_open()) accepted = launch::accept_from(listener.socket, from);
    EXPECT_EQ(from, host);
  }
}

TEST(SocketAddress, AConnectionFromAnAddressNeedsOneOfItsFamily) {
  const auto begun = launch::begin_connection_to("127.0.0.1", 1, "::1");
  EXPECT_FALSE(begun.socket.is_open());
  EXPECT_EQ(begun.problem, "127.0.0.1 has no address of the family of ::1");
}

TEST(SocketAddress, AnAddressOfThisHostIsKnown) {
  EXPECT_TRUE(launch::is_own_address("localhost"));
  EXPECT_TRUE(launch::is_own_address("::1"));
  EXPECT_FALSE(launch::is_own_address("203.0.113.1"));
  EXPECT_FALSE(launch::is_own_address("2001:db8::1"));
}

}  // namespace socket_address_test
}  // namespace accel
