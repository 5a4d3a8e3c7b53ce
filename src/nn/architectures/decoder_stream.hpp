// SPDX-License-Identifier: Apache-2.0
// Decoder stream: what passes along the layers of a model that generates, and the keys and values of earlier tokens.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/module.hpp"

namespace accel::nn {

const at::Tensor& tensor_input(const Inputs& inputs, size_t place, const std::string& kind);
// The place of an input for keys and values of earlier tokens: nothing, or a list that is empty at the beginning, or a
// layer cache.
const c10::IValue* past_input(const Inputs& inputs, size_t place, const std::string& kind);

// Throws INVALID_ARGUMENT unless they are those of so many layers, or of none.
void require_layers(const c10::IValue* past, size_t layers);

struct AttentionRule {
  double dropout = 0;
  std::optional<double> scale = std::nullopt;  // default: 1 / sqrt(size)
  double cap = 0;                              // scores are cap * tanh(scores / cap), unless it is 0
  int64_t window = 0;  // for layer caches: the latest positions that one sees; 0: all. `mask` has it, too
  at::Tensor mask{};   // [batch or 1, 1, length, total], true: is seen; undefined: all earlier positions are
};

// Attention of the last positions of `key`, [batch, heads, length, size].
at::Tensor attend_causally(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const AttentionRule& rule);

// The keys and values of a layer, [batch, heads, length, size], behind those of earlier tokens: nothing, or [key,
// value].
void put_behind(const c10::IValue& past, at::Tensor& key, at::Tensor& value);

// Attention of the positions of a call, behind those of `past`: null, an empty list, [key, value] or a layer cache.
struct CachedHeads {
  at::Tensor mixed;
  c10::IValue cache;  // `past` of the next call; None without one
};
CachedHeads attend_behind(const c10::IValue* past, const at::Tensor& query, at::Tensor key, at::Tensor value,
                          const AttentionRule& rule);

// The output of a model with its states replaced by their scores. In a call with a layer cache `head` gets the states
// [1, tokens, hidden] of the tokens whose scores are needed alone.
c10::IValue with_scores(const c10::IValue& output, const std::function<at::Tensor(const at::Tensor& states)>& head);

struct DecoderStream {
  at::Tensor hidden;
  int64_t begin, length;            // of the positions; with split sequences `hidden` has some of them
  std::optional<c10::IValue> past;  // the keys and values of earlier tokens, by layer; empty at the beginning
  std::vector<c10::IValue> cache;   // the same with these tokens, of the layers so far
  at::Tensor tokens_mask;           // [batch, begin + length], true: a token, false: padding; undefined: all are tokens
  at::Tensor positions;             // [batch, length] of the tokens; undefined: from `begin` on
  std::vector<at::Tensor> router_scores;  // [tokens, experts], of layers whose experts give them

  // [hidden, begin, length], past and cache behind them, behind these the mask and the positions, and then the list of
  // scores.
  c10::IValue value() const;
  static DecoderStream of(const c10::IValue& value);
  // The tokens [batch, length] of a call are behind `past`: nothing, or keys and values.
  static DecoderStream behind(const c10::IValue* past, const at::Tensor& tokens);
  // The number of tokens before these; 0 with layer caches, which give each token a position.
  static int64_t length_of(const c10::IValue& past);

  // Takes an attention mask [batch, begin + length] and positions [batch, length], each a tensor or nothing.
  void take_padding(const c10::IValue& mask, const c10::IValue& given_positions, int64_t batch);
  // The positions that each position of a layer sees, for AttentionRule. `window`: the latest positions only, unless it
  // is 0.
  at::Tensor mask(int64_t window) const;

  // The layer takes the hidden state, the other inputs, in calls with a cache its keys and values, and then `last` if
  // it is not None; in calls with a cache it gives [hidden, [key, value]]. Behind these may be scores of experts, with
  // None in the place of what is not there.
  void run_layer(Module& layer, const Inputs& others, const c10::IValue& last = {});
  // The model gives the tensor, and in calls with a cache [tensor, cache]. A router loss, if it is defined, is the last
  // of a list.
  c10::IValue output(at::Tensor tensor, const at::Tensor& router_loss = {});
};

}  // namespace accel::nn
