// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_config.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "json/json.hpp"
#include "os/file_bytes.hpp"
#include "os/list_folder.hpp"

namespace accel::tokenizers {
namespace {

constexpr const char* kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};
constexpr char kDefaultTemplate[] = "default";
constexpr char kTemplateEnd[] = ".jinja";
// Above, model_max_length stands for "unknown".
constexpr double kLongestModel = 1e15;

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::string whole_file(const std::string& path) { return std::string(FileBytes(path).text()); }

AddedToken read_added_token(const Json& token, const std::string& where) {
  AddedToken read;
  if (const std::string* const text = token.text()) {
    read.content = *text;
    return read;
  }
  require(token.members() != nullptr, Status::kInvalidArgument, where,
          " is neither a text nor an object; expected a token");
  read.content = json_text(token, "content", "");
  require(!read.content.empty(), Status::kInvalidArgument, where, " has no \"content\"; expected the text of a token");
  read.special = json_flag(token, "special", false);
  read.single_word = json_flag(token, "single_word", false);
  read.lstrip = json_flag(token, "lstrip", false);
  read.rstrip = json_flag(token, "rstrip", false);
  read.normalized = json_flag(token, "normalized", !read.special);
  return read;
}

const Json* member_that_is(const Json& object, std::string_view key) {
  const Json* const found = json_member(object, key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

// A text that stands in a list once is not added again.
void add_new(std::vector<std::string>& list, std::string text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

// Reads tokenizer_config.json, or special_tokens_map.json behind it.
void read_special_tokens(TokenizerConfig& config, const Json& document, const std::string& source) {
  for (const char* const role : kRoles) {
    const Json* const token = member_that_is(document, role);
    if (token == nullptr || config.special_token(role) != nullptr) continue;
    config.special_tokens.emplace_back(role, read_added_token(*token, text(source, ": ", role)).content);
  }
  for (const char* const key : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* const tokens = member_that_is(document, key);
    if (tokens == nullptr) continue;
    const std::string where = text(source, ": ", key);
    if (const Json::Members* const named = tokens->members()) {
      // A token with a role of its own, which templates may ask for.
      for (const auto& [role, token] : *named)
        if (config.special_token(role) == nullptr)
          config.special_tokens.emplace_back(role, read_added_token(token, where).content);
      continue;
    }
    require(tokens->items() != nullptr, Status::kInvalidArgument, where, " is not a list; expected tokens");
    for (const Json& token : *tokens->items())
      add_new(config.additional_special_tokens, read_added_token(token, where).content);
  }
}

void read_added_tokens(TokenizerConfig& config, const Json& document, const std::string& source) {
  const Json* const added = member_that_is(document, "added_tokens_decoder");
  if (added == nullptr) return;
  require(added->members() != nullptr, Status::kInvalidArgument, source,
          ": added_tokens_decoder is not an object; expected tokens by their ids");
  for (const auto& [id, token] : *added->members()) {
    AddedToken read = read_added_token(token, text(source, ": added_tokens_decoder[\"", id, "\"]"));
    read.id = Json::number_of(id).integer();
    require(read.id.has_value() && *read.id >= 0, Status::kInvalidArgument, source,
            ": added_tokens_decoder has the key \"", id, "\"; expected an id");
    config.added_tokens.push_back(std::move(read));
  }
}

void read_chat_templates(TokenizerConfig& config, const Json& document, const std::string& source) {
  const Json* const given = member_that_is(document, "chat_template");
  if (given == nullptr) return;
  if (const std::string* const text = given->text()) {
    config.chat_templates[kDefaultTemplate] = *text;
    return;
  }
  require(
      given->items() != nullptr, Status::kInvalidArgument, source,
      ": chat_template is neither a text nor a list; expected a template, or objects with \"name\" and \"template\"");
  for (const Json& named : *given->items()) {
    const Json* const name = named.members() == nullptr ? nullptr : member_that_is(named, "name");
    const Json* const body = named.members() == nullptr ? nullptr : member_that_is(named, "template");
    require(name != nullptr && body != nullptr && name->text() != nullptr && body->text() != nullptr,
            Status::kInvalidArgument, source,
            ": an item of chat_template lacks \"name\" or \"template\"; expected two texts");
    config.chat_templates[*name->text()] = *body->text();
  }
}

PaddingSide read_side(const Json& document, const char* key, const std::string& source) {
  const std::string side = json_text(document, key, "right");
  require(side == "right" || side == "left", Status::kInvalidArgument, source, ": ", key, " is \"", side,
          "\"; expected \"right\" or \"left\"");
  return side == "left" ? PaddingSide::kLeft : PaddingSide::kRight;
}

void read_model_inputs(TokenizerConfig& config, const Json& document, const std::string& source) {
  const Json* const names = member_that_is(document, "model_input_names");
  if (names == nullptr) return;
  require(names->items() != nullptr, Status::kInvalidArgument, source,
          ": model_input_names is not a list; expected names");
  for (const Json& name : *names->items()) {
    require(name.text() != nullptr, Status::kInvalidArgument, source,
            ": model_input_names has an item that is not a text");
    config.model_input_names.push_back(*name.text());
  }
}

void read_generation_config(TokenizerConfig& config, const Json& document, const std::string& source) {
  const Json* const ends = member_that_is(document, "eos_token_id");
  if (ends == nullptr) return;
  const Json::Items one{*ends};
  for (const Json& id : ends->items() == nullptr ? one : *ends->items()) {
    const auto number = id.integer();
    require(number.has_value(), Status::kInvalidArgument, source,
            ": eos_token_id has an item that is not an integer; expected ids");
    config.end_token_ids.push_back(*number);
  }
}

// Files of a folder by hand of older programs: {"token": id}.
void read_added_tokens_file(TokenizerConfig& config, const Json& document, const std::string& source) {
  require(document.members() != nullptr, Status::kInvalidArgument, source, " is not an object; expected ids by tokens");
  for (const auto& [token, id] : *document.members()) {
    AddedToken read;
    read.content = token;
    read.special = false;
    read.normalized = true;
    read.id = id.integer();
    require(read.id.has_value(), Status::kInvalidArgument, source, ": the id of \"", token, "\" is not an integer");
    const auto is_known = [&token = token](const AddedToken& other) { return other.content == token; };
    if (std::none_of(config.added_tokens.begin(), config.added_tokens.end(), is_known))
      config.added_tokens.push_back(std::move(read));
  }
}

void read_template_files(TokenizerConfig& config, const std::string& folder) {
  const std::string file = folder + "/chat_template.jinja", more = folder + "/additional_chat_templates";
  if (is_there(file)) config.chat_templates[kDefaultTemplate] = whole_file(file);
  if (!is_folder(more)) return;
  for (const std::string& name : list_folder(more))
    if (ends_with(name, kTemplateEnd))
      config.chat_templates[name.substr(0, name.size() - std::string_view(kTemplateEnd).size())] =
          whole_file(more + "/" + name);
}

}  // namespace

const std::string* TokenizerConfig::special_token(std::string_view role) const {
  for (const auto& [known, token] : special_tokens)
    if (known == role) return &token;
  return nullptr;
}

TokenizerConfig parse_tokenizer_config(std::string_view document, const std::string& source) {
  const Json json = parse_json(document, source);
  require(json.members() != nullptr, Status::kInvalidArgument, source,
          " is not an object; expected a tokenizer's configuration");
  TokenizerConfig config;
  read_special_tokens(config, json, source);
  read_added_tokens(config, json, source);
  read_chat_templates(config, json, source);
  read_model_inputs(config, json, source);
  config.tokenizer_class = json_text(json, "tokenizer_class", "");
  const double longest = json_number(json, "model_max_length", kLongestModel);
  require(longest >= 1, Status::kInvalidArgument, source, ": model_max_length is ", longest, "; expected at least 1");
  if (longest < kLongestModel) config.model_max_length = static_cast<int64_t>(longest);
  config.padding_side = read_side(json, "padding_side", source);
  config.truncation_side = read_side(json, "truncation_side", source);
  config.clean_up_spaces = json_flag(json, "clean_up_tokenization_spaces", false);
  return config;
}

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  const auto with_file = [&folder, &config](const char* name,
                                            void (*read)(TokenizerConfig&, const Json&, const std::string&)) {
    const std::string path = folder + "/" + name;
    if (is_there(path)) read(config, parse_json(FileBytes(path).text(), path), path);
  };
  const std::string main_file = folder + "/tokenizer_config.json";
  if (is_there(main_file)) config = parse_tokenizer_config(FileBytes(main_file).text(), main_file);
  with_file("special_tokens_map.json", read_special_tokens);
  with_file("added_tokens.json", read_added_tokens_file);
  with_file("generation_config.json", read_generation_config);
  read_template_files(config, folder);
  std::stable_sort(config.added_tokens.begin(), config.added_tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return config;
}

}  // namespace accel::tokenizers
