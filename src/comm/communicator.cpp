// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/error.hpp"

namespace accel::comm {

GroupInfo::GroupInfo() = default;
GroupInfo::~GroupInfo() = default;

void Communicator::wait_for_turn(Collectives collectives) const {
  const auto is_message = [](const Collective& collective) { return collective.is_message(); };
  if (!std::all_of(collectives.begin(), collectives.end(), is_message)) group_->order.wait_for_turn();
}

std::shared_ptr<Work> Communicator::start(Collectives collectives, RunsOn thread) {
  group_->late_failure->rethrow();
  const StepTimes::Section waiting(*step_times(), StepPart::kCommunication);
  wait_for_turn(collectives);
  return post(collectives, thread);
}

void Communicator::run(Collectives collectives) {
  group_->late_failure->rethrow();
  const StepTimes::Section waiting(*step_times(), StepPart::kCommunication);
  wait_for_turn(collectives);
  post_and_wait(collectives);
}

void Communicator::all_reduce(at::Tensor tensor, ReduceOp reduction, double scale) {
  run(Collective::all_reduce(std::move(tensor), reduction, scale));
}

void Communicator::broadcast(at::Tensor tensor, int from) { run(Collective::broadcast(std::move(tensor), from)); }

void Communicator::all_gather(const at::Tensor& input, at::Tensor output) {
  run(Collective::all_gather(input, std::move(output)));
}

bool Communicator::any_rank(bool flag) {
  const at::Tensor votes = at::full({1}, flag ? 1 : 0, at::TensorOptions().dtype(at::kInt).device(device()));
  all_reduce(votes, ReduceOp::kMax);
  return votes.item<int32_t>() != 0;
}

void Communicator::barrier() { run(Collective::barrier()); }

void Communicator::send(const at::Tensor& tensor, int to, int tag) { run(Collective::send(tensor, to, tag)); }

void Communicator::receive(at::Tensor tensor, int from, int tag) {
  run(Collective::receive(std::move(tensor), from, tag));
}

at::Tensor Communicator::zeros(int64_t numel, const at::TensorOptions& options) const {
  return at::zeros({numel}, options);
}

at::Device Communicator::device() const {
  const auto& devices = group_->devices;
  const bool cpu = std::find(devices.begin(), devices.end(), c10::DeviceType::CPU) != devices.end();
  return cpu ? c10::DeviceType::CPU : devices[0];
}

void Communicator::check_device(const at::Tensor& tensor) const {
  const auto& devices = group_->devices;
  if (std::find(devices.begin(), devices.end(), tensor.device().type()) != devices.end()) return;
  std::string known;
  for (const c10::DeviceType device : devices)
    known += text(known.empty() ? "" : " or ", c10::DeviceTypeName(device, true));
  fail(Status::kInvalidArgument, "a tensor is on ", tensor.device(), "; this group sends tensors on ", known,
       ": move it there first");
}

}  // namespace accel::comm
