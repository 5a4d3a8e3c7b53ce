// SPDX-License-Identifier: Apache-2.0
#include "bigmodel/saved_weights.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace accel::bigmodel {
namespace {

// A weight that is used in place: its tensor becomes a meta tensor after the forward, its memory stays.
class MemoryInPlace final : public tensor::SavedTensorStandIn {
 public:
  explicit MemoryInPlace(const at::Tensor& tensor) : tensor_(tensor.detach()) {}
  at::Tensor tensor() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

class BroughtAgain final : public tensor::SavedTensorStandIn {
 public:
  BroughtAgain(std::shared_ptr<BlockStream> stream, size_t block, const at::Tensor& tensor)
      : stream_(std::move(stream)),
        block_(block),
        options_(tensor.options()),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        offset_(tensor.storage_offset()) {}

  at::Tensor tensor() override {
    const std::shared_ptr<const FilledBuffer> filled = stream_->bring_again(block_);
    at::Tensor tensor = at::empty({0}, options_);
    c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(filled->buffer.storage());
    impl->set_sizes_and_strides(sizes_, strides_, offset_);
    return tensor;
  }

 private:
  std::shared_ptr<BlockStream> stream_;
  size_t block_;
  at::TensorOptions options_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_;
};

}  // namespace

std::unique_ptr<tensor::SavedTensorHooks> save_without_weights(std::shared_ptr<BlockStream> stream, size_t block) {
  return std::make_unique<tensor::SavedTensorHooks>(
      [stream = std::move(stream), block](const at::Tensor& tensor) -> std::unique_ptr<tensor::SavedTensorStandIn> {
        if (!stream->contains(block, tensor)) return nullptr;
        if (stream->is_in_place(block)) return std::make_unique<MemoryInPlace>(tensor);
        return std::make_unique<BroughtAgain>(stream, block, tensor);
      });
}

}  // namespace accel::bigmodel
