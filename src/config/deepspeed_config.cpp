// SPDX-License-Identifier: Apache-2.0
#include "config/deepspeed_config.hpp"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "config/deepspeed_keys.hpp"
#include "config/fsdp_settings.hpp"
#include "config/precedence.hpp"
#include "config/precision_name.hpp"
#include "json/json.hpp"
#include "os/regular_file.hpp"

namespace accel {
namespace {

const OptionField& deepspeed_field(std::string_view name) {
  const OptionTable& table = DeepspeedSettings::table();
  return *std::find_if(table.begin(), table.end(), [name](const OptionField& field) { return name == field.name; });
}

// Whether the environment or the file has this word of Accelerate for a setting that is not given.
template <typename T>
bool says(const char* word, const char* name, const Setting<T>& setting) {
  if (!setting.is_default()) return false;
  const auto written =
      find_written_option(DeepspeedSettings::table(), deepspeed_field(name), ConfigurationFile::of_environment());
  return written && strcasecmp(written->text.c_str(), word) == 0;
}

// Fields of Accelerate's configuration file that a file of DeepSpeed decides as well.
void refuse_fields_beside_a_file() {
  const auto written = environment_text("ACCELERATE_CONFIG_DS_FIELDS");
  if (!written) return;
  std::string twice;
  std::istringstream fields(*written);
  for (std::string field; std::getline(fields, field, ',');)
    for (const std::string_view decided :
         {"gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
          "offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
          "mixed_precision"})
      if (field == decided) twice += (twice.empty() ? "" : ", ") + field;
  require(twice.empty(), Status::kInvalidArgument, "hf_ds_config is a file of DeepSpeed, and ", twice,
          twice.find(',') == std::string::npos ? " is" : " are",
          " set besides (ACCELERATE_CONFIG_DS_FIELDS); expected them in that file alone");
}

// One document with the settings beside it.
class Reader {
 public:
  Reader(const DeepspeedSettings& settings, const DeepspeedJob& job) : settings_(settings), job_(job) {
    const std::string& given = settings.hf_ds_config.value;
    if (given.empty()) return;
    const size_t first = given.find_first_not_of(" \t\r\n");
    const bool is_text = first != std::string::npos && given[first] == '{';
    source_ = is_text ? "hf_ds_config" : given;
    document_ = parse_json(is_text ? given : RegularFile(given).read(), source_);
    require(document_->members() != nullptr, Status::kInvalidArgument, source_, " is ", print_json(*document_),
            "; expected an object");
    require(find_deepspeed_value(*document_, "zero_optimization") != nullptr, Status::kInvalidArgument, source_,
            " has no zero_optimization; expected it, with the stage of ZeRO");
  }

  DeepspeedConfig read() {
    DeepspeedConfig config;
    if (document_) config.without_effect = deepspeed_keys_without_effect(*document_, source_);
    config.zero_stage = number("zero_optimization.stage", "zero_stage", settings_.zero_stage, 0, 3, int64_t{0});
    config.gradient_clipping =
        number("gradient_clipping", "gradient_clipping", settings_.gradient_clipping, 0, HUGE_VAL, 0.0);
    config.gradient_accumulation_steps = accumulation_steps();
    choose_batch_sizes(config);
    config.shards_gradients = config.zero_stage >= 2;
    config.fsdp = sharding(config);
    config.loss_scale = loss_scale();
    refuse_mismatches();
    note_options_without_effect(config);
    config.fsdp = check_fsdp_settings(config.fsdp);
    return config;
  }

 private:
  const Json* find(std::string_view path) const { return document_ ? find_deepspeed_value(*document_, path) : nullptr; }
  static bool is_auto(const Json& value) { return value.text() != nullptr && *value.text() == "auto"; }

  [[noreturn]] void refuse(std::string_view path, const Json& value, const std::string& expected) const {
    fail(Status::kInvalidArgument, source_, ": ", path, " is ", print_json(value), "; expected ", expected,
         ", or \"auto\"");
  }

  // Where the value of a key is from: the document if it has it, else the setting.
  template <typename T>
  std::string origin(std::string_view path, const Setting<T>& setting) const {
    const Json* const value = find(path);
    if (value != nullptr && !is_auto(*value)) return text(path, " of ", source_);
    return setting.is_default() ? "DeepSpeed" : setting.source;
  }

  // The document's value unless it is "auto"; else the setting's, where a document that has no such key means the
  // default of DeepSpeed if the setting is not given either.
  template <typename T, typename Parse>
  T choose(std::string_view path, const char* name, const Setting<T>& setting, const T& otherwise, const Parse& parse) {
    const Json* const value = find(path);
    if (value == nullptr) return document_ && setting.is_default() ? otherwise : setting.value;
    if (is_auto(*value)) return setting.value;
    const T found = parse(*value);
    if (!setting.is_default() && !(setting.value == found))
      mismatches_ += text(mismatches_.empty() ? "" : ", ", path, " is ", print_json(*value), " and ", name, " is ",
                          precedence::print(deepspeed_field(name), setting.value),
                          setting.source == "call" ? "" : text(" (from ", setting.source, ")"));
    return found;
  }

  template <typename T>
  T number(std::string_view path, const char* name, const Setting<T>& setting, double low, double high, T otherwise) {
    return choose(path, name, setting, otherwise, [&](const Json& value) {
      const auto found = value.number();
      const bool is_whole = std::is_floating_point_v<T> || (found && std::floor(*found) == *found);
      if (!found || !is_whole || *found < low || *found > high)
        refuse(path, value, OptionInterval{low, high, false, false}.text());
      return static_cast<T>(*found);
    });
  }

  // The state's is what "auto" means unless a field says it. A document without it means 1.
  int64_t accumulation_steps() {
    Setting<int64_t> given(job_.gradient_accumulation_steps);
    if (const auto& option = settings_.gradient_accumulation_steps; option.value) given.set(*option, option.source);
    return number("gradient_accumulation_steps", "gradient_accumulation_steps", given, 1, HUGE_VAL, int64_t{1});
  }

  std::optional<int64_t> batch_size(const char* key) const {
    const Json* const value = find(key);
    if (value == nullptr || is_auto(*value)) return std::nullopt;
    const auto found = value->integer();
    if (!found || *found < 1) refuse(key, *value, "an integer at least 1");
    return found;
  }

  // The batch size of the loaders replaces "auto", and counts where there is no file.
  std::optional<int64_t> batch_size_of_loaders(const char* key) const {
    const Json* const value = find(key);
    if (job_.batch_sizes.empty() || (document_ && (value == nullptr || !is_auto(*value)))) return std::nullopt;
    const auto [least, most] = std::minmax_element(job_.batch_sizes.begin(), job_.batch_sizes.end());
    return settings_.is_train_batch_min ? *least : *most;
  }

  // One is the other one in parts: for each micro-batch and each rank.
  void choose_batch_sizes(DeepspeedConfig& config) const {
    constexpr const char* kOne = "train_micro_batch_size_per_gpu";
    const int64_t parts = config.gradient_accumulation_steps * job_.data_parallel_size;
    const auto of_loaders = batch_size_of_loaders(kOne), all = batch_size("train_batch_size");
    const auto one = of_loaders ? of_loaders : batch_size(kOne);
    require(!all || (one ? *one * parts == *all : *all % parts == 0), Status::kInvalidArgument, source_,
            ": train_batch_size is ", all.value_or(0),
            of_loaders ? text(" and the batch size of the loaders is ", *one)
            : one      ? text(" and ", kOne, " is ", *one)
                       : "",
            ", with ", config.gradient_accumulation_steps, " gradient_accumulation_steps and ", job_.data_parallel_size,
            " data-parallel ranks; expected ", one ? text(one.value_or(0) * parts) : text("a multiple of ", parts));
    if (one || all) {
      config.train_micro_batch_size_per_gpu = one ? *one : *all / parts;
      config.train_batch_size = *config.train_micro_batch_size_per_gpu * parts;
    }
  }

  OffloadDevice device(std::string_view path, const char* name, const Setting<OffloadDevice>& setting) {
    return choose(path, name, setting, OffloadDevice::kNone, [&](const Json& value) {
      const OptionField& field = deepspeed_field(name);
      const OptionChoice* const found = value.text() == nullptr ? nullptr : find_choice(field, *value.text());
      if (found == nullptr) refuse(path, value, "one of " + choice_names(field, ", "));
      return static_cast<OffloadDevice>(found->value);
    });
  }

  std::string folder(std::string_view path, const char* name, const Setting<std::string>& setting) {
    return choose(path, name, setting, std::string(), [&](const Json& value) {
      if (value.text() == nullptr) refuse(path, value, "the path of a folder");
      return *value.text();
    });
  }

  void offload(FsdpSettings& fsdp) {
    const auto where = [&](const std::string& section, const char* device_name, const auto& device_setting,
                           const char* path_name, const auto& path_setting, Setting<bool>& offloads) {
      const std::string key = "zero_optimization." + section;
      const OffloadDevice chosen = device(key + ".device", device_name, device_setting);
      const std::string path = folder(key + ".nvme_path", path_name, path_setting);
      if (chosen == OffloadDevice::kNone) return;
      const std::string source = origin(key + ".device", device_setting);
      offloads.set(true, source);
      if (chosen != OffloadDevice::kNvme) return;
      require(!path.empty(), Status::kInvalidArgument, device_name, " is nvme (from ", source, ") and ", path_name,
              " is not given; expected a folder");
      fsdp.offload_folder.set(path, origin(key + ".nvme_path", path_setting));
    };
    where("offload_param", "offload_param_device", settings_.offload_param_device, "offload_param_nvme_path",
          settings_.offload_param_nvme_path, fsdp.cpu_offload);
    where("offload_optimizer", "offload_optimizer_device", settings_.offload_optimizer_device,
          "offload_optimizer_nvme_path", settings_.offload_optimizer_nvme_path, fsdp.offload_optimizer);
  }

  // Whether a precision's section turns it on; nothing: there is none.
  std::optional<bool> is_enabled(const std::string& section, Precision precision) const {
    const std::string path = section + ".enabled";
    const Json* const value = find(path);
    if (value == nullptr) return std::nullopt;
    if (is_auto(*value)) return job_.mixed_precision == precision;
    if (value->flag() == nullptr) refuse(path, *value, "true or false");
    return *value->flag();
  }

  // The precision that the document and the state agree on.
  Precision precision() const {
    const Precision state = job_.mixed_precision;
    const std::optional<bool> fp16 = is_enabled("fp16", Precision::kFp16), bf16 = is_enabled("bf16", Precision::kBf16);
    require(!fp16.value_or(false) || !bf16.value_or(false), Status::kInvalidArgument, source_,
            ": fp16.enabled and bf16.enabled are both true; expected one of them");
    const auto disagree = [&](const char* key, const char* value) {
      fail(Status::kInvalidArgument, source_, ": ", key, " is ", value, " and mixed_precision is ",
           precision_name(state), "; expected the same precision, or \"auto\"");
    };
    if (fp16.value_or(false) && state != Precision::kFp16) disagree("fp16.enabled", "true");
    if (bf16.value_or(false) && state == Precision::kFp16) disagree("bf16.enabled", "true");
    if (fp16 == false && state == Precision::kFp16) disagree("fp16.enabled", "false");
    if (bf16 == false && state == Precision::kBf16) disagree("bf16.enabled", "false");
    return bf16.value_or(false) && state != Precision::kFp8 ? Precision::kBf16 : state;
  }

  // A number of the section fp16.
  template <typename T>
  void read_scale(const char* key, double low, double high, T& result) const {
    const std::string path = text("fp16.", key);
    const Json* const value = find(path);
    if (value == nullptr || is_auto(*value)) return;
    const auto found = value->number();
    const bool is_whole = std::is_floating_point_v<T> || (found && std::floor(*found) == *found);
    if (!found || !is_whole || *found < low || *found > high)
      refuse(path, *value, OptionInterval{low, high, false, false}.text());
    result = static_cast<T>(*found);
  }

  std::optional<DeepspeedLossScale> loss_scale() const {
    if (find("fp16") == nullptr || precision() != Precision::kFp16) return std::nullopt;
    constexpr double kMost = 3e38;  // of float32
    DeepspeedLossScale scale;
    read_scale("loss_scale", 0, kMost, scale.loss_scale);
    read_scale("initial_scale_power", 0, 127, scale.initial_scale_power);
    read_scale("loss_scale_window", 1, 1LL << 53, scale.loss_scale_window);
    read_scale("hysteresis", 1, 1LL << 53, scale.hysteresis);
    read_scale("min_loss_scale", 0, kMost, scale.min_loss_scale);
    const char* const consecutive = "fp16.consecutive_hysteresis";
    if (const Json* const value = find(consecutive); value != nullptr && !is_auto(*value)) {
      if (value->flag() == nullptr) refuse(consecutive, *value, "true or false");
      scale.consecutive_hysteresis = *value->flag();
    }
    return scale;
  }

  FsdpSettings sharding(const DeepspeedConfig& config) {
    FsdpSettings fsdp;
    const std::string source = origin("zero_optimization.stage", settings_.zero_stage);
    fsdp.enabled.set(true, settings_.enabled.source);
    fsdp.sharding_strategy.set(config.zero_stage == 0   ? ShardingStrategy::kNoShard
                               : config.zero_stage == 3 ? ShardingStrategy::kFullShard
                                                        : ShardingStrategy::kShardGradOp,
                               source);
    if (config.zero_stage > 0) fsdp.state_dict_type.set(StateDictType::kShardedStateDict, source);
    if (config.zero_stage == 3)
      fsdp.cpu_ram_efficient_loading.set(settings_.zero3_init_flag.value_or(true), settings_.zero3_init_flag.source);
    wrap(config, fsdp);
    if (precision() == Precision::kBf16 || precision() == Precision::kFp8)
      fsdp.param_dtype.set("bfloat16", "bf16.enabled");
    if (precision() == Precision::kFp16) fsdp.param_dtype.set("float16", "fp16.enabled");
    const Json* const sums = find("communication_data_type");
    if (sums != nullptr && !is_auto(*sums)) {
      if (sums->text() == nullptr) refuse("communication_data_type", *sums, "fp32, bf16 or fp16");
      fsdp.reduce_dtype.set(*sums->text() == "bfp16" ? "bf16" : *sums->text(), "communication_data_type of " + source_);
    }
    offload(fsdp);
    return fsdp;
  }

  // ZeRO gathers each module by itself but for the smallest parameters, which stay, and those of modules that are one.
  void wrap(const DeepspeedConfig& config, FsdpSettings& fsdp) {
    constexpr int64_t kSmallest = 100000;  // DeepSpeed's stage3_param_persistence_threshold
    if (config.zero_stage < 3) return;
    const char* const key = "zero_optimization.stage3_param_persistence_threshold";
    int64_t smallest = kSmallest;
    if (const Json* const value = find(key); value != nullptr && !is_auto(*value)) {
      const auto found = value->number();
      if (!found || *found < 0 || *found > 1e18) refuse(key, *value, "a number at least 0");
      smallest = std::max<int64_t>(1, static_cast<int64_t>(*found));
    }
    fsdp.auto_wrap_policy.set(AutoWrapPolicy::kSizeBasedWrap, "zero_optimization.stage");
    fsdp.min_num_params.set(smallest, key);
    fsdp.leaf_module_classes.set(settings_.transformer_moe_cls_names.value, settings_.transformer_moe_cls_names.source);
  }

  void refuse_mismatches() const {
    require(mismatches_.empty(), Status::kInvalidArgument, source_,
            " says otherwise than other settings: ", mismatches_, "; expected the same, or \"auto\" in the file");
  }

  void note_options_without_effect(DeepspeedConfig& config) const {
    if (config.zero_stage < 3 && settings_.zero3_init_flag.value_or(false) && !settings_.zero3_init_flag.is_default())
      config.without_effect.emplace_back("zero3_init_flag: the stage of ZeRO is not 3");
    if (config.zero_stage < 3 && !settings_.transformer_moe_cls_names.value.empty())
      config.without_effect.emplace_back("transformer_moe_cls_names: the stage of ZeRO is not 3");
    if (config.zero_stage < 3 && find("zero_optimization.stage3_param_persistence_threshold") != nullptr)
      config.without_effect.emplace_back(
          "zero_optimization.stage3_param_persistence_threshold: the stage of ZeRO is not 3");
  }

  const DeepspeedSettings& settings_;
  const DeepspeedJob& job_;
  std::string source_;
  std::optional<Json> document_;
  std::string mismatches_;
};

}  // namespace

DeepspeedSettings resolve_deepspeed_settings(DeepspeedSettings given) {
  // Such a setting keeps its default, as if it were not written at all.
  std::vector<std::string*> unset;
  const auto leave_unset = [&unset](const char* word, const char* name, auto& setting) {
    if (says(word, name, setting)) unset.push_back(&setting.source);
  };
  leave_unset("auto", "gradient_clipping", given.gradient_clipping);
  leave_unset("none", "hf_ds_config", given.hf_ds_config);
  leave_unset("none", "offload_param_nvme_path", given.offload_param_nvme_path);
  leave_unset("none", "offload_optimizer_nvme_path", given.offload_optimizer_nvme_path);
  for (std::string* const source : unset) *source = "unset";
  resolve_settings(given);
  for (std::string* const source : unset) *source = "default";
  if (given.enabled && !given.hf_ds_config.value.empty()) refuse_fields_beside_a_file();
  return given;
}

DeepspeedConfig read_deepspeed_config(const DeepspeedSettings& settings, const DeepspeedJob& job) {
  check_settings(settings);
  return Reader(settings, job).read();
}

}  // namespace accel
