// SPDX-License-Identifier: Apache-2.0
// The questions of `accel config`, in the order of Accelerate's.
#pragma once

#include "cli/questions.hpp"
#include "json/json.hpp"

namespace accel::program {

// The configuration that the answers describe, with the names of Accelerate's files.
Json ask_for_cluster(const Questions& ask, size_t num_gpus);

}  // namespace accel::program
