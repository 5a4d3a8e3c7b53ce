#include "comm/small_tensors.hpp"

#include <ATen/ATen.h>

#include <cstring>
#include <string>

#include "base/error.hpp"
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

// All ranks as one tensor of bytes, a row each.
at::Tensor exchange(Communicator& communicator, const std::vector<at::Tensor>& tensors, uint64_t shapes) {
  size_t bytes = sizeof(shapes);
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  at::Tensor own = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  char* place = static_cast<char*>(own.data_ptr());
  std::memcpy(place, &shapes, sizeof(shapes));
  place += sizeof(shapes);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.nbytes() != 0) std::memcpy(place, tensor.const_data_ptr(), tensor.nbytes());
    place += tensor.nbytes();
  }
  at::Tensor all = at::empty({communicator.size(), static_cast<int64_t>(bytes)}, at::kByte);
  try {
    communicator.all_gather(own, all);
  } catch (const CollectiveError& error) {
    if (error.failure() != CollectiveFailure::kMismatch) throw;
    throw CollectiveError(error.failure(), error.rank(),
                          text(error.what(), "; the small tensors of rank ", communicator.rank(),
                               " travel in one message: ", describe(tensors)));
  }
  return all;
}

}  // namespace

bool is_small(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.nbytes() <= kLargest;
}

std::vector<at::Tensor> gather_small(Communicator& communicator, const std::vector<at::Tensor>& tensors) {
  const uint64_t shapes = fingerprint(tensors);
  const at::Tensor all = exchange(communicator, tensors, shapes);
  const auto row = [&](int rank) { return static_cast<const char*>(all.const_data_ptr()) + rank * all.size(1); };
  for (int rank = 1; rank < communicator.size(); rank++)
    if (std::memcmp(row(rank), row(0), sizeof(shapes)) != 0)
      throw CollectiveError(CollectiveFailure::kMismatch, communicator.rank(),
                            text("rank ", rank, " has other shapes or dtypes than rank 0; rank ", communicator.rank(),
                                 " has ", describe(tensors), "; all ranks must pass the same tree"));
  std::vector<at::Tensor> joined;
  size_t offset = sizeof(shapes);
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

}  // namespace accel::comm
