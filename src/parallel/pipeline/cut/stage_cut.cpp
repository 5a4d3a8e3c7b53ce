// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline/cut/stage_cut.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/byte_size.hpp"
#include "base/error.hpp"

namespace accel::parallel {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;  // sums of the same costs in other orders differ by less

class Cutter {
 public:
  Cutter(const std::vector<ChainPart>& parts, int stages, const std::vector<int64_t>& max_bytes)
      : n_parts_(parts.size()), n_stages_(static_cast<size_t>(stages)), max_bytes_(max_bytes) {
    for (const ChainPart& part : parts) {
      costs_.push_back(costs_.back() + part.cost);
      bytes_.push_back(bytes_.back() + part.bytes);
    }
  }

  // The least cost of the most expensive stage; infinite if no cut keeps to the bytes.
  double least_largest() {
    return solve([this](double before, size_t begin, size_t end) { return std::max(before, cost(begin, end)); });
  }

  // The cut with the least sum of squares, no stage of which costs more than `largest`.
  StageBegins evenest(double largest) {
    solve([this, largest](double before, size_t begin, size_t end) {
      const double one = cost(begin, end);
      return one > largest * (1 + kRounding) ? kInfinite : before + one * one;
    });
    StageBegins begins(n_stages_);
    size_t end = n_parts_;
    for (size_t stage = n_stages_; stage-- > 0;) end = begins[stage] = begin_of_[stage][end];
    return begins;
  }

 private:
  double cost(size_t begin, size_t end) const { return costs_[end] - costs_[begin]; }

  bool fits(size_t stage, size_t begin, size_t end) const {
    return max_bytes_.empty() || bytes_[end] - bytes_[begin] <= max_bytes_[stage];
  }

  // The best value of a cut of all parts. `value` is that of stages up to one with the parts [begin, end), where
  // `before` is that of the stages before it. Fills begin_of_: where the stage begins in the best cut of [0, end).
  template <typename Value>
  double solve(const Value& value) {
    std::vector<double> best(n_parts_ + 1, kInfinite);
    best[0] = 0;
    begin_of_.assign(n_stages_, std::vector<size_t>(n_parts_ + 1));
    for (size_t stage = 0; stage < n_stages_; stage++) {
      std::vector<double> next(n_parts_ + 1, kInfinite);
      for (size_t end = stage + 1; end <= n_parts_; end++)
        for (size_t begin = stage; begin < end; begin++) {
          if (best[begin] == kInfinite || !fits(stage, begin, end)) continue;
          const double found = value(best[begin], begin, end);
          if (found >= next[end]) continue;
          next[end] = found;
          begin_of_[stage][end] = begin;
        }
      best = std::move(next);
    }
    return best[n_parts_];
  }

  const size_t n_parts_, n_stages_;
  const std::vector<int64_t>& max_bytes_;
  std::vector<double> costs_{0};   // of the parts before each
  std::vector<int64_t> bytes_{0};  // the same
  std::vector<std::vector<size_t>> begin_of_;
};

void require_stages(size_t parts, int stages) {
  require(stages >= 1 && static_cast<size_t>(stages) <= parts, Status::kInvalidArgument, "the model has ", parts,
          " parts, which cannot be ", stages, " stages; take fewer ranks or stages_per_rank");
}

std::vector<std::string> split_at_commas(const std::string& line) {
  std::vector<std::string> words(1);
  for (const char letter : line) {
    if (letter == ',')
      words.emplace_back();
    else if (letter != ' ')
      words.back() += letter;
  }
  return words;
}

int64_t read_limit(const std::string& word) {
  const bool is_number = !word.empty() && word.size() < 19 && word.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::strtoll(word.c_str(), nullptr, 10) : parse_byte_size(word);
}

int64_t bytes_of(const std::vector<ChainPart>& parts, size_t begin, size_t end) {
  int64_t sum = 0;
  for (size_t part = begin; part < end; part++) sum += parts[part].bytes;
  return sum;
}

// A cut whose stages are as full as their bytes allow, in turn, and have a part at least. If it does not fit, none
// does.
StageBegins fill_stages(const std::vector<ChainPart>& parts, const std::vector<int64_t>& max_bytes) {
  StageBegins begins{0};
  for (size_t stage = 0; stage + 1 < max_bytes.size(); stage++) {
    const size_t most = parts.size() - (max_bytes.size() - 1 - stage);  // the others have a part each
    size_t end = begins.back() + 1;
    while (end < most && bytes_of(parts, begins.back(), end + 1) <= max_bytes[stage]) end++;
    begins.push_back(end);
  }
  return begins;
}

// The counts, if all words are numbers.
std::optional<std::vector<size_t>> counts_of(const std::vector<std::string>& words) {
  std::vector<size_t> counts;
  for (const std::string& word : words) {
    if (word.empty() || word.find_first_not_of("0123456789") != std::string::npos || word.size() > 9)
      return std::nullopt;
    counts.push_back(std::strtoul(word.c_str(), nullptr, 10));
  }
  return counts;
}

StageBegins begins_of_counts(const std::string& split, const std::vector<size_t>& counts, size_t parts) {
  const size_t sum = std::accumulate(counts.begin(), counts.end(), size_t{0});
  require(sum == parts && std::find(counts.begin(), counts.end(), 0) == counts.end(), Status::kInvalidArgument,
          "split \"", split, "\" has ", sum, " parts; expected 1 or more a stage, ", parts, " together");
  StageBegins begins{0};
  for (size_t stage = 0; stage + 1 < counts.size(); stage++) begins.push_back(begins.back() + counts[stage]);
  return begins;
}

StageBegins begins_of_names(const std::string& split, const std::vector<std::string>& names,
                            const std::vector<ChainPart>& parts) {
  StageBegins begins{0};
  for (const std::string& name : names) {
    const auto named =
        std::find_if(parts.begin(), parts.end(), [&name](const ChainPart& part) { return part.name == name; });
    require(named != parts.end(), Status::kInvalidArgument, "split \"", split, "\" names \"", name,
            "\", which is not a part of the model; expected a name such as \"", parts.back().name,
            "\", counts of parts, \"parameters\", \"flops\" or \"measured\"");
    const auto part = static_cast<size_t>(named - parts.begin());
    require(part > begins.back(), Status::kInvalidArgument, "split \"", split, "\" names \"", name,
            "\" behind or with a part that begins no later; give the stages in the order of the model");
    begins.push_back(part);
  }
  return begins;
}

}  // namespace

StageBegins cut_by_cost(const std::vector<ChainPart>& parts, int stages, const std::vector<int64_t>& max_bytes) {
  require_stages(parts.size(), stages);
  Cutter cutter(parts, stages, max_bytes);
  const double largest = cutter.least_largest();
  if (largest == kInfinite) require_room(parts, fill_stages(parts, max_bytes), max_bytes);
  return cutter.evenest(largest);
}

std::vector<int64_t> read_stage_limits(const std::string& sizes, int stages) {
  if (sizes.empty()) return {};
  std::vector<int64_t> limits;
  for (const std::string& word : split_at_commas(sizes)) limits.push_back(read_limit(word));
  if (limits.size() == 1) limits.resize(static_cast<size_t>(stages), limits.front());
  require(limits.size() == static_cast<size_t>(stages), Status::kInvalidArgument, "max_memory \"", sizes, "\" has ",
          limits.size(), " sizes; expected one, or one for each of ", stages, " stages");
  return limits;
}

void require_room(const std::vector<ChainPart>& parts, const StageBegins& begins,
                  const std::vector<int64_t>& max_bytes) {
  for (size_t stage = 0; stage < max_bytes.size(); stage++) {
    const size_t end = stage + 1 < begins.size() ? begins[stage + 1] : parts.size();
    const int64_t needed = bytes_of(parts, begins[stage], end);
    require(needed <= max_bytes[stage], Status::kOutOfMemory, "stage ", stage, " of ", begins.size(), ", '",
            parts[begins[stage]].name, "' to '", parts[end - 1].name, "', needs ", needed,
            " bytes for its parameters, and max_memory allows ", max_bytes[stage],
            "; expected more stages, or more memory for it");
  }
}

StageBegins cut_as_said(const std::string& split, const std::vector<ChainPart>& parts, int stages) {
  require_stages(parts.size(), stages);
  const std::vector<std::string> words = split_at_commas(split);
  const auto counts = counts_of(words);
  const StageBegins begins =
      counts ? begins_of_counts(split, *counts, parts.size()) : begins_of_names(split, words, parts);
  require(begins.size() == static_cast<size_t>(stages), Status::kInvalidArgument, "split \"", split, "\" makes ",
          begins.size(), " stages; expected ", stages);
  return begins;
}

bool is_cost_kind(const std::string& split) { return split == "parameters" || split == "flops" || split == "measured"; }

std::vector<double> stage_costs(const std::vector<ChainPart>& parts, const StageBegins& begins) {
  std::vector<double> costs;
  for (size_t stage = 0; stage < begins.size(); stage++) {
    const size_t end = stage + 1 < begins.size() ? begins[stage + 1] : parts.size();
    costs.push_back(0);
    for (size_t part = begins[stage]; part < end; part++) costs.back() += parts[part].cost;
  }
  return costs;
}

}  // namespace accel::parallel
