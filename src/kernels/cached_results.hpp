// SPDX-License-Identifier: Apache-2.0
// Kept results: those of matmuls, convolutions and attention in a forward that will be computed again, which takes them
// instead of computing them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace accel::kernels {

class CachedResults {
 public:
  // In the scope, which is bound to its thread, operators keep their results, or take those that were cached, in the
  // same order. Null: neither. Scopes nest.
  class Scope {
   public:
    explicit Scope(CachedResults* results, bool takes = false);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CachedResults* former_;
  };

  static CachedResults* current();

  // Returns what `compute` returns, a tensor or a tuple of tensors, or the result that was cached in the forward.
  // `call` identifies the operator and the shapes of its inputs; another one than in the forward is an error.
  template <typename Compute>
  auto keep_or_take(uint64_t call, const Compute& compute) -> decltype(compute());

 private:
  struct Kept {
    uint64_t call;
    at::Tensor tensor;
    uint32_t version;
  };

  static std::vector<at::Tensor> tensors_of(const at::Tensor& tensor) { return {tensor}; }
  template <typename... Tensors>
  static std::vector<at::Tensor> tensors_of(const std::tuple<Tensors...>& tensors) {
    return std::apply([](const auto&... tensor) { return std::vector<at::Tensor>{tensor...}; }, tensors);
  }
  void keep(uint64_t call, const std::vector<at::Tensor>& results);
  at::Tensor take(uint64_t call);

  std::vector<Kept> kept_;
  bool takes_ = false;
  size_t next_ = 0;  // that is taken
};

template <typename Compute>
auto CachedResults::keep_or_take(uint64_t call, const Compute& compute) -> decltype(compute()) {
  using Result = decltype(compute());
  if (!takes_) {
    Result result = [&compute] {
      const Scope without_those_inside(nullptr);
      return compute();
    }();
    keep(call, tensors_of(result));
    return result;
  }
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    return take(call);
  } else {
    static_assert(std::is_same_v<Result, std::tuple<at::Tensor, at::Tensor>>);
    at::Tensor first = take(call);
    return {std::move(first), take(call)};
  }
}

inline uint64_t add_to_call(uint64_t call, int64_t number) {
  constexpr uint64_t kFnvPrime = 0x100000001b3;  // of the FNV hash
  return (call ^ static_cast<uint64_t>(number)) * kFnvPrime;
}
inline uint64_t add_to_call(uint64_t call, const at::Tensor& tensor) {
  for (const int64_t size : tensor.sizes()) call = add_to_call(call, size);
  return call;
}
template <typename Other>
uint64_t add_to_call(uint64_t call, const Other&) {
  return call;
}

// The kernel of an operator, for the dispatcher, with results that can be cached.
template <auto kKernel>
struct WithKeptResults;
template <typename Result, typename... Arguments, Result (*kKernel)(c10::DispatchKeySet, Arguments...)>
struct WithKeptResults<kKernel> {
  static Result run(c10::DispatchKeySet keys, Arguments... arguments) {
    CachedResults* const results = CachedResults::current();
    if (results == nullptr) return kKernel(keys, std::forward<Arguments>(arguments)...);
    auto call = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(kKernel));
    ((call = add_to_call(call, arguments)), ...);
    return results->keep_or_take(call, [&] { return kKernel(keys, std::forward<Arguments>(arguments)...); });
  }
};

}  // namespace accel::kernels
