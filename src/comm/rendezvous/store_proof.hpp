// SPDX-License-Identifier: Apache-2.0
// How a client of a store and its server prove to each other that they belong to the same job. Each draws a number, and
// sends a code of both numbers that only a process with the job's secret can make.
#pragma once

#include <cstddef>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>

#include "base/authentication_code.hpp"
#include "base/error.hpp"

namespace accel::comm {

// Requests beside those of LibTorch's TCPStore.
constexpr auto kChallenge = static_cast<c10d::detail::QueryType>(0xA0);  // who, the client's number
constexpr auto kProof = static_cast<c10d::detail::QueryType>(0xA1);      // the client's code

constexpr size_t kChallengeBytes = 16;

struct StoreChallenge {
  std::string who, client_number, server_number;

  // One side's code is not the other's, so that neither can send back what it got.
  std::string server_code(const std::string& secret) const { return code("store", secret); }
  std::string client_code(const std::string& secret) const { return code("client", secret); }

 private:
  std::string code(const char* side, const std::string& secret) const {
    return authentication_code(secret, text(side, ' ', client_number, ' ', server_number, ' ', who));
  }
};

}  // namespace accel::comm
