// SPDX-License-Identifier: Apache-2.0
// Reads LibTorch's error messages, of which some mean more than their class, and makes one line of each.
#pragma once

#include <string>
#include <string_view>

namespace accel::capi {

class TorchMessage {
 public:
  // `message` must outlive this.
  explicit TorchMessage(std::string_view message);

  // The error without traces. An operator or a function that a device lacks is named together with the device.
  std::string_view line() const { return rewritten_.empty() ? line_ : rewritten_; }
  // The device has no such operator or function.
  bool means_not_supported() const { return !rewritten_.empty(); }
  // A number does not fit the element type; LibTorch has no class for that.
  bool means_overflow() const { return line_.find("without overflow") != std::string_view::npos; }
  // It is an exception of a TorchScript module.
  bool is_of_script() const { return of_script_; }

 private:
  std::string_view line_;
  std::string rewritten_;
  bool of_script_ = false;
};

}  // namespace accel::capi
