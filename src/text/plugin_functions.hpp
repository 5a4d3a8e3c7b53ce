// SPDX-License-Identifier: Apache-2.0
// The C side of the plugin libaccel_tokenizers.so, whose other side is tokenizers/src/lib.rs. Functions return 0, or a
// PluginFailure after they have written an error. Texts need not end with a NUL, and live as long as a call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace accel::tokenizers {

inline constexpr uint32_t kPluginInterface = 1;
inline constexpr char kPluginSymbol[] = "accel_tokenizers_functions";

enum PluginFailure : int { kPluginInvalid = 1, kPluginPanic = 2 };

struct PluginVocabulary;

struct PluginText {
  const char* data;
  size_t size;
};

struct PluginSink {
  void (*write)(void* context, const char* data, size_t size);
  void* context;
};

struct PluginTexts {
  PluginText first, second;
  int is_pair;
};

struct PluginEncodeOptions {
  int add_special_tokens, parse_special_tokens, truncates_left;
  int offsets;  // 0: none, 1: bytes, 2: code points
  size_t max_length, threads;
};

// Gets one row after another.
struct PluginRowsSink {
  void (*write)(void* context, size_t count, const uint32_t* ids, const uint32_t* type_ids, const size_t* offsets);
  void* context;
  int with_offsets;
};

struct PluginFunctions {
  uint32_t interface_number;
  PluginVocabulary* (*parse)(PluginText json, PluginSink error);  // null on failure
  void (*destroy)(PluginVocabulary* vocabulary);
  int (*add_tokens)(PluginVocabulary* vocabulary, PluginText json, PluginSink error);
  int (*describe)(const PluginVocabulary* vocabulary, PluginSink out, PluginSink error);
  int (*encode)(const PluginVocabulary* vocabulary, const PluginTexts* texts, size_t count,
                const PluginEncodeOptions* options, PluginRowsSink* out, PluginSink error);
  int (*decode)(const PluginVocabulary* vocabulary, const uint32_t* ids, size_t count, int skip_special_tokens,
                PluginSink out, PluginSink error);
  int64_t (*token_to_id)(const PluginVocabulary* vocabulary, PluginText token);  // -1 if there is none
  int (*id_to_token)(const PluginVocabulary* vocabulary, uint32_t id, PluginSink out);
  int (*render)(PluginText chat_template, PluginText variables, uint64_t fuel, PluginSink out, PluginSink error);
};

}  // namespace accel::tokenizers
