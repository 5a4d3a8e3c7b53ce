// SPDX-License-Identifier: Apache-2.0
// Copies the tensor of one rank to ranks that know neither its shape nor who has it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "base/error.hpp"
#include "comm/collectives.hpp"

namespace accel::comm {
namespace {

// A rank describes its tensor by dtype and sizes; nothing if it has none.
std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  std::vector<int64_t> numbers = {static_cast<int64_t>(tensor.scalar_type())};
  numbers.insert(numbers.end(), tensor.sizes().begin(), tensor.sizes().end());
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

at::Tensor make_described(const std::string& description, at::Device device) {
  std::vector<int64_t> numbers(description.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), description.data(), description.size());
  const auto dtype = static_cast<at::ScalarType>(numbers.front());
  return at::empty(at::IntArrayRef(numbers.data() + 1, numbers.size() - 1),
                   at::TensorOptions().dtype(dtype).device(device));
}

}  // namespace

Round rounds::copy_tensor_to_devices(const Communicator& communicator, const at::Tensor& tensor) {
  return gather_bytes(
      communicator, describe(tensor), [&communicator, tensor](const std::vector<std::string>& all) -> Outcome {
        int holder = 0, count = 0;
        for (int rank = 0; rank < communicator.size(); rank++) {
          if (all[static_cast<size_t>(rank)].empty()) continue;
          holder = rank;
          count++;
        }
        require(count == 1, Status::kInvalidArgument, count,
                " ranks have a tensor; expected one, and none on the others");
        const at::Tensor copy = tensor.defined()
                                    ? tensor.detach().to(communicator.device()).contiguous()
                                    : make_described(all[static_cast<size_t>(holder)], communicator.device());
        if (communicator.size() == 1 || copy.numel() == 0) return c10::IValue(copy);
        return Round({Collective::broadcast(copy, holder)}, [copy](const std::exception_ptr& error) -> Outcome {
          rethrow(error);
          return c10::IValue(copy);
        });
      });
}

}  // namespace accel::comm
