// SPDX-License-Identifier: Apache-2.0
// Chunk files: the chunks that one rank has of the tensors of a model or optimizer, as safetensors. The metadata say of
// which tensor each is, and where; the file with the rest of the state has references to them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/formats/safetensors.hpp"
#include "os/mapped_file.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::checkpoint {

// A state without its chunks.
struct SplitState {
  c10::IValue rest;  // references in place of chunks; of a model, only its other tensors
  SafetensorsContents chunks;
};
bool has_chunks(const c10::IValue& state);
SplitState split_chunks(const c10::IValue& state, bool is_model);

// A tensor in chunks, which stay in their files until they are read.
class TensorInChunks final : public tensor::SavedTensor {
 public:
  TensorInChunks(std::string name, at::ScalarType dtype, std::vector<int64_t> shape)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {}

  at::ScalarType dtype() const override { return dtype_; }
  const std::vector<int64_t>& shape() const override { return shape_; }
  at::Tensor read(const tensor::Box& box) const override;
  void check(const tensor::Box& box) const override;

  // Errors are kCorrupt and name the source. The hash is that of the elements; without one they are not verified.
  void add(const at::Tensor& data, std::vector<int64_t> offset, const std::vector<int64_t>& shape,
           std::optional<uint64_t> hash, const std::string& source);

 private:
  struct Chunk {
    tensor::Box box;
    at::Tensor data;
    std::string source;
    mutable std::optional<uint64_t> hash;  // until it is verified, when the chunk is first read
  };
  void verify(const Chunk& chunk) const;
  // Verifies the chunks that have a part of the box, and calls visit(chunk, part). kCorrupt if elements are missing.
  template <typename Visit>
  void for_each_part(const tensor::Box& box, const Visit& visit) const;

  std::string name_;
  at::ScalarType dtype_;
  std::vector<int64_t> shape_;
  std::vector<Chunk> chunks_;
};

// The tensors of which the ranks have chunks.
class ChunkTable {
 public:
  // Chunks are verified one by one when they are read: a rank reads what it needs and no more.
  explicit ChunkTable(bool verify) : verify_(verify) {}

  // Errors are kCorrupt and name the file.
  void add(const std::shared_ptr<const MappedFile>& file);
  bool empty() const { return tensors_.empty(); }

  // The state with a SavedTensor for each reference; for a model, for each tensor of the table.
  c10::IValue join(const c10::IValue& rest, bool is_model) const;

 private:
  bool verify_;
  std::vector<std::string> names_;  // in the order of the files
  std::unordered_map<std::string, c10::intrusive_ptr<TensorInChunks>> tensors_;
};

// The state with each SavedTensor read.
c10::IValue read_chunks(const c10::IValue& state);

}  // namespace accel::checkpoint
