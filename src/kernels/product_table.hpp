// From which size on a product is faster by another way than LibTorch's default, on this processor. For float32 that is
// oneDNN: both are exact float32; on Intel's processors the default (MKL) usually wins everywhere, on others it runs a
// slow path. For halves it is float32 arithmetic (emulated_products.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace accel::kernels {

// How the two factors lie in memory; what is neither row-major nor its transpose is not routed.
enum class Layout : uint8_t { kPlain, kSecondTransposed, kFirstTransposed };
// By the smallest of the three sizes; below kThin nothing is routed.
enum class Shape : uint8_t { kThin, kBulky };

struct Product {
  int64_t batch, rows, inner, columns;
  Layout layout;

  // Multiply-adds.
  double work() const {
    return static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(inner) *
           static_cast<double>(columns);
  }
};

class ProductTable {
 public:
  // Seconds that a product takes by the other way, or by the default.
  using Measure = std::function<double(const Product& product, bool routed)>;

  // False for float32 products that no table routes: they are so small that oneDNN's constant cost decides.
  static bool may_route(const Product& product);
  // False where rows, columns or terms are so few that no table routes the product in any dtype.
  static bool is_thick(const Product& product);

  // From a size on that pays on every processor where oneDNN is faster at all.
  static ProductTable always();
  // All from this number of multiply-adds on.
  static ProductTable from(double least_work);
  // Asks at most 65 times. oneDNN is chosen where a large product takes it at most this part of the default's time.
  // What is known beforehand decides where measurements do not: the default, MKL, is made for Intel's processors, and
  // on others takes a path that is never the better one for large products.
  static constexpr double kMostTimeOnIntel = 0.9, kMostTimeElsewhere = 1.05;
  static ProductTable measured(const Measure& measure, double most_time);

  bool routes(const Product& product) const;
  bool routes_any() const;
  bool routes_all() const;  // large products of every layout and shape

  std::string to_json() const;
  // Nothing for what to_json() did not write.
  static std::optional<ProductTable> from_json(const std::string& document);

  bool operator==(const ProductTable& other) const { return least_work_ == other.least_work_; }

 private:
  static constexpr size_t kLayouts = 3;
  static constexpr size_t kShapes = 2;
  double& least_work(Layout layout, Shape shape);
  double least_work(Layout layout, Shape shape) const;

  std::array<double, kLayouts * kShapes> least_work_{};  // 0: none is routed
};

}  // namespace accel::kernels
