// SPDX-License-Identifier: Apache-2.0
// A scope of operators that record no graph and cast nothing.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace accel::tensor {

struct PlainOperators {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

}  // namespace accel::tensor
