// SPDX-License-Identifier: Apache-2.0
// Job group: facts about the ranks of its group that a backend of ours knows, beside those of c10d. It also receives
// messages that are shorter than their tensors. Header only, because backends are plugins.
#pragma once

namespace accel::comm {

class JobGroup {
 public:
  JobGroup() = default;
  JobGroup(const JobGroup&) = delete;
  JobGroup& operator=(const JobGroup&) = delete;

  // Whether all ranks map what the backend allocates on the CPU, and gather it in place.
  virtual bool shares_memory() const = 0;
  // The number in the job that a rank of the group has.
  virtual int job_rank(int rank) const = 0;

 protected:
  ~JobGroup() = default;
};

}  // namespace accel::comm
