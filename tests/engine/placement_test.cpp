// SPDX-License-Identifier: Apache-2.0
// Placements: parts of tensors on a mesh, and a kind of parallelism that has nothing but placements.
#include "tensor/placement.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "checkpoint_fixture.hpp"
#include "column_strategy.hpp"
#include "config/generated/choices/state_dict_type.hpp"
#include "config/generated/settings/prepare/grad_scaler.hpp"
#include "config/generated/settings/prepare/prepare_model.hpp"
#include "expect_error.hpp"
#include "mesh_ranks.hpp"
#include "nn/module_walks.hpp"
#include "optim/rules/rules.hpp"
#include "precision/grad_scaler.hpp"
#include "tensor/tensor_chunk.hpp"

namespace accel::parallel {
namespace placement_test {

using checkpoint::tests::Folder;
using tests::AcceleratorPtr;

// Random boxes of a random tensor, cut again and again: their elements are those of the cuts, and all cuts together are
// the whole.
TEST(Placement, CutsOfCutsAreBoxesOfTheWhole) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % (most - least + 1));
  };
  for (int turn = 0; turn < 200; turn++) {
    std::vector<int64_t> shape(static_cast<size_t>(draw(1, 3)));
    for (int64_t& size : shape) size = draw(1, 7);
    const at::Tensor whole = at::arange(c10::multiply_integers(shape)).view(shape);
    at::Tensor joined = at::full(shape, -1, at::kLong);
    struct Cut {
      at::Tensor stored;
      tensor::Placement placement;
    };
    std::vector<Cut> cuts{{whole, tensor::whole_placement(shape)}};
    for (int depth = 0; depth < 3; depth++) {
      const auto dim = static_cast<size_t>(draw(0, static_cast<int64_t>(shape.size()) - 1));
      std::vector<Cut> parts;
      for (const Cut& cut : cuts) {
        const int64_t size = cut.stored.size(static_cast<int64_t>(dim)), middle = draw(0, size);
        for (const auto& [begin, end] : {std::pair(int64_t{0}, middle), std::pair(middle, size)}) {
          tensor::Box box{tensor::whole_offset(shape.size()), cut.stored.sizes().vec()};
          box.offset[dim] = begin;
          box.sizes[dim] = end - begin;
          parts.push_back({tensor::narrow(cut.stored, box), cut.placement.cut(box, "axis" + std::to_string(depth))});
        }
      }
      cuts = std::move(parts);
    }
    for (const Cut& cut : cuts) {
      EXPECT_EQ(cut.placement.stored_sizes(), cut.stored.sizes().vec());
      EXPECT_EQ(cut.placement.axes, "axis0,axis1,axis2");
      EXPECT_TRUE(tensor::read_part(whole, cut.placement, "x").equal(cut.stored));
      for (const tensor::PlacedBox& box : cut.placement.boxes)
        tensor::narrow(joined, box.whole).copy_(tensor::narrow(cut.stored, {box.local, box.whole.sizes}));
    }
    EXPECT_TRUE(joined.equal(whole));
  }
}

TEST(Placement, PartsMustBeInside) {
  const tensor::Placement whole = tensor::whole_placement({4, 3});
  for (const tensor::Box& box : {tensor::Box{{0, 0}, {5, 3}}, {{2, 0}, {3, 3}}, {{0, -1}, {4, 3}}, {{0, 4}, {4, 0}}})
    tests::expect_error(Status::kShapeMismatch, "is not inside of", [&] { whole.cut(box, "shard"); });
  tests::expect_error(Status::kShapeMismatch, "as many in both", [&] { whole.cut({{0}, {4}}, "shard"); });
}

using Sizes = tests::MeshSizes;
using tests::on_mesh;

constexpr int64_t kRows = 8;

class Training {
 public:
  Training(const AcceleratorPtr& accelerator, StateDictType type) : accelerator_(accelerator) {
    comm::Mesh& mesh = *accelerator->state().groups().mesh();
    inner_ = mesh.size("tensor") > 1 ? column_strategy::split_model(mesh) : column_strategy::make_model();
    PrepareModelSettings preparation;
    preparation.fsdp.enabled = mesh.size("shard") > 1;
    preparation.fsdp.state_dict_type = type;
    auto plain = optim::make_optimizer(optim::adam_rule(optim::WeightDecay::kDecoupled), {{"lr", 0.03}});
    plain->add_group(inner_->parameters(), std::nullopt, std::nullopt);
    model_ = accelerator->preparation().prepare_model(inner_, preparation);
    optimizer_ = accelerator->preparation().prepare_optimizer(plain);
  }

  void backward(int number) {
    const auto data = accelerator_->state().groups().data_parallel();
    const int64_t share = kRows / data->size();
    const at::Tensor rows =
        at::linspace(-2, 2, kRows * column_strategy::kInputs).mul(1.3 + number).sin().view({kRows, -1});
    accelerator_->backward().run(model_->call(rows.narrow(0, data->rank() * share, share)).square().mean());
  }

  // Returns the norm of the gradients.
  double step(int number) {
    backward(number);
    const double norm = accelerator_->clipping().clip_gradients_by_norm(model_, 0.5, 2)->item<double>();
    optimizer_->step();
    optimizer_->zero_grad(true);
    return norm;
  }

  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> weights;
    for (const auto& [name, tensor] : accelerator_->files().whole_state_dict(model_, /*keep=*/true))
      weights[name] = tensor.clone();
    return weights;
  }

  const std::shared_ptr<nn::CallbackModule>& inner() const { return inner_; }
  const nn::ModulePtr& model() const { return model_; }
  const std::shared_ptr<optim::Optimizer>& optimizer() const { return optimizer_; }

 private:
  AcceleratorPtr accelerator_;
  std::shared_ptr<nn::CallbackModule> inner_;
  nn::ModulePtr model_;
  std::shared_ptr<optim::Optimizer> optimizer_;
};

void expect_close(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::allclose(found.at(name), tensor, 1e-5, 1e-6)) << name;
}

constexpr Sizes kAlone{1, 1, 1};
constexpr Sizes kMeshes[] = {{1, 1, 2}, {2, 1, 2}, {1, 2, 2}, {1, 1, 3}, {2, 2, 1}};
constexpr int kSteps = 4;

struct Trained {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights, more;  // after kSteps, and after one step more
};

Trained train_alone() {
  Trained trained;
  on_mesh(kAlone, [&](const AcceleratorPtr& accelerator) {
    Training training(accelerator, StateDictType::kFullStateDict);
    for (int step = 0; step < kSteps; step++) trained.norms.push_back(training.step(step));
    trained.weights = training.weights();
    training.step(kSteps);
    trained.more = training.weights();
  });
  return trained;
}

TEST(Placement, AKindOfParallelismThatHasOnlyPlacementsTrains) {
  const Trained expected = train_alone();
  for (const Sizes& sizes : kMeshes)
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      Training training(accelerator, StateDictType::kFullStateDict);
      for (int step = 0; step < kSteps; step++)
        EXPECT_NEAR(training.step(step), expected.norms[static_cast<size_t>(step)], 1e-5);
      expect_close(training.weights(), expected.weights);
    });
}

TEST(Placement, ItsCheckpointsLoadOnOtherMeshes) {
  const Trained expected = train_alone();
  for (const StateDictType type : {StateDictType::kFullStateDict, StateDictType::kShardedStateDict})
    for (const Sizes& saves : kMeshes) {
      const Folder folder;
      on_mesh(saves, [&](const AcceleratorPtr& accelerator) {
        Training training(accelerator, type);
        for (int step = 0; step < kSteps; step++) training.step(step);
        accelerator->checkpoints().save_state(folder / "s");
      });
      for (const Sizes& loads : {kAlone, kMeshes[0], kMeshes[2], kMeshes[3]})
        on_mesh(loads, [&](const AcceleratorPtr& accelerator) {
          Training training(accelerator, type);
          accelerator->checkpoints().load_state(folder / "s");
          expect_close(training.weights(), expected.weights);
          training.step(kSteps);
          expect_close(training.weights(), expected.more);
        });
    }
}

TEST(Placement, AnOverflowInOnePartSkipsTheStepInAll) {
  for (const Sizes& sizes : {Sizes{1, 1, 2}, Sizes{1, 2, 2}})
    on_mesh(sizes, [&](const AcceleratorPtr& accelerator) {
      GradScalerSettings scaler;
      scaler.enabled = true;
      accelerator->precision().set_grad_scaler(scaler);
      Training training(accelerator, StateDictType::kFullStateDict);
      const auto before = training.weights();
      training.backward(0);
      for (const at::Tensor& parameter : training.inner()->parameters())
        parameter.mutable_grad() =
            at::full(parameter.sizes(), accelerator->state().process_index() == 1 ? HUGE_VAL : 1.0);
      EXPECT_FALSE(training.optimizer()->step());
      EXPECT_TRUE(training.optimizer()->step_was_skipped());
      expect_close(training.weights(), before);
    });
}

// Regression: the ranks summed powers of the norm in float32, where they overflow.
TEST(Placement, TheNormOfLargeGradientsIsFinite) {
  on_mesh({1, 1, 2}, [](const AcceleratorPtr& accelerator) {
    Training training(accelerator, StateDictType::kFullStateDict);
    training.backward(0);
    double sum = 0;
    for (const at::Tensor& parameter : training.inner()->parameters())
      parameter.mutable_grad() = at::full(parameter.sizes(), 1e20);
    for (const auto& [name, tensor] : training.weights()) sum += static_cast<double>(tensor.numel());
    const double norm = accelerator->clipping().clip_gradients_by_norm(training.model(), 0.5, 2)->item<double>();
    EXPECT_NEAR(norm / 1e20, std::sqrt(sum), 1e-5);
    EXPECT_NEAR(training.inner()->parameter(0).grad().flatten()[0].item<double>(), 0.5 / std::sqrt(sum), 1e-6);
  });
}

// Gradients that one rank alone has, such as those of ignored modules, change the loss scale of all models.
TEST(Placement, AnOverflowOutsideOfThePartsSkipsTheStepInAll) {
  on_mesh({1, 2, 1}, [](const AcceleratorPtr& accelerator) {
    GradScalerSettings scaler;
    scaler.enabled = true;
    accelerator->precision().set_grad_scaler(scaler);
    const auto inner = column_strategy::make_model();
    PrepareModelSettings preparation;
    preparation.fsdp.enabled = true;
    preparation.fsdp.ignored_modules = std::string("down_bias");
    const auto model = accelerator->preparation().prepare_model(inner, preparation);
    auto plain = optim::make_optimizer(optim::sgd_rule(), {{"lr", 0.1}});
    plain->add_group({nn::find_tensor(*inner, "down_bias")}, std::nullopt, std::nullopt);
    const auto optimizer = accelerator->preparation().prepare_optimizer(plain);
    accelerator->backward().run(model->call(at::full({2, column_strategy::kInputs}, 0.3)).square().mean());
    if (accelerator->state().process_index() == 1) nn::find_tensor(*inner, "down_bias").mutable_grad().fill_(HUGE_VAL);
    EXPECT_FALSE(optimizer->step());
    EXPECT_EQ(accelerator->prepared().grad_scaler->scale(), GradScalerSettings().init_scale.value * 0.5);
  });
}

// What a sharded model leaves behind are parts, which another one must not take for whole parameters.
TEST(Placement, PartsOfAModelThatIsGoneAreRefused) {
  on_mesh({1, 2, 1}, [](const AcceleratorPtr& accelerator) {
    const auto inner = column_strategy::make_model();
    PrepareModelSettings preparation;
    preparation.fsdp.enabled = true;
    accelerator->preparation().prepare_model(inner, preparation);
    accelerator->free_memory();
    tests::expect_error(Status::kInvalidState, "is a part that a sharded model left behind",
                        [&] { accelerator->preparation().prepare_model(inner, preparation); });
  });
}

}  // namespace placement_test
}  // namespace accel::parallel
