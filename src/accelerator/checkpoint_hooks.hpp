// Functions of the application that run before a training state is saved or loaded.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace accel::accelerator {

class CheckpointHooks {
 public:
  enum class When { kSave, kLoad };
  // Of each model its state when saving, its number when loading; None for one that neither is saved nor loaded.
  using Models = std::vector<c10::IValue>;
  // Returns such a list in its place, or None.
  using Hook = std::function<c10::IValue(const c10::IValue& models, const std::string& folder)>;

  int64_t add(When when, Hook hook);
  bool remove(int64_t id);  // false if it is not there
  bool empty(When when) const;

  // In the order in which they were added. kTypeMismatch for a list that cannot be.
  Models run(When when, Models models, const std::string& folder) const;

 private:
  struct Entry {
    int64_t id;
    When when;
    Hook hook;
  };
  std::vector<Entry> entries_;
  int64_t next_id_ = 0;
};

}  // namespace accel::accelerator
