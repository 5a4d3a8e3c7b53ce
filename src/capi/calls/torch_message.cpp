// SPDX-License-Identifier: Apache-2.0
#include "capi/calls/torch_message.hpp"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceType.h>

#include <algorithm>
#include <cctype>

#include "base/error.hpp"

namespace accel::capi {
namespace {

constexpr std::string_view kHostAllocator = "DefaultCPUAllocator: ";
constexpr std::string_view kInterpreter = "The following operation failed in the TorchScript interpreter.";
constexpr std::string_view kBlank = " \t\r\n";

std::string_view first_line(std::string_view message) {
  message.remove_prefix(std::min(message.find_first_not_of(kBlank), message.size()));
  return message.substr(0, message.find('\n'));
}

std::string_view last_line(std::string_view message) {
  message = message.substr(0, message.find_last_not_of(kBlank) + 1);
  message.remove_prefix(message.rfind('\n') + 1);
  return first_line(message);
}

// The text between `before` and the next quote; empty without `before`.
std::string quoted_after(std::string_view line, std::string_view before) {
  const size_t place = line.find(before);
  if (place == std::string_view::npos) return "";
  line.remove_prefix(place + before.size());
  return std::string(line.substr(0, line.find('\'')));
}

// The device of a dispatch key, "sim" for PrivateUse1 and AutogradPrivateUse1; "SparseCPU" stays as it is.
std::string device_of_backend(const std::string& backend) {
  constexpr std::string_view kOutOfTree = "PrivateUse1";
  const size_t place = backend.find(kOutOfTree);
  if (place != std::string::npos && c10::is_privateuse1_backend_registered()) return c10::get_privateuse1_backend();
  const bool is_acronym =
      std::all_of(backend.begin(), backend.end(), [](unsigned char letter) { return std::isupper(letter); });
  std::string name = backend;
  if (is_acronym)
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return name;
}

// "Could not run 'aten::x' with arguments from the 'PrivateUse1' backend. This could be because ..." for several lines.
std::string missing_operator(std::string_view line) {
  const std::string name = quoted_after(line, "Could not run '"), backend = quoted_after(line, "arguments from the '");
  if (name.empty() || backend.empty()) return "";
  return text("the device ", device_of_backend(backend), " cannot run ", name,
              ": its backend in LibTorch has no kernel for it; expected tensors of another device or layout");
}

// "Backend doesn't support events." is said by LibTorch's base class of all accelerators.
std::string missing_function(std::string_view line) {
  constexpr std::string_view kBackend = "Backend doesn";
  if (line.find(kBackend) == std::string_view::npos) return "";
  const auto type = at::getAccelerator();
  return text("the device ", type ? text(c10::DeviceTypeName(*type, /*lower_case=*/true), " ") : "",
              "lacks a function of LibTorch's interface: ", line);
}

}  // namespace

TorchMessage::TorchMessage(std::string_view message) : line_(first_line(message)) {
  of_script_ = line_.substr(0, kInterpreter.size()) == kInterpreter;
  if (of_script_) line_ = last_line(message);  // behind the script's traceback
  if (const size_t allocator = line_.find(kHostAllocator); allocator != std::string_view::npos)
    line_.remove_prefix(allocator);
  rewritten_ = missing_operator(line_);
  if (rewritten_.empty()) rewritten_ = missing_function(line_);
}

}  // namespace accel::capi
