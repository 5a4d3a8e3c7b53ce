// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/emulated_matmul.hpp"

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
#include "kernels/matmul/autotuner.hpp"
#include "kernels/matmul/matmul_timing.hpp"
#include "kernels/matmul/microkernel.hpp"
#include "kernels/matmul/tiled_matmul.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

// The float32 matmul passes through our dispatcher overrides too, as one of the application would.
constexpr c10::DispatchKeySet kWithOverrides({c10::DispatchKey::BackendSelect, c10::DispatchKey::CPU});
constexpr c10::DispatchKeySet kLibTorch(c10::DispatchKey::CPU);

constexpr double kMaxEmulatedTime = 0.9;  // emulation is chosen below this fraction of LibTorch's time
// Ratios of the probe's times that decide without further measurements: LibTorch's kernel is clearly faster, or so slow
// that measuring larger matrices would take too long.
constexpr double kFast = 2, kHopeless = 8;
constexpr double kMinEmulatedWork = 1 << 14;  // multiply-adds; used where every larger matmul is emulated too
constexpr Gemm kSmallest = {1, 32, 32, 32, Layout::kPlain};
constexpr Gemm kProbe = {1, 64, 256, 256, Layout::kPlain};  // small: some half-precision kernels reach only 1 GFLOPS

double time_half_matmul(at::ScalarType dtype, const Gemm& gemm, bool emulated) {
  const at::Tensor first = ones_of(gemm.rows, gemm.inner, gemm.layout == Layout::kFirstTransposed, dtype);
  const at::Tensor second = ones_of(gemm.inner, gemm.columns, gemm.layout == Layout::kSecondTransposed, dtype);
  at::Tensor result = at::empty({gemm.rows, gemm.columns}, dtype);
  if (emulated) return shortest_time([&] { emulated_matmul(first, second, result); });
  return shortest_time([&] { at::_ops::mm_out::redispatch(kLibTorch, first, second, result); });
}

template <at::ScalarType kDtype>
AutotuneTable measure_emulation() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto time = [](const Gemm& gemm, bool emulated) { return time_half_matmul(kDtype, gemm, emulated); };
  time(kProbe, true);  // warm-up
  double emulated = std::numeric_limits<double>::max(), normal = emulated;
  for (int round = 0; round < 2; ++round) {
    emulated = std::min(emulated, time(kProbe, true));
    normal = std::min(normal, time(kProbe, false));
  }
  if (emulated > kFast * normal) return AutotuneTable();
  if (kHopeless * emulated < normal) return AutotuneTable::from(kMinEmulatedWork);
  const AutotuneTable table = AutotuneTable::measure(time, kMaxEmulatedTime);
  const bool all = table.selects_all() && time(kSmallest, true) < kMaxEmulatedTime * time(kSmallest, false);
  return all ? AutotuneTable::from(kMinEmulatedWork) : table;
}

struct Emulation {
  std::atomic<EmulationChoice> choice{EmulationChoice::kMeasured};
  Autotuner bfloat16{"bfloat16", measure_emulation<at::kBFloat16>};
  Autotuner half{"float16", measure_emulation<at::kHalf>};

  Autotuner& of(at::ScalarType dtype) { return dtype == at::kBFloat16 ? bfloat16 : half; }
};

// Never destroyed: a matmul may run while the process ends.
Emulation& emulation() {
  static Emulation& instance = *std::make_unique<Emulation>().release();
  return instance;
}

// Null where nothing is emulated.
const AutotuneTable* table_of(at::ScalarType dtype) {
  static const AutotuneTable all = AutotuneTable::from(kMinEmulatedWork);
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

// Rows of the result in a tile. The conversions of a tile that fits the L2 cache cost little; but every tile reads the
// whole second matrix (by columns if it is transposed), which costs more than that saves unless that matrix stays in
// the cache too.
int64_t rows_per_tile(const at::Tensor& first, const at::Tensor& second) {
  constexpr int64_t kRowsPerThread = 128, kMaxElements = 1 << 18;
  const bool is_whole =
      second.dim() == 3 || second.numel() > kMaxElements || (is_column_major(second) && !is_column_major(first));
  return is_whole ? first.size(-2) : kRowsPerThread * at::get_num_threads();
}

// Calls multiply(first, second, values, row) in float32 for each tile, whose first row of the result is `row`.
template <typename Multiply>
void for_each_tile(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, const at::Tensor& result,
                   const Multiply& multiply) {
  const at::Tensor exact_second = to_float32(second);
  const bool may_be_overwritten = result.is_alias_of(first) || (result.is_alias_of(added) && !result.is_same(added));
  const int64_t all = first.size(-2), most = may_be_overwritten ? all : std::min(all, rows_per_tile(first, second));
  const at::Tensor buffer =
      at::empty(result.dim() == 3 ? result.sizes() : c10::IntArrayRef({most, result.size(1)}), exact_second.options());
  if (most == all) {
    multiply(to_float32(first), exact_second, buffer, 0);
    return round_into(buffer, result);
  }
  for (int64_t row = 0; row < all; row += most) {
    const int64_t count = std::min(most, all - row);
    const at::Tensor values = buffer.narrow(0, 0, count);
    multiply(to_float32(first.narrow(0, row, count)), exact_second, values, row);
    round_into(values, result.narrow(0, row, count));
  }
}

// Tiles convert the matrices while they pack them, and round the result while it is in the cache.
bool can_tile(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result) {
  return microkernel() != nullptr && is_tileable(first) && is_tileable(second) && result.is_contiguous() &&
         !result.is_alias_of(first) && !result.is_alias_of(second);
}

}  // namespace

void choose_emulation(EmulationChoice choice) { emulation().choice.store(choice, std::memory_order_relaxed); }
bool may_emulate() { return emulation().choice.load(std::memory_order_relaxed) != EmulationChoice::kNone; }

bool is_emulated(at::ScalarType dtype) {
  if (!is_half(dtype)) return false;
  const AutotuneTable* const table = table_of(dtype);
  return table != nullptr && table->selects_any();
}

// Runs for every matmul of LibTorch, so the cheapest checks come first.
bool is_emulated(const at::Tensor& first, const at::Tensor& second, int64_t dim) {
  const at::ScalarType dtype = first.scalar_type();
  if (!is_half(dtype) || !is_half_matrix(first, dtype, dim) || !is_half_matrix(second, dtype, dim)) return false;
  Gemm gemm{dim == 3 ? first.size(0) : 1, first.size(-2), first.size(-1), second.size(-1), Layout::kPlain};
  if (second.size(-2) != gemm.inner || (dim == 3 && second.size(0) != gemm.batch)) return false;
  if (!AutotuneTable::is_wide_enough(gemm) || !compute_policy().use_tuned_kernels) return false;
  if (is_column_major(first))
    gemm.layout = Layout::kFirstTransposed;
  else if (is_column_major(second))
    gemm.layout = Layout::kSecondTransposed;
  const AutotuneTable* const table = table_of(dtype);
  return table != nullptr && table->selects(gemm);
}

void emulated_matmul(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result) {
  if (can_tile(first, second, result)) return tiled_matmul(first, second, result, {}, /*accumulate=*/false);
  for_each_tile(result, first, second, result,
                [](const at::Tensor& a, const at::Tensor& b, at::Tensor values, int64_t) {
                  if (a.dim() == 2)
                    at::_ops::mm_out::redispatch(kWithOverrides, a, b, values);
                  else
                    at::_ops::bmm_out::redispatch(kWithOverrides, a, b, values);
                });
}

void emulated_addmm(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, double beta,
                    double alpha, const at::Tensor& result) {
  if (beta == 1 && alpha == 1 && can_tile(first, second, result)) {
    if (is_bias(added, result.size(-1))) return tiled_matmul(first, second, result, added, /*accumulate=*/false);
    if (added.is_same(result)) return tiled_matmul(first, second, result, {}, /*accumulate=*/true);
  }
  const at::Tensor whole = added.expand(result.sizes());
  for_each_tile(added, first, second, result,
                [&](const at::Tensor& a, const at::Tensor& b, at::Tensor values, int64_t row) {
                  if (beta != 0) values.copy_(a.dim() == 2 ? whole.narrow(0, row, values.size(0)) : whole);
                  if (a.dim() == 2)
                    at::_ops::addmm_::redispatch(kWithOverrides, values, a, b, beta, alpha);
                  else
                    at::_ops::baddbmm_::redispatch(kWithOverrides, values, a, b, beta, alpha);
                });
}

double emulated_speed() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  constexpr Gemm kTypical = {1, 256, 256, 512, Layout::kPlain};
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
  return std::min(normal / emulated, 1.0);  // more can only be an error of the measurement
}

std::string describe_emulation(at::ScalarType dtype) {
  const EmulationChoice choice = emulation().choice.load();
  if (choice == EmulationChoice::kAll) return "float32 with rounded values";
  const Autotuner::Result* const measured = emulation().of(dtype).find();
  if (choice == EmulationChoice::kNone) return "LibTorch's kernels";
  if (measured == nullptr) return "measured at the first product";
  return text(
      measured->table.selects_any() ? "float32 with rounded values" : "LibTorch's kernels, which are faster here", "; ",
      measured->source);
}

}  // namespace accel::kernels
