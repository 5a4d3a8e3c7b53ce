// SPDX-License-Identifier: Apache-2.0
#include "cli/model_arguments.hpp"

#include <limits>

#include "cli/command_arguments.hpp"
#include "cli/command_description.hpp"

namespace accel::program {
namespace {

constexpr char kRunHelp[] =
    R"(Generates text with a model: it is written as it comes, and the tokens per second at the end, to standard error. FOLDER
has a config.json, weights and a tokenizer.json, as the hub of Hugging Face has them, or is a GGUF file of llama.cpp, which
has all of that inside.
)";

constexpr char kEmbedHelp[] =
    R"(Writes the embedding of each line of FILE, or of standard input: one line of JSON for each. FOLDER has an encoder such as
all-MiniLM-L6-v2: config.json, weights, tokenizer.json, and in 1_Pooling/config.json how tokens become one vector.
)";

constexpr char kServeHelp[] =
    R"(Serves the model of FOLDER, or of a GGUF file, by the routes of OpenAI: /v1/completions and /v1/chat/completions, whole or as streams, or for an encoder
/v1/embeddings; /v1/models and /health. Requests that come at a time are computed together (continuous batching). The
address is printed when the server is ready. SIGINT and SIGTERM let it finish the answers that it has begun; a second one
ends it at once.
)";

constexpr double kAboveZero = std::numeric_limits<double>::min();
constexpr int64_t kMostTokens = int64_t{1} << 40;

// The help says what matters of an interval.
template <typename T>
CLI::Validator in_range(T least, T greatest) {
  return CLI::Range(least, greatest).description("");
}

template <typename T>
CLI::Option* add_value(CLI::App& app, const char* names, T& value, const char* type, const char* description,
                       const char* group) {
  return app.add_option(names, value, description)->type_name(type)->group(group);
}

void declare_model(CLI::App& app, ModelArguments& arguments) {
  add_value(app, "--dtype", arguments.dtype, "NAME",
            "Dtype of the weights: float32, bfloat16 or float16. Default: that of config.json", "Model");
  add_value(
      app, "--device", arguments.device, "DEVICE",
      "Device that computes: cpu, or an accelerator such as xpu:0. Default: the accelerators of this machine, and what "
      "they have no room for in memory; without any, the CPU",
      "Model");
}

}  // namespace

void declare_run(CLI::App& app, RunArguments& arguments) {
  app.name("accel run")->description(kRunHelp);
  const auto add = [&app](const char* names, auto& value, const char* type, const char* description) {
    return add_value(app, names, value, type, description, "Text");
  };
  add("--prompt", arguments.prompt, "TEXT", "Text that the model continues; -: standard input");
  app.add_flag("--chat", arguments.is_chat,
               "Asks by the chat template of the tokenizer: the prompt is a user's message.")
      ->group("Text");
  add("--system", arguments.system, "TEXT", "System's message before the user's, with --chat. Default: none");
  add("--max-tokens,--max_tokens", arguments.max_tokens, "N", "Most new tokens. Default 256")
      ->check(in_range(int64_t{1}, kMostTokens));
  add("--temperature", arguments.temperature, "T", "Tokens are drawn at it; 0: the most likely ones. Default 0")
      ->check(in_range(0.0, 100.0));
  add("--top-p,--top_p", arguments.top_p, "P", "Only the most likely tokens that have this probability. Default 1")
      ->check(in_range(kAboveZero, 1.0));
  add("--top-k,--top_k", arguments.top_k, "K", "Only so many most likely tokens; 0: all. Default 0")
      ->check(in_range(int64_t{0}, kMostTokens));
  add("--min-p,--min_p", arguments.min_p, "P",
      "Only tokens with this part of the probability of the most likely one. Default 0")
      ->check(in_range(0.0, 1.0));
  add("--repetition-penalty,--repetition_penalty", arguments.repetition_penalty, "X",
      "Divides the scores of tokens that are there. Default 1")
      ->check(in_range(kAboveZero, 1e6));
  add("--seed", arguments.seed, "N", "Seed of the draws. Default: another one each time")
      ->check(in_range(int64_t{0}, std::numeric_limits<int64_t>::max()));
  add("--stop", arguments.stops, "TEXT", "Ends the text before this; may be given again. Default: none")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  declare_model(app, arguments.model);
  add_help(app, " FOLDER --prompt TEXT [OPTION ...]");
}

void declare_embed(CLI::App& app, EmbedArguments& arguments) {
  app.name("accel embed")->description(kEmbedHelp);
  add_value(app, "--batch-size,--batch_size", arguments.batch_size, "N", "Lines that are computed together. Default 32",
            "Text")
      ->check(in_range(int64_t{1}, int64_t{65536}));
  app.add_flag("--truncate", arguments.truncate,
               "Cuts lines that are longer than the model takes; else they are errors.")
      ->group("Text");
  declare_model(app, arguments.model);
  add_help(app, " FOLDER [FILE] [OPTION ...]");
}

void declare_serve(CLI::App& app, ServeArguments& arguments) {
  app.name("accel serve")->description(kServeHelp);
  const auto add = [&app](const char* group, const char* names, auto& value, const char* type,
                          const char* description) { return add_value(app, names, value, type, description, group); };
  add("Server", "--host", arguments.host, "ADDRESS",
      "Address of the server. Default 127.0.0.1, which other machines cannot reach. Whoever reaches another one can "
      "use "
      "the model");
  add("Server", "--port", arguments.port, "N", "Port of the server; 0: any that is free. Default 8000")
      ->check(in_range(0, 65535));
  add("Server", "--name", arguments.name, "NAME", "Name of the model in requests. Default: the last part of FOLDER");
  add("Limits", "--max-requests,--max_requests", arguments.max_requests, "N",
      "Requests that are answered or wait at a time; more get status 429. Default 64")
      ->check(in_range(int64_t{1}, int64_t{100000}));
  add("Limits", "--max-sequences,--max_sequences", arguments.max_sequences, "N",
      "Requests that get tokens at a time; others wait. Default 16")
      ->check(in_range(int64_t{1}, int64_t{65536}));
  add("Limits", "--max-cached-tokens,--max_cached_tokens", arguments.max_cached_tokens, "N",
      "Tokens whose keys and values are cached, of all requests; 0: as many as they need. Default 0")
      ->check(in_range(int64_t{0}, kMostTokens));
  add("Limits", "--max-tokens,--max_tokens", arguments.max_tokens, "N", "Most new tokens of a request. Default 4096")
      ->check(in_range(int64_t{1}, kMostTokens));
  add("Limits", "--max-body-bytes,--max_body_bytes", arguments.max_body_bytes, "N",
      "Most bytes of a request's body. Default 4194304")
      ->check(in_range(int64_t{1}, int64_t{1} << 30));
  add("Limits", "--client-timeout,--client_timeout", arguments.client_timeout, "SECONDS",
      "Time for a client to send its request, and to read what it has been sent. Default 30")
      ->check(in_range(1, 86400));
  add("Limits", "--stop-timeout,--stop_timeout", arguments.stop_timeout, "SECONDS",
      "Time for answers that have begun when the server gets SIGTERM. Default 30")
      ->check(in_range(0, 86400));
  declare_model(app, arguments.model);
  add_help(app, " FOLDER [OPTION ...]");
}

std::optional<std::string> shown_of_models(const std::string& command, const std::vector<std::string>& arguments) {
  if (arguments.size() != 1 || (arguments[0] != "--help" && arguments[0] != "-h" && arguments[0] != kDescribe))
    return std::nullopt;
  CLI::App app;
  RunArguments run;
  EmbedArguments embed;
  ServeArguments serve;
  if (command == "run")
    declare_run(app, run);
  else if (command == "embed")
    declare_embed(app, embed);
  else
    declare_serve(app, serve);
  return parse(app, arguments).shown;
}

}  // namespace accel::program
