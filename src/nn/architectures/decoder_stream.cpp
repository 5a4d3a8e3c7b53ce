#include "nn/architectures/decoder_stream.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <utility>

#include "base/error.hpp"
#include "nn/architectures/key_buffer.hpp"
#include "nn/split/split_sequence.hpp"
#include "tensor/tree.hpp"

namespace accel::nn {
namespace {

// Each key head for as many query heads as share it.
at::Tensor repeat_heads(const at::Tensor& heads, int64_t times) {
  if (times == 1) return heads;
  return heads.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
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
  require(tree::is_sequence(inputs[place]), Status::kTypeMismatch, "past_key_values of a module of kind '", kind,
          "' is a ", tree::kind_name(inputs[place]), "; expected a list");
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

at::Tensor attend_causally(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                           std::optional<double> scale) {
  const int64_t length = query.size(2), total = key.size(2), group = query.size(1) / key.size(1);
  const bool is_split = SplitSequence::current() != nullptr;
  if (length == 1 && group > 1 && !is_split) {
    // One position sees all: the query heads that share a key head are the rows of one attention, and nothing is
    // repeated.
    const at::Tensor rows = query.reshape({query.size(0), key.size(1), group, query.size(3)});
    return at::scaled_dot_product_attention(rows, key, value, {}, dropout, /*is_causal=*/false, scale)
        .reshape(query.sizes());
  }
  // Ranks exchange the heads as they are.
  const at::Tensor keys = is_split ? key : repeat_heads(key, group),
                   values = is_split ? value : repeat_heads(value, group);
  if (length == 1 || length == total)
    return at::scaled_dot_product_attention(query, keys, values, {}, dropout, /*is_causal=*/length > 1 || is_split,
                                            scale);
  const at::Tensor mask = at::ones({length, total}, query.options().dtype(at::kBool)).tril(total - length);
  return at::scaled_dot_product_attention(query, keys, values, mask, dropout, /*is_causal=*/false, scale);
}

c10::IValue DecoderStream::value() const {
  std::vector<c10::IValue> items{hidden, begin, length};
  if (past) items.insert(items.end(), {*past, tree::new_list(cache)});
  return tree::new_list(std::move(items));
}

DecoderStream DecoderStream::of(const c10::IValue& value) {
  const auto items = tree::is_sequence(value) ? tree::sequence_items(value) : c10::ArrayRef<c10::IValue>();
  require((items.size() == 3 || items.size() == 5) && items[0].isTensor() && items[1].isInt() && items[2].isInt(),
          Status::kTypeMismatch, "a part of the model was called with a ", tree::kind_name(value),
          "; expected the output of the part before it");
  DecoderStream stream{items[0].toTensor(), items[1].toInt(), items[2].toInt(), std::nullopt, {}};
  if (items.size() == 3) return stream;
  stream.past = items[3];
  stream.cache = tree::sequence_items(items[4]).vec();
  return stream;
}

DecoderStream DecoderStream::behind(const c10::IValue* past, int64_t length) {
  if (past == nullptr) return {{}, 0, length, std::nullopt, {}};
  return {{}, length_of(*past), length, *past, {}};
}

int64_t DecoderStream::length_of(const c10::IValue& past) {
  const auto layers = tree::sequence_items(past);
  if (layers.empty()) return 0;
  const auto first = tree::is_sequence(layers[0]) ? tree::sequence_items(layers[0]) : c10::ArrayRef<c10::IValue>();
  require(first.size() == 2 && first[0].isTensor() && first[0].toTensor().dim() == 4, Status::kTypeMismatch,
          "past_key_values of a layer is no [key, value]; expected what an earlier call returned");
  return first[0].toTensor().size(2);
}

void DecoderStream::run_layer(Module& layer, const Inputs& others) {
  Inputs inputs{hidden};
  inputs.insert(inputs.end(), others.begin(), others.end());
  if (!past) {
    hidden = layer.call(inputs).toTensor();
    return;
  }
  const auto earlier = tree::sequence_items(*past);
  require(earlier.empty() || cache.size() < earlier.size(), Status::kInvalidArgument, "past_key_values has ",
          earlier.size(), " layers; expected as many as an earlier call returned");
  inputs.push_back(earlier.empty() ? c10::IValue(tree::new_list()) : earlier[cache.size()]);
  const c10::IValue output = layer.call(inputs);
  hidden = tree::sequence_items(output)[0].toTensor();
  cache.push_back(tree::sequence_items(output)[1]);
}

c10::IValue DecoderStream::output(at::Tensor tensor) {
  if (!past) return tensor;
  return tree::new_list({std::move(tensor), tree::new_list(std::move(cache))});
}

}  // namespace accel::nn
