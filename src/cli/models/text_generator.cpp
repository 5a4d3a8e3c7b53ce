// SPDX-License-Identifier: Apache-2.0
#include "cli/models/text_generator.hpp"

#include <utility>

namespace accel::program {
namespace {

cpp::GenerateOptions options_of(const GenerationSettings& settings, const cpp::Value& end_tokens) {
  const TokenSampling& sampling = settings.sampling;
  cpp::GenerateOptions options;
  options.max_new_tokens = settings.max_tokens;
  options.repetition_penalty = sampling.repetition_penalty;
  options.stop_tokens = end_tokens.get();
  if (sampling.temperature > 0) {
    options.sample = 1;
    options.temperature = sampling.temperature;
    options.top_k = sampling.top_k;
    options.top_p = sampling.top_p;
    options.min_p = sampling.min_p;
    if (sampling.seed) options.seed = *sampling.seed;
  }
  return options;
}

}  // namespace

TextGenerator::TextGenerator(LoadedModel model, const cpp::GenerationBatchOptions& options)
    : model_(std::move(model)),
      batch_(cpp::GenerationBatch::create(model_.module, options)),
      thread_([this] { run(); }) {}

TextGenerator::~TextGenerator() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::int64_t TextGenerator::add(const cpp::Tensor& prompt, const GenerationSettings& settings, Listener listener) {
  const cpp::Value end_tokens =
      cpp::Value::list(std::vector<cpp::Value>(model_.end_tokens.begin(), model_.end_tokens.end()));
  require_tokens(prompt, model_);
  cpp::DecodeOptions decoding;
  decoding.skip_special_tokens = 1;
  decoding.clean_up_spaces = 0;
  Sequence sequence{cpp::DecodeStream::create(model_.tokenizer, decoding),
                    StopText(settings.stops),
                    settings,
                    std::move(listener),
                    {},
                    0};
  // The thread takes the tokens of a step under the lock, and so finds the sequence.
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::int64_t id = batch_.add(prompt, options_of(settings, end_tokens));
  sequences_.emplace(id, std::move(sequence));
  changed_.notify_all();
  return id;
}

void TextGenerator::cancel(std::int64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (sequences_.erase(id) == 0) return;
  accel_status_t ignored = accel_generation_batch_cancel(batch_.get(), id);  // it may have ended in this step
  (void)ignored;
}

void TextGenerator::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_ending_ || !sequences_.empty(); });
    if (is_ending_) return;
    step(lock);
  }
}

void TextGenerator::step(std::unique_lock<std::mutex>& lock) {
  cpp::Value tokens;
  std::string error;
  lock.unlock();
  try {
    tokens = batch_.step();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  lock.lock();
  if (!error.empty()) {
    end_all_with_error(error);
    return;
  }
  for (const cpp::Value& token : tokens.items()) take(token);
  if (tokens.size() > 0 || sequences_.empty()) return;
  const cpp::Value counts = batch_.info();
  if (counts.at("running").integer() + counts.at("waiting").integer() == 0)
    end_all_with_error("the sequence has ended without a token");
}

void TextGenerator::take(const cpp::Value& token) {
  const std::int64_t id = token.at("id").integer();
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence& sequence = found->second;
  std::string end = token.at("end").string();
  if (end == "failed") {
    end_with_error(id, token.at("error").string());
    return;
  }
  const std::int64_t number = token.at("token").integer();
  const bool goes_on = end.empty(), is_end_token = end == "stop";
  ++sequence.tokens;
  GenerationProgress progress;
  try {
    if (sequence.settings.has_scores && !is_end_token)
      sequence.scores.push_back({token_text(number), token.at("log_probability").number()});
    if (!is_end_token) progress.added.text = sequence.stop.add(text_of_value(sequence.stream.step(number)));
    if (!end.empty() && !sequence.stop.has_stopped()) {
      progress.added.text += sequence.stop.add(text_of_value(sequence.stream.finish()));
      progress.added.text += sequence.stop.finish();
    }
  } catch (const std::exception& failure) {
    end_with_error(id, failure.what());
    return;
  }
  if (sequence.stop.has_stopped()) end = "stop";
  if (end.empty() && progress.added.text.empty()) return;
  progress.added.scores = std::exchange(sequence.scores, {});
  progress.added.finish_reason = end;
  progress.tokens = sequence.tokens;
  progress.has_ended = !end.empty();
  sequence.listener(progress);
  if (!progress.has_ended) return;
  sequences_.erase(found);
  if (goes_on) batch_.cancel(id);  // its text was stopped
}

void TextGenerator::end_with_error(std::int64_t id, const std::string& error) {
  const auto found = sequences_.find(id);
  GenerationProgress progress;
  progress.error = error;
  progress.tokens = found->second.tokens;
  progress.has_ended = true;
  found->second.listener(progress);
  sequences_.erase(found);
  accel_status_t ignored = accel_generation_batch_cancel(batch_.get(), id);
  (void)ignored;
}

void TextGenerator::end_all_with_error(const std::string& error) {
  while (!sequences_.empty()) end_with_error(sequences_.begin()->first, error);
}

std::string TextGenerator::token_text(std::int64_t token) const {
  return text_of_value(model_.tokenizer.decode(cpp::Tensor::from_data(&token, {1}, ACCEL_DTYPE_INT64)));
}

}  // namespace accel::program
