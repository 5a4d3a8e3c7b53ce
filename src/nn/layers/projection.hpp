// Projection: a layer that multiplies its input with a weight, which may be split over ranks by its outputs or inputs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

// The product of an input with a weight, and the bias if it is defined.
struct Product {
  bool is_transposed;  // the weight is [inputs, outputs]; otherwise [outputs, inputs]

  at::Tensor operator()(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const;
};

// How ranks that have parts of a weight compute the layer's product together.
class SplitProduct {
 public:
  virtual ~SplitProduct() = default;
  virtual at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              Product product) const = 0;
};

// Changes the product of a projection, as an adapter does.
class ProductUpdate {
 public:
  virtual ~ProductUpdate() = default;
  // The output with the change; `bias`, which is part of the output, may be undefined.
  virtual at::Tensor apply(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, Product product) const = 0;
};

class Projection : public Module {
 public:
  // The dimension of the weight that has the output features; the other one has those of the input.
  int64_t output_dim() const { return output_dim_; }
  int64_t in_features() const { return parameter(kWeight).size(1 - output_dim_); }
  int64_t out_features() const { return parameter(kWeight).size(output_dim_); }
  bool has_bias() const { return has_bias_; }
  // The name of the product in a layer that computes more than it; otherwise empty.
  virtual std::string product_name() const { return ""; }

  // Throws for a projection with updates, which change whole products.
  void set_split(std::shared_ptr<const SplitProduct> split);
  bool is_split() const { return split_ != nullptr; }

  // Updates act one after the other, in the order in which they were added.
  void add_update(std::shared_ptr<ProductUpdate> update) { updates_.push_back(std::move(update)); }
  void remove_updates(const std::function<bool(const ProductUpdate& update)>& chosen);
  const std::vector<std::shared_ptr<ProductUpdate>>& updates() const { return updates_; }

  // The indices of its parameters.
  static constexpr size_t kWeight = 0, kBias = 1;

 protected:
  Projection(std::string kind, int64_t output_dim, bool has_bias)
      : Module(std::move(kind)), output_dim_(output_dim), has_bias_(has_bias) {}

  at::Tensor project(const at::Tensor& input) const;

 private:
  int64_t output_dim_;
  bool has_bias_;
  std::shared_ptr<const SplitProduct> split_;  // null: this rank has the whole weight
  std::vector<std::shared_ptr<ProductUpdate>> updates_;
};

}  // namespace accel::nn
