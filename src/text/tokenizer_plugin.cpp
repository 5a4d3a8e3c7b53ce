// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_plugin.hpp"

#include <exception>
#include <limits>
#include <mutex>

#include "base/error.hpp"
#include "os/plugin_file.hpp"

namespace accel::tokenizers {
namespace {

constexpr char kTokenizersPlugin[] = "tokenizers";
// Steps of a template, in which large texts count for their bytes, too: less than a second and 320 MB. A chat of a
// thousand messages takes less than a million.
constexpr uint64_t kMostTemplateSteps = 5'000'000;

const PluginFunctions& functions() {
  static std::mutex mutex;
  static const PluginFunctions* loaded = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded != nullptr) return *loaded;
  const auto path = plugin_path(kTokenizersPlugin);
  if (!path)
    fail(Status::kUnsupported, missing_plugin(kTokenizersPlugin),
         "; a build makes it where cargo is, see docs/tokenizers.md");
  using Get = const PluginFunctions* (*)();
  const auto get = reinterpret_cast<Get>(plugin_symbol(load_plugin_file(*path), *path, kPluginSymbol));
  const PluginFunctions* const found = get();
  require(found->interface_number == kPluginInterface, Status::kUnsupported, "the plugin ", *path,
          " has the interface ", found->interface_number, "; expected ", kPluginInterface,
          ", build it together with the library");
  loaded = found;
  return *loaded;
}

PluginText plugin_text(std::string_view text) { return {text.data(), text.size()}; }

// Collects what the plugin writes. No exception may pass through it, so a lack of memory is saved until the call is
// over.
class CollectedText {
 public:
  PluginSink sink() {
    return {[](void* context, const char* data, size_t size) {
              auto& self = *static_cast<CollectedText*>(context);
              try {
                self.text_.append(data, size);
              } catch (...) {
                self.failure_ = std::current_exception();
              }
            },
            this};
  }
  std::string take() {
    if (failure_) std::rethrow_exception(failure_);
    return std::move(text_);
  }

 private:
  std::string text_;
  std::exception_ptr failure_;
};

void check_result(int result, const std::string& what, CollectedText& error) {
  if (result == 0) return;
  const std::string said = error.take();
  if (result == kPluginPanic)
    fail(Status::kInternal, what, ": the plugin ", kTokenizersPlugin, " failed: ", said, "; please report it");
  fail(Status::kInvalidArgument, what, said.empty() ? "" : ": ", said);
}

}  // namespace

void TokenizerPlugin::Destroy::operator()(PluginVocabulary* vocabulary) const { functions().destroy(vocabulary); }

TokenizerPlugin::TokenizerPlugin(std::string_view json, const std::string& source) : source_(source) {
  CollectedText error;
  vocabulary_.reset(functions().parse(plugin_text(json), error.sink()));
  if (vocabulary_ == nullptr) fail(Status::kInvalidArgument, source, " is not a tokenizer: ", error.take());
}

void TokenizerPlugin::add_tokens(const std::string& json) {
  CollectedText error;
  check_result(functions().add_tokens(vocabulary_.get(), plugin_text(json), error.sink()), source_ + ": added tokens",
               error);
}

std::string TokenizerPlugin::describe() const {
  CollectedText out, error;
  check_result(functions().describe(vocabulary_.get(), out.sink(), error.sink()), source_, error);
  return out.take();
}

void TokenizerPlugin::encode(const std::vector<PluginTexts>& texts, const PluginEncodeOptions& options,
                             const OnRow& on_row) const {
  struct Rows {
    const OnRow& on_row;
    std::exception_ptr failure;
  } rows{on_row, nullptr};
  PluginRowsSink sink{
      [](void* context, size_t count, const uint32_t* ids, const uint32_t* type_ids, const size_t* offsets) {
        auto& self = *static_cast<Rows*>(context);
        if (self.failure) return;
        try {
          self.on_row(count, ids, type_ids, offsets);
        } catch (...) {
          self.failure = std::current_exception();
        }
      },
      &rows, options.offsets != 0 ? 1 : 0};
  CollectedText error;
  check_result(functions().encode(vocabulary_.get(), texts.data(), texts.size(), &options, &sink, error.sink()),
               "text cannot be encoded", error);
  if (rows.failure) std::rethrow_exception(rows.failure);
}

std::string TokenizerPlugin::decode(const int64_t* ids, size_t count, bool skip_special_tokens) const {
  std::vector<uint32_t> narrow(count);
  for (size_t i = 0; i < count; i++) {
    require(ids[i] >= 0, Status::kInvalidArgument, "an id of a token is ", ids[i], "; expected at least 0");
    constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
    narrow[i] = static_cast<uint32_t>(ids[i] < kMost ? ids[i] : kMost);
  }
  CollectedText out, error;
  check_result(functions().decode(vocabulary_.get(), narrow.data(), count, skip_special_tokens ? 1 : 0, out.sink(),
                                  error.sink()),
               "ids cannot be decoded", error);
  return out.take();
}

std::optional<int64_t> TokenizerPlugin::token_to_id(std::string_view token) const {
  const int64_t id = functions().token_to_id(vocabulary_.get(), plugin_text(token));
  return id < 0 ? std::nullopt : std::optional<int64_t>(id);
}

std::optional<std::string> TokenizerPlugin::id_to_token(int64_t id) const {
  if (id < 0 || id > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  CollectedText out;
  if (functions().id_to_token(vocabulary_.get(), static_cast<uint32_t>(id), out.sink()) != 0) return std::nullopt;
  return out.take();
}

std::string TokenizerPlugin::render(std::string_view chat_template, std::string_view variables) {
  CollectedText out, error;
  check_result(functions().render(plugin_text(chat_template), plugin_text(variables), kMostTemplateSteps, out.sink(),
                                  error.sink()),
               "the chat template", error);
  return out.take();
}

}  // namespace accel::tokenizers
