// SPDX-License-Identifier: Apache-2.0
// Any model of transformers or timm as a module without memory: a Python that has the package tells its classes and
// shapes.
#pragma once

#include <accel.hpp>
#include <string>

namespace accel::program {

struct PythonModel {
  std::string name;     // a folder with a config.json, such a file, or a name on the hub or in timm
  std::string library;  // "transformers" or "timm"; empty: as the hub says
  bool trust_remote_code = false;
};

// Throws cpp::Error with `otherwise`, and with what to do, where no Python can tell.
cpp::Module empty_model_of_python(const PythonModel& asked, const std::string& otherwise);

}  // namespace accel::program
