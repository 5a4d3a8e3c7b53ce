// SPDX-License-Identifier: Apache-2.0
#pragma once

// While one lives, its thread has no memory: operator new fails, also in the library.
class NoMemory {
 public:
  NoMemory();
  ~NoMemory();
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
};
