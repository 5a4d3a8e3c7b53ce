// SPDX-License-Identifier: Apache-2.0
#include "nn/quantized/packed_weights.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text_ends.hpp"
#include "nn/architectures/hub_names.hpp"
#include "nn/layers/projection.hpp"
#include "nn/module_walks.hpp"
#include "nn/quantized/quantized_model.hpp"
#include "tensor/dtype.hpp"

namespace accel::nn {
namespace {

constexpr const char* kPackedCodes = ".qweight";
constexpr const char* kPackedZeros = ".qzeros";
constexpr const char* kPackedScales = ".scales";
constexpr const char* kInputGroups = ".g_idx";
constexpr int64_t kWordBits = 32;
constexpr std::array<int64_t, 5> kStoredGroups = {256, 128, 64, 32, 16};  // of the kinds

// The place in a word of AWQ of each output.
at::Tensor places_of_outputs() { return at::tensor({0, 4, 1, 5, 2, 6, 3, 7}, at::kLong); }

// The codes of words [rows, words] as bytes [rows, codes], from the lowest bits on.
at::Tensor codes_of_words(const at::Tensor& words, int64_t bits) {
  const at::Tensor bytes = words.contiguous().view(at::kByte);
  if (bits == 8) return bytes;
  return at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1).view({words.size(0), -1});
}

// The codes of words that have those of neighbouring outputs, [rows, outputs].
at::Tensor codes_of_outputs(const at::Tensor& words, const PackedFormat& format) {
  const at::Tensor codes = codes_of_words(words, format.bits);
  if (format.axis == WordAxis::kInputs) return codes;
  return codes.view({words.size(0), -1, 8}).index_select(2, places_of_outputs()).view({words.size(0), -1});
}

// The tensors that files have for one layer.
class PackedLayer {
 public:
  PackedLayer(const TensorsByName& files, std::string path, const Projection& layer, const PackedFormat& format)
      : files_(files),
        path_(std::move(path)),
        format_(format),
        inputs_(layer.in_features()),
        outputs_(layer.out_features()),
        group_(format.group == 0 ? std::max<int64_t>(inputs_, 1) : format.group),
        groups_((inputs_ + group_ - 1) / group_) {}

  QuantizedTensors unpack() const {
    const int64_t of_word = kWordBits / format_.bits, packed_outputs = outputs_ / of_word;
    const bool by_inputs = format_.axis == WordAxis::kInputs;
    require(inputs_ % of_word == 0 && outputs_ % of_word == 0, Status::kInvalidArgument, "'", path_, "' has ", inputs_,
            " inputs and ", outputs_, " outputs; expected multiples of ", of_word);
    const at::Tensor words = by_inputs ? integers(kPackedCodes, {inputs_ / of_word, outputs_})
                                       : integers(kPackedCodes, {inputs_, packed_outputs});
    const at::Tensor scales = member(kPackedScales, {groups_, outputs_});
    require(scales.is_floating_point() && scales.isfinite().all().item<bool>(), Status::kInvalidArgument, "'", path_,
            kPackedScales, "' is ", tensor::dtype_name(scales.scalar_type()),
            ", or has a NaN or an infinity; expected ", "finite floating numbers");
    const at::Tensor zeros = codes_of_outputs(integers(kPackedZeros, {groups_, packed_outputs}), format_)
                                 .to(at::kInt)
                                 .add(format_.zero_offset)
                                 .remainder(int64_t{1} << format_.bits);
    CodedMatrix matrix;
    matrix.sizes = {outputs_, inputs_};
    matrix.order = order();
    matrix.format = {format_.bits == 8 ? kernels::WeightCode::kInt8 : kernels::WeightCode::kInt4, stored_group(),
                     false};
    at::Tensor codes = by_inputs ? codes_of_words(words.t(), format_.bits) : codes_of_outputs(words, format_).t();
    if (matrix.order.defined()) codes = codes.index_select(1, matrix.order);
    matrix.codes = stored_codes(codes);
    // Codes without offsets stand for numbers around the middle.
    const int64_t middle = int64_t{1} << (format_.bits - 1);
    matrix.format.has_offsets = !zeros.eq(middle).all().item<bool>();
    const at::Tensor exact = scales.to(at::kFloat);
    matrix.scales = of_stored_groups(exact);
    if (matrix.format.has_offsets)
      matrix.offsets = of_stored_groups(exact * (format_.bits == 8 ? middle - zeros : -zeros));
    return grouped_tensors(matrix, scales.scalar_type());
  }

 private:
  at::Tensor find(const char* name) const {
    const auto found = files_.find(path_ + name);
    return found == files_.end() ? at::Tensor() : found->second;
  }

  at::Tensor member(const char* name, at::IntArrayRef sizes) const {
    const at::Tensor tensor = find(name);
    require(tensor.defined(), Status::kInvalidArgument, "the files lack '", path_, name, "'; expected it beside '",
            path_, kPackedCodes, "'");
    require(tensor.sizes() == sizes, Status::kInvalidArgument, "'", path_, name, "' is ", tensor.sizes(), "; expected ",
            sizes, " for ", inputs_, " inputs in groups of ", group_, " and ", outputs_, " outputs");
    return tensor;
  }

  at::Tensor integers(const char* name, at::IntArrayRef sizes) const {
    const at::Tensor tensor = member(name, sizes);
    require(tensor.scalar_type() == at::kInt, Status::kInvalidArgument, "'", path_, name, "' is ",
            tensor::dtype_name(tensor.scalar_type()), "; expected int32");
    return tensor;
  }

  // The inputs by their groups; undefined: they are so already.
  at::Tensor order() const {
    if (format_.axis != WordAxis::kInputs || !find(kInputGroups).defined()) return {};
    const at::Tensor groups = integers(kInputGroups, {inputs_}).to(at::kLong);
    if (inputs_ == 0) return {};
    const int64_t least = groups.min().item<int64_t>(), most = groups.max().item<int64_t>();
    require(least >= 0 && most < groups_, Status::kInvalidArgument, "'", path_, kInputGroups, "' has groups from ",
            least, " to ", most, "; expected 0 to ", groups_ - 1);
    const at::Tensor neighbours = at::arange(inputs_, at::kLong).floor_divide(group_);
    if (groups.equal(neighbours)) return {};
    const at::Tensor order = groups.argsort(true, 0, false);
    require(groups.index_select(0, order).equal(neighbours), Status::kUnsupported, "'", path_, kInputGroups,
            "' has groups of several sizes; expected ", group_, " inputs in each but the last");
    return order;
  }

  // A size of the kinds that divides the groups, or the largest one for whole rows.
  int64_t stored_group() const {
    const int64_t least = format_.bits == 8 ? 16 : 32;
    for (const int64_t size : kStoredGroups)
      if (size >= least && (groups_ <= 1 || group_ % size == 0)) return size;
    fail(Status::kUnsupported, "'", path_, "' has groups of ", group_, " inputs; expected a multiple of ", least,
         ", or all inputs");
  }

  // Scales or offsets [groups, outputs], each for the stored groups that it has.
  at::Tensor of_stored_groups(const at::Tensor& of_groups) const {
    const int64_t size = stored_group(), stored = (inputs_ + size - 1) / size;
    const int64_t repeats = groups_ <= 1 ? stored : group_ / size;
    return of_groups.t().repeat_interleave(repeats, 1).narrow(1, 0, stored).contiguous();
  }

  // The codes [outputs, inputs], a byte each, as the kinds have them.
  at::Tensor stored_codes(const at::Tensor& codes) const {
    if (format_.bits == 8) return codes.contiguous().bitwise_xor(128);
    const at::Tensor pairs = codes.contiguous().view({outputs_, inputs_ / 2, 2});
    return pairs.select(2, 0).bitwise_left_shift(4).bitwise_or(pairs.select(2, 1));
  }

  const TensorsByName& files_;
  const std::string path_;
  const PackedFormat format_;
  const int64_t inputs_, outputs_, group_, groups_;
};

// The path of the layer in files that have packed weights of it; empty: they have none.
std::string packed_path(const TensorsByName& files, const HubNames& names, const std::string& layer,
                        const Projection& projection) {
  if (files.count(layer + kPackedCodes) > 0) return layer;
  const std::vector<HubPart> parts =
      names.parts_of(layer + ".weight", projection.parameter(Projection::kWeight).sizes());
  if (parts.size() != 1 || parts[0].expert >= 0) return "";
  const std::string path = parts[0].name.substr(0, parts[0].name.rfind('.'));
  return files.count(path + kPackedCodes) > 0 ? path : "";
}

}  // namespace

NamedTensors unpack_weights(Module& model, const NamedTensors& files, const PackedFormat& format) {
  const at::NoGradGuard no_grad;
  const TensorsByName given(files.begin(), files.end());
  std::unordered_set<std::string> read;
  std::vector<std::pair<std::string, QuantizedTensors>> layers;
  {
    const HubNames names(model);
    for (const auto& [layer, module] : named_modules(model)) {
      const auto* const projection = dynamic_cast<const Projection*>(module);
      if (projection == nullptr) continue;
      const std::string path = packed_path(given, names, layer, *projection);
      if (path.empty()) continue;
      layers.emplace_back(layer, PackedLayer(given, path, *projection, format).unpack());
      for (const char* const member : {kPackedCodes, kPackedZeros, kPackedScales, kInputGroups})
        read.insert(path + member);
      const auto bias = given.find(path + ".bias");
      if (projection->has_bias() || bias == given.end()) continue;
      require(bias->second.eq(0).all().item<bool>(), Status::kInvalidArgument, "'", bias->first,
              "' is not zero, and the layer has no bias in the configuration; expected one of the same model");
      read.insert(bias->first);
    }
  }
  NamedTensors unpacked;
  for (const auto& entry : files) {
    if (read.count(entry.first) > 0) continue;
    const bool is_packed = ends_with(entry.first, kPackedCodes) || ends_with(entry.first, kPackedScales);
    require(!is_packed, Status::kUnsupported, "'", entry.first,
            "' belongs to no linear layer of the model; expected packed weights of linear layers alone");
    unpacked.push_back(entry);
  }
  require(!layers.empty(), Status::kNotFound,
          "the quantization_config says that weights are packed, and no tensor of the files is; expected names such as "
          "'model.layers.0.self_attn.q_proj.qweight'");
  install_quantized(model, layers, unpacked);
  return unpacked;
}

}  // namespace accel::nn
