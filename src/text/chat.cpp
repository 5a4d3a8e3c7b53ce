// SPDX-License-Identifier: Apache-2.0
// Chats as text: what a template gets, and which one it is.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "json/json_writer.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_plugin.hpp"

namespace accel::tokenizers {
namespace {

// Stands behind the last message, so that its end is found in the text. The space shows whether the template cuts
// spaces off.
constexpr std::string_view kEndMark = "CONTINUE_FINAL_MESSAGE_TAG ";

bool is_given(const Json& value) { return !value.is_null(); }

const std::string& chosen_template(const TokenizerConfig& config, const ChatSettings& settings,
                                   const ChatInputs& inputs) {
  const std::string& wanted = settings.chat_template.value;
  if (wanted.find('{') != std::string::npos) return wanted;
  const auto& known = config.chat_templates;
  const std::string name = !wanted.empty()                                          ? wanted
                           : is_given(inputs.tools) && known.count("tool_use") != 0 ? "tool_use"
                                                                                    : "default";
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& entry : known) names.push_back(entry.first);
  if (names.empty())
    fail(Status::kNotFound, "the tokenizer has no chat template; set chat_template to the text of one");
  std::string listed;
  for (const std::string& known_name : names) listed += (listed.empty() ? "\"" : ", \"") + known_name + "\"";
  fail(Status::kNotFound, "the tokenizer has no chat template \"", name, "\"; expected one of ", listed);
}

void require_list(const Json& value, const char* name) {
  require(value.items() != nullptr, Status::kTypeMismatch, name, " is not a list; expected a list of maps");
  for (const Json& item : *value.items())
    require(item.members() != nullptr, Status::kTypeMismatch, name,
            " has an item that is not a map; expected a list of maps");
}

std::string without_outer_spaces(const std::string& text) {
  constexpr const char* kSpaces = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kSpaces);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// The messages with the mark at the end of the last one, whose text is `last`.
Json marked_messages(const Json& messages, std::string& last) {
  Json::Items items = *messages.items();
  Json::Members message = *items.back().members();
  const auto mark = [&last](Json& value) {
    last = *value.text();
    value = Json(last + std::string(kEndMark));
  };
  const auto mark_part = [&mark](Json& part) {
    if (part.members() == nullptr) return false;
    Json::Members members = *part.members();
    for (auto& [key, value] : members) {
      if (key != "text" || value.text() == nullptr) continue;
      mark(value);
      part = Json(std::move(members));
      return true;
    }
    return false;
  };
  bool is_marked = false;
  for (auto& [key, value] : message) {
    if (key != "content") continue;
    if (value.text() != nullptr) {
      mark(value);
      is_marked = true;
    } else if (value.items() != nullptr) {
      Json::Items parts = *value.items();
      is_marked = std::any_of(parts.rbegin(), parts.rend(), mark_part);
      value = Json(std::move(parts));
    }
  }
  require(is_marked, Status::kInvalidArgument,
          "the last message has no text as its \"content\"; expected one to continue");
  items.back() = Json(std::move(message));
  return Json(std::move(items));
}

std::string variables_of(const TokenizerConfig& config, const ChatInputs& inputs, const Json& messages,
                         const ChatSettings& settings) {
  Json::Members members;
  const auto set = [&members](const std::string& name, Json value) {
    const auto found =
        std::find_if(members.begin(), members.end(), [&name](const auto& member) { return member.first == name; });
    if (found == members.end())
      members.emplace_back(name, std::move(value));
    else
      found->second = std::move(value);
  };
  for (const auto& [role, token] : config.special_tokens) set(role, Json(token));
  if (!config.additional_special_tokens.empty()) {
    Json::Items tokens;
    for (const std::string& token : config.additional_special_tokens) tokens.emplace_back(token);
    set("additional_special_tokens", Json(std::move(tokens)));
  }
  set("messages", messages);
  set("tools", inputs.tools);
  set("documents", inputs.documents);
  set("add_generation_prompt", Json(static_cast<bool>(settings.add_generation_prompt)));
  if (is_given(inputs.variables)) {
    require(inputs.variables.members() != nullptr, Status::kTypeMismatch, "variables is not a map; expected one");
    for (const auto& [name, value] : *inputs.variables.members()) set(name, value);
  }
  return print_json(Json(std::move(members)));
}

}  // namespace

std::string Tokenizer::chat_text(const ChatInputs& inputs, const ChatSettings& settings) const {
  require_list(inputs.messages, "messages");
  require(!inputs.messages.items()->empty(), Status::kInvalidArgument,
          "messages is empty; expected a message at least");
  if (is_given(inputs.tools)) require_list(inputs.tools, "tools");
  if (is_given(inputs.documents)) require_list(inputs.documents, "documents");
  require(!settings.add_generation_prompt || !settings.continue_final_message, Status::kInvalidArgument,
          "add_generation_prompt and continue_final_message are both 1; expected one of them, since an answer begins "
          "or goes on");
  const std::string& chosen = chosen_template(config_, settings, inputs);
  if (!settings.continue_final_message)
    return TokenizerPlugin::render(chosen, variables_of(config_, inputs, inputs.messages, settings));

  std::string last;
  const Json messages = marked_messages(inputs.messages, last);
  std::string rendered = TokenizerPlugin::render(chosen, variables_of(config_, inputs, messages, settings));
  const size_t end = rendered.rfind(without_outer_spaces(std::string(kEndMark)));
  require(end != std::string::npos && rendered.find(without_outer_spaces(last)) != std::string::npos,
          Status::kInvalidArgument,
          "the chat template leaves out the last message, or changes it; expected one that can be continued");
  const bool keeps_spaces = rendered.compare(end, kEndMark.size(), kEndMark) == 0;
  rendered.resize(end);
  if (!keeps_spaces) rendered.resize(rendered.find_last_not_of(" \t\n\r\f\v") + 1);
  return rendered;
}

std::vector<int64_t> Tokenizer::encode_chat(const ChatInputs& inputs, const ChatSettings& settings) const {
  const std::string rendered = chat_text(inputs, settings);
  EncodeSettings whole;
  whole.add_special_tokens.value = false;
  return encode({rendered, std::nullopt}, whole);
}

}  // namespace accel::tokenizers
