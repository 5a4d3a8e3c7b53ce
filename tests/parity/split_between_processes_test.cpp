// SPDX-License-Identifier: Apache-2.0
// Sharing of lists, tensors and maps between ranks.
#include "state/split.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace split_between_processes_test {

// Where Accelerate fails only for being Python (a tuple cannot be padded by a list) this library gives the share.
bool is_defect_of_the_reference(const std::string& error) { return error == "TypeError"; }

// With one process Accelerate checks nothing; here one rank refuses what several refuse.
bool several_refuse(const c10::IValue& inputs, bool apply_padding) {
  try {
    state::split_between_processes(inputs, 0, 2, apply_padding);
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST(SplitBetweenProcessesParity, SameSharesAsTheReference) {
  int compared = 0;
  for (const auto& [name, input, expected] : read_cases("split_between_processes")) {
    SCOPED_TRACE(name);
    const auto parts = member(expected, "parts").toListRef();
    const int size = static_cast<int>(member(input, "processes").toInt());
    ASSERT_EQ(parts.size(), static_cast<size_t>(size));
    const c10::IValue inputs = member(input, "inputs");
    const bool apply_padding = member(input, "apply_padding").toBool();
    for (int rank = 0; rank < size; rank++) {
      const auto error = error_type(parts[rank]);
      if (error && is_defect_of_the_reference(*error)) continue;
      try {
        const c10::IValue part = state::split_between_processes(inputs, rank, size, apply_padding);
        ASSERT_FALSE(error.has_value()) << *error;
        EXPECT_TRUE(tree::equal(part, parts[rank])) << "rank " << rank << ": " << tree::to_json(part);
      } catch (const Error& raised) {
        ASSERT_TRUE(error.has_value() || (size == 1 && several_refuse(inputs, apply_padding))) << raised.message();
        EXPECT_EQ(raised.status(), Status::kInvalidArgument);
      }
      compared++;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(SplitBetweenProcessesParity, OneRankChecksWhatSeveralDo) {
  for (const int size : {1, 2}) {
    const auto split = [&](const c10::IValue& inputs) {
      return state::split_between_processes(inputs, 0, size, false);
    };
    EXPECT_THROW(split(3), Error);
    EXPECT_THROW(split(std::string("text")), Error);
    EXPECT_THROW(split(at::ones({})), Error);
    const at::Tensor rows = at::zeros({4, 2});
    split(rows).toTensor().fill_(1);
    EXPECT_EQ(rows.sum().item<float>(), 0);  // a share is a copy
  }
}

}  // namespace split_between_processes_test
}  // namespace accel::parity
