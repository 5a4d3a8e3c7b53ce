#include "comm/small_tensors.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <map>
#include <string>

#include "base/error.hpp"
#include "tensor/access.hpp"
#include "tensor/dtype.hpp"

namespace accel::comm {
namespace {

constexpr size_t kLargest = 8192;

// "float32[3, 2], int64[1]"
std::string describe(const std::vector<at::Tensor>& tensors) {
  std::string line;
  for (const at::Tensor& tensor : tensors)
    line += text(line.empty() ? "" : ", ", tensor::dtype_name(tensor.scalar_type()), tensor.sizes());
  return line;
}

// Two ranks may have as many bytes in other shapes, so the message begins with a number that stands for the shapes.
uint64_t fingerprint(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&hash](int64_t number) {
    for (int byte = 0; byte < 8; byte++)
      hash = (hash ^ (static_cast<uint64_t>(number) >> 8 * byte & 0xff)) * 0x100000001b3;
  };
  for (const at::Tensor& tensor : tensors) {
    add(static_cast<int64_t>(tensor.scalar_type()));
    add(tensor.dim());
    for (const int64_t size : tensor.sizes()) add(size);
  }
  return hash;
}

size_t bytes_of(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

// One after the other, from `place` on.
void pack(const std::vector<at::Tensor>& tensors, char* place) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() != 0) std::memcpy(place, tensor.const_data_ptr(), tensor.nbytes());
    place += tensor.nbytes();
  }
}

void unpack(const char* place, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() != 0) std::memcpy(tensor.data_ptr(), place, tensor.nbytes());
    tensor::count_write(tensor);
    place += tensor.nbytes();
  }
}

// The fingerprint, and the tensors where they are sent along, of all ranks as one tensor of bytes, a row each. An error
// on all ranks when the fingerprints differ.
at::Tensor exchange(Communicator& communicator, const std::vector<at::Tensor>& tensors, bool sent_along) {
  const uint64_t shapes = fingerprint(tensors);
  const auto bytes = static_cast<int64_t>(sizeof(shapes) + (sent_along ? bytes_of(tensors) : 0));
  const at::Tensor own = at::empty({bytes}, at::kByte);
  std::memcpy(own.data_ptr(), &shapes, sizeof(shapes));
  if (sent_along) pack(tensors, static_cast<char*>(own.data_ptr()) + sizeof(shapes));
  at::Tensor all = at::empty({communicator.size(), bytes}, at::kByte);
  try {
    communicator.all_gather(own, all);
  } catch (const CollectiveError& error) {
    if (error.failure() != CollectiveFailure::kMismatch) throw;
    throw CollectiveError(error.failure(), error.rank(),
                          text(error.what(), "; the small tensors of rank ", communicator.rank(),
                               " travel in one message: ", describe(tensors)));
  }
  const char* const first = static_cast<const char*>(all.const_data_ptr());
  for (int rank = 1; rank < communicator.size(); rank++)
    if (std::memcmp(first + rank * bytes, first, sizeof(shapes)) != 0)
      throw CollectiveError(CollectiveFailure::kMismatch, communicator.rank(),
                            text("rank ", rank, " has other shapes or dtypes than rank 0; rank ", communicator.rank(),
                                 " has ", describe(tensors), "; all ranks must pass the same tree"));
  return all;
}

}  // namespace

bool is_small(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.nbytes() <= kLargest;
}

std::vector<at::Tensor> gather_small(Communicator& communicator, const std::vector<at::Tensor>& tensors) {
  const at::Tensor all = exchange(communicator, tensors, /*sent_along=*/true);
  const auto row = [&](int rank) { return static_cast<const char*>(all.const_data_ptr()) + rank * all.size(1); };
  std::vector<at::Tensor> joined;
  size_t offset = sizeof(uint64_t);
  for (const at::Tensor& tensor : tensors) {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape[0] *= communicator.size();
    joined.push_back(at::empty(shape, tensor.options()));
    char* const goal = static_cast<char*>(joined.back().data_ptr());
    for (int rank = 0; rank < communicator.size() && tensor.nbytes() != 0; rank++)
      std::memcpy(goal + rank * tensor.nbytes(), row(rank) + offset, tensor.nbytes());
    offset += tensor.nbytes();
  }
  return joined;
}

std::vector<at::Tensor> reduce_small(Communicator& communicator, const std::vector<at::Tensor>& tensors,
                                     const std::function<void(const at::Tensor&)>& reduce) {
  exchange(communicator, tensors, /*sent_along=*/false);
  std::vector<at::Tensor> reduced;
  std::map<c10::ScalarType, std::vector<at::Tensor>> by_dtype;  // in the same order on all ranks
  for (const at::Tensor& tensor : tensors) {
    reduced.push_back(tensor.detach().clone(at::MemoryFormat::Contiguous));
    by_dtype[tensor.scalar_type()].push_back(reduced.back());
  }
  for (const auto& [dtype, alike] : by_dtype) {
    const auto count = static_cast<int64_t>(bytes_of(alike) / c10::elementSize(dtype));
    const at::Tensor joined = at::empty({count}, dtype);
    pack(alike, static_cast<char*>(joined.data_ptr()));
    reduce(joined);
    unpack(static_cast<const char*>(joined.const_data_ptr()), alike);
  }
  return reduced;
}

void broadcast_small(Communicator& communicator, const std::vector<at::Tensor>& tensors, int from) {
  exchange(communicator, tensors, /*sent_along=*/false);
  const at::Tensor joined = at::empty({static_cast<int64_t>(bytes_of(tensors))}, at::kByte);
  if (communicator.rank() == from) pack(tensors, static_cast<char*>(joined.data_ptr()));
  communicator.broadcast(joined, from);
  if (communicator.rank() != from) unpack(static_cast<const char*>(joined.const_data_ptr()), tensors);
}

}  // namespace accel::comm
