// SPDX-License-Identifier: Apache-2.0
// Section 9: datasets of the tokens of a tokenizer.
#include <memory>

#include "accel.h"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/calls/options.hpp"
#include "data/datasets/chat_dataset.hpp"
#include "data/datasets/sequences/encoded_text.hpp"
#include "data/datasets/sequences/window_dataset.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_dataset_encoded_text(const char* path, const char* suffix,
                                                         const accel_tokenizer_t* tokenizer, int64_t sequence_length,
                                                         accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    const tokenizers::Tokenizer& engine = *check(tokenizer, "tokenizer").tokenizer;
    return std::make_shared<data::WindowDataset>(
        data::encoded_text(check_pointer(path, "path"), optional_text(suffix), engine), sequence_length);
  });
}

ACCEL_FUNCTION accel_status_t accel_dataset_chats(const char* path, const char* suffix,
                                                  const accel_tokenizer_t* tokenizer, int64_t max_length,
                                                  int32_t skip_malformed, accel_dataset_t** out) {
  return guarded(__func__, out, [&] {
    return std::make_shared<data::ChatDataset>(check_pointer(path, "path"), optional_text(suffix),
                                               check(tokenizer, "tokenizer").tokenizer, max_length,
                                               read_flag(skip_malformed, "skip_malformed"));
  });
}

}  // namespace accel::capi
