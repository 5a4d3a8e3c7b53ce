// SPDX-License-Identifier: Apache-2.0
#include "parallel/sync_module_states.hpp"

#include <c10/core/DeviceType.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "nn/module_walks.hpp"
#include "nn/placements.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace {

// Two texts a tensor: what is the same on ranks that have the same model, and its kind of device, which carries its
// collectives; empty where it has no memory yet.
c10::IValue fingerprint(const nn::Module& module) {
  c10::List<c10::IValue> texts(c10::AnyType::get());
  const auto add = [&texts](const std::string& line, const at::Tensor& tensor) {
    texts.push_back(line);
    texts.push_back(tensor.is_meta() ? "" : c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true));
  };
  for (const auto& [name, tensor] : nn::named_parameters(module))
    add(text("parameter ", name, " ", tensor.scalar_type(), tensor.sizes(), tensor.requires_grad() ? "" : " frozen"),
        tensor);
  for (const auto& [name, tensor] : nn::named_buffers(module))
    add(text("buffer ", name, " ", tensor.scalar_type(), tensor.sizes()), tensor);
  c10::List<c10::IValue> as_one_item(c10::AnyType::get());
  as_one_item.push_back(texts);
  return as_one_item;
}

}  // namespace

void check_same_model(const nn::Module& module, comm::Communicator& communicator) {
  const c10::IValue gathered = comm::gather_object(communicator, fingerprint(module));
  const auto ranks = gathered.toListRef();
  const auto first = ranks[0].toListRef();
  const auto line_of = [](const auto& texts, size_t i) {
    return i < texts.size() ? texts[i].toStringRef() : std::string("nothing");
  };
  for (size_t rank = 1; rank < ranks.size(); rank++) {
    const auto other = ranks[rank].toListRef();
    for (size_t i = 0; i < std::max(first.size(), other.size()); i += 2) {
      const std::string of_first = line_of(first, i), of_other = line_of(other, i);
      require(of_first == of_other, Status::kCollectiveMismatch, "the ranks' models differ: tensor ", i / 2, " is ",
              of_first, " on rank 0 and ", of_other, " on rank ", rank, "; expected the same model everywhere");
      const std::string place = first[i + 1].toStringRef(), other_place = other[i + 1].toStringRef();
      require(place == other_place || place.empty() || other_place.empty(), Status::kCollectiveMismatch,
              "the ranks' models are on different devices: ", of_first, " is on ", place, " on rank 0 and on ",
              other_place, " on rank ", rank, "; expected one kind of device everywhere");
    }
  }
}

void sync_module_states(const nn::Module& module, comm::Communicator& communicator) {
  check_same_model(module, communicator);
  std::vector<at::Tensor> everything = module.parameters();
  for (const auto& [name, buffer] : nn::named_buffers(module)) everything.push_back(buffer);
  broadcast_tensors(everything, /*from=*/0, communicator);
}

void broadcast_tensors(const std::vector<at::Tensor>& tensors, int from, comm::Communicator& communicator) {
  auto list = tree::new_list();
  for (const at::Tensor& tensor : tensors) list.push_back(tensor);
  comm::broadcast(communicator, list, from);
}

void broadcast_model(const ParallelModel& model, int from, comm::Communicator& communicator) {
  std::vector<at::Tensor> everything;
  const nn::Placements placements = nn::placements(*model.module());
  for (const at::Tensor& parameter : model.module()->parameters())
    if (placements.find(parameter) == nullptr) everything.push_back(parameter);
  for (const auto& [name, buffer] : nn::named_buffers(*model.module())) everything.push_back(buffer);
  broadcast_tensors(everything, from, communicator);
}

}  // namespace accel::parallel
