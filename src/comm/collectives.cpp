#include "comm/collectives.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/small_tensors.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace {

// A tensor as what is gathered of it: rows.
at::Tensor rows_of(const at::Tensor& tensor) {
  return (tensor.dim() == 0 ? tensor.view({1}) : tensor).detach().contiguous();
}

at::Tensor gather_tensor(Communicator& communicator, const at::Tensor& tensor) {
  const at::Tensor rows = rows_of(tensor);
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] *= communicator.size();
  at::Tensor joined = at::empty(shape, rows.options());
  communicator.all_gather(rows, joined);
  return joined;
}

at::Tensor reduce_tensor(Communicator& communicator, const at::Tensor& tensor, Reduction reduction, double scale) {
  at::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  communicator.all_reduce(result, reduction);
  if (scale != 1.0) {
    require(at::isFloatingType(result.scalar_type()) || at::isComplexType(result.scalar_type()), Status::kTypeMismatch,
            "scale is ", scale, " and the tensor is ", result.scalar_type(), "; expected 1 for integers");
    result.mul_(scale);
  }
  return result;
}

// Which dimension `dim` is; nothing where the tensor lacks it.
std::optional<int64_t> axis_of(const at::Tensor& tensor, int64_t dim) {
  const int64_t ndim = tensor.dim();
  if (dim >= ndim || dim < -ndim) return std::nullopt;
  return dim < 0 ? dim + ndim : dim;
}

at::Tensor pad_tensor(const at::Tensor& tensor, int64_t axis, int64_t size, double pad_index, bool pad_first) {
  const int64_t own = tensor.size(axis);
  if (size == own) return tensor;
  std::vector<int64_t> shape = tensor.sizes().vec();
  shape[axis] = size;
  at::Tensor padded = at::full(shape, pad_index, tensor.options());
  padded.narrow(axis, pad_first ? size - own : 0, own).copy_(tensor.detach());
  return padded;
}

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text) {
  const at::Device device = communicator.device();
  const auto integers = at::TensorOptions().dtype(at::kLong).device(device);
  at::Tensor lengths = at::empty({communicator.size()}, integers);
  communicator.all_gather(at::full({1}, static_cast<int64_t>(text.size()), integers), lengths);
  lengths = lengths.cpu();
  const int64_t* const length = lengths.const_data_ptr<int64_t>();
  const int64_t longest = *std::max_element(length, length + communicator.size());
  at::Tensor own = at::zeros({longest}, at::kByte);
  own.narrow(0, 0, static_cast<int64_t>(text.size())).copy_(bytes_of(text));
  at::Tensor all = at::empty({communicator.size(), longest}, own.options().device(device));
  communicator.all_gather(own.to(device), all);
  all = all.cpu();
  std::vector<std::string> texts;
  for (int rank = 0; rank < communicator.size(); rank++)
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + rank * longest, length[rank]);
  return texts;
}

// Each rank's rows are broadcast into their place.
at::Tensor gather_rows(Communicator& communicator, const at::Tensor& tensor, const std::vector<int64_t>& lengths) {
  const at::Tensor rows = rows_of(tensor);
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  at::Tensor joined = at::empty(shape, rows.options());
  int64_t begin = 0;
  for (int rank = 0; rank < communicator.size(); rank++) {
    at::Tensor part = joined.narrow(0, begin, lengths[rank]);
    if (rank == communicator.rank()) part.copy_(rows);
    communicator.broadcast(part, rank);
    begin += lengths[rank];
  }
  return joined;
}

// @accelerate verify_operation
void verify(Communicator& communicator, const char* operation, const c10::IValue& value) {
  if (!communicator.debug() || communicator.size() == 1) return;
  auto shapes = tree::new_list();
  tree::for_each_tensor(value, [&](const at::Tensor& tensor) {
    require(tensor.device().type() == communicator.device().type(), Status::kInvalidArgument,
            "one or more of the tensors passed to ", operation, " were not on the ", communicator.device().type(),
            " while the state is configured for it; move them there before calling ", operation);
    shapes.push_back(c10::IValue(tensor.sizes().vec()));
  });
  std::vector<std::string> by_rank = gather_texts(communicator, tree::to_json(shapes));
  if (std::all_of(by_rank.begin(), by_rank.end(), [&](const std::string& other) { return other == by_rank[0]; }))
    return;
  std::string line;
  for (size_t rank = 0; rank < by_rank.size(); rank++)
    line += text(rank ? ", " : "", "process ", rank, ": ", by_rank[rank]);
  fail(Status::kCollectiveMismatch,
       "cannot apply the desired operation due to shape mismatches; all shapes across devices must be valid; "
       "operation: ",
       operation, "; input shapes: ", line);
}

}  // namespace

c10::IValue gather_uneven(Communicator& communicator, const c10::IValue& value) {
  std::vector<int64_t> lengths;  // of this rank's tensors
  tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
    lengths.push_back(tensor.dim() == 0 ? 1 : tensor.size(0));
    return tensor;
  });
  if (communicator.size() == 1) return value;
  const auto n = static_cast<int64_t>(lengths.size());
  at::Tensor all =
      at::empty({communicator.size(), n}, at::TensorOptions().dtype(at::kLong).device(communicator.device()));
  communicator.all_gather(at::tensor(lengths, at::kLong).to(communicator.device()), all);
  all = all.cpu();
  int64_t leaf = 0;
  return tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
    const int64_t* const column = all.const_data_ptr<int64_t>() + leaf++;
    std::vector<int64_t> by_rank;
    for (int rank = 0; rank < communicator.size(); rank++) by_rank.push_back(column[rank * n]);
    return gather_rows(communicator, tensor, by_rank);
  });
}

c10::IValue gather(Communicator& communicator, const c10::IValue& value) {
  verify(communicator, "gather", value);
  std::vector<at::Tensor> small;
  tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
    if (is_small(tensor)) small.push_back(rows_of(tensor));
    return tensor;
  });
  if (communicator.size() == 1) return value;
  const auto joined = small.size() > 1 ? gather_small(communicator, small) : std::vector<at::Tensor>();
  size_t next = 0;
  return tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
    return !joined.empty() && is_small(tensor) ? joined[next++] : gather_tensor(communicator, tensor);
  });
}

c10::IValue reduce(Communicator& communicator, const c10::IValue& value, Reduction reduction, double scale) {
  verify(communicator, "reduce", value);
  return tree::map_tensors_only(
      value, [&](const at::Tensor& tensor) { return reduce_tensor(communicator, tensor, reduction, scale); });
}

void broadcast(Communicator& communicator, const c10::IValue& value, int from) {
  verify(communicator, "broadcast", value);
  const at::NoGradGuard no_grad;
  tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
    at::Tensor flat = tensor.detach().contiguous();
    communicator.broadcast(flat, from);
    if (!flat.is_alias_of(tensor) && communicator.rank() != from) tensor.detach().copy_(flat);
    return tensor;
  });
}

c10::IValue pad_across_processes(Communicator& communicator, const c10::IValue& value, int64_t dim, double pad_index,
                                 bool pad_first) {
  std::vector<int64_t> sizes;
  tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
    if (const auto axis = axis_of(tensor, dim)) sizes.push_back(tensor.size(*axis));
    return tensor;
  });
  if (sizes.empty()) return value;
  at::Tensor largest = at::tensor(sizes, at::kLong).to(communicator.device());
  communicator.all_reduce(largest, Reduction::kMax);
  largest = largest.cpu();
  const int64_t* size = largest.const_data_ptr<int64_t>();
  return tree::map_tensors_only(value, [&](const at::Tensor& tensor) {
    const auto axis = axis_of(tensor, dim);
    return axis ? pad_tensor(tensor, *axis, *size++, pad_index, pad_first) : tensor;
  });
}

c10::IValue gather_object(Communicator& communicator, const c10::IValue& object) {
  const std::string own = tree::to_json(object);
  if (communicator.size() == 1) return object;
  c10::List<c10::IValue> all(c10::AnyType::get());
  for (const std::string& text : gather_texts(communicator, own)) {
    const c10::IValue item = tree::from_json(text, "an object of another rank");
    if (!item.isList()) {
      all.push_back(item);
      continue;
    }
    for (const c10::IValue& element : item.toListRef()) all.push_back(element);
  }
  return all;
}

c10::IValue broadcast_object_list(Communicator& communicator, const c10::IValue& objects, int from) {
  require(objects.isList(), Status::kTypeMismatch, "objects is no list; expected a list of values");
  require(from >= 0 && from < communicator.size(), Status::kInvalidArgument, "from_process is ", from,
          "; expected 0 to ", communicator.size() - 1);
  const auto own_length = static_cast<int64_t>(objects.toListRef().size());
  const std::string own = communicator.rank() == from ? tree::to_json(objects) : std::string();
  if (communicator.size() == 1) return objects;
  const auto integers = at::TensorOptions().dtype(at::kLong).device(communicator.device());
  at::Tensor lengths = at::empty({communicator.size()}, integers);
  communicator.all_gather(at::full({1}, own_length, integers), lengths);
  lengths = lengths.cpu();
  for (int rank = 0; rank < communicator.size(); rank++) {
    const int64_t other = lengths.const_data_ptr<int64_t>()[rank];
    require(other == lengths.const_data_ptr<int64_t>()[0], Status::kCollectiveMismatch, "the list has ",
            lengths.const_data_ptr<int64_t>()[0], " items on rank 0 and ", other, " on rank ", rank,
            "; expected the same length everywhere");
  }
  at::Tensor size = at::full({1}, static_cast<int64_t>(own.size()), integers);
  communicator.broadcast(size, from);
  at::Tensor bytes = communicator.rank() == from ? bytes_of(own) : at::empty({size.item<int64_t>()}, at::kByte);
  bytes = bytes.to(integers.device());
  communicator.broadcast(bytes, from);
  bytes = bytes.cpu();
  return tree::from_json(std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.numel()),
                         "the source rank's objects");
}

bool all_agree(Communicator& communicator, bool ok) {
  at::Tensor agreed = at::full({1}, ok ? 1 : 0, at::TensorOptions().dtype(at::kInt).device(communicator.device()));
  communicator.all_reduce(agreed, Reduction::kMin);
  return agreed.item<int32_t>() != 0;
}

}  // namespace accel::comm
