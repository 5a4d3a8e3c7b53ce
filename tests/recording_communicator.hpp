// SPDX-License-Identifier: Apache-2.0
// One rank of a group whose others are not there: it keeps what is posted, which ends when the test says so.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"

namespace accel::tests {

class RecordingCommunicator final : public comm::Communicator {
 public:
  struct Posted {
    std::vector<comm::Collective> collectives;
    std::shared_ptr<comm::Work> work;

    std::vector<comm::Collective::Kind> kinds() const {
      std::vector<comm::Collective::Kind> kinds;
      for (const comm::Collective& collective : collectives) kinds.push_back(collective.kind);
      return kinds;
    }
  };

  RecordingCommunicator(int rank, int size) : Communicator(info_of(rank, size)) {}

  std::shared_ptr<comm::Work> post(comm::Collectives collectives, comm::RunsOn /*thread*/) override {
    posted.push_back({collectives.vec(), std::make_shared<comm::Work>()});
    return posted.back().work;
  }
  std::shared_ptr<comm::Communicator> make_group(c10::intrusive_ptr<c10d::Store> /*store*/, int rank,
                                                 int size) const override {
    return std::make_shared<RecordingCommunicator>(rank, size);
  }

  std::vector<Posted> posted;

 protected:
  void post_and_wait(comm::Collectives collectives) override {
    post(collectives, comm::RunsOn::kCaller)->complete({}, nullptr);
  }

 private:
  static std::shared_ptr<comm::GroupInfo> info_of(int rank, int size) {
    auto group = std::make_shared<comm::GroupInfo>();
    group->rank = rank;
    group->size = size;
    group->devices = {c10::DeviceType::CPU};
    group->step_times = std::make_shared<StepTimes>();
    group->flight_record = std::make_shared<comm::FlightRecord>(rank, size);
    return group;
  }
};

}  // namespace accel::tests
