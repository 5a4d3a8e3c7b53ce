#include "kernels/product_routing.hpp"

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
#include "kernels/compute_policy.hpp"
#include "kernels/emulated_products.hpp"
#include "kernels/measured_tables.hpp"
#include "kernels/operator_routes.hpp"
#include "kernels/product_table.hpp"
#include "kernels/product_timing.hpp"

namespace accel::kernels {
namespace {

// result = beta * result + alpha * first * second, with beta 0 or 1; the matrices are row-major or transposed ones.
using OnednnProduct = void (*)(const at::Tensor& first, const at::Tensor& second, const at::Tensor& result, float beta,
                               float alpha);

ProductTable measure();

struct Routing {
  OnednnProduct onednn = nullptr;
  std::atomic<ProductChoice> choice{ProductChoice::kMeasured};
  MeasuredTables measured{"", measure};
};

// Never destroyed: products may run while the process ends.
Routing& routing() {
  static Routing& instance = *std::make_unique<Routing>().release();
  return instance;
}

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

double time_product(const Product& product, bool through_onednn) {
  const bool transposed[] = {product.layout == Layout::kFirstTransposed, product.layout == Layout::kSecondTransposed};
  const at::Tensor first = ones_of(product.rows, product.inner, transposed[0], at::kFloat);
  const at::Tensor second = ones_of(product.inner, product.columns, transposed[1], at::kFloat);
  at::Tensor result = at::empty({product.rows, product.columns}, at::kFloat);
  if (through_onednn) return shortest_time([&] { routing().onednn(first, second, result, 0, 1); });
  return shortest_time([&] { at::_ops::mm_out::redispatch(kCpu, first, second, result); });
}

// Whether MKL runs on a processor that it is not made for. Other architectures have no MKL.
bool is_of_other_maker() {
#ifdef __x86_64__
  return !__builtin_cpu_is("intel");
#else
  return false;
#endif
}

ProductTable measure() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return ProductTable::measured(
      time_product, is_of_other_maker() ? ProductTable::kMostTimeElsewhere : ProductTable::kMostTimeOnIntel);
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

// Asked of every product of LibTorch, so the cheapest questions come first.
bool is_routed(const at::Tensor& first, const at::Tensor& second, int64_t dim) {
  if (!is_float_matrix(first, dim) || !is_float_matrix(second, dim)) return false;
  const Product product{dim == 3 ? first.size(0) : 1, first.size(-2), first.size(-1), second.size(-1), Layout::kPlain};
  if (second.size(-2) != product.inner || (dim == 3 && second.size(0) != product.batch)) return false;
  if (routing().onednn == nullptr) return false;
  if (!ProductTable::may_route(product) || !compute_policy().routed_products) return false;
  if (at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST) return false;
  const bool plain[] = {first.is_contiguous(), second.is_contiguous()};
  if ((!plain[0] && !is_transposed(first)) || (!plain[1] && !is_transposed(second))) return false;
  Product placed = product;
  if (!plain[0]) placed.layout = Layout::kFirstTransposed;
  if (plain[0] && !plain[1]) placed.layout = Layout::kSecondTransposed;
  const bool all = routing().choice.load(std::memory_order_relaxed) == ProductChoice::kAll;
  return all ? ProductTable::always().routes(placed) : routing().measured.table().routes(placed);
}

// Whether `result` may be written before the factors have been read.
bool is_fresh(const at::Tensor& result, const at::Tensor& first, const at::Tensor& second, c10::IntArrayRef shape) {
  return is_float_matrix(result, static_cast<int64_t>(shape.size())) && result.sizes() == shape &&
         result.is_contiguous() && !result.is_alias_of(first) && !result.is_alias_of(second);
}

c10::DimVector shape_of_product(const at::Tensor& first, const at::Tensor& second) {
  c10::DimVector shape(first.sizes());
  shape.back() = second.size(-1);
  return shape;
}

// result = beta * added + alpha * first * second; `added` may be the result itself.
void add_product(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, double beta, double alpha,
                 const at::Tensor& result) {
  if (beta != 0 && !result.is_same(added)) result.copy_(added.expand(result.sizes()));
  if (beta != 0 && beta != 1) result.mul_(beta);
  routing().onednn(first, second, result, beta == 0 ? 0.0F : 1.0F, static_cast<float>(alpha));
}

bool can_add(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second, const at::Scalar& alpha) {
  return added.scalar_type() == at::kFloat && added.is_cpu() && alpha.toDouble() != 0 &&
         at::is_expandable_to(added.sizes(), shape_of_product(first, second));
}

// Whether an emulated product, or a sum with one, can be written to a given result.
bool can_round_into(const at::Tensor& result, const at::Tensor& first, const at::Tensor& second) {
  return result.scalar_type() == first.scalar_type() && result.is_cpu() && result.layout() == at::kStrided &&
         result.sizes() == shape_of_product(first, second);
}

bool can_add_emulated(const at::Tensor& added, const at::Tensor& first, const at::Tensor& second) {
  return added.scalar_type() == first.scalar_type() && added.is_cpu() && added.layout() == at::kStrided &&
         at::is_expandable_to(added.sizes(), shape_of_product(first, second));
}

// mm and bmm, and their forms with a given result.
template <typename Below, int64_t kDim>
at::Tensor product(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second) {
  if (is_emulated(first, second, kDim)) {
    const at::Tensor result = at::empty(shape_of_product(first, second), first.options());
    emulated_product(first, second, result);
    return result;
  }
  if (!is_routed(first, second, kDim)) return Below::redispatch(keys & kBelowRoutes, first, second);
  const at::Tensor result = at::empty(shape_of_product(first, second), first.options());
  routing().onednn(first, second, result, 0, 1);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& product_out(c10::DispatchKeySet keys, const at::Tensor& first, const at::Tensor& second,
                        at::Tensor& result) {
  if (is_emulated(first, second, kDim) && can_round_into(result, first, second)) {
    emulated_product(first, second, result);
    return result;
  }
  if (!is_routed(first, second, kDim) || !is_fresh(result, first, second, shape_of_product(first, second)))
    return Below::redispatch(keys & kBelowRoutes, first, second, result);
  routing().onednn(first, second, result, 0, 1);
  return result;
}

// addmm and baddbmm, in their three forms.
template <typename Below, int64_t kDim>
at::Tensor sum(c10::DispatchKeySet keys, const at::Tensor& added, const at::Tensor& first, const at::Tensor& second,
               const at::Scalar& beta, const at::Scalar& alpha) {
  if (is_emulated(first, second, kDim) && can_add_emulated(added, first, second)) {
    const at::Tensor result = at::empty(shape_of_product(first, second), first.options());
    emulated_sum(added, first, second, beta.toDouble(), alpha.toDouble(), result);
    return result;
  }
  if (!is_routed(first, second, kDim) || !can_add(added, first, second, alpha))
    return Below::redispatch(keys & kBelowRoutes, added, first, second, beta, alpha);
  const at::Tensor result = at::empty(shape_of_product(first, second), first.options());
  add_product(added, first, second, beta.toDouble(), alpha.toDouble(), result);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& sum_out(c10::DispatchKeySet keys, const at::Tensor& added, const at::Tensor& first,
                    const at::Tensor& second, const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& result) {
  if (is_emulated(first, second, kDim) && can_add_emulated(added, first, second) &&
      can_round_into(result, first, second)) {
    emulated_sum(added, first, second, beta.toDouble(), alpha.toDouble(), result);
    return result;
  }
  const bool routed = is_routed(first, second, kDim) && can_add(added, first, second, alpha) &&
                      is_fresh(result, first, second, shape_of_product(first, second)) &&
                      (result.is_same(added) || !result.is_alias_of(added));
  if (!routed) return Below::redispatch(keys & kBelowRoutes, added, first, second, beta, alpha, result);
  add_product(added, first, second, beta.toDouble(), alpha.toDouble(), result);
  return result;
}

template <typename Below, int64_t kDim>
at::Tensor& sum_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& first, const at::Tensor& second,
                         const at::Scalar& beta, const at::Scalar& alpha) {
  if (is_emulated(first, second, kDim) && can_round_into(self, first, second)) {
    emulated_sum(self, first, second, beta.toDouble(), alpha.toDouble(), self);
    return self;
  }
  const bool routed = is_routed(first, second, kDim) && can_add(self, first, second, alpha) &&
                      is_fresh(self, first, second, shape_of_product(first, second));
  if (!routed) return Below::redispatch(keys & kBelowRoutes, self, first, second, beta, alpha);
  add_product(self, first, second, beta.toDouble(), alpha.toDouble(), self);
  return self;
}

bool runs_onednn() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor ones = at::ones({16, 16}, at::kFloat), result = at::empty({16, 16}, at::kFloat);
  try {
    routing().onednn(ones, ones, result, 0, 1);
    return true;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {  // LibTorch's, or oneDNN's own
    return false;
  }
}

void register_products() {
  torch::Library& routes = operator_routes();
  routes.impl("mm", TORCH_FN((product<at::_ops::mm, 2>)));
  routes.impl("mm.out", TORCH_FN((product_out<at::_ops::mm_out, 2>)));
  routes.impl("bmm", TORCH_FN((product<at::_ops::bmm, 3>)));
  routes.impl("bmm.out", TORCH_FN((product_out<at::_ops::bmm_out, 3>)));
  routes.impl("addmm", TORCH_FN((sum<at::_ops::addmm, 2>)));
  routes.impl("addmm.out", TORCH_FN((sum_out<at::_ops::addmm_out, 2>)));
  routes.impl("addmm_", TORCH_FN((sum_in_place<at::_ops::addmm_, 2>)));
  routes.impl("baddbmm", TORCH_FN((sum<at::_ops::baddbmm, 3>)));
  routes.impl("baddbmm.out", TORCH_FN((sum_out<at::_ops::baddbmm_out, 3>)));
  routes.impl("baddbmm_", TORCH_FN((sum_in_place<at::_ops::baddbmm_, 3>)));
}

}  // namespace

void install_product_routing(ProductChoice choice, const char* onednn_symbol) {
  static std::once_flag once;
  std::call_once(once, [choice, onednn_symbol] {
    // No public function: looked up, so that a LibTorch without it still loads us.
    routing().onednn = reinterpret_cast<OnednnProduct>(dlsym(RTLD_DEFAULT, onednn_symbol));
    if (routing().onednn == nullptr || !at::globalContext().hasMKLDNN()) {
      routing().onednn = nullptr;
      log(LogLevel::kWarning, "float32 products keep LibTorch's kernels: LibTorch ", TORCH_VERSION, " has no ",
          onednn_symbol, ", its product through oneDNN, or was built without oneDNN");
    } else if (!runs_onednn()) {
      routing().onednn = nullptr;
      log(choice == ProductChoice::kAll ? LogLevel::kWarning : LogLevel::kInfo,
          "float32 products keep LibTorch's kernels: LibTorch refuses its product through oneDNN on this processor, as "
          "on all without AVX-512");
    }
    register_products();
  });
  routing().choice.store(choice, std::memory_order_relaxed);
}

std::string describe_product_routing() {
  Routing& self = routing();
  if (self.onednn == nullptr) return "LibTorch's kernels";
  if (self.choice.load() == ProductChoice::kAll) return "oneDNN";
  const MeasuredTables::Measured* const measured = self.measured.find();
  if (measured == nullptr) return "measured at the first large product";
  return text(measured->table.routes_any() ? "oneDNN where it is faster" : "LibTorch's kernels, which are faster here",
              "; ", measured->source);
}

}  // namespace accel::kernels
