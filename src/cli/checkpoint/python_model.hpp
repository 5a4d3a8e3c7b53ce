// Any model of transformers as a module without memory: a Python that has the package tells its classes and shapes.
#pragma once

#include <accel.hpp>
#include <string>

namespace accel::program {

// `name`: a folder with a config.json, such a file, or a name on the hub. Throws cpp::Error with
// `otherwise`, and with what to do, where no Python can tell.
cpp::Module empty_model_of_python(const std::string& name, bool trust_remote_code, const std::string& otherwise);

}  // namespace accel::program
