// SPDX-License-Identifier: Apache-2.0
// Placed parameters: the parameters of prepared models of which each rank stores a part, and what their ranks do
// together: gather them, clip their gradients, agree on a step. Placements say which ranks these are, whatever kind of
// parallelism has made the parts.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/mesh.hpp"
#include "nn/placements.hpp"
#include "parallel/parallel_model.hpp"
#include "tensor/placement.hpp"

namespace accel::parallel {

class PlacedParameters {
 public:
  // The mesh is that of a state, and lives on while there are models of it that are placed.
  explicit PlacedParameters(const std::shared_ptr<comm::Mesh>& mesh) : mesh_(mesh) {}

  // Adds the model's parameters, for as long as the model exists, if the model has any that are placed.
  void add(const ParallelModelPtr& model);
  bool empty() const { return entries_.empty(); }
  // The models that still exist.
  std::vector<ParallelModelPtr> models() const;
  // The placement of a parameter of these models; null: this rank stores all of the parameter.
  tensor::PlacementPtr find(const at::Tensor& parameter) const;
  // The models that have one of the parameters.
  std::vector<ParallelModelPtr> models_of(const std::vector<at::Tensor>& parameters) const;
  // The mesh axes along which ranks store other parts of any of the parameters; empty: there are none. Those of models
  // in stages are always there, because other stages may have parameters that this rank has not.
  std::string axes_of(const std::vector<at::Tensor>& parameters) const;
  // Whether this rank stores a part of any of the parameters. A stage of a model has whole ones.
  bool have_parts(const std::vector<at::Tensor>& parameters) const;

  // Whether placements say how the ranks along each of these axes share the module, or the models that its parameters
  // belong to; axes of size 1 share nothing.
  bool describe_parts(const nn::Module& module, const std::string& axes) const;
  // The axes of any parameter of these models.
  std::string axes() const;
  // The axes along which ranks have different parts of models, whether placements say it or only the program knows:
  // pipeline and tensor, where the mesh has them.
  std::string axes_of_models() const;

  // Whether this rank saves boxes of its part that count: of the ranks that store the same part, the first one does.
  bool is_first(const tensor::Placement& placement) const;
  // Collective among the ranks that store the parts: the whole tensor of which this rank stores `part`.
  at::Tensor gather(const at::Tensor& part, const tensor::Placement& placement) const;
  // Collective among the ranks along `axes`, which may be empty: whether the flag is set on any of them.
  bool any_rank(const std::string& axes, bool flag) const;
  // For a float32 flag. The result stays on `device` if the ranks can send tensors of it: nothing waits for it
  // there.
  at::Tensor any_rank(const std::string& axes, const at::Tensor& flag, c10::Device device) const;
  // Collective among the ranks that store other parts. As optim/clip.hpp, with the norm of whole gradients, each
  // element of which counts once.
  at::Tensor clip_gradients_by_norm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type) const;
  // Clips each element by itself.
  void clip_gradients_by_value(const std::vector<at::Tensor>& parameters, double clip_value) const;

 private:
  struct Entry {
    std::weak_ptr<ParallelModel> model;
    nn::Placements placements;
    std::string axes;  // of all of them
    std::shared_ptr<comm::Mesh> mesh;
    bool is_in_stages = false;
  };

  // Collective: the axes along which ranks have other parts of a model in stages, of which this rank knows `own`.
  std::string axes_of_stages(const std::string& own) const;

  // Whether each parameter belongs to a model of which ranks along the axis have parts.
  bool are_in_models(const std::vector<at::Tensor>& parameters, const std::string& axis) const;
  std::shared_ptr<comm::Mesh> find_mesh() const;  // null behind the end of the state
  comm::Mesh& mesh() const;

  std::weak_ptr<comm::Mesh> mesh_;
  std::vector<Entry> entries_;
};

// Collective among `ranks`, which store the parts of a tensor: the whole tensor.
at::Tensor gather_parts(const at::Tensor& part, const tensor::Placement& placement, comm::Communicator& ranks);

}  // namespace accel::parallel
