// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json: an error of one line, or a model without memory, whose tree, chain and names in files can
// be asked for.
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "fuzz_target.hpp"
#include "nn/architectures/architecture.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/creation_device.hpp"
#include "nn/module_walks.hpp"

namespace model_config_fuzz {

using namespace accel;

namespace {

void read_any(const std::string& document) {
  const nn::CreationDevice without_memory(c10::Device(c10::kMeta), /*include_buffers=*/true);
  const nn::ModulePtr model = nn::module_from_config(document);
  check(!nn::named_parameters(*model).empty() && !model->input_names().empty());
  model->chain();
  check(!nn::HubNames(*model).to_files({}).size());
}

}  // namespace

FUZZ_TARGET(model_config) {
  if (size == 0 || data[0] != '{') return 0;  // the path of a file
  try {
    read_any(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const Error& error) {
    check(error.message().find('\n') == std::string::npos);
  } catch (const c10::Error&) {
    // The number of a tensor's elements does not fit 64 bits.
  }
  return 0;
}

}  // namespace model_config_fuzz
