#include "kernels/matmul_dispatch.hpp"

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
#include <dlfcn.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <new>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/autotune_table.hpp"
#include "kernels/autotuner.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/dispatcher_override.hpp"
#include "kernels/emulated_matmul.hpp"
#include "kernels/matmul_timing.hpp"

namespace accel::kernels {
namespace {

// result = beta * result + alpha * first * second, with beta 0 or 1; the matrices are row-major or transposed.
using OnednnMatmul = void (*)(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result, float beta,
                              float alpha);

AutotuneTable tune();

struct Dispatch {
  OnednnMatmul onednn = nullptr;
  std::atomic<MatmulChoice> choice{MatmulChoice::kMeasured};
  Autotuner autotuner{"", tune};
};

// Never destroyed: a matmul may run while the process ends.
Dispatch& dispatch() {
  static Dispatch& instance = *std::make_unique<Dispatch>().release();
  return instance;
}

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

double time_matmul(const Gemm& gemm, bool on_onednn) {
  const bool transposed[] = {gemm.layout == Layout::kFirstTransposed, gemm.layout == Layout::kSecondTransposed};
  const at::Tensor first = ones_of(gemm.rows, gemm.inner, transposed[0], at::kFloat);
  const at::Tensor second = ones_of(gemm.inner, gemm.columns, transposed[1], at::kFloat);
  at::Tensor result = at::empty({gemm.rows, gemm.columns}, at::kFloat);
  if (on_onednn) return shortest_time([&] { dispatch().onednn(first, second, result, 0, 1); });
  return shortest_time([&] { at::_ops::mm_out::redispatch(kCpu, first, second, result); });
}

// MKL, LibTorch's default on x86, is tuned for Intel's processors. Other architectures have no MKL.
bool is_not_intel() {
#ifdef __x86_64__
  return !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

AutotuneTable tune() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return AutotuneTable::measure(time_matmul,
                                is_not_intel() ? AutotuneTable::kMaxTimeNotIntel : AutotuneTable::kMaxTimeOnIntel);
}

bool is_transposed(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(-2);
  return matrix.stride(-2) == 1 && matrix.stride(-1) == rows &&
         (matrix.dim() == 2 || matrix.stride(0) == rows * matrix.size(-1));
}

bool is_float_matrix(const at::Tensor& tensor, int64_t dim) {
  return tensor.dim() == dim && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
         tensor.is_cpu();
}

// Runs for every matmul of LibTorch, so the cheapest checks come first.
bool uses_onednn(const at::Tensor& first, const at::Tensor& second, int64_t dim) {
  if (!is_float_matrix(first, dim) || !is_float_matrix(second, dim)) return false;
  const Gemm gemm{dim == 3 ? first.size(0) : 1, first.size(-2), first.size(-1), second.size(-1), Layout::kPlain};
  if (second.size(-2) != gemm.inner || (dim == 3 && second.size(0) != gemm.batch)) return false;
  if (dispatch().onednn == nullptr) return false;
  if (!AutotuneTable::may_select(gemm) || !compute_policy().use_tuned_kernels) return false;
  if (at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST) return false;
  const bool plain[] = {first.is_contiguous(), second.is_contiguous()};
  if ((!plain[0] && !is_transposed(first)) || (!plain[1] && !is_transposed(second))) return false;
  Gemm laid_out = gemm;
  if (!plain[0]) laid_out.layout = Layout::kFirstTransposed;
  if (plain[0] && !plain[1]) laid_out.layout = Layout::kSecondTransposed;
  const bool all = dispatch().choice.load(std::memory_order_relaxed) == MatmulChoice::kAll;
  return all ? AutotuneTable::always().selects(laid_out) : dispatch().autotuner.table().selects(laid_out);
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

// result = beta * added + alpha * first * second; `added` may be the result itself.
void onednn_addmm(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, double beta, double alpha,
                  const at::Tensor& result) {
  if (beta != 0 && !result.is_same(added)) result.copy_(added.expand(result.sizes()));
  if (beta != 0 && beta != 1) result.mul_(beta);
  dispatch().onednn(first, second, result, beta == 0 ? 0.0F : 1.0F, static_cast<float>(alpha));
}

bool can_add(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, const at::Scalar& alpha) {
  return added.scalar_type() == at::kFloat && added.is_cpu() && alpha.toDouble() != 0 &&
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
  if (is_emulated(first, second, kDim)) {
    const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
    emulated_matmul(first, second, result);
    return result;
  }
  if (!uses_onednn(first, second, kDim)) return Below::redispatch(keys & kBelowOverrides, first, second);
  const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
  dispatch().onednn(first, second, result, 0, 1);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& matmul_out(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second,
                       at::Tensor& result) {
  if (is_emulated(first, second, kDim) && can_round_into(result, first, second)) {
    emulated_matmul(first, second, result);
    return result;
  }
  if (!uses_onednn(first, second, kDim) || !is_fresh(result, first, second, matmul_shape(first, second)))
    return Below::redispatch(keys & kBelowOverrides, first, second, result);
  dispatch().onednn(first, second, result, 0, 1);
  return result;
}

// addmm and baddbmm: functional, out= and in place.
template <typename Below, int64_t kDim>
at::Tensor addmm(c10::DispatchKeySet keys, const at::Tensor& added, const at::Tensor& first, const at::Tensor& second,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  if (is_emulated(first, second, kDim) && can_add_emulated(added, first, second)) {
    const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
    emulated_addmm(added, first, second, beta.toDouble(), alpha.toDouble(), result);
    return result;
  }
  if (!uses_onednn(first, second, kDim) || !can_add(added, first, second, alpha))
    return Below::redispatch(keys & kBelowOverrides, added, first, second, beta, alpha);
  const at::Tensor result = at::empty(matmul_shape(first, second), first.options());
  onednn_addmm(added, first, second, beta.toDouble(), alpha.toDouble(), result);
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
  const bool to_onednn = uses_onednn(first, second, kDim) && can_add(added, first, second, alpha) &&
                         is_fresh(result, first, second, matmul_shape(first, second)) &&
                         (result.is_same(added) || !result.is_alias_of(added));
  if (!to_onednn) return Below::redispatch(keys & kBelowOverrides, added, first, second, beta, alpha, result);
  onednn_addmm(added, first, second, beta.toDouble(), alpha.toDouble(), result);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& addmm_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& first,
                           const at::Tensor& second, const at::Scalar& beta, const at::Scalar& alpha) {
  if (is_emulated(first, second, kDim) && can_round_into(self, first, second)) {
    emulated_addmm(self, first, second, beta.toDouble(), alpha.toDouble(), self);
    return self;
  }
  const bool to_onednn = uses_onednn(first, second, kDim) && can_add(self, first, second, alpha) &&
                         is_fresh(self, first, second, matmul_shape(first, second));
  if (!to_onednn) return Below::redispatch(keys & kBelowOverrides, self, first, second, beta, alpha);
  onednn_addmm(self, first, second, beta.toDouble(), alpha.toDouble(), self);
  return self;
}

bool runs_onednn() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor ones = at::ones({16, 16}, at::kFloat), result = at::empty({16, 16}, at::kFloat);
  try {
    dispatch().onednn(ones, ones, result, 0, 1);
    return true;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // LibTorch's, or oneDNN's own
    return false;
  }
}

void register_matmuls() {
  torch::Library& overrides = dispatcher_overrides();
  overrides.impl("mm", TORCH_FN((matmul<at::_ops::mm, 2>)));
  overrides.impl("mm.out", TORCH_FN((matmul_out<at::_ops::mm_out, 2>)));
  overrides.impl("bmm", TORCH_FN((matmul<at::_ops::bmm, 3>)));
  overrides.impl("bmm.out", TORCH_FN((matmul_out<at::_ops::bmm_out, 3>)));
  overrides.impl("addmm", TORCH_FN((addmm<at::_ops::addmm, 2>)));
  overrides.impl("addmm.out", TORCH_FN((addmm_out<at::_ops::addmm_out, 2>)));
  overrides.impl("addmm_", TORCH_FN((addmm_in_place<at::_ops::addmm_, 2>)));
  overrides.impl("baddbmm", TORCH_FN((addmm<at::_ops::baddbmm, 3>)));
  overrides.impl("baddbmm.out", TORCH_FN((addmm_out<at::_ops::baddbmm_out, 3>)));
  overrides.impl("baddbmm_", TORCH_FN((addmm_in_place<at::_ops::baddbmm_, 3>)));
}

}  // namespace

void install_matmul_dispatch(MatmulChoice choice, const char* onednn_symbol) {
  static std::once_flag once;
  std::call_once(once, [choice, onednn_symbol] {
    // Not a public function: looked up by name, so that the library still loads with a LibTorch that lacks it.
    dispatch().onednn = reinterpret_cast<OnednnMatmul>(dlsym(RTLD_DEFAULT, onednn_symbol));
    if (dispatch().onednn == nullptr || !at::globalContext().hasMKLDNN()) {
      dispatch().onednn = nullptr;
      log(LogLevel::kWarning, "float32 products keep LibTorch's kernels: LibTorch ", TORCH_VERSION, " has no ",
          onednn_symbol, ", its product through oneDNN, or was built without oneDNN");
    } else if (!runs_onednn()) {
      dispatch().onednn = nullptr;
      log(choice == MatmulChoice::kAll ? LogLevel::kWarning : LogLevel::kInfo,
          "float32 products keep LibTorch's kernels: LibTorch refuses its product through oneDNN on this processor, as "
          "on all without AVX-512");
    }
    register_matmuls();
  });
  dispatch().choice.store(choice, std::memory_order_relaxed);
}

std::string describe_matmul_dispatch() {
  Dispatch& self = dispatch();
  if (self.onednn == nullptr) return "LibTorch's kernels";
  if (self.choice.load() == MatmulChoice::kAll) return "oneDNN";
  const Autotuner::Result* const tuned = self.autotuner.find();
  if (tuned == nullptr) return "measured at the first large product";
  return text(tuned->table.selects_any() ? "oneDNN where it is faster" : "LibTorch's kernels, which are faster here",
              "; ", tuned->source);
}

}  // namespace accel::kernels
