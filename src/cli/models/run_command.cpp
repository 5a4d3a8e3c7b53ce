// SPDX-License-Identifier: Apache-2.0
// accel run: text by a model, as it comes.
#include <chrono>
#include <cstdio>
#include <future>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "cli/models/folder_argument.hpp"
#include "cli/models/loaded_model.hpp"
#include "cli/models/model_commands.hpp"
#include "cli/models/text_generator.hpp"
#include "json/json.hpp"

namespace accel::program {
namespace {

using Clock = std::chrono::steady_clock;

std::string prompt_text(const RunArguments& arguments) {
  if (arguments.prompt != "-") return arguments.prompt;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

cpp::Tensor prompt_tokens(const cpp::Tokenizer& tokenizer, const RunArguments& arguments) {
  const std::string prompt = prompt_text(arguments);
  if (!arguments.is_chat) return tokenizer.encode(cpp::Value::bytes(prompt));
  std::vector<cpp::Value> messages;
  const auto add = [&messages](const char* role, const std::string& content) {
    messages.push_back(cpp::Value::map({{"role", role}, {"content", content}}));
  };
  if (!arguments.system.empty()) add("system", arguments.system);
  add("user", prompt);
  cpp::ChatOptions options;
  options.add_generation_prompt = 1;
  return tokenizer.encode_chat(cpp::Value::list(messages), options);
}

GenerationSettings settings_of(const RunArguments& arguments) {
  GenerationSettings settings;
  settings.max_tokens = arguments.max_tokens;
  settings.stops = arguments.stops;
  settings.sampling.temperature = arguments.temperature;
  settings.sampling.top_p = arguments.top_p;
  settings.sampling.top_k = arguments.top_k;
  settings.sampling.min_p = arguments.min_p;
  settings.sampling.repetition_penalty = arguments.repetition_penalty;
  if (arguments.seed >= 0) settings.sampling.seed = arguments.seed;
  return settings;
}

// Prints the text of one sequence, and what it took.
class PrintedText {
 public:
  void take(const GenerationProgress& progress) {
    if (tokens_ == 0) first_ = Clock::now();
    tokens_ = progress.tokens;
    std::fwrite(progress.added.text.data(), 1, progress.added.text.size(), stdout);
    std::fflush(stdout);
    if (progress.has_ended) ended_.set_value(progress.error);
  }
  // The error of the sequence; "": it has ended well.
  std::string wait() { return ended_.get_future().get(); }
  void print_speed(Clock::time_point began, std::int64_t prompt) const {
    const double until_first = std::chrono::duration<double>(first_ - began).count();
    const double all = std::chrono::duration<double>(Clock::now() - began).count();
    std::fprintf(stderr, "\n%lld tokens after %lld of the prompt: first after %.3f s, all %.1f tokens/s\n",
                 static_cast<long long>(tokens_), static_cast<long long>(prompt), until_first,
                 static_cast<double>(tokens_) / all);
  }

 private:
  std::int64_t tokens_ = 0;
  Clock::time_point first_;
  std::promise<std::string> ended_;
};

}  // namespace

int run_text(const std::vector<std::string>& arguments) {
  CLI::App app;
  RunArguments given;
  declare_run(app, given);
  const ParsedArguments parsed = parse_anywhere(app, arguments);
  if (is_shown(parsed)) return 0;
  take_folder(app, parsed, given.model.folder, 0);
  if (given.prompt.empty())
    throw std::invalid_argument("there is no --prompt; expected a text, or - for standard input");
  if (!given.system.empty() && !given.is_chat)
    throw std::invalid_argument("--system is given; expected --chat beside it");
  const LoadedModel model = load_decoder(given.model, "accel run");
  const cpp::Tensor prompt = prompt_tokens(model.tokenizer, given);
  PrintedText printed;
  TextGenerator generator(model, {});
  const Clock::time_point began = Clock::now();
  generator.add(prompt, settings_of(given), [&printed](const GenerationProgress& progress) { printed.take(progress); });
  if (const std::string error = printed.wait(); !error.empty()) throw std::runtime_error(error);
  printed.print_speed(began, prompt.numel());
  return 0;
}

}  // namespace accel::program
