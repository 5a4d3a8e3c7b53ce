// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/formats/compressed_tensors.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/formats/compressed_header.hpp"
#include "checkpoint/formats/torch/mapped_storage.hpp"
#include "kernels/parallel.hpp"

namespace accel::checkpoint {
namespace {

constexpr int64_t kBlocksAtOnce = 8;  // in memory
// A tensor is compressed if a part of it shrinks to less than this; otherwise the time is saved.
constexpr double kWorthwhile = 0.95;
constexpr uint64_t kProbe = 64 << 10;

void shuffle(const char* from, char* to, uint64_t size, uint64_t element) {
  const uint64_t count = size / element;
  for (uint64_t byte = 0; byte < element; byte++)
    for (uint64_t i = 0; i < count; i++) to[byte * count + i] = from[i * element + byte];
}

void unshuffle(const char* from, char* to, uint64_t size, uint64_t element) {
  const uint64_t count = size / element;
  for (uint64_t byte = 0; byte < element; byte++)
    for (uint64_t i = 0; i < count; i++) to[i * element + byte] = from[byte * count + i];
}

class Compressor {
 public:
  explicit Compressor(int level) : context_(ZSTD_createCCtx(), ZSTD_freeCCtx) {
    if (context_ == nullptr) throw std::bad_alloc();
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level);
  }

  // Compresses a block into `packed`, or copies it there if it does not shrink.
  void compress(const char* data, uint64_t size, uint64_t element, std::vector<char>& packed) {
    const char* source = data;
    if (element > 1) {
      shuffled_.resize(size);
      shuffle(data, shuffled_.data(), size, element);
      source = shuffled_.data();
    }
    packed.resize(ZSTD_compressBound(size));
    const size_t packed_size = ZSTD_compress2(context_.get(), packed.data(), packed.size(), source, size);
    require(ZSTD_isError(packed_size) == 0, Status::kInternal,
            "Zstd cannot compress: ", ZSTD_getErrorName(packed_size));
    if (packed_size < size) return packed.resize(packed_size);
    packed.assign(data, data + size);
  }

 private:
  std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context_;
  std::vector<char> shuffled_;
};

bool is_worthwhile(const char* data, uint64_t bytes, uint64_t element, int level) {
  if (bytes == 0) return false;
  const uint64_t size = std::min(kProbe, bytes), middle = (bytes - size) / 2 / element * element;
  std::vector<char> packed;
  Compressor(level).compress(data + middle, size, element, packed);
  return static_cast<double>(packed.size()) < kWorthwhile * static_cast<double>(size);
}

void write_blocks(OutputFile& output, const char* data, CompressedEntry& entry, int level) {
  const auto total = static_cast<int64_t>(entry.num_blocks());
  std::vector<std::vector<char>> packed(static_cast<size_t>(std::min(total, kBlocksAtOnce)));
  for (int64_t first = 0; first < total; first += kBlocksAtOnce) {
    const int64_t count = std::min(kBlocksAtOnce, total - first);
    kernels::parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      Compressor compressor(level);
      for (int64_t i = begin; i < end; i++) {
        const auto block = static_cast<uint64_t>(first + i);
        compressor.compress(data + block * kCompressedBlock, entry.block_bytes(block), entry.shuffle,
                            packed[static_cast<size_t>(i)]);
      }
    });
    for (int64_t i = 0; i < count; i++) {
      const std::vector<char>& block = packed[static_cast<size_t>(i)];
      output.write(block.data(), block.size());
      entry.block_sizes.push_back(block.size());
    }
  }
}

// Before memory for it is taken, each block says what it will be.
void check_blocks(const char* data, const CompressedEntry& entry, const std::string& source) {
  for (uint64_t block = 0; block < entry.block_sizes.size(); block++) {
    const uint64_t size = entry.block_sizes[block], expected = entry.block_bytes(block);
    require(size == expected || ZSTD_getFrameContentSize(data, size) == expected, Status::kCorrupt, "'", source,
            "' is damaged: block ", block, " of '", entry.name, "' is not of ", expected, " bytes");
    data += size;
  }
}

void expand_blocks(const char* data, const CompressedEntry& entry, char* to, const std::string& source) {
  std::vector<const char*> begins;
  for (const uint64_t size : entry.block_sizes) {
    begins.push_back(data);
    data += size;
  }
  kernels::parallel_for(static_cast<int64_t>(begins.size()), 1, [&](int64_t first, int64_t last) {
    const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
    if (context == nullptr) throw std::bad_alloc();
    std::vector<char> shuffled(entry.shuffle > 1 ? kCompressedBlock : 0);
    for (auto block = static_cast<uint64_t>(first); block < static_cast<uint64_t>(last); block++) {
      const uint64_t size = entry.block_sizes[block], expected = entry.block_bytes(block);
      char* const target = to + block * kCompressedBlock;
      if (size == expected) {
        std::memcpy(target, begins[block], size);
        continue;
      }
      char* const expanded = entry.shuffle > 1 ? shuffled.data() : target;
      const size_t result = ZSTD_decompressDCtx(context.get(), expanded, expected, begins[block], size);
      require(result == expected, Status::kCorrupt, "'", source, "' is damaged: block ", block, " of '", entry.name,
              "' cannot be decompressed");
      if (entry.shuffle > 1) unshuffle(expanded, target, expected, entry.shuffle);
    }
  });
}

}  // namespace

void write_compressed_tensors(OutputFile& output, const NamedTensors& tensors, const Metadata& metadata, int level) {
  require(level >= 1 && level <= ZSTD_maxCLevel(), Status::kInvalidArgument, "the compression level is ", level,
          "; expected 1 to ", ZSTD_maxCLevel());
  uint64_t position = kCompressedMagic.size();
  output.write(kCompressedMagic.data(), kCompressedMagic.size());
  CompressedHeader header{metadata, {}};
  for (const auto& [name, tensor] : tensors) {
    check_writable(name, tensor);
    const at::Tensor dense = dense_on_cpu(tensor);
    const auto* const data = static_cast<const char*>(dense.const_data_ptr());
    CompressedEntry entry;
    entry.name = name;
    entry.dtype = dense.scalar_type();
    entry.shape = dense.sizes().vec();
    entry.bytes = dense.nbytes();
    entry.shuffle = shuffle_of(entry.dtype);
    if (is_worthwhile(data, entry.bytes, entry.shuffle, level)) {
      entry.offset = position;
      write_blocks(output, data, entry, level);
      for (const uint64_t size : entry.block_sizes) position += size;
    } else {
      const std::string padding((kUncompressedAlignment - position % kUncompressedAlignment) % kUncompressedAlignment,
                                '\0');
      output.write(padding.data(), padding.size());
      entry.offset = position + padding.size();
      output.write(data, entry.bytes);
      position = entry.offset + entry.bytes;
    }
    header.tensors.push_back(std::move(entry));
  }
  const std::string printed = print_compressed_header(header);
  output.write(printed.data(), printed.size());
}

bool has_compressed_header_of(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const MappedFile file(path);
  const CompressedHeader header = parse_compressed_header(file.text(), path);
  return header.metadata == metadata &&
         std::equal(tensors.begin(), tensors.end(), header.tensors.begin(), header.tensors.end(),
                    [](const auto& given, const CompressedEntry& entry) {
                      return given.first == entry.name && given.second.scalar_type() == entry.dtype &&
                             given.second.sizes() == entry.shape;
                    });
}

SafetensorsContents read_compressed_tensors(const std::shared_ptr<const MappedFile>& file) {
  const CompressedHeader header = parse_compressed_header(file->text(), file->path());
  SafetensorsContents contents;
  contents.metadata = header.metadata;
  for (const CompressedEntry& entry : header.tensors) {
    at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(entry.dtype));
    if (entry.bytes == 0) {
      tensor = tensor.view(entry.shape);
    } else if (entry.block_sizes.empty()) {
      const std::string_view bytes = file->text().substr(entry.offset, entry.bytes);
      tensor.set_(fixed_storage(mapped_data(file, bytes, c10::elementSize(entry.dtype)), bytes.size()), 0, entry.shape);
    } else {
      const char* const data = file->data() + entry.offset;
      check_blocks(data, entry, file->path());
      tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
      expand_blocks(data, entry, static_cast<char*>(tensor.mutable_data_ptr()), file->path());
    }
    contents.tensors.emplace_back(entry.name, std::move(tensor));
  }
  return contents;
}

}  // namespace accel::checkpoint
