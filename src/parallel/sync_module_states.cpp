#include "parallel/sync_module_states.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

// One line a tensor, the same on ranks that have the same model.
c10::IValue fingerprint(const nn::Module& module) {
  c10::List<c10::IValue> lines(c10::AnyType::get());
  for (const auto& [name, tensor] : module.named_parameters())
    lines.push_back(
        text("parameter ", name, " ", tensor.scalar_type(), tensor.sizes(), tensor.requires_grad() ? "" : " frozen"));
  for (const auto& [name, tensor] : module.named_buffers())
    lines.push_back(text("buffer ", name, " ", tensor.scalar_type(), tensor.sizes()));
  c10::List<c10::IValue> as_one_item(c10::AnyType::get());
  as_one_item.push_back(lines);
  return as_one_item;
}

}  // namespace

void check_same_model(const nn::Module& module, comm::Communicator& communicator) {
  const c10::IValue gathered = comm::gather_object(communicator, fingerprint(module));
  const auto ranks = gathered.toListRef();
  const auto first = ranks[0].toListRef();
  for (size_t rank = 1; rank < ranks.size(); rank++) {
    const auto other = ranks[rank].toListRef();
    for (size_t i = 0; i < std::max(first.size(), other.size()); i++) {
      const std::string of_first = i < first.size() ? first[i].toStringRef() : "nothing";
      const std::string of_other = i < other.size() ? other[i].toStringRef() : "nothing";
      require(of_first == of_other, Status::kCollectiveMismatch, "the ranks' models differ: tensor ", i, " is ",
              of_first, " on rank 0 and ", of_other, " on rank ", rank, "; expected the same model everywhere");
    }
  }
}

void sync_module_states(const nn::Module& module, comm::Communicator& communicator) {
  check_same_model(module, communicator);
  std::vector<at::Tensor> everything = module.parameters();
  for (const auto& [name, buffer] : module.named_buffers()) everything.push_back(buffer);
  broadcast_tensors(everything, /*from=*/0, communicator);
}

void broadcast_tensors(const std::vector<at::Tensor>& tensors, int from, comm::Communicator& communicator) {
  auto list = tree::new_list();
  for (const at::Tensor& tensor : tensors) list.push_back(tensor);
  comm::broadcast(communicator, list, from);
}

void broadcast_model(const ParallelModel& model, int from, comm::Communicator& communicator) {
  std::vector<at::Tensor> everything;
  for (const at::Tensor& parameter : model.module()->parameters())
    if (model.shard_of(parameter) == nullptr) everything.push_back(parameter);
  for (const auto& [name, buffer] : model.module()->named_buffers()) everything.push_back(buffer);
  broadcast_tensors(everything, from, communicator);
}

}  // namespace accel::parallel
