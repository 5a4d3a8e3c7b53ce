// SPDX-License-Identifier: Apache-2.0
// Workload roofline: what the machine gives at best, and which share of that each operator of a training step reaches.
#include <accel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "machine_peaks.hpp"
#include "operator_profile.hpp"
#undef CHECK  // LibTorch's logging has one too
#include "measure.h"
#include "workloads.h"

namespace {

using bench::OperatorTotals;

// Operators with less than that of the time are counted together.
constexpr double kSmallShare = 0.005;

// Shares, milliseconds and rates as JSON members and as params; all figures of this program are of the bench
// "roofline".
class Members {
 public:
  Members &add(const char *name, double value) {
    char text[64];
    std::snprintf(text, sizeof text, "%.5g", value);
    return add_text(name, text);
  }
  Members &add(const char *name, int64_t value) { return add_text(name, std::to_string(value)); }
  Members &add(const char *name, const std::string &value) { return add_text(name, '"' + value + '"'); }
  const std::string &text() const { return text_; }

 private:
  Members &add_text(const char *name, const std::string &value) {
    text_ += (text_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
    return *this;
  }
  std::string text_;
};

struct Unit {
  const char *name;
  bool higher_is_better;
};

void report(accel_state_t *state, const Members &params, std::vector<double> samples, Unit unit, const Members &extra) {
  const std::string braced = '{' + params.text() + '}';
  const figure line = {
      "roofline",     braced.c_str(), unit.name, unit.higher_is_better,
      samples.data(), samples.size(), 0,         extra.text().empty() ? nullptr : extra.text().c_str()};
  measure_report(state, &line);
}

double median(std::vector<double> samples) { return measure_median(samples.data(), samples.size()); }

const char *dtype_name(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::Float) return "fp32";
  if (dtype == c10::ScalarType::BFloat16) return "bf16";
  return dtype == c10::ScalarType::Undefined ? "-" : c10::toString(dtype);
}

accel_state_t *make_state(accel_cpu_kernels_t kernels, int threads) {
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.cpu_kernels = kernels;
  options.num_threads = threads;
  accel_state_t *state = nullptr;
  CHECK(accel_state_create(&options, &state));
  return state;
}

// The roofs of one number of threads.
class Machine {
 public:
  // Prints what it measures.
  Machine(bench::Memory &memory, int threads, double seconds) {
    measure_products(threads, seconds);
    accel_state_t *const state = make_state(ACCEL_CPU_KERNELS_AUTO, threads);
    const std::pair<bench::Pass, const char *> passes[] = {
        {bench::Pass::kRead, "read"}, {bench::Pass::kWrite, "write"}, {bench::Pass::kCopy, "copy"}};
    for (const auto &[pass, name] : passes) {
      const bool by_size = pass == bench::Pass::kCopy;
      for (const size_t bytes : by_size ? memory.sizes() : std::vector<size_t>{memory.bytes()}) {
        const std::vector<double> rates = memory.rates(pass, bytes, threads, seconds);
        const auto params =
            Members().add("peak", name).add("bytes", static_cast<int64_t>(bytes)).add("threads", int64_t{threads});
        report(state, params, rates, {"GB/s", true}, {});
        if (by_size) copies_[static_cast<double>(bytes)] = median(rates);
      }
    }
    accel_state_release(state);
  }

  // GFLOPS of a dtype by the faster kernels; 0 for one that was not measured.
  double gflops(c10::ScalarType dtype) const {
    const auto found = products_.find(dtype_name(dtype));
    return found == products_.end() ? 0 : found->second;
  }

  // GB/s of a copy that reads and writes as many bytes in all.
  double copy_rate(double bytes) const {
    const auto above = copies_.lower_bound(bytes);
    if (above == copies_.end()) return copies_.rbegin()->second;
    if (above == copies_.begin()) return above->second;
    const auto below = std::prev(above);
    const double place = std::log(bytes / below->first) / std::log(above->first / below->first);
    return below->second + place * (above->second - below->second);
  }

 private:
  void measure_products(int threads, double seconds) {
    const std::pair<accel_cpu_kernels_t, const char *> kernels[] = {{ACCEL_CPU_KERNELS_DEFAULT, "default"},
                                                                    {ACCEL_CPU_KERNELS_ONEDNN, "onednn"}};
    const std::pair<accel_dtype_t, const char *> dtypes[] = {{ACCEL_DTYPE_FLOAT32, "fp32"},
                                                             {ACCEL_DTYPE_BFLOAT16, "bf16"}};
    for (const auto &[choice, kernels_name] : kernels) {
      accel_state_t *const state = make_state(choice, threads);
      for (const auto &[dtype, dtype_name] : dtypes) {
        const std::vector<double> rates = bench::product_rates(dtype, seconds);
        const auto params = Members().add("peak", "product").add("dtype", dtype_name).add("kernels", kernels_name);
        report(state, Members(params).add("threads", int64_t{threads}), rates, {"GFLOPS", true}, {});
        products_[dtype_name] = std::max(products_[dtype_name], median(rates));
      }
      accel_state_release(state);
    }
  }

  std::map<std::string, double> products_;
  std::map<double, double> copies_;
};

struct Workload {
  const char *name;
  int64_t accumulate;
  size_t warmup;
  size_t steps;  // of a round
  void (*prepare)(training *training, accel_state_t *state, size_t steps);
};

constexpr Workload kWorkloads[] = {
    {"train_gpt", GPT_ACCUMULATE, GPT_WARMUP, 2, workload_gpt},
    {"train_mlp", 1, MLP_WARMUP, 50,
     [](training *training, accel_state_t *state, size_t steps) {
       workload_mlp(training, state, MLP_WIDTH, MLP_DEPTH, MLP_BATCH, steps);
     }},
};
constexpr const char *kPhases[] = {"data", "forward", "backward", "communication", "optimizer", "other"};

using Key = std::pair<std::string, c10::ScalarType>;

// An operator, or several, over all rounds.
struct Observed {
  OperatorTotals totals;
  std::vector<double> shares;  // of the time of each round
};

void add(Observed &sum, const Observed &part) {
  sum.totals += part.totals;
  sum.shares.resize(std::max(sum.shares.size(), part.shares.size()));
  for (size_t i = 0; i < part.shares.size(); ++i) sum.shares[i] += part.shares[i];
}

// The rounds of a workload: by turns one that is not observed, and one that is.
struct Rounds {
  std::vector<double> step_ms;           // of steps that were not observed
  std::vector<double> observed_step_ms;  // of those that were
  std::map<Key, Observed> operators;
  Observed outside;  // of all operators
  double phase_seconds[std::size(kPhases)] = {};
  double observed_steps = 0;
};

void note_phases(accel_state_t *state, Rounds &rounds) {
  accel_value_t report = ACCEL_VALUE_INIT;
  CHECK(accel_step_report(state, 0, &report));
  const accel_value_t *const latest = accel_value_get(&report, "latest");
  for (size_t i = 0; i < std::size(kPhases); ++i)
    rounds.phase_seconds[i] += accel_value_get(latest, kPhases[i])->as.number;
  accel_value_dispose(&report);
}

void run_observed(training &training, const Workload &workload, size_t round, Rounds &rounds) {
  std::vector<double> seconds(workload.steps);
  const bench::OperatorProfile profile;
  const double begin = measure_now();
  training_run(&training, 0, workload.steps, seconds.data());
  const double elapsed = measure_now() - begin - profile.observing();
  double inside = 0;
  for (const auto &[key, totals] : profile.totals()) {
    Observed part{totals, std::vector<double>(round + 1)};
    part.shares[round] = totals.seconds / elapsed;
    add(rounds.operators[key], part);
    inside += totals.seconds;
  }
  rounds.outside.totals.seconds += elapsed - inside;
  rounds.outside.shares.push_back(1 - inside / elapsed);
  for (const double step : seconds) rounds.observed_step_ms.push_back(step * 1e3);
  rounds.observed_steps += static_cast<double>(workload.steps);
}

Rounds run_rounds(training &training, const Workload &workload, size_t n_rounds) {
  Rounds rounds;
  std::vector<double> seconds(workload.steps);
  training_run(&training, workload.warmup, 0, nullptr);
  for (size_t round = 0; round < n_rounds; ++round) {
    training_run(&training, 0, workload.steps, seconds.data());
    for (const double step : seconds) rounds.step_ms.push_back(step * 1e3);
    note_phases(training.state, rounds);
    run_observed(training, workload, round, rounds);
  }
  for (auto &[key, observed] : rounds.operators) observed.shares.resize(n_rounds);
  return rounds;
}

// The figures of a workload, whose params begin with `params`.
class WorkloadReport {
 public:
  WorkloadReport(accel_state_t *state, const Machine &machine, Members params)
      : state_(state), machine_(machine), params_(std::move(params)) {}

  void print(Rounds &rounds) const {
    print_step(rounds);
    std::vector<std::pair<Key, Observed *>> large;
    Observed small;
    for (auto &[key, observed] : rounds.operators) {
      if (median(observed.shares) >= kSmallShare) {
        large.emplace_back(key, &observed);
      } else {
        add(small, observed);
      }
    }
    std::sort(large.begin(), large.end(), [](const auto &left, const auto &right) {
      return left.second->totals.seconds > right.second->totals.seconds;
    });
    for (const auto &[key, observed] : large) print_operator(key.first, key.second, *observed, rounds.observed_steps);
    if (!small.shares.empty())
      print_operator("other operators", c10::ScalarType::Undefined, small, rounds.observed_steps);
    print_operator("outside of operators", c10::ScalarType::Undefined, rounds.outside, rounds.observed_steps);
  }

 private:
  void print_step(const Rounds &rounds) const {
    double flops = 0, bytes = 0, at_peak = 0, phases = 0;
    for (const auto &[key, observed] : rounds.operators) {
      flops += observed.totals.flops / rounds.observed_steps;
      bytes += observed.totals.bytes / rounds.observed_steps;
      const double peak = machine_.gflops(key.second) * 1e9;
      if (peak > 0) at_peak += observed.totals.flops / rounds.observed_steps / peak;
    }
    const double step_ms = median(rounds.step_ms), observed_ms = median(rounds.observed_step_ms);
    Members extra;
    extra.add("gflops", flops / step_ms / 1e6).add("percent_of_peak", at_peak / step_ms * 1e5);
    extra.add("gb_per_s", bytes / step_ms / 1e6);
    extra.add("observed_ms", observed_ms).add("observing_percent", (observed_ms / step_ms - 1) * 100);
    for (const double seconds : rounds.phase_seconds) phases += seconds;
    for (size_t i = 0; i < std::size(kPhases); ++i)
      extra.add((std::string(kPhases[i]) + "_percent").c_str(), rounds.phase_seconds[i] / phases * 100);
    report(state_, Members(params_).add("operator", "step"), rounds.step_ms, {"ms", false}, extra);
  }

  void print_operator(const std::string &name, c10::ScalarType dtype, const Observed &observed, double steps) const {
    const OperatorTotals &totals = observed.totals;
    std::vector<double> percents = observed.shares;
    for (double &share : percents) share *= 100;
    Members params = Members(params_).add("operator", name), extra;
    if (dtype != c10::ScalarType::Undefined) params.add("dtype", dtype_name(dtype));
    extra.add("ms", totals.seconds / steps * 1e3);
    if (totals.calls > 0) extra.add("calls", static_cast<double>(totals.calls) / steps);
    if (dtype != c10::ScalarType::Undefined) add_rates(totals, dtype, extra);
    report(state_, params, percents, {"percent", false}, extra);
  }

  void add_rates(const OperatorTotals &totals, c10::ScalarType dtype, Members &extra) const {
    if (totals.flops > 0) {
      const double rate = totals.flops / totals.seconds / 1e9, peak = machine_.gflops(dtype);
      extra.add("gflops", rate);
      if (peak > 0) extra.add("percent_of_peak", rate / peak * 100);
    }
    if (totals.bytes > 0) {
      const double rate = totals.bytes / totals.seconds / 1e9,
                   per_call = totals.bytes / static_cast<double>(totals.calls);
      extra.add("mb_per_call", per_call / (1 << 20)).add("gb_per_s", rate);
      extra.add("percent_of_bandwidth", rate / machine_.copy_rate(per_call) * 100);
    }
  }

  accel_state_t *state_;
  const Machine &machine_;
  Members params_;
};

void run_workload(const Workload &workload, const std::string &precision, const Machine &machine, int threads,
                  size_t n_rounds) {
  accel_state_t *const state = workload_state("cpu", precision.c_str(), workload.accumulate);
  CHECK(accel_set_seed(state, 0, 0, 0));
  training training = {};
  workload.prepare(&training, state, workload.warmup + 2 * n_rounds * workload.steps);
  Rounds rounds = run_rounds(training, workload, n_rounds);
  const auto params =
      Members().add("workload", workload.name).add("precision", precision).add("threads", int64_t{threads});
  WorkloadReport(state, machine, params).print(rounds);
  CHECK(accel_end_training(state));
  training_release(&training);
  accel_state_release(state);
}

std::vector<std::string> split(const char *list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

const Workload &find_workload(const std::string &name) {
  for (const Workload &workload : kWorkloads)
    if (name == workload.name) return workload;
  std::fprintf(stderr, "workload %s is not known\n", name.c_str());
  std::exit(2);
}

}  // namespace

int main(int argc, char **argv) {
  enum { WORKLOADS, PRECISION, THREADS, ROUNDS, MEMORY_MIB, MILLISECONDS, N_OPTIONS };
  option_value options[N_OPTIONS] = {{"--workloads", "train_gpt,train_mlp"},
                                     {"--precision", "no,bf16"},
                                     {"--threads", "1"},
                                     {"--rounds", "5"},
                                     {"--memory-mib", "0"},
                                     {"--milliseconds", "300"}};
  measure_begin(argc, argv, options, N_OPTIONS);
  const int threads = static_cast<int>(std::max<int64_t>(measure_integer(&options[THREADS]), 1));
  const auto n_rounds = static_cast<size_t>(std::max<int64_t>(measure_integer(&options[ROUNDS]), 1));
  const double seconds = static_cast<double>(measure_integer(&options[MILLISECONDS])) / 1e3;

  auto memory = std::make_unique<bench::Memory>(static_cast<size_t>(measure_integer(&options[MEMORY_MIB])) << 20);
  if (threads > 1) Machine(*memory, 1, seconds);
  const Machine machine(*memory, threads, seconds);
  memory.reset();

  for (const std::string &name : split(options[WORKLOADS].value))
    for (const std::string &precision : split(options[PRECISION].value))
      run_workload(find_workload(name), precision, machine, threads, n_rounds);
  return 0;
}
