// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/matmul_dispatch.hpp"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/cached_results.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/dispatcher_override.hpp"
#include "kernels/matmul/autotune_table.hpp"
#include "kernels/matmul/autotuner.hpp"
#include "kernels/matmul/emulated_matmul.hpp"
#include "kernels/matmul/matmul_timing.hpp"
#include "kernels/matmul/microkernel.hpp"
#include "kernels/matmul/skinny_matmul.hpp"
#include "kernels/matmul/tiled_matmul.hpp"
#include "kernels/update/half_values.hpp"

namespace accel::kernels {
namespace {

AutotuneTable tune();

struct Dispatch {
  std::atomic<MatmulChoice> choice{MatmulChoice::kMeasured};
  Autotuner autotuner{"", tune};
};

// Never destroyed: a matmul may run while the process ends.
Dispatch& dispatch() {
  static Dispatch& instance = *std::make_unique<Dispatch>().release();
  return instance;
}

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

double time_matmul(const Gemm& gemm, bool tiled, const at::Tensor& evicting) {
  const bool transposed[] = {gemm.layout == Layout::kFirstTransposed, gemm.layout == Layout::kSecondTransposed};
  const at::Tensor first = ones_of(gemm.rows, gemm.inner, transposed[0], at::kFloat);
  const at::Tensor second = ones_of(gemm.inner, gemm.columns, transposed[1], at::kFloat);
  at::Tensor result = ones_of(gemm.rows, gemm.columns, false, at::kFloat);
  const auto run = [&] {
    if (tiled)
      tiled_matmul(first, second, result, {}, false);
    else
      at::_ops::mm_out::redispatch(kCpu, first, second, result);
  };
  constexpr double kLarge = 1 << 26;
  return gemm.multiply_adds() < kLarge ? shortest_time(run) : uncached_time(evicting, run);
}

// Where both take about as long, every process has to select the same, for equal bits: the tiles, but MKL where they
// have to transpose the first matrix.
constexpr double kMaxTimeOfTiles = 1.04, kTransposedHandicap = 1.15;

AutotuneTable tune() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const ComputeScope with_cached_memory({/*use_tuned_kernels=*/false, /*cached_memory=*/true});
  constexpr int64_t kMoreThanCached = 1 << 20;  // 4 MiB
  const at::Tensor evicting = at::ones({kMoreThanCached}, at::kFloat);
  const auto time = [&evicting](const Gemm& gemm, bool tiled) {
    const bool is_transposed = gemm.layout == Layout::kFirstTransposed;
    return time_matmul(gemm, tiled, evicting) * (tiled && is_transposed ? kTransposedHandicap : 1);
  };
  return AutotuneTable::measure(time, kMaxTimeOfTiles);
}

bool is_float_matrix(const at::Tensor& tensor, int64_t dim) {
  return tensor.dim() == dim && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
         tensor.is_cpu();
}

// Runs for every matmul of LibTorch, so the cheapest checks come first.
bool is_tiled(const at::Tensor& first, const at::Tensor& second, int64_t dim) {
  if (!is_float_matrix(first, dim) || !is_float_matrix(second, dim)) return false;
  Gemm gemm{dim == 3 ? first.size(0) : 1, first.size(-2), first.size(-1), second.size(-1), Layout::kPlain};
  if (second.size(-2) != gemm.inner || (dim == 3 && second.size(0) != gemm.batch)) return false;
  if (microkernel() == nullptr || !AutotuneTable::may_select(gemm) || !compute_policy().use_tuned_kernels) return false;
  if (at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST) return false;
  if (!is_tileable(first) || !is_tileable(second)) return false;
  if (second.stride(-1) != 1) {
    if (gemm.rows < kMinReuse) return false;
    gemm.layout = Layout::kSecondTransposed;
  }
  if (first.stride(-1) != 1) {
    if (gemm.columns < kMinReuse) return false;
    gemm.layout = Layout::kFirstTransposed;
  }
  const bool all = dispatch().choice.load(std::memory_order_relaxed) == MatmulChoice::kAll;
  return all ? AutotuneTable::always().selects(gemm) : dispatch().autotuner.table().selects(gemm);
}

bool is_matrix_of(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.dim() == 2 && tensor.scalar_type() == dtype && tensor.layout() == at::kStrided && tensor.is_cpu();
}

// A product of so few rows takes as long as memory needs to give the matrix, also where the processor multiplies
// halves: oneDNN's kernels for it stay below that, and wait for the slower of their threads.
constexpr int64_t kMemoryBoundRows = 4;

// Also decides for products of a few rows (skinny_matmul.hpp), as each token of a generation makes them.
bool is_routed_skinny(const at::Tensor& first, const at::Tensor& second, int64_t dim) {
  const at::ScalarType dtype = first.scalar_type();
  if (dim != 2 || (dtype != at::kFloat && !is_half(dtype)) || !is_matrix_of(first, dtype) ||
      !is_matrix_of(second, dtype) || first.size(1) != second.size(0) || !is_skinny(first, second) ||
      !compute_policy().use_tuned_kernels)
    return false;
  if (is_half(dtype)) return (first.size(0) <= kMemoryBoundRows && may_emulate()) || is_emulated(dtype);
  return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST;
}

// Whether `result` may be written before the factors have been read.
bool is_fresh(const at::Tensor& result, const at::Tensor& first, const at::Tensor& second, c10::IntArrayRef shape) {
  return is_float_matrix(result, static_cast<int64_t>(shape.size())) && result.sizes() == shape &&
         result.is_contiguous() && !result.is_alias_of(first) && !result.is_alias_of(second);
}

c10::DimVector matmul_shape(const at::Tensor& first, const at::Tensor& second) {
  c10::DimVector shape(first.sizes());
  shape.back() = second.size(-1);
  return shape;
}

// result = beta * added + first * second; `added` may be the result itself.
void tiled_addmm(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, double beta,
                 const at::Tensor& result) {
  if (beta == 1 && is_bias(added, result.size(-1))) return tiled_matmul(first, second, result, added, false);
  if (beta != 0 && !result.is_same(added)) result.copy_(added.expand(result.sizes()));
  if (beta != 0 && beta != 1) result.mul_(beta);
  tiled_matmul(first, second, result, {}, /*accumulate=*/beta != 0);
}

bool can_add(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, const at::Scalar& alpha) {
  return added.scalar_type() == at::kFloat && added.is_cpu() && alpha.toDouble() == 1 &&
         at::is_expandable_to(added.sizes(), matmul_shape(first, second));
}

// Whether an emulated matmul or addmm can be written to a given result.
bool can_round_into(const at::Tensor& result, const at::Tensor& first, const at::Tensor& second) {
  return result.scalar_type() == first.scalar_type() && result.is_cpu() && result.layout() == at::kStrided &&
         result.sizes() == matmul_shape(first, second);
}

bool can_add_emulated(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second) {
  return added.scalar_type() == first.scalar_type() && added.is_cpu() && added.layout() == at::kStrided &&
         at::is_expandable_to(added.sizes(), matmul_shape(first, second));
}

// mm and bmm, and their out= variants.
template <typename Below, int64_t kDim>
at::Tensor matmul(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second) {
  const bool skinny = is_routed_skinny(first, second, kDim);
  if (!skinny && is_emulated(first, second, kDim)) {
    const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
    emulated_matmul(first, second, result);
    return result;
  }
  if (!skinny && !is_tiled(first, second, kDim)) return Below::redispatch(keys & kBelowOverrides, first, second);
  const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
  if (skinny)
    skinny_matmul(first, second, result, {});
  else
    tiled_matmul(first, second, result, {}, false);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& matmul_out(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second,
                       at::Tensor& result) {
  if (is_emulated(first, second, kDim) && can_round_into(result, first, second)) {
    emulated_matmul(first, second, result);
    return result;
  }
  if (!is_tiled(first, second, kDim) || !is_fresh(result, first, second, matmul_shape(first, second)))
    return Below::redispatch(keys & kBelowOverrides, first, second, result);
  tiled_matmul(first, second, result, {}, false);
  return result;
}

// addmm and baddbmm: functional, out= and in place.
template <typename Below, int64_t kDim>
at::Tensor addmm(c10::DispatchKeySet keys, const at::Tensor& added, const at::Tensor& first, const at::Tensor& second,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  if (is_routed_skinny(first, second, kDim) && beta.toDouble() == 1 && alpha.toDouble() == 1 && added.is_cpu() &&
      added.scalar_type() == first.scalar_type() && is_bias(added, second.size(-1))) {
    const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
    skinny_matmul(first, second, result, added);
    return result;
  }
  if (is_emulated(first, second, kDim) && can_add_emulated(added, first, second)) {
    const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
    emulated_addmm(added, first, second, beta.toDouble(), alpha.toDouble(), result);
    return result;
  }
  if (!is_tiled(first, second, kDim) || !can_add(added, first, second, alpha))
    return Below::redispatch(keys & kBelowOverrides, added, first, second, beta, alpha);
  const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
  tiled_addmm(added, first, second, beta.toDouble(), result);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& addmm_out(c10::DispatchKeySet keys, const at::Tensor& added, const at::Tensor& first,
                      const at::Tensor& second, const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& result) {
  if (is_emulated(first, second, kDim) && can_add_emulated(added, first, second) &&
      can_round_into(result, first, second)) {
    emulated_addmm(added, first, second, beta.toDouble(), alpha.toDouble(), result);
    return result;
  }
  const bool tiled = is_tiled(first, second, kDim) && can_add(added, first, second, alpha) &&
                     is_fresh(result, first, second, matmul_shape(first, second)) &&
                     (result.is_same(added) || !result.is_alias_of(added));
  if (!tiled) return Below::redispatch(keys & kBelowOverrides, added, first, second, beta, alpha, result);
  tiled_addmm(added, first, second, beta.toDouble(), result);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& addmm_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& first,
                           const at::Tensor& second, const at::Scalar& beta, const at::Scalar& alpha) {
  if (is_emulated(first, second, kDim) && can_round_into(self, first, second)) {
    emulated_addmm(self, first, second, beta.toDouble(), alpha.toDouble(), self);
    return self;
  }
  const bool tiled = is_tiled(first, second, kDim) && can_add(self, first, second, alpha) &&
                     is_fresh(self, first, second, matmul_shape(first, second));
  if (!tiled) return Below::redispatch(keys & kBelowOverrides, self, first, second, beta, alpha);
  tiled_addmm(self, first, second, beta.toDouble(), self);
  return self;
}

void register_matmuls() {
  torch::Library& overrides = dispatcher_overrides();
  overrides.impl("mm", TORCH_FN((WithKeptResults<matmul<at::_ops::mm, 2>>::run)));
  overrides.impl("mm.out", TORCH_FN((matmul_out<at::_ops::mm_out, 2>)));
  overrides.impl("bmm", TORCH_FN((WithKeptResults<matmul<at::_ops::bmm, 3>>::run)));
  overrides.impl("bmm.out", TORCH_FN((matmul_out<at::_ops::bmm_out, 3>)));
  overrides.impl("addmm", TORCH_FN((WithKeptResults<addmm<at::_ops::addmm, 2>>::run)));
  overrides.impl("addmm.out", TORCH_FN((addmm_out<at::_ops::addmm_out, 2>)));
  overrides.impl("addmm_", TORCH_FN((addmm_in_place<at::_ops::addmm_, 2>)));
  overrides.impl("baddbmm", TORCH_FN((WithKeptResults<addmm<at::_ops::baddbmm, 3>>::run)));
  overrides.impl("baddbmm.out", TORCH_FN((addmm_out<at::_ops::baddbmm_out, 3>)));
  overrides.impl("baddbmm_", TORCH_FN((addmm_in_place<at::_ops::baddbmm_, 3>)));
}

}  // namespace

void install_matmul_overrides() {
  static std::once_flag once;
  std::call_once(once, register_matmuls);
}

void install_matmul_dispatch(MatmulChoice choice, const char* microkernel_symbol) {
  static std::once_flag once;
  std::call_once(once, [choice, microkernel_symbol] {
    const MicrokernelStatus status = load_microkernel(microkernel_symbol);
    if (status == MicrokernelStatus::kNoSymbol)
      log(LogLevel::kWarning, "float32 matmuls keep LibTorch's kernels: LibTorch ", TORCH_VERSION, " has no ",
          microkernel_symbol, ", oneDNN's microkernel");
    if (status == MicrokernelStatus::kNoProcessor)
      log(choice == MatmulChoice::kAll ? LogLevel::kWarning : LogLevel::kInfo,
          "float32 matmuls keep LibTorch's kernels: oneDNN's microkernel needs a processor with AVX-512");
    install_matmul_overrides();
  });
  dispatch().choice.store(choice, std::memory_order_relaxed);
}

std::string describe_matmul_dispatch() {
  Dispatch& self = dispatch();
  if (microkernel() == nullptr) return "LibTorch's kernels";
  if (self.choice.load() == MatmulChoice::kAll) return "oneDNN";
  const Autotuner::Result* const tuned = self.autotuner.find();
  if (tuned == nullptr) return "measured at the first large product";
  return text(tuned->table.selects_any() ? "oneDNN where it is faster" : "LibTorch's kernels, which are faster here",
              "; ", tuned->source);
}

}  // namespace accel::kernels
