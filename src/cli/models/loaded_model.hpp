// SPDX-License-Identifier: Apache-2.0
// Models in folders, as the hub of Hugging Face has them, and in GGUF files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <accel.hpp>
#include "cli/model_arguments.hpp"

namespace accel::program {

struct LoadedModel {
  cpp::Module module;
  cpp::Tokenizer tokenizer;
  bool gives_embeddings = false;         // else it is a decoder
  std::vector<std::int64_t> end_tokens;  // that end an answer
  std::int64_t max_positions = 0;        // 0: unknown
  std::int64_t vocabulary = 0;           // rows of the embedding; 0: unknown
};

// A text of the library, which is BYTES where it has a NUL.
std::string text_of_value(const cpp::Value& value);

// cpp::Error INVALID_ARGUMENT for ids that the embedding of the model does not have: a call with them would fail all
// that are computed with it.
void require_tokens(const cpp::Tensor& ids, const LoadedModel& model);

// cpp::Error says what the folder or file lacks, and how to get it.
LoadedModel load_model(const ModelArguments& arguments);

// Loads a model that generates text. cpp::Error UNSUPPORTED for an encoder, which `command` cannot use.
LoadedModel load_decoder(const ModelArguments& arguments, const std::string& command);
// Loads a model that gives embeddings.
LoadedModel load_encoder(const ModelArguments& arguments, const std::string& command);

}  // namespace accel::program
