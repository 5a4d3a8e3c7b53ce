// SPDX-License-Identifier: Apache-2.0
#include "nn/generation/continuous_batch.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "nn/generation/paged_decoder.hpp"
#include "nn/generation/speculation.hpp"
#include "tensor/device/generator.hpp"

namespace accel::nn {

constexpr int64_t kUnlimited = INT64_MAX, kMostNewTokens = int64_t{1} << 40;

// A sequence that waits or gets tokens.
struct BatchSequence {
  int64_t id = 0;
  std::vector<int64_t> tokens;
  size_t prompt_length = 0;
  GenerationSettings settings;
  int64_t reserved = 0;  // positions of the cache
  std::unique_ptr<CachedSequence> cache;
  std::optional<at::Generator> generator;
  Guesses guesses;  // of the step
  std::atomic<bool> is_cancelled{false};

  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - cache->length(); }
  int64_t num_new() const { return static_cast<int64_t>(tokens.size() - prompt_length); }
};
using BatchSequencePtr = std::shared_ptr<BatchSequence>;

// The cache of a sequence that has ended.
struct EndedPrompt {
  std::vector<int64_t> tokens;
  std::unique_ptr<CachedSequence> cache;
};

const char* sequence_end_name(SequenceEnd end) {
  switch (end) {
    case SequenceEnd::kStop:
      return "stop";
    case SequenceEnd::kLength:
      return "length";
    case SequenceEnd::kFailed:
      return "failed";
    default:
      return "";
  }
}

class ContinuousBatch::Running {
 public:
  Running(ModulePtr module, const BatchLimits& limits) : module_(module), decoder_(std::move(module)), limits_(limits) {
    const auto check = [](bool holds, const char* name, int64_t value, const char* expected) {
      require(holds, Status::kInvalidArgument, name, " is ", value, "; expected ", expected);
    };
    check(limits.max_sequences >= 1, "max_sequences", limits.max_sequences, "1 or more");
    check(limits.max_cached_tokens >= 0, "max_cached_tokens", limits.max_cached_tokens, "0 or more");
    check(limits.max_prompt_tokens >= 1, "max_prompt_tokens", limits.max_prompt_tokens, "1 or more");
    require_evaluation(*module_);
  }

  int64_t add(std::vector<int64_t> prompt, const GenerationSettings& settings) {
    check_generation(settings);
    check_unsuppressed(settings);
    require(settings.speculation.draft == nullptr, Status::kUnsupported,
            "draft_model is given for a sequence of a batch; expected lookup_tokens, or accel_module_generate()");
    require(!prompt.empty(), Status::kShapeMismatch, "input_ids has no token; expected one or more");
    decoder_.require_positions(static_cast<int64_t>(prompt.size()));
    auto sequence = std::make_shared<BatchSequence>();
    sequence->prompt_length = prompt.size();
    sequence->tokens = std::move(prompt);
    sequence->settings = settings;
    sequence->reserved = needed_positions(*sequence);
    require(sequence->reserved <= capacity(), Status::kInvalidArgument, "a prompt of ", sequence->prompt_length,
            " tokens and max_new_tokens ", settings.max_new_tokens, " need ", sequence->reserved,
            " positions of the cache; expected at most max_cached_tokens, ", capacity());
    const std::lock_guard<std::mutex> lock(mutex_);
    sequence->id = next_id_++;
    waiting_.push_back(sequence);
    return sequence->id;
  }

  bool cancel(int64_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto has_id = [id](const BatchSequencePtr& sequence) { return sequence->id == id; };
    const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), has_id);
    if (waiting != waiting_.end()) {
      waiting_.erase(waiting);
      return true;
    }
    const auto running = std::find_if(running_.begin(), running_.end(), has_id);
    return running != running_.end() && !(*running)->is_cancelled.exchange(true);
  }

  BatchCounts counts() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    BatchCounts counts = counts_;
    counts.running = std::count_if(running_.begin(), running_.end(),
                                   [](const BatchSequencePtr& sequence) { return !sequence->is_cancelled; });
    counts.waiting = static_cast<int64_t>(waiting_.size());
    return counts;
  }

  std::vector<NewToken> step() {
    require_evaluation(*module_);
    const at::NoGradGuard no_grad;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      end_if([](const BatchSequence& sequence) { return sequence.is_cancelled.load(); });
      admit();
    }
    std::vector<BatchSequence*> asked;  // whose scores are computed
    std::vector<PagedDecoder::Part> parts = plan(asked);
    if (parts.empty()) return {};
    at::Tensor scores;
    try {
      scores = decoder_.scores(parts);
    } catch (...) {
      drop_computed(parts);
      throw;
    }
    std::vector<NewToken> tokens = choose(scores, asked);
    finish(tokens);
    return tokens;
  }

 private:
  int64_t capacity() const { return limits_.max_cached_tokens == 0 ? kUnlimited : limits_.max_cached_tokens; }

  // With whole blocks; the first one may be a copy of a shared one.
  int64_t needed_positions(const BatchSequence& sequence) const {
    const SpeculationSettings& speculation = sequence.settings.speculation;
    int64_t length = static_cast<int64_t>(sequence.prompt_length) +
                     std::min(sequence.settings.max_new_tokens, kMostNewTokens) +
                     (speculation.guesses() ? speculation.tokens : 0);
    if (decoder_.max_positions() != 0) length = std::min(length, decoder_.max_positions());
    return (length + kCacheBlock - 1) / kCacheBlock * kCacheBlock;
  }

  template <typename Condition>
  void end_if(const Condition& ends) {
    const auto first = std::stable_partition(running_.begin(), running_.end(),
                                             [&](const BatchSequencePtr& sequence) { return !ends(*sequence); });
    for (auto it = first; it != running_.end(); ++it) {
      BatchSequence& sequence = **it;
      reserved_ -= sequence.reserved;
      if (!limits_.reuses_prompts || sequence.cache == nullptr || sequence.cache->length() == 0) continue;
      sequence.tokens.resize(static_cast<size_t>(sequence.cache->length()));
      ended_.push_back({std::move(sequence.tokens), std::move(sequence.cache)});
    }
    running_.erase(first, running_.end());
    forget_prompts(0);
    count_cache();
  }

  void count_cache() {
    int64_t cached = 0;
    for (const BatchSequencePtr& sequence : running_) cached += sequence->reserved;
    for (const EndedPrompt& prompt : ended_) cached += prompt.cache->length();
    counts_.cached_tokens = cached;
  }

  // Until so many positions have room beside those that are reserved.
  void forget_prompts(int64_t needed) {
    int64_t kept = 0;
    for (const EndedPrompt& prompt : ended_) kept += prompt.cache->length() + kCacheBlock;
    while (!ended_.empty() &&
           (static_cast<int64_t>(ended_.size()) > limits_.max_sequences || reserved_ + needed > capacity() - kept)) {
      kept -= ended_.front().cache->length() + kCacheBlock;
      ended_.pop_front();
    }
  }

  void admit() {
    while (!waiting_.empty() && static_cast<int64_t>(running_.size()) < limits_.max_sequences &&
           reserved_ <= capacity() - waiting_.front()->reserved) {
      const BatchSequencePtr sequence = waiting_.front();
      waiting_.pop_front();
      begin(*sequence);
      forget_prompts(sequence->reserved);
      reserved_ += sequence->reserved;
      running_.push_back(sequence);
    }
    count_cache();
  }

  // With the longest beginning of its prompt that the cache has. Its last token is computed for its scores.
  void begin(BatchSequence& sequence) {
    const auto most = static_cast<int64_t>(sequence.prompt_length) - 1;
    const CachedSequence* longest = nullptr;
    int64_t length = 0;
    const auto compare = [&](const std::vector<int64_t>& tokens, const CachedSequence* cache) {
      if (cache == nullptr) return;
      const int64_t common = std::min({common_length(sequence.tokens, tokens), most, cache->length()});
      if (common <= length) return;
      longest = cache;
      length = common;
    };
    if (limits_.reuses_prompts) {
      for (const BatchSequencePtr& other : running_) compare(other->tokens, other->cache.get());
      for (const EndedPrompt& ended : ended_) compare(ended.tokens, ended.cache.get());
    }
    if (longest != nullptr) sequence.cache = longest->fork(length);
    if (sequence.cache != nullptr)
      counts_.reused_tokens += length;
    else
      sequence.cache = decoder_.new_sequence();
    if (sequence.settings.seed) sequence.generator = tensor::new_generator(*sequence.settings.seed, decoder_.device());
  }

  std::vector<PagedDecoder::Part> plan(std::vector<BatchSequence*>& asked) {
    std::vector<PagedDecoder::Part> parts;
    int64_t room = limits_.max_prompt_tokens;
    for (const BatchSequencePtr& sequence : running_) {
      int64_t count = sequence->pending();
      const auto begin = sequence->tokens.begin() + sequence->cache->length();
      if (count > 1) {
        count = std::min(count, room);
        room -= count;
        if (count == 0) continue;
      }
      std::vector<int64_t> tokens(begin, begin + count);
      const bool is_asked = begin + count == sequence->tokens.end();
      sequence->guesses = is_asked ? guess(*sequence) : Guesses();
      tokens.insert(tokens.end(), sequence->guesses.tokens.begin(), sequence->guesses.tokens.end());
      const int64_t wanted = is_asked ? 1 + static_cast<int64_t>(sequence->guesses.tokens.size()) : 0;
      parts.push_back({sequence->cache.get(), tokens_tensor(tokens, decoder_.device()), wanted});
      if (is_asked) asked.push_back(sequence.get());
    }
    return parts;
  }

  Guesses guess(const BatchSequence& sequence) const {
    const SpeculationSettings& speculation = sequence.settings.speculation;
    if (!speculation.guesses()) return {};
    int64_t count = std::min(speculation.tokens, sequence.settings.max_new_tokens - sequence.num_new() - 1);
    if (decoder_.max_positions() != 0)
      count = std::min(count, decoder_.max_positions() - static_cast<int64_t>(sequence.tokens.size()));
    return count < 1 ? Guesses() : look_up(sequence.tokens, speculation.lookup_tokens, count);
  }

  void drop_computed(const std::vector<PagedDecoder::Part>& parts) {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_if([&](const BatchSequence& sequence) {
      return std::any_of(parts.begin(), parts.end(),
                         [&](const PagedDecoder::Part& part) { return part.sequence == sequence.cache.get(); });
    });
  }

  std::vector<NewToken> choose(const at::Tensor& scores, const std::vector<BatchSequence*>& asked) {
    std::vector<NewToken> tokens;
    const at::Tensor simple = choose_simple(scores, asked);
    const double* simple_row = simple.defined() ? simple.const_data_ptr<double>() : nullptr;
    int64_t first = 0;
    for (BatchSequence* const sequence : asked) {
      const auto count = static_cast<int64_t>(sequence->guesses.tokens.size()) + 1;
      if (is_simple(*sequence)) {
        take(*sequence,
             std::isnan(simple_row[0]) ? NextTokens()
                                       : NextTokens{{static_cast<int64_t>(simple_row[1])}, {simple_row[0]}},
             tokens);
        simple_row += 2;
      } else {
        NextTokens next;
        try {
          next = next_tokens(scores.narrow(0, first, count), sequence->tokens, sequence->guesses,
                             sequence->settings.choice, sequence->generator);
        } catch (const Error& error) {
          if (error.status() != Status::kInvalidState) throw;
        }
        take(*sequence, next, tokens);
      }
      first += count;
    }
    return tokens;
  }

  // One token, the most likely one.
  static bool is_simple(const BatchSequence& sequence) {
    const TokenChoiceSettings& choice = sequence.settings.choice;
    return !choice.samples && choice.repetition_penalty == 1 && sequence.guesses.tokens.empty();
  }

  // The log-probability and the token of each such sequence, float64 [sequences, 2].
  static at::Tensor choose_simple(const at::Tensor& scores, const std::vector<BatchSequence*>& asked) {
    std::vector<int64_t> rows;
    int64_t first = 0;
    for (const BatchSequence* const sequence : asked) {
      if (is_simple(*sequence)) rows.push_back(first);
      first += static_cast<int64_t>(sequence->guesses.tokens.size()) + 1;
    }
    if (rows.empty()) return {};
    const at::Tensor chosen = static_cast<int64_t>(rows.size()) == scores.size(0)
                                  ? scores
                                  : at::index_select(scores, 0, tokens_tensor(rows, scores.device()));
    const at::Tensor likely = token_log_probabilities(chosen, {}, {}, {});
    const auto [best, tokens] = likely.max(1);
    return at::stack({best.to(at::kDouble), tokens.to(at::kDouble)}, 1).cpu();
  }

  // No tokens: the scores are not finite.
  void take(BatchSequence& sequence, const NextTokens& next, std::vector<NewToken>& tokens) {
    if (next.tokens.empty()) {
      sequence.cache.reset();  // its keys may not be finite either
      tokens.push_back({sequence.id, -1, 0, SequenceEnd::kFailed,
                        "the model gave scores that are not finite; expected weights without NaN"});
      return;
    }
    counted_guesses_ += static_cast<int64_t>(sequence.guesses.tokens.size());
    counted_right_ += static_cast<int64_t>(next.tokens.size()) - 1;
    SequenceEnd end = SequenceEnd::kNone;
    for (size_t i = 0; i < next.tokens.size() && end == SequenceEnd::kNone; i++) {
      sequence.tokens.push_back(next.tokens[i]);
      const auto length = static_cast<int64_t>(sequence.tokens.size());
      if (ends_with_stop(sequence.tokens, sequence.prompt_length, sequence.settings))
        end = SequenceEnd::kStop;
      else if (sequence.num_new() >= sequence.settings.max_new_tokens ||
               (decoder_.max_positions() != 0 && length > decoder_.max_positions()))
        end = SequenceEnd::kLength;
      tokens.push_back({sequence.id, next.tokens[i], next.log_probabilities[i], end, ""});
    }
    // The last token is not computed yet, and wrong guesses are forgotten.
    sequence.cache->truncate(static_cast<int64_t>(sequence.tokens.size()) - 1);
  }

  void finish(std::vector<NewToken>& tokens) {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.guessed_tokens += std::exchange(counted_guesses_, 0);
    counts_.accepted_tokens += std::exchange(counted_right_, 0);
    const auto is_cancelled = [&](int64_t id) {
      return std::any_of(running_.begin(), running_.end(), [id](const BatchSequencePtr& sequence) {
        return sequence->id == id && sequence->is_cancelled;
      });
    };
    tokens.erase(std::remove_if(tokens.begin(), tokens.end(),
                                [&](const NewToken& token) { return is_cancelled(token.sequence); }),
                 tokens.end());
    end_if([&](const BatchSequence& sequence) {
      return sequence.is_cancelled || std::any_of(tokens.begin(), tokens.end(), [&](const NewToken& token) {
               return token.sequence == sequence.id && token.end != SequenceEnd::kNone;
             });
    });
  }

  ModulePtr module_;
  PagedDecoder decoder_;
  BatchLimits limits_;
  mutable std::mutex mutex_;  // for what add(), cancel() and counts() read
  std::deque<BatchSequencePtr> waiting_;
  std::vector<BatchSequencePtr> running_;
  BatchCounts counts_;
  int64_t next_id_ = 0;
  // For the thread that runs the steps.
  std::deque<EndedPrompt> ended_;  // the oldest first
  int64_t reserved_ = 0;           // positions, of running sequences
  int64_t counted_guesses_ = 0, counted_right_ = 0;
};

ContinuousBatch::ContinuousBatch(ModulePtr module, const BatchLimits& limits)
    : running_(std::make_unique<Running>(std::move(module), limits)) {}
ContinuousBatch::~ContinuousBatch() = default;

int64_t ContinuousBatch::add(std::vector<int64_t> prompt, const GenerationSettings& settings) {
  return running_->add(std::move(prompt), settings);
}

bool ContinuousBatch::cancel(int64_t sequence) { return running_->cancel(sequence); }

std::vector<NewToken> ContinuousBatch::step() { return running_->step(); }

BatchCounts ContinuousBatch::counts() const { return running_->counts(); }

}  // namespace accel::nn
