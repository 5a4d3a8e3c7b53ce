// SPDX-License-Identifier: Apache-2.0
// Generates text for many requests at a time: one thread runs the steps of a generation batch, and hands on the text of
// each sequence as it comes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <accel.hpp>
#include "cli/models/completion_answer.hpp"
#include "cli/models/completion_request.hpp"
#include "cli/models/loaded_model.hpp"
#include "cli/models/stop_text.hpp"

namespace accel::program {

struct GenerationSettings {
  std::int64_t max_tokens = 16;
  TokenSampling sampling;
  std::vector<std::string> stops;
  bool has_scores = false;
};

struct GenerationProgress {
  GeneratedText added;      // since the last time
  std::string error;        // not empty: the sequence has failed
  std::int64_t tokens = 0;  // new ones so far
  bool has_ended = false;
};

class TextGenerator {
 public:
  // Called on the generator's thread, while no sequence can be added or cancelled: it must not wait.
  using Listener = std::function<void(const GenerationProgress& progress)>;

  TextGenerator(LoadedModel model, const cpp::GenerationBatchOptions& options);
  TextGenerator(const TextGenerator&) = delete;
  TextGenerator& operator=(const TextGenerator&) = delete;
  // Sequences that go on end without a word.
  ~TextGenerator();

  // Any thread. cpp::Error INVALID_ARGUMENT for a prompt that is too long, or empty.
  std::int64_t add(const cpp::Tensor& prompt, const GenerationSettings& settings, Listener listener);
  // The listener is not called any more. Nothing happens to a sequence that has ended.
  void cancel(std::int64_t id);

 private:
  struct Sequence {
    cpp::DecodeStream stream;
    StopText stop;
    GenerationSettings settings;
    Listener listener;
    std::vector<TokenScore> scores;  // of text that is held back
    std::int64_t tokens = 0;
  };

  void run();
  void step(std::unique_lock<std::mutex>& lock);
  void take(const cpp::Value& token);
  void end_with_error(std::int64_t id, const std::string& error);
  void end_all_with_error(const std::string& error);
  std::string token_text(std::int64_t token) const;

  const LoadedModel model_;
  cpp::GenerationBatch batch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, Sequence> sequences_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace accel::program
