// SPDX-License-Identifier: Apache-2.0
// The tracker "tensorboard": event files that TensorBoard shows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "track/appended_file.hpp"
#include "track/record_sink.hpp"

namespace accel::track {

class Tensorboard final : public RecordSink {
 public:
  Tensorboard(Run run, const std::string& suffix);  // of the file's name
  std::string location() const override { return run_.folder; }
  void write(const Record& record) override;
  void flush(bool durable) override;
  size_t pending_bytes() const override { return file_.pending_bytes(); }
  void end(bool finished) override;

 private:
  void write_version();
  void write_values(const Record& record);
  void write_configuration(const Record& record);
  void write_summary(const Record& record);
  int64_t step_of(const Record& record);
  // Tells TensorBoard to drop what a former start of the run has of this step and later ones.
  void write_restart(int64_t step, double time);

  Run run_;
  AppendedFile file_;
  bool has_restarted_ = true;
  bool has_configuration_ = false;
  int64_t n_without_step_ = 0;
  std::string summary_;  // memory that is used again
  std::string event_;
  std::string value_;
};

}  // namespace accel::track
