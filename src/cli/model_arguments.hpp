// SPDX-License-Identifier: Apache-2.0
// The options of the commands of accel-models. `accel` has them, too: it shows their help without loading LibTorch.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace accel::program {

// How a folder becomes a model.
struct ModelArguments {
  std::string folder, dtype, device;
};

struct RunArguments {
  ModelArguments model;
  std::string prompt, system;
  bool has_prompt = false, is_chat = false;
  int64_t max_tokens = 256;
  double temperature = 0, top_p = 1, min_p = 0, repetition_penalty = 1;
  int64_t top_k = 0, seed = -1;
  std::vector<std::string> stops;
};

struct EmbedArguments {
  ModelArguments model;
  std::string file;  // "": standard input
  int64_t batch_size = 32;
  bool truncate = false;
};

struct ServeArguments {
  ModelArguments model;
  std::string name, host = "127.0.0.1";
  int port = 8000;
  int64_t max_sequences = 16, max_cached_tokens = 0, max_requests = 64, max_tokens = 4096, max_body_bytes = 4194304;
  int client_timeout = 30, stop_timeout = 30;
};

void declare_run(CLI::App& app, RunArguments& arguments);
void declare_embed(CLI::App& app, EmbedArguments& arguments);
void declare_serve(CLI::App& app, ServeArguments& arguments);

// Returns texts that need no model: the help, and the description of the command. Nothing: accel-models has to run.
std::optional<std::string> shown_of_models(const std::string& command, const std::vector<std::string>& arguments);

}  // namespace accel::program
