// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/autotune_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "json/json.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kSkinnyFrom = 16;  // the smallest dimension of a skinny matmul
constexpr int64_t kBulkyFrom = 64;   // and of a bulky one
constexpr double kMinGain = 0.97;    // fraction of the default's time at the threshold
// Below this gain, as a fraction of the default's time, the size would depend on noise: it is kCloseFrom.
constexpr double kClearGain = 0.1, kCloseFrom = 1 << 22;
constexpr int kRounds = 5;         // alternating, so that other load on the machine affects both kernels
constexpr double kClearRatio = 2;  // two rounds suffice for this ratio of times
constexpr double kMinMultiplyAdds = 1 << 18;
constexpr double kAlwaysFrom = 1 << 21;
constexpr std::array<Layout, 3> kAllLayouts = {Layout::kPlain, Layout::kSecondTransposed, Layout::kFirstTransposed};
constexpr std::array<Shape, 2> kAllShapes = {Shape::kSkinny, Shape::kBulky};
constexpr const char* kMember = "least_multiply_adds";

int64_t smallest(const Gemm& gemm) { return std::min({gemm.rows, gemm.inner, gemm.columns}); }

constexpr Gemm kSmall = {1, 32, 32, 32, Layout::kPlain};

// The shapes are those of training: many rows of activations, for which the gradient of a weight adds up products of
// columns.
Gemm large_gemm(Layout layout, Shape shape) {
  if (shape == Shape::kSkinny) return {1, 32, 512, 1024, layout};
  if (layout == Layout::kFirstTransposed) return {1, 512, 1024, 256, layout};
  return {1, 1024, 256, 512, layout};
}

// The size from which the alternative, which has a fixed cost per call, is faster; rounded up to a power of two, so
// that measuring again finds the same one. `small` is the alternative's time for kSmall.
double break_even(const AutotuneTable::Timer& time, double max_time, double small, Layout layout, Shape shape) {
  const Gemm large = large_gemm(layout, shape);
  double normal = std::numeric_limits<double>::max(), alternative = normal;
  for (int round = 0; round < kRounds; ++round) {
    normal = std::min(normal, time(large, false));
    alternative = std::min(alternative, time(large, true));
    if (round > 0 && (alternative > kClearRatio * normal || kClearRatio * alternative < normal)) break;
  }
  if (alternative > max_time * normal) return 0;
  const double fixed_cost = std::max(small - alternative * kSmall.multiply_adds() / large.multiply_adds(), 0.0);
  const double gain =
      (normal * kMinGain - (alternative - fixed_cost)) / large.multiply_adds();  // seconds per multiply-add
  const double most = large.multiply_adds() / 2;  // a kernel that wins on the large matmul wins on one of half its size
  if (gain * large.multiply_adds() < kClearGain * normal) return std::min(kCloseFrom, most);
  const double from = fixed_cost / gain;
  return std::exp2(std::ceil(std::log2(std::clamp(from, kMinMultiplyAdds, most))));
}

}  // namespace

double& AutotuneTable::threshold(Layout layout, Shape shape) {
  return thresholds_[static_cast<size_t>(layout) * kShapes + static_cast<size_t>(shape)];
}

double AutotuneTable::threshold(Layout layout, Shape shape) const {
  return thresholds_[static_cast<size_t>(layout) * kShapes + static_cast<size_t>(shape)];
}

bool AutotuneTable::is_wide_enough(const Gemm& gemm) { return smallest(gemm) >= kSkinnyFrom; }

bool AutotuneTable::may_select(const Gemm& gemm) {
  return is_wide_enough(gemm) && gemm.multiply_adds() >= kMinMultiplyAdds;
}

AutotuneTable AutotuneTable::always() { return from(kAlwaysFrom); }

AutotuneTable AutotuneTable::from(double min_multiply_adds) {
  AutotuneTable table;
  table.thresholds_.fill(min_multiply_adds);
  return table;
}

AutotuneTable AutotuneTable::measure(const Timer& time, double max_time) {
  AutotuneTable table;
  double small = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) small = std::min(small, time(kSmall, true));
  for (const Layout layout : kAllLayouts)
    for (const Shape shape : kAllShapes)
      table.threshold(layout, shape) = break_even(time, max_time, small, layout, shape);
  return table;
}

bool AutotuneTable::selects(const Gemm& gemm) const {
  if (!is_wide_enough(gemm)) return false;
  const double least = threshold(gemm.layout, smallest(gemm) < kBulkyFrom ? Shape::kSkinny : Shape::kBulky);
  return least > 0 && gemm.multiply_adds() >= least;
}

bool AutotuneTable::selects_any() const {
  return std::any_of(thresholds_.begin(), thresholds_.end(), [](double least) { return least > 0; });
}

bool AutotuneTable::selects_all() const {
  return std::all_of(thresholds_.begin(), thresholds_.end(), [](double least) { return least > 0; });
}

std::string AutotuneTable::to_json() const {
  Json::Items list;
  for (const double least : thresholds_) list.push_back(Json::number(least));
  Json::Members members;
  members.emplace_back(kMember, std::move(list));
  return print_json(Json(std::move(members)));
}

std::optional<AutotuneTable> AutotuneTable::from_json(const std::string& document) try {
  const Json json = parse_json(document, "the table of products");
  const Json* const list = json_member(json, kMember);
  AutotuneTable table;
  if (list == nullptr || list->items() == nullptr || list->items()->size() != table.thresholds_.size())
    return std::nullopt;
  size_t index = 0;
  for (const Json& item : *list->items()) {
    const auto least = item.number();
    if (!least || !(*least >= 0)) return std::nullopt;
    table.thresholds_[index++] = *least;
  }
  return table;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace accel::kernels
