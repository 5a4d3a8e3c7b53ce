// SPDX-License-Identifier: Apache-2.0
// Mixture of experts (Shazeer et al., 2017; Fedus et al., "Switch Transformers", 2021): a router chooses a few of many
// feed-forward networks for each token. Names and shapes are those of Mixtral's block in Hugging Face transformers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nn/layers/expert_files.hpp"
#include "nn/module.hpp"
#include "nn/split/expert_ranks.hpp"

namespace accel::nn {

// Tokens with the numbers of their experts and the weights of these, each [..., positions, size].
struct RoutedTokens {
  at::Tensor tokens, experts, weights;
};

// How ranks that have parts of each expert compute with the same tokens, each a term of the result.
class SplitExperts {
 public:
  virtual ~SplitExperts() = default;
  // The tokens of all positions, of whose gradients ranks compute terms.
  virtual RoutedTokens enter(const RoutedTokens& routed) const = 0;
  // The sum of the terms, for the positions that entered.
  virtual at::Tensor leave(const at::Tensor& terms) const = 0;
};

// Gated networks down(silu(gate(x)) * up(x)), with gate_up_proj [experts, 2 intermediate, hidden] and down_proj
// [experts, hidden, intermediate]. Inputs: rows sorted by experts, and an int64 tensor with the number of each.
class GroupedExperts final : public Module {
 public:
  GroupedExperts(int64_t experts, int64_t hidden_size, int64_t intermediate_size,
                 std::optional<double> deviation = std::nullopt, std::optional<at::ScalarType> dtype = std::nullopt);
  std::vector<std::string> input_names() const override { return {"rows", "counts"}; }

  // The indices of its parameters.
  static constexpr size_t kGateUp = 0, kDown = 1;

 protected:
  c10::IValue forward(const Inputs& inputs) override;
};

struct MixtureSettings {
  int64_t hidden_size, intermediate_size, num_experts, experts_per_token;
  // By how much the bias of an expert moves after a step in which it had more or fewer tokens than the mean; 0: there
  // is no bias (DeepSeek-AI, "DeepSeek-V3", 2024, 2.1.2: balance without a loss of its own).
  double balance_rate = 0;
  std::optional<double> deviation = std::nullopt;  // of new weights that are normal; without it as a linear layer's
  std::optional<at::ScalarType> dtype = std::nullopt;
  bool normalizes_weights = true;  // those of a token's experts have the sum 1
  bool gives_scores = false;       // the output is [result, scores of the experts [tokens, experts]]
  ExpertFiles files{};
};

// Children `gate`, a linear layer without bias that gives the scores of the experts, and `experts`. A token's result is
// the sum of those of its experts, weighted by the softmax of their scores, divided by the sum of these weights. With a
// shared expert there are the children `shared_expert` and `shared_expert_gate`: to each token's result comes that of
// this network, times the sigmoid of its gate.
class MixtureOfExperts final : public Module {
 public:
  explicit MixtureOfExperts(const MixtureSettings& settings);

  int64_t num_experts() const { return settings_.num_experts; }
  int64_t experts_per_token() const { return settings_.experts_per_token; }
  const std::shared_ptr<GroupedExperts>& experts() const { return experts_; }

  const ExpertFiles& files() const { return settings_.files; }
  // A network for all tokens, and a layer that gives one number for each.
  void add_shared_expert(ModulePtr network, ModulePtr gate);

  void set_ranks(std::shared_ptr<const ExpertRanks> ranks) { ranks_ = std::move(ranks); }
  void set_split(std::shared_ptr<const SplitExperts> split) { split_ = std::move(split); }
  // An expert takes at most the mean number of tokens of a call times this; the result of an expert for a token
  // that it does not take is 0. 0: it takes all.
  void set_capacity_factor(double factor);

  // After a step: moves the biases of the choice, which have no gradient, by the tokens since the last call. `sum`
  // adds up the numbers of all ranks, in place.
  void balance(const std::function<void(const at::Tensor& tokens)>& sum);
  bool is_balanced() const { return settings_.balance_rate > 0; }

 protected:
  c10::IValue forward(const Inputs& inputs) override;

 private:
  RoutedTokens routed_tokens(const at::Tensor& input, const at::Tensor& scores);
  int64_t capacity(int64_t tokens) const;

  MixtureSettings settings_;
  ModulePtr gate_, shared_expert_, shared_expert_gate_;  // null: there is no shared expert
  std::shared_ptr<GroupedExperts> experts_;
  std::shared_ptr<const ExpertRanks> ranks_;   // null: this rank has all experts
  std::shared_ptr<const SplitExperts> split_;  // null: this rank has whole experts
  double capacity_factor_ = 0;
  at::Tensor tokens_of_experts_;  // since the last balance()
};

}  // namespace accel::nn
