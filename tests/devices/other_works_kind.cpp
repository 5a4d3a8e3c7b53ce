// SPDX-License-Identifier: Apache-2.0
// The only source in which the plugins of other_works.hpp differ.
#include "other_works.hpp"

const accel::tests::OtherWorks accel::tests::kOtherWorks = accel::tests::OtherWorks::ACCEL_TEST_WORKS;
