#include "kernels/emulated_products.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>

#include "base/error.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/half_values.hpp"
#include "kernels/measured_tables.hpp"
#include "kernels/product_timing.hpp"

namespace accel::kernels {
namespace {

// The float32 product enters where products are routed, as it would from the program.
constexpr c10::DispatchKeySet kRoutes({c10::DispatchKey::BackendSelect, c10::DispatchKey::CPU});
constexpr c10::DispatchKeySet kLibTorch(c10::DispatchKey::CPU);

constexpr double kMostEmulatedTime = 0.9;  // part of LibTorch's time with which an emulated product is chosen
// Ratios of times of the probe that decide alone: the first where LibTorch's kernel is the faster one, the second where
// it is so slow that larger products would take too long to measure.
constexpr double kFast = 2, kHopeless = 8;
constexpr double kLeastEmulatedWork = 1 << 14;  // where all larger products are emulated too
constexpr Product kSmallest = {1, 32, 32, 32, Layout::kPlain};
constexpr Product kProbe = {1, 64, 256, 256, Layout::kPlain};  // small: some kernels of halves do 1 GFLOPS

double time_half_product(at::ScalarType dtype, const Product& product, bool emulated) {
  const at::Tensor first = ones_of(product.rows, product.inner, product.layout == Layout::kFirstTransposed, dtype);
  const at::Tensor second = ones_of(product.inner, product.columns, product.layout == Layout::kSecondTransposed, dtype);
  at::Tensor result = at::empty({product.rows, product.columns}, dtype);
  if (emulated) return shortest_time([&] { emulated_product(first, second, result); });
  return shortest_time([&] { at::_ops::mm_out::redispatch(kLibTorch, first, second, result); });
}

template <at::ScalarType kDtype>
ProductTable measure_emulation() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto time = [](const Product& product, bool emulated) { return time_half_product(kDtype, product, emulated); };
  time(kProbe, true);  // the first product of a process has to load and to allocate
  double emulated = std::numeric_limits<double>::max(), normal = emulated;
  for (int round = 0; round < 2; ++round) {
    emulated = std::min(emulated, time(kProbe, true));
    normal = std::min(normal, time(kProbe, false));
  }
  if (emulated > kFast * normal) return ProductTable();
  if (kHopeless * emulated < normal) return ProductTable::from(kLeastEmulatedWork);
  const ProductTable table = ProductTable::measured(time, kMostEmulatedTime);
  const bool all = table.routes_all() && time(kSmallest, true) < kMostEmulatedTime * time(kSmallest, false);
  return all ? ProductTable::from(kLeastEmulatedWork) : table;
}

struct Emulation {
  std::atomic<EmulationChoice> choice{EmulationChoice::kMeasured};
  MeasuredTables bfloat16{"bfloat16", measure_emulation<at::kBFloat16>};
  MeasuredTables half{"float16", measure_emulation<at::kHalf>};

  MeasuredTables& of(at::ScalarType dtype) { return dtype == at::kBFloat16 ? bfloat16 : half; }
};

// Never destroyed: products may run while the process ends.
Emulation& emulation() {
  static Emulation& instance = *std::make_unique<Emulation>().release();
  return instance;
}

// As routes see it; null where nothing is emulated.
const ProductTable* table_of(at::ScalarType dtype) {
  static const ProductTable all = ProductTable::from(kLeastEmulatedWork);
  switch (emulation().choice.load(std::memory_order_relaxed)) {
    case EmulationChoice::kAll:
      return &all;
    case EmulationChoice::kNone:
      return nullptr;
    default:
      return &emulation().of(dtype).table();
  }
}

bool is_column_major(const at::Tensor& matrix) { return matrix.stride(-2) == 1 && matrix.stride(-1) != 1; }

bool is_half_matrix(const at::Tensor& tensor, at::ScalarType dtype, int64_t dim) {
  return tensor.dim() == dim && tensor.scalar_type() == dtype && tensor.layout() == at::kStrided && tensor.is_cpu();
}

// Rows of the result that are computed at a time. While a piece is in the second-level cache its conversions cost
// little; but each piece reads the whole second factor, in the order of its columns if it is transposed, which costs
// more than that saves unless it stays in the cache too.
int64_t rows_of_piece(const at::Tensor& first, const at::Tensor& second) {
  constexpr int64_t kRowsOfThread = 128, kMostNumbers = 1 << 18;
  const bool is_whole =
      second.dim() == 3 || second.numel() > kMostNumbers || (is_column_major(second) && !is_column_major(first));
  return is_whole ? first.size(-2) : kRowsOfThread * at::get_num_threads();
}

// Calls multiply(first, second, values, row) with both factors in float32, for the rows of the result from `row` on.
template <typename Multiply>
void for_all_pieces(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second,
                    const at::Tensor& result, const Multiply& multiply) {
  const at::Tensor exact_second = to_float32(second);
  const bool may_be_overwritten = result.is_alias_of(first) || (result.is_alias_of(added) && !result.is_same(added));
  const int64_t all = first.size(-2), most = may_be_overwritten ? all : std::min(all, rows_of_piece(first, second));
  const at::Tensor room =
      at::empty(result.dim() == 3 ? result.sizes() : c10::IntArrayRef({most, result.size(1)}), exact_second.options());
  if (most == all) {
    multiply(to_float32(first), exact_second, room, 0);
    return round_into(room, result);
  }
  for (int64_t row = 0; row < all; row += most) {
    const int64_t count = std::min(most, all - row);
    const at::Tensor values = room.narrow(0, 0, count);
    multiply(to_float32(first.narrow(0, row, count)), exact_second, values, row);
    round_into(values, result.narrow(0, row, count));
  }
}

}  // namespace

void choose_emulation(EmulationChoice choice) { emulation().choice.store(choice, std::memory_order_relaxed); }

bool is_emulated(at::ScalarType dtype) {
  if (!is_half(dtype)) return false;
  const ProductTable* const table = table_of(dtype);
  return table != nullptr && table->routes_any();
}

// Asked of every product of LibTorch, so the cheapest questions come first.
bool is_emulated(const at::Tensor& first, const at::Tensor& second, int64_t dim) {
  const at::ScalarType dtype = first.scalar_type();
  if (!is_half(dtype) || !is_half_matrix(first, dtype, dim) || !is_half_matrix(second, dtype, dim)) return false;
  Product product{dim == 3 ? first.size(0) : 1, first.size(-2), first.size(-1), second.size(-1), Layout::kPlain};
  if (second.size(-2) != product.inner || (dim == 3 && second.size(0) != product.batch)) return false;
  if (!ProductTable::is_thick(product) || !compute_policy().routed_products) return false;
  if (is_column_major(first))
    product.layout = Layout::kFirstTransposed;
  else if (is_column_major(second))
    product.layout = Layout::kSecondTransposed;
  const ProductTable* const table = table_of(dtype);
  return table != nullptr && table->routes(product);
}

void emulated_product(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result) {
  for_all_pieces(result, first, second, result,
                 [](const at::Tensor& a, const at::Tensor& b, at::Tensor values, int64_t) {
                   if (a.dim() == 2)
                     at::_ops::mm_out::redispatch(kRoutes, a, b, values);
                   else
                     at::_ops::bmm_out::redispatch(kRoutes, a, b, values);
                 });
}

void emulated_sum(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, double beta, double alpha,
                  const at::Tensor& result) {
  const at::Tensor whole = added.expand(result.sizes());
  for_all_pieces(added, first, second, result,
                 [&](const at::Tensor& a, const at::Tensor& b, at::Tensor values, int64_t row) {
                   if (beta != 0) values.copy_(a.dim() == 2 ? whole.narrow(0, row, values.size(0)) : whole);
                   if (a.dim() == 2)
                     at::_ops::addmm_::redispatch(kRoutes, values, a, b, beta, alpha);
                   else
                     at::_ops::baddbmm_::redispatch(kRoutes, values, a, b, beta, alpha);
                 });
}

double emulated_speed() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  constexpr Product kTypical = {1, 256, 256, 512, Layout::kPlain};
  constexpr int kRounds = 3;
  const at::Tensor first = ones_of(kTypical.rows, kTypical.inner, false, at::kFloat);
  const at::Tensor second = ones_of(kTypical.inner, kTypical.columns, false, at::kFloat);
  at::Tensor result = at::empty({kTypical.rows, kTypical.columns}, at::kFloat);
  double normal = std::numeric_limits<double>::max(), emulated = normal;
  for (int round = 0; round < kRounds; ++round) {
    normal = std::min(normal, shortest_time([&] { at::_ops::mm_out::redispatch(kLibTorch, first, second, result); }));
    const at::Tensor half_first = rounded(first, at::kBFloat16), half_second = rounded(second, at::kBFloat16);
    emulated =
        std::min(emulated, shortest_time([&] {
                   const at::Tensor exact_first = to_float32(half_first), exact_second = to_float32(half_second);
                   rounded(at::_ops::mm_out::redispatch(kLibTorch, exact_first, exact_second, result), at::kBFloat16);
                 }));
  }
  return normal / emulated;
}

std::string describe_emulation(at::ScalarType dtype) {
  const EmulationChoice choice = emulation().choice.load();
  if (choice == EmulationChoice::kAll) return "float32 with rounded values";
  const MeasuredTables::Measured* const measured = emulation().of(dtype).find();
  if (choice == EmulationChoice::kNone) return "LibTorch's kernels";
  if (measured == nullptr) return "measured at the first product";
  return text(
      measured->table.routes_any() ? "float32 with rounded values" : "LibTorch's kernels, which are faster here", "; ",
      measured->source);
}

}  // namespace accel::kernels
