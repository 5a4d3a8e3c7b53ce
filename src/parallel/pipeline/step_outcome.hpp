// SPDX-License-Identifier: Apache-2.0
// Step outcome: how ranks end a step of a pipeline. If one of them has failed, all of them throw its error.
#pragma once

#include <exception>
#include <string>

namespace accel::comm {
class Communicator;
}

namespace accel::parallel {

// Collective. `error` is this rank's, or null, and `action` what it failed in. Returns the sum of the ranks' losses.
// `kind` says of which ranks they are.
double agree_on_step(comm::Communicator& ranks, double loss, const std::exception_ptr& error, const std::string& action,
                     const char* kind = "of the pipeline");

}  // namespace accel::parallel
