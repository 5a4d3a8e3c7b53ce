#include "kernels/product_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/json.hpp"

namespace accel::kernels {
namespace {

constexpr int64_t kThinFrom = 16;    // the smallest size of a thin product
constexpr int64_t kBulkyFrom = 64;   // and of a bulky one
constexpr double kLeastGain = 0.97;  // part of the default's time at the smallest product that is routed
constexpr int kRounds = 5;           // by turns, so that what else the machine does meets both
constexpr double kClear = 2;         // a ratio that two rounds tell
constexpr double kLeastWork = 1 << 18;
constexpr double kAlwaysFrom = 1 << 21;
constexpr std::array<Layout, 3> kAllLayouts = {Layout::kPlain, Layout::kSecondTransposed, Layout::kFirstTransposed};
constexpr std::array<Shape, 2> kAllShapes = {Shape::kThin, Shape::kBulky};
constexpr const char* kMember = "least_multiply_adds";

int64_t smallest(const Product& product) { return std::min({product.rows, product.inner, product.columns}); }

constexpr Product kSmall = {1, 32, 32, 32, Layout::kPlain};

Product large_product(Layout layout, Shape shape) {
  if (shape == Shape::kBulky) return {1, 128, 512, 512, layout};
  return {1, 32, 512, 1024, layout};
}

// The size from which on oneDNN, which has a constant cost for each call, is faster; rounded up to a power of two, so
// that it comes out the same when it is measured again. `least` is what oneDNN takes for the small product.
double break_even(const ProductTable::Measure& measure, double most_time, double least, Layout layout, Shape shape) {
  const Product large = large_product(layout, shape);
  double normal = std::numeric_limits<double>::max(), onednn = normal;
  for (int round = 0; round < kRounds; ++round) {
    normal = std::min(normal, measure(large, false));
    onednn = std::min(onednn, measure(large, true));
    if (round > 0 && (onednn > kClear * normal || kClear * onednn < normal)) break;
  }
  if (onednn > most_time * normal) return 0;
  const double constant = std::max(least - onednn * kSmall.work() / large.work(), 0.0);
  const double gain = (normal * kLeastGain - (onednn - constant)) / large.work();  // seconds for each multiply-add
  const double most = large.work() / 2;  // what wins on the large product does on one of half its size
  const double from = gain > 0 ? constant / gain : most;
  return std::exp2(std::ceil(std::log2(std::clamp(from, kLeastWork, most))));
}

}  // namespace

double& ProductTable::least_work(Layout layout, Shape shape) {
  return least_work_[static_cast<size_t>(layout) * kShapes + static_cast<size_t>(shape)];
}

double ProductTable::least_work(Layout layout, Shape shape) const {
  return least_work_[static_cast<size_t>(layout) * kShapes + static_cast<size_t>(shape)];
}

bool ProductTable::is_thick(const Product& product) { return smallest(product) >= kThinFrom; }

bool ProductTable::may_route(const Product& product) { return is_thick(product) && product.work() >= kLeastWork; }

ProductTable ProductTable::always() { return from(kAlwaysFrom); }

ProductTable ProductTable::from(double least_work) {
  ProductTable table;
  table.least_work_.fill(least_work);
  return table;
}

ProductTable ProductTable::measured(const Measure& measure, double most_time) {
  ProductTable table;
  double least = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) least = std::min(least, measure(kSmall, true));
  for (const Layout layout : kAllLayouts)
    for (const Shape shape : kAllShapes)
      table.least_work(layout, shape) = break_even(measure, most_time, least, layout, shape);
  return table;
}

bool ProductTable::routes(const Product& product) const {
  if (!is_thick(product)) return false;
  const double least = least_work(product.layout, smallest(product) < kBulkyFrom ? Shape::kThin : Shape::kBulky);
  return least > 0 && product.work() >= least;
}

bool ProductTable::routes_any() const {
  return std::any_of(least_work_.begin(), least_work_.end(), [](double least) { return least > 0; });
}

bool ProductTable::routes_all() const {
  return std::all_of(least_work_.begin(), least_work_.end(), [](double least) { return least > 0; });
}

std::string ProductTable::to_json() const {
  Json::Items list;
  for (const double least : least_work_) list.push_back(Json::number(least));
  Json::Members members;
  members.emplace_back(kMember, std::move(list));
  return print_json(Json(std::move(members)));
}

std::optional<ProductTable> ProductTable::from_json(const std::string& document) try {
  const Json json = parse_json(document, "the table of products");
  const Json* const list = json_member(json, kMember);
  ProductTable table;
  if (list == nullptr || list->items() == nullptr || list->items()->size() != table.least_work_.size())
    return std::nullopt;
  size_t index = 0;
  for (const Json& item : *list->items()) {
    const auto least = item.number();
    if (!least || !(*least >= 0)) return std::nullopt;
    table.least_work_[index++] = *least;
  }
  return table;
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace accel::kernels
