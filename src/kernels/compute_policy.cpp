// SPDX-License-Identifier: Apache-2.0
#include "kernels/compute_policy.hpp"

#include <atomic>
#include <memory>
#include <string_view>
#include <type_traits>

#include "base/current_call.hpp"

namespace accel::kernels {
namespace {

// LibTorch passes this on to the threads of autograd, as it does for its profiler.
struct PolicyInfo final : c10::DebugInfoBase {
  explicit PolicyInfo(ComputePolicy given) : policy(given) {}
  ComputePolicy policy;
};

constexpr std::string_view kInfoName = "ACCEL_COMPUTE_POLICY";

// Older versions have a fixed list of kinds; the last one is not used outside of LibTorch's own tests.
template <typename Kind>
Kind info_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return Kind::TEST_INFO_2;
  } else {
    return Kind(&kInfoName);
  }
}

std::atomic<ComputePolicy> default_policy{ComputePolicy{}};

}  // namespace

ComputePolicy compute_policy() {
  const auto* const info =
      static_cast<const PolicyInfo*>(c10::ThreadLocalDebugInfo::get(info_kind<c10::DebugInfoKind>()));
  if (info != nullptr) return info->policy;
  return CurrentCall::function() != nullptr ? default_policy.load(std::memory_order_relaxed) : ComputePolicy{};
}

void set_default_policy(ComputePolicy policy) { default_policy.store(policy, std::memory_order_relaxed); }

void set_first_policy(ComputePolicy policy) {
  static std::atomic<bool> is_set{false};
  if (!is_set.exchange(true)) set_default_policy(policy);
}

ComputeScope::ComputeScope(ComputePolicy policy)
    : guard_(info_kind<c10::DebugInfoKind>(), std::make_shared<PolicyInfo>(policy)) {}

}  // namespace accel::kernels
