// SPDX-License-Identifier: Apache-2.0
// print_yaml(): the form of Accelerate's own files, so that both read what the other wrote.
#include <yaml.h>

#include <algorithm>
#include <new>

#include "config/yaml_document.hpp"

namespace accel {
namespace {

// Without quotes, other readers would take these for no text: "no", "12:30", "2026-01-01". Addresses ("10.0.0.7") are
// nothing else.
bool needs_quotes(const std::string& text) {
  YamlNode node;
  node.text = text;
  if (json_of(node).text() == nullptr || text.find_first_of("=<") == 0) return true;
  const bool is_like_a_number = text.find_first_of("0123456789+-.") == 0 &&
                                text.find_first_not_of("0123456789abcdefABCDEFxXoO_:.+-TtZz ") == std::string::npos;
  const bool is_like_an_address =
      text.find_first_not_of("0123456789.") == std::string::npos && std::count(text.begin(), text.end(), '.') > 1;
  return is_like_a_number && !is_like_an_address;
}

class YamlEmitter {
 public:
  explicit YamlEmitter(std::string& written) {
    if (yaml_emitter_initialize(&emitter_) != 1) throw std::bad_alloc();
    yaml_emitter_set_output(
        &emitter_,
        [](void* out, unsigned char* bytes, size_t size) {
          static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(bytes), size);
          return 1;
        },
        &written);
    yaml_emitter_set_unicode(&emitter_, 1);
    yaml_emitter_set_width(&emitter_, -1);
  }
  YamlEmitter(const YamlEmitter&) = delete;
  YamlEmitter& operator=(const YamlEmitter&) = delete;
  ~YamlEmitter() { yaml_emitter_delete(&emitter_); }

  void document(const Json& value) {
    yaml_event_t event;
    emit(yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING), event);
    emit(yaml_document_start_event_initialize(&event, nullptr, nullptr, nullptr, 1), event);
    node(value);
    emit(yaml_document_end_event_initialize(&event, 1), event);
    emit(yaml_stream_end_event_initialize(&event), event);
  }

 private:
  // Nothing that is emitted here can be wrong, so what fails is memory.
  void emit(int is_made, yaml_event_t& event) {
    if (is_made != 1 || yaml_emitter_emit(&emitter_, &event) != 1) throw std::bad_alloc();
  }

  void scalar(const std::string& text, bool is_quoted) {
    yaml_event_t event;
    const auto* const bytes = reinterpret_cast<const yaml_char_t*>(text.data());
    emit(yaml_scalar_event_initialize(&event, nullptr, nullptr, bytes, static_cast<int>(text.size()), 1, 1,
                                      is_quoted ? YAML_SINGLE_QUOTED_SCALAR_STYLE : YAML_PLAIN_SCALAR_STYLE),
         event);
  }

  void node(const Json& value) {
    yaml_event_t event;
    if (const Json::Members* const members = value.members()) {
      emit(yaml_mapping_start_event_initialize(&event, nullptr, nullptr, 1, YAML_BLOCK_MAPPING_STYLE), event);
      for (const auto& [name, member] : *members) {
        scalar(name, needs_quotes(name));
        node(member);
      }
      emit(yaml_mapping_end_event_initialize(&event), event);
    } else if (const Json::Items* const items = value.items()) {
      emit(yaml_sequence_start_event_initialize(&event, nullptr, nullptr, 1, YAML_BLOCK_SEQUENCE_STYLE), event);
      for (const Json& item : *items) node(item);
      emit(yaml_sequence_end_event_initialize(&event), event);
    } else if (value.text() != nullptr) {
      scalar(*value.text(), needs_quotes(*value.text()));
    } else {
      scalar(value.is_null()           ? "null"
             : value.flag() == nullptr ? *value.digits()
             : *value.flag()           ? "true"
                                       : "false",
             false);
    }
  }

  yaml_emitter_t emitter_{};
};

}  // namespace

std::string print_yaml(const Json& value) {
  std::string written;
  YamlEmitter(written).document(value);
  return written;
}

}  // namespace accel
