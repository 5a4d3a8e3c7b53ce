// SPDX-License-Identifier: Apache-2.0
// Status of an exception of any class, by which ranks notify each other, and callers get it.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <stdexcept>

#include "base/error.hpp"
#include "comm/collective_error.hpp"
#include "tensor/lack_of_memory.hpp"

namespace accel::comm {

// error_line.hpp has its text.
inline Status status_of(const std::exception& error) {
  if (const auto* const own = dynamic_cast<const Error*>(&error)) return own->status();
  if (const auto* const collective = dynamic_cast<const CollectiveError*>(&error))
    return status_of(collective->failure());
  if (tensor::means_no_memory(error)) return Status::kOutOfMemory;
  if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) return Status::kUnsupported;
  if (dynamic_cast<const c10::IndexError*>(&error) != nullptr) return Status::kInvalidArgument;
  if (dynamic_cast<const c10::ValueError*>(&error) != nullptr) return Status::kInvalidArgument;
  if (dynamic_cast<const c10::TypeError*>(&error) != nullptr) return Status::kTypeMismatch;
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return Status::kBackend;
  if (dynamic_cast<const c10::Error*>(&error) != nullptr) return Status::kTorch;
  if (dynamic_cast<const std::length_error*>(&error) != nullptr) return Status::kInvalidArgument;
  return Status::kInternal;
}

}  // namespace accel::comm
