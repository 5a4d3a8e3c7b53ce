// SPDX-License-Identifier: Apache-2.0
// Projection: a layer that multiplies its input with a weight, which may be split over ranks by its outputs or inputs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/encoded_weight.hpp"
#include "nn/module.hpp"

namespace accel::nn {

// The product of an input with a weight, and the bias if it is defined.
struct Product {
  bool is_transposed;  // the weight is [inputs, outputs]; otherwise [outputs, inputs]

  at::Tensor operator()(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const;
};

// Computes the product of a projection whose weight is not an ordinary matrix in memory.
class WeightProduct {
 public:
  virtual ~WeightProduct() = default;
  virtual at::Tensor multiply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              Product product) const = 0;
};

// Ranks that have parts of a weight compute the layer's product together.
class SplitProduct : public WeightProduct {};

class EncodedProduct : public WeightProduct, public virtual EncodedWeight {
 public:
  // Encodes other values, which are rounded, and returns the members of the layer that stand for them, by their names.
  // `layer` stands in errors.
  virtual NamedTensors encode(const at::Tensor& values, const std::string& layer) const = 0;
};

// Changes the product of a projection, as an adapter does.
class ProductUpdate {
 public:
  virtual ~ProductUpdate() = default;
  // The output with the change; `bias`, which is part of the output, may be undefined.
  virtual at::Tensor apply(const at::Tensor& output, const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias, Product product) const = 0;
  // Whether apply() reads the weight, which an encoded one is decoded for; otherwise it may be undefined.
  virtual bool needs_weight() const { return true; }
};

class Projection : public Module {
 public:
  // The dimension of the weight that has the output features; the other one has those of the input.
  int64_t output_dim() const { return output_dim_; }
  int64_t in_features() const;
  int64_t out_features() const;
  bool has_bias() const { return has_bias_; }
  // The name of the product in a layer that computes more than it; otherwise empty.
  virtual std::string product_name() const { return ""; }

  // Throws for a projection with updates, which change whole products.
  void set_split(std::shared_ptr<const SplitProduct> split);
  bool is_split() const;
  // The parameter "weight" has codes from then on, of a matrix [outputs, inputs] whatever output_dim() is.
  void set_encoded(std::shared_ptr<const EncodedProduct> encoded);
  // Null: the weight is an ordinary matrix.
  const EncodedProduct* encoded() const;
  // The weight as its product needs it: an encoded one is decoded to float32.
  at::Tensor whole_weight() const;

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
  std::shared_ptr<const WeightProduct> product_;  // null: the weight is whole and an ordinary matrix
  std::vector<std::shared_ptr<ProductUpdate>> updates_;
};

}  // namespace accel::nn
