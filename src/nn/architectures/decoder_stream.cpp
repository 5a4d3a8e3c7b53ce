// SPDX-License-Identifier: Apache-2.0
#include "nn/architectures/decoder_stream.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "nn/architectures/key_buffer.hpp"
#include "nn/cache/layer_cache.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// Each key head for as many query heads as share it.
at::Tensor repeat_heads(const at::Tensor& heads, int64_t times) {
  if (times == 1) return heads;
  return heads.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const AttentionRule& rule,
                  bool is_causal) {
  const auto mask = rule.mask.defined() ? std::optional<at::Tensor>(rule.mask) : std::nullopt;
  if (rule.cap == 0)
    return at::scaled_dot_product_attention(query, key, value, mask, rule.dropout, is_causal, rule.scale);
  const double scale = rule.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  at::Tensor scores = (at::matmul(query, key.transpose(-2, -1)) * (scale / rule.cap)).tanh() * rule.cap;
  if (mask) scores = scores.masked_fill(mask->logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor weights = scores.softmax(-1, at::kFloat).to(query.scalar_type());
  return at::matmul(at::dropout(weights, rule.dropout, rule.dropout > 0), value);
}

}  // namespace

const at::Tensor& tensor_input(const Inputs& inputs, size_t place, const std::string& kind) {
  require(place < inputs.size() && inputs[place].isTensor() && inputs[place].toTensor().defined(),
          Status::kTypeMismatch, "input ", place, " of a module of kind '", kind, "' is ",
          place < inputs.size() ? tree::kind_name(inputs[place]) : "missing", "; expected a tensor");
  return inputs[place].toTensor();
}

const c10::IValue* past_input(const Inputs& inputs, size_t place, const std::string& kind) {
  if (place >= inputs.size() || inputs[place].isNone()) return nullptr;
  require(tree::is_sequence(inputs[place]) || LayerCache::of(inputs[place]) != nullptr, Status::kTypeMismatch,
          "past_key_values of a module of kind '", kind, "' is a ", tree::kind_name(inputs[place]),
          "; expected a list");
  return &inputs[place];
}

void require_layers(const c10::IValue* past, size_t layers) {
  if (past == nullptr) return;
  const size_t earlier = tree::sequence_items(*past).size();
  require(earlier == 0 || earlier == layers, Status::kInvalidArgument, "past_key_values has ", earlier,
          " layers; expected ", layers, ", as an earlier call returned it");
}

void put_behind(const c10::IValue& past, at::Tensor& key, at::Tensor& value) {
  const auto earlier = tree::sequence_items(past);
  if (earlier.empty()) return;
  require(earlier.size() == 2 && earlier[0].isTensor() && earlier[1].isTensor(), Status::kTypeMismatch,
          "past_key_values of a layer is no [key, value]; expected what an earlier call returned");
  key = append_positions(earlier[0].toTensor(), key);
  value = append_positions(earlier[1].toTensor(), value);
}

CachedHeads attend_behind(const c10::IValue* past, const at::Tensor& query, at::Tensor key, at::Tensor value,
                          const AttentionRule& rule) {
  if (past == nullptr) return {attend_causally(query, key, value, rule), {}};
  if (LayerCache* const cache = LayerCache::of(*past)) return {cache->attend(query, key, value, rule), *past};
  put_behind(*past, key, value);
  at::Tensor mixed = attend_causally(query, key, value, rule);
  return {std::move(mixed), tree::new_list({std::move(key), std::move(value)})};
}

c10::IValue with_scores(const c10::IValue& output, const std::function<at::Tensor(const at::Tensor& states)>& head) {
  if (output.isTensor()) return head(output.toTensor());
  std::vector<c10::IValue> parts = tree::sequence_items(output).vec();
  at::Tensor states = parts[0].toTensor();
  if (const LayerCache* const cache = LayerCache::first_of(parts[1]))
    states = states.index_select(1, cache->wanted().to(states.device()));
  parts[0] = head(states);
  return tree::new_list(std::move(parts));
}

at::Tensor attend_causally(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const AttentionRule& rule) {
  const int64_t length = query.size(2), total = key.size(2), group = query.size(1) / key.size(1);
  const bool is_split = SplitSequence::current() != nullptr;
  require(!is_split || (!rule.mask.defined() && rule.cap == 0), Status::kUnsupported,
          "an attention with padding, a window or a cap was called with sequences that ranks share; expected "
          "context_parallel_size 1");
  if (length == 1 && group > 1 && !is_split) {
    // One position sees all: the query heads that share a key head are the rows of one attention, and nothing is
    // repeated.
    const at::Tensor rows = query.reshape({query.size(0), key.size(1), group, query.size(3)});
    return attend(rows, key, value, rule, /*is_causal=*/false).reshape(query.sizes());
  }
  // Ranks exchange the heads as they are.
  const at::Tensor keys = is_split ? key : repeat_heads(key, group),
                   values = is_split ? value : repeat_heads(value, group);
  if (rule.mask.defined() || length == 1) return attend(query, keys, values, rule, /*is_causal=*/is_split);
  if (rule.cap == 0 && (length == total || is_split)) return attend(query, keys, values, rule, /*is_causal=*/true);
  AttentionRule masked = rule;
  masked.mask = at::ones({length, total}, query.options().dtype(at::kBool)).tril(total - length);
  return attend(query, keys, values, masked, /*is_causal=*/false);
}

c10::IValue DecoderStream::value() const {
  std::vector<c10::IValue> items{hidden, begin, length};
  const bool has_padding = tokens_mask.defined() || positions.defined();
  const auto or_none = [](const at::Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); };
  if (past)
    items.insert(items.end(), {*past, tree::new_list(cache)});
  else if (has_padding || !router_scores.empty())
    items.resize(5);
  if (has_padding || !router_scores.empty()) items.insert(items.end(), {or_none(tokens_mask), or_none(positions)});
  if (!router_scores.empty())
    items.push_back(tree::new_list(std::vector<c10::IValue>(router_scores.begin(), router_scores.end())));
  return tree::new_list(std::move(items));
}

DecoderStream DecoderStream::of(const c10::IValue& value) {
  const auto items = tree::is_sequence(value) ? tree::sequence_items(value) : c10::ArrayRef<c10::IValue>();
  const bool has_padding = items.size() == 7 || items.size() == 8;
  require((items.size() == 3 || items.size() == 5 || has_padding) && items[0].isTensor() && items[1].isInt() &&
              items[2].isInt(),
          Status::kTypeMismatch, "a part of the model was called with a ", tree::kind_name(value),
          "; expected the output of the part before it");
  DecoderStream stream{items[0].toTensor(), items[1].toInt(), items[2].toInt(), std::nullopt, {}, {}, {}, {}};
  if (items.size() == 8)
    for (const c10::IValue& scores : tree::sequence_items(items[7])) stream.router_scores.push_back(scores.toTensor());
  if (has_padding && items[5].isTensor()) stream.tokens_mask = items[5].toTensor();
  if (has_padding && items[6].isTensor()) stream.positions = items[6].toTensor();
  if (items.size() == 3 || items[3].isNone()) return stream;
  stream.past = items[3];
  stream.cache = tree::sequence_items(items[4]).vec();
  return stream;
}

DecoderStream DecoderStream::behind(const c10::IValue* past, const at::Tensor& tokens) {
  const int64_t length = tokens.size(1);
  if (past == nullptr) return {{}, 0, length, std::nullopt, {}, {}, {}, {}};
  if (const LayerCache* const cache = LayerCache::first_of(*past))
    return {{}, 0, length, *past, {}, {}, cache->positions().to(tokens.device()), {}};
  return {{}, length_of(*past), length, *past, {}, {}, {}, {}};
}

void DecoderStream::take_padding(const c10::IValue& mask, const c10::IValue& given_positions, int64_t batch) {
  const auto take = [&](const c10::IValue& given, const char* name, int64_t columns) {
    require(
        given.isTensor() && given.toTensor().defined() && given.toTensor().sizes() == at::IntArrayRef({batch, columns}),
        Status::kShapeMismatch, name, " is ",
        given.isTensor() && given.toTensor().defined() ? text("of shape ", given.toTensor().sizes())
                                                       : text("a ", tree::kind_name(given)),
        "; expected a tensor [", batch, ", ", columns, "]");
    return given.toTensor();
  };
  if (mask.isNone() && given_positions.isNone()) return;
  require(SplitSequence::current() == nullptr, Status::kUnsupported,
          "attention_mask or position_ids are given, and ranks share the sequences; expected context_parallel_size 1");
  if (!mask.isNone()) tokens_mask = take(mask, "attention_mask", begin + length).to(at::kBool);
  if (!given_positions.isNone()) positions = take(given_positions, "position_ids", length);
}

at::Tensor DecoderStream::mask(int64_t window) const {
  if (past && LayerCache::first_of(*past) != nullptr) return {};  // the cache knows who sees whom
  const int64_t total = begin + length;
  const bool has_window = window > 0 && window < total;
  if (!tokens_mask.defined() && !has_window) return {};
  const auto options = hidden.options().dtype(at::kLong);
  const at::Tensor keys = at::arange(total, options), queries = at::arange(begin, total, options).unsqueeze(1);
  at::Tensor seen = keys.le(queries);
  if (has_window) seen = seen.logical_and(keys.gt(queries - window));
  if (!tokens_mask.defined()) return seen.unsqueeze(0).unsqueeze(0);
  // Padding sees itself, so that no row is without anything to see.
  return seen.logical_and(tokens_mask.unsqueeze(1)).logical_or(keys.eq(queries)).unsqueeze(1);
}

int64_t DecoderStream::length_of(const c10::IValue& past) {
  const auto layers = tree::sequence_items(past);
  if (layers.empty() || LayerCache::of(layers[0]) != nullptr) return 0;
  const auto first = tree::is_sequence(layers[0]) ? tree::sequence_items(layers[0]) : c10::ArrayRef<c10::IValue>();
  require(first.size() == 2 && first[0].isTensor() && first[0].toTensor().dim() == 4, Status::kTypeMismatch,
          "past_key_values of a layer is no [key, value]; expected what an earlier call returned");
  return first[0].toTensor().size(2);
}

void DecoderStream::run_layer(Module& layer, const Inputs& others, const c10::IValue& last) {
  Inputs inputs{hidden};
  inputs.insert(inputs.end(), others.begin(), others.end());
  if (past) {
    const auto earlier = tree::sequence_items(*past);
    require(earlier.empty() || cache.size() < earlier.size(), Status::kInvalidArgument, "past_key_values has ",
            earlier.size(), " layers; expected as many as an earlier call returned");
    inputs.push_back(earlier.empty() ? c10::IValue(tree::new_list()) : earlier[cache.size()]);
    if (!last.isNone()) inputs.push_back(last);
  } else if (!last.isNone()) {
    inputs.insert(inputs.end(), {c10::IValue(), last});
  }
  const c10::IValue output = layer.call(inputs);
  if (output.isTensor()) {
    hidden = output.toTensor();
    return;
  }
  const auto items = tree::sequence_items(output);
  hidden = items[0].toTensor();
  if (past) cache.push_back(items[1]);
  if (items.size() > 2) router_scores.push_back(items[2].toTensor());
}

c10::IValue DecoderStream::output(at::Tensor tensor, const at::Tensor& router_loss) {
  if (!past && !router_loss.defined()) return tensor;
  std::vector<c10::IValue> items{std::move(tensor)};
  if (past) items.emplace_back(tree::new_list(std::move(cache)));
  if (router_loss.defined()) items.emplace_back(router_loss);
  return tree::new_list(std::move(items));
}

}  // namespace accel::nn
