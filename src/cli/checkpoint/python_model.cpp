// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/python_model.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "launch/command_output.hpp"

namespace accel::program {
namespace {

constexpr auto kMostOfTheImports = std::chrono::minutes(5);  // of torch and transformers, from a cold disk

cpp::Tensor empty_tensor(const cpp::Value& described) {
  std::vector<std::int64_t> shape;
  for (const cpp::Value& size : described.at("shape").items()) shape.push_back(size.integer());
  return cpp::Tensor::empty(shape, cpp::dtype_from_name(described.at("dtype").string()),
                            accel_device_t{ACCEL_DEVICE_META, 0});
}

// "layers.0.weight" as the path of a module and a name in it.
std::pair<std::string, std::string> parts_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

cpp::Module empty_model_of_python(const PythonModel& asked, const std::string& otherwise) {
  std::vector<std::string> command = {"python3", "-m", "accel.commands.model_shapes", asked.name};
  if (!asked.library.empty()) command.insert(command.end(), {"--library-name", asked.library});
  if (asked.trust_remote_code) command.emplace_back("--trust-remote-code");
  const auto told = launch::command_output(command, Deadline(kMostOfTheImports));
  if (!told) {
    std::string line;
    for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
    throw cpp::Error(ACCEL_ERROR_UNSUPPORTED,
                     otherwise + "; a python3 with " + (asked.library.empty() ? "transformers" : asked.library) +
                         " and the package accel tells any model, and here `" + line + "` fails");
  }
  const cpp::Value model = cpp::Value::from_json(*told);
  std::map<std::string, cpp::Module> modules;  // in an order in which the children come behind their parents
  const cpp::Value kinds = model.at("modules");
  for (size_t i = 0; i < kinds.size(); i++) {
    const std::string path = kinds.key_at(i).string();
    cpp::Module& made = modules[path] = cpp::Module::create(kinds.at(path).string());
    const auto [parent, child] = parts_of(path);
    if (!path.empty()) modules.at(parent).add_child(child, made);
  }
  std::map<std::string, cpp::Tensor> parameters;
  const auto add_parameter = [&](const std::string& path, const cpp::Tensor& tensor, bool is_trained) {
    const auto [parent, own] = parts_of(path);
    modules.at(parent).add_parameter(own, tensor, is_trained);
    parameters[path] = tensor;
  };
  const cpp::Value described = model.at("parameters");
  for (size_t i = 0; i < described.size(); i++) {
    const std::string path = described.key_at(i).string();
    add_parameter(path, empty_tensor(described.at(path)), described.at(path).at("requires_grad").boolean());
  }
  for (const cpp::Value& names : model.at("tied").items()) {
    const std::vector<cpp::Value> same = names.items();
    const std::string first = same.front().string();
    for (size_t i = 1; i < same.size(); i++)
      add_parameter(same[i].string(), parameters.at(first), described.at(first).at("requires_grad").boolean());
  }
  const cpp::Value buffers = model.at("buffers");
  for (size_t i = 0; i < buffers.size(); i++) {
    const std::string path = buffers.key_at(i).string();
    const auto [parent, own] = parts_of(path);
    modules.at(parent).add_buffer(own, empty_tensor(buffers.at(path)), /*persistent=*/true);
  }
  return modules.at("");
}

}  // namespace accel::program
