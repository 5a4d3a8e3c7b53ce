// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint/estimate_command.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <set>
#include <stdexcept>
#include <string_view>

#include <accel.hpp>
#include "cli/checkpoint/python_model.hpp"
#include "cli/checkpoint_arguments.hpp"
#include "cli/command_arguments.hpp"

namespace accel::program {
namespace {

constexpr char kConfigName[] = "config.json";

// Bytes of an element of each dtype by those of float32.
struct WeightDtype {
  const char* name;
  double share;
  double training_share;  // with Adam, as Accelerate counts it; 0: cannot be trained
};
constexpr std::array<WeightDtype, 4> kDtypes = {
    {{"float32", 1, 4}, {"float16", 0.5, 2}, {"int8", 0.25, 0}, {"int4", 0.125, 0}}};

struct Strategy {
  const char* name;
  accel_sharding_strategy_t sharding;
  bool exchanges_each_batch;  // also while gradients accumulate
};
constexpr std::array<Strategy, 10> kStrategies = {{
    {"ddp", ACCEL_SHARDING_STRATEGY_NO_SHARD, false},
    {"no_shard", ACCEL_SHARDING_STRATEGY_NO_SHARD, false},
    {"shard_grad_op", ACCEL_SHARDING_STRATEGY_SHARD_GRAD_OP, false},
    {"full_shard", ACCEL_SHARDING_STRATEGY_FULL_SHARD, false},
    {"hybrid_shard", ACCEL_SHARDING_STRATEGY_HYBRID_SHARD, false},
    {"hybrid_shard_zero2", ACCEL_SHARDING_STRATEGY_HYBRID_SHARD_ZERO2, false},
    {"zero0", ACCEL_SHARDING_STRATEGY_NO_SHARD, false},
    {"zero1", ACCEL_SHARDING_STRATEGY_SHARD_GRAD_OP, false},
    {"zero2", ACCEL_SHARDING_STRATEGY_SHARD_GRAD_OP, true},
    {"zero3", ACCEL_SHARDING_STRATEGY_FULL_SHARD, true},
}};

// Without parameters.
struct OptimizerKind {
  const char* name;
  cpp::Optimizer (*make)();
};
constexpr std::array<OptimizerKind, 8> kOptimizers = {{
    {"adamw", [] { return cpp::Optimizer::adamw({}); }},
    {"adam", [] { return cpp::Optimizer::adam({}); }},
    {"adamw_8bit", [] { return cpp::Optimizer::adamw_8bit({}); }},
    {"sgd", [] { return cpp::Optimizer::sgd({}); }},
    {"sgd_momentum",
     [] {
       cpp::SgdOptions options;
       options.momentum = 0.9;
       return cpp::Optimizer::sgd({}, options);
     }},
    {"adagrad", [] { return cpp::Optimizer::adagrad({}); }},
    {"lion", [] { return cpp::Optimizer::lion({}); }},
    {"adafactor", [] { return cpp::Optimizer::adafactor({}); }},
}};

struct PrecisionKind {
  const char* name;
  accel_precision_t precision;
};
constexpr std::array<PrecisionKind, 3> kPrecisions = {
    {{"no", ACCEL_PRECISION_NO}, {"bf16", ACCEL_PRECISION_BF16}, {"fp16", ACCEL_PRECISION_FP16}}};

struct Library {
  const char* name;
};
constexpr char kTimm[] = "timm";
constexpr std::array<Library, 2> kLibraries = {{{"transformers"}, {kTimm}}};

std::string text_in(const std::string& value) { return "'" + value + "'"; }

std::int64_t number_of(const std::string& value, const char* option, std::int64_t smallest, std::int64_t largest) {
  std::int64_t number = 0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
  if (parsed.ec == std::errc() && parsed.ptr == value.data() + value.size() && number >= smallest && number <= largest)
    return number;
  throw std::invalid_argument(
      std::string(option) + " is " + text_in(value) + "; expected a whole number from " + std::to_string(smallest) +
      (largest < std::numeric_limits<std::int64_t>::max() ? " to " + std::to_string(largest) : ""));
}

// The entry of a table with this name, in any case.
template <typename Entries>
const auto& choose(const Entries& entries, const std::string& value, const char* option) {
  std::string name = value, names;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto& entry : entries) {
    if (name == entry.name) return entry;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw std::invalid_argument(std::string(option) + " is " + text_in(value) + "; expected one of " + names);
}

// In Accelerate's form: 1 KB are 1024 bytes; at most two decimals, at least one.
std::string size_text(double bytes) {
  const char* unit = "bytes";
  for (const char* const larger : {"KB", "MB", "GB", "TB", "PB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = larger;
  }
  char number[64];
  std::snprintf(number, sizeof number, "%.2f", bytes);
  std::string result = number;
  const bool is_count = std::string_view(unit) == "bytes" && bytes == std::floor(bytes);
  if (is_count)
    result.resize(result.size() - 3);
  else if (result.back() == '0')
    result.pop_back();
  return result + " " + unit;
}

using Row = std::vector<std::string>;

void print_table(const std::string& title, const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); i++) {
      widths.resize(std::max(widths.size(), i + 1));
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::printf("%s\n", title.c_str());
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); i++)
      line += (i == 0 ? "" : "  ") + (i == 0 ? row[i] + std::string(widths[i] - row[i].size(), ' ')
                                             : std::string(widths[i] - row[i].size(), ' ') + row[i]);
    std::printf("%s\n", line.c_str());
  }
}

// Shapes of the weights in files, or of a model that a configuration describes, here or on the hub. A folder may have
// weights and a configuration.
cpp::Module open_model(const std::string& path, const EstimateArguments& options) {
  PythonModel asked{path, "", options.trust_remote_code};
  if (!options.library.empty()) asked.library = choose(kLibraries, options.library, "--library-name").name;
  if (asked.library == kTimm) return empty_model_of_python(asked, "'" + path + "' is a model of timm");
  if (!std::filesystem::exists(path)) return empty_model_of_python(asked, "'" + path + "' does not exist");
  const bool is_config = std::filesystem::path(path).filename() == kConfigName;
  if (!is_config) try {
      return cpp::Module::shapes_from_weights(path);
    } catch (const cpp::Error& error) {
      if (error.status() != ACCEL_ERROR_NOT_FOUND || !std::filesystem::exists(path + "/" + kConfigName)) throw;
    }
  const cpp::Scope empty = cpp::init_empty_weights(/*include_buffers=*/true);
  try {
    return cpp::Module::from_config(is_config ? path : path + "/" + kConfigName);
  } catch (const cpp::Error& error) {
    if (error.status() != ACCEL_ERROR_UNSUPPORTED) throw;
    return empty_model_of_python(asked, error.what());
  }
}

// The kinds of the members of lists that are in no other list.
std::string members_of_outer_lists(const cpp::Module& module) {
  const cpp::Value modules = module.named_modules();
  std::set<std::string> kinds;
  std::vector<std::string> members;
  for (size_t i = 0; i < modules.size(); i++) {
    const std::string path = modules.key_at(i).string(), kind = modules.at(path).string();
    const bool is_inside = std::any_of(members.begin(), members.end(), [&](const std::string& outer) {
      return path.compare(0, outer.size() + 1, outer + ".") == 0;
    });
    const size_t dot = path.rfind('.');
    const std::string outer = dot == std::string::npos ? "" : path.substr(0, dot);
    const bool is_member = kind == "N" || (!path.empty() && modules.at(outer).string() == "ModuleList");
    if (is_inside || !is_member) continue;
    members.push_back(path);
    kinds.insert(kind);
  }
  std::string list;
  for (const std::string& kind : kinds) list += (list.empty() ? "" : ",") + kind;
  return list;
}

class Estimate {
 public:
  Estimate(const std::string& path, const EstimateArguments& options)
      : module_(open_model(path, options)), path_(path), given_(options) {
    module_.to(ACCEL_DTYPE_FLOAT32, accel_device_t{ACCEL_DEVICE_META, 0});
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t kMostRanks = std::numeric_limits<std::int32_t>::max();
    estimate_.num_processes = number_of(options.world_size, "--world-size", 1, kMostRanks);
    if (!options.shard_size.empty()) shard_size_ = number_of(options.shard_size, "--shard-size", 1, kMostRanks);
    if (!options.tensor_size.empty())
      estimate_.tensor_parallel_size = number_of(options.tensor_size, "--tensor-parallel-size", 1, kMostRanks);
    if (!options.plan.empty()) tensor_.plan = options.plan.c_str();
    tensor_.sequence_parallel = options.sequence_parallel ? 1 : 0;
    tensor_.loss_parallel = options.loss_parallel ? 1 : 0;
    if (!options.context_size.empty())
      estimate_.context_parallel_size = number_of(options.context_size, "--context-parallel-size", 1, kMostRanks);
    if (!options.expert_size.empty())
      estimate_.expert_parallel_size = number_of(options.expert_size, "--expert-parallel-size", 1, kMostRanks);
    estimate_.batch_size = number_of(options.batch_size, "--batch-size", 0, kMost);
    estimate_.sequence_length = number_of(options.sequence_length, "--sequence-length", 0, kMost);
    fsdp_.activation_checkpointing = options.recompute ? 1 : 0;
    prepare_.tensor_parallel = &tensor_;
    estimate_.mixed_precision = choose(kPrecisions, options.precision, "--mixed-precision").precision;
    estimate_.gradient_accumulation_steps = number_of(options.accumulation, "--gradient-accumulation-steps", 1, kMost);
    estimate_.activation_bytes = number_of(options.activation_bytes, "--activation-bytes", 0, kMost);
    fsdp_.enabled = 1;
    if (!options.min_num_params.empty()) {
      if (!options.wrap.empty())
        throw std::invalid_argument("--wrap is " + text_in(options.wrap) + " and --min-num-params is " +
                                    text_in(options.min_num_params) + "; expected one of them");
      fsdp_.auto_wrap_policy = ACCEL_AUTO_WRAP_POLICY_SIZE_BASED_WRAP;
      fsdp_.min_num_params = number_of(options.min_num_params, "--min-num-params", 1, kMost);
    } else {
      wrap_ = options.wrap.empty() ? members_of_outer_lists(module_) : options.wrap;
      fsdp_.auto_wrap_policy =
          wrap_.empty() ? ACCEL_AUTO_WRAP_POLICY_NO_WRAP : ACCEL_AUTO_WRAP_POLICY_TRANSFORMER_BASED_WRAP;
      if (!wrap_.empty()) fsdp_.transformer_cls_names_to_wrap = wrap_.c_str();
    }
    prepare_.fsdp = &fsdp_;
    estimate_.model_options = &prepare_;
  }

  // A row a dtype: its name, the largest layer, all weights, training; 0 where that is not possible.
  cpp::Value weights() const {
    const cpp::Value sizes = cpp::calculate_maximum_sizes(module_);
    std::vector<cpp::Value> rows;
    for (const std::string& name : given_.dtypes) {
      const WeightDtype& dtype = choose(kDtypes, name, "--dtypes");
      const double total = sizes.at("total").number(), largest = sizes.at("largest").number();
      const cpp::Value training = dtype.training_share > 0 ? cpp::Value(total * dtype.training_share) : cpp::Value();
      rows.push_back(cpp::Value::map({{"dtype", dtype.name},
                                      {"largest_layer", largest * dtype.share},
                                      {"total_size", total * dtype.share},
                                      {"training_with_adam", training}}));
    }
    return cpp::Value::list(rows);
  }

  // A row a strategy: its name and the parts of its peak.
  cpp::Value training() {
    std::vector<std::string> names = given_.strategies;
    if (names.empty()) {
      names = {"ddp", "shard_grad_op", "full_shard"};
      if (!given_.shard_size.empty()) names.insert(names.end(), {"hybrid_shard", "hybrid_shard_zero2"});
    }
    const cpp::Optimizer optimizer = choose(kOptimizers, given_.optimizer, "--optimizer").make();
    std::vector<cpp::Value> rows;
    for (const std::string& name : names) {
      const Strategy& strategy = choose(kStrategies, name, "--strategy");
      fsdp_.sharding_strategy = strategy.sharding;
      const bool is_hybrid = strategy.sharding == ACCEL_SHARDING_STRATEGY_HYBRID_SHARD ||
                             strategy.sharding == ACCEL_SHARDING_STRATEGY_HYBRID_SHARD_ZERO2;
      estimate_.data_parallel_shard_size = is_hybrid ? shard_size_ : ACCEL_UNSET_INT64;
      estimate_.sync_each_batch = strategy.exchanges_each_batch ? 1 : 0;
      cpp::Value row = cpp::estimate_memory(module_, optimizer, estimate_);
      row.set("strategy", strategy.name);
      rows.push_back(std::move(row));
    }
    return cpp::Value::list(rows);
  }

  void print(const cpp::Value& weights, const cpp::Value& training) const {
    std::vector<Row> rows = {{"dtype", "Largest Layer", "Total Size", "Training using Adam"}};
    for (const cpp::Value& row : weights.items()) {
      const cpp::Value adam = row.at("training_with_adam");
      rows.push_back({row.at("dtype").string(), size_text(row.at("largest_layer").number()),
                      size_text(row.at("total_size").number()), adam.is_none() ? "N/A" : size_text(adam.number())});
    }
    print_table("Memory Usage for loading `" + path_ + "`", rows);
    rows = {{"strategy", "parameters", "gathered", "gradients", given_.optimizer, "activations", "peak", "in"}};
    for (const cpp::Value& row : training.items()) {
      const auto sum = [&row](std::initializer_list<const char*> keys) {
        double bytes = 0;
        for (const char* const key : keys) bytes += static_cast<double>(row.at(key).integer());
        return size_text(bytes);
      };
      rows.push_back({row.at("strategy").string(), sum({"parameters", "parameter_copies", "buffers"}),
                      sum({"gathered_parameters"}), sum({"gradients", "exchanged_gradients"}),
                      sum({"optimizer_states"}), sum({"activations"}), sum({"peak"}), row.at("phase").string()});
    }
    print_table("\nPeak of a training step on each of " + std::to_string(estimate_.num_processes) + " ranks" +
                    (wrap_.empty() ? "" : ", groups: " + wrap_),
                rows);
  }

 private:
  cpp::Module module_;
  std::string path_;
  const EstimateArguments& given_;
  std::string wrap_;
  std::int64_t shard_size_ = ACCEL_UNSET_INT64;
  cpp::FsdpOptions fsdp_;
  cpp::TensorParallelOptions tensor_;
  cpp::PrepareModelOptions prepare_;
  cpp::EstimateMemoryOptions estimate_;
};

}  // namespace

int run_estimate_memory(const std::vector<std::string>& arguments) {
  CLI::App app;
  EstimateArguments options;
  declare_estimate_memory(app, options);
  ParsedArguments parsed = parse(app, arguments);
  std::vector<std::string> paths = parsed.rest;
  if (!parsed.shown && paths.size() > 1) {  // options may also stand behind the path
    parsed = parse(app, {paths.begin() + 1, paths.end()});
    paths.resize(1);
    paths.insert(paths.end(), parsed.rest.begin(), parsed.rest.end());
  }
  if (parsed.shown) return std::fputs(parsed.shown->c_str(), stdout) < 0;
  if (paths.size() != 1)
    throw std::invalid_argument("accel estimate-memory was given " + std::to_string(paths.size()) +
                                " paths; expected one; see accel estimate-memory --help");
  Estimate estimate(paths.front(), options);
  const cpp::Value weights = estimate.weights(), training = estimate.training();
  if (options.json)
    std::printf("%s\n", cpp::Value::map({{"weights", weights}, {"training", training}}).to_json().c_str());
  else
    estimate.print(weights, training);
  return 0;
}

}  // namespace accel::program
