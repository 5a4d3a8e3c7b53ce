// SPDX-License-Identifier: Apache-2.0
// Gather, reduce and broadcast of trees and of objects.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include "comm/collectives.hpp"
#include "fixture.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace collectives_test {

std::string text_or(const c10::IValue& arguments, const char* key, const char* otherwise) {
  const auto value = optional_member(arguments, key);
  return value ? value->toStringRef() : otherwise;
}

c10::IValue run(comm::Communicator& communicator, const std::string& operation, const c10::IValue& arguments,
                const c10::IValue& data) {
  if (operation == "gather") return comm::gather(communicator, data);
  if (operation == "gather_object") return comm::gather_object(communicator, data);
  const auto from = optional_member(arguments, "from_process");
  const int source = from ? static_cast<int>(from->toInt()) : 0;
  if (operation == "broadcast_object_list") return comm::broadcast_object_list(communicator, data, source);
  if (operation == "broadcast") {
    const c10::IValue own = tree::map_tensors(data, [](const at::Tensor& tensor) { return tensor.clone(); });
    comm::broadcast(communicator, own, source);
    return own;
  }
  EXPECT_EQ(operation, "reduce");
  const bool mean = text_or(arguments, "reduction", "mean") == "mean";  // "none" sums as well
  return comm::reduce(communicator, data, mean ? comm::ReduceOp::kMean : comm::ReduceOp::kSum, 1.0);
}

bool close(const c10::IValue& a, const c10::IValue& b) {
  std::vector<at::Tensor> left, right;
  tree::for_each_tensor(a, [&](const at::Tensor& tensor) { left.push_back(tensor); });
  tree::for_each_tensor(b, [&](const at::Tensor& tensor) { right.push_back(tensor); });
  if (left.empty() || left.size() != right.size()) return tree::equal(a, b);
  for (size_t i = 0; i < left.size(); i++)
    if (left[i].scalar_type() != right[i].scalar_type() || left[i].sizes() != right[i].sizes() ||
        !at::allclose(left[i], right[i], 1e-6, 1e-6))
      return false;
  return true;
}

// In a job of one process Accelerate's gather hands back what it was given, so that 0-d tensors stay 0-d. Here one
// rank gives what several give.
c10::IValue as_of_several(const std::string& operation, const c10::IValue& result) {
  if (operation != "gather") return result;
  return tree::map_tensors(result,
                           [](const at::Tensor& tensor) { return tensor.dim() == 0 ? tensor.view({1}) : tensor; });
}

TEST(CollectivesParity, SameResultsAsTheReference) {
  int compared = 0;
  for (const auto& test_case : read_cases("collectives")) {
    SCOPED_TRACE(test_case.name);
    const c10::IValue& input = test_case.input;
    const auto data = member(input, "data").toListRef(), results = member(test_case.expected, "results").toListRef();
    const std::string operation = member(input, "operation").toStringRef();
    tests::run_ranks(static_cast<int>(member(input, "processes").toInt()),
                     [&](const std::shared_ptr<comm::Communicator>& communicator) {
                       const int rank = communicator->rank();
                       const c10::IValue result = run(*communicator, operation, member(input, "arguments"), data[rank]);
                       EXPECT_TRUE(close(result, as_of_several(operation, results[rank])))
                           << test_case.name << " rank " << rank << ": " << tree::to_json(result);
                     });
    compared++;
  }
  EXPECT_GT(compared, 80);
}

}  // namespace collectives_test
}  // namespace accel::parity
