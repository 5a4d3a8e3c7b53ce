// SPDX-License-Identifier: Apache-2.0
// Shuffled orders, against Accelerate's SeedableRandomSampler and torch's own draws.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/error.hpp"
#include "data/dataloader.hpp"
#include "data/datasets/tensor_dataset.hpp"
#include "data/sampler.hpp"
#include "fixture.hpp"

namespace accel::parity {
namespace seedable_sampler_test {

using Order = std::vector<int64_t>;

Order order_of(const at::Tensor& indices) {
  const auto* const first = indices.const_data_ptr<int64_t>();
  return {first, first + indices.numel()};
}

// A loader of single numbers shows in which order its sampler visits them.
std::shared_ptr<data::DataLoader> number_loader(int64_t size, int64_t seed) {
  auto numbers = std::make_shared<data::TensorDataset>(std::vector<at::Tensor>{at::arange(size, at::kLong)});
  return std::make_shared<data::DataLoader>(numbers, std::make_shared<data::SeedableRandomSampler>(size, seed),
                                            data::LoaderOptions{});
}

// At most `count` batches; the end of the epoch is only reached by asking for more than there are.
Order take(data::Loader& loader, int64_t count) {
  Order order;
  for (int64_t i = 0; i < count; ++i) {
    const auto batch = loader.next();
    if (!batch) break;
    order.push_back(batch->toListRef()[0].toTensor().item<int64_t>());
  }
  return order;
}

void check_seedable(const c10::IValue& input, const c10::IValue& expected) {
  const int64_t size = member(input, "size").toInt();
  const int64_t seed = member(input, "data_seed").toInt();
  if (const auto error = error_type(expected)) {
    EXPECT_EQ(*error, "ValueError");
    EXPECT_THROW(data::SeedableRandomSampler(size, seed), Error);
    return;
  }
  const auto loader = number_loader(size, seed);
  loader->set_epoch(member(input, "set_epoch").toInt());
  const auto orders = member(expected, "orders");
  for (int64_t pass = 0; pass < member(input, "passes").toInt(); ++pass)
    EXPECT_EQ(take(*loader, size + 1), integers(orders.toListRef()[pass])) << "pass " << pass;
  EXPECT_EQ(loader->epoch(), member(expected, "epoch_after").toInt());
}

void check_broken_off(const c10::IValue& input, const c10::IValue& expected) {
  const int64_t size = member(input, "size").toInt();
  const auto loader = number_loader(size, member(input, "data_seed").toInt());
  EXPECT_EQ(take(*loader, member(input, "taken").toInt()), integers(member(expected, "order")));
  EXPECT_EQ(loader->epoch(), member(expected, "epoch_after").toInt());
  loader->set_epoch(loader->epoch());
  EXPECT_EQ(take(*loader, size + 1), integers(member(expected, "next_order")));
}

void check_replacement(const c10::IValue& input, const c10::IValue& expected) {
  data::RandomDraw draw;
  draw.replacement = true;
  draw.num_samples = member(input, "num_samples").toInt();
  const data::SeedableRandomSampler sampler(member(input, "size").toInt(), member(input, "data_seed").toInt(), draw);
  int64_t epoch = 0;
  for (const auto& order : member(expected, "orders").toListRef())
    EXPECT_EQ(order_of(sampler.indices(epoch++)), integers(order));
}

void check_random_sampler(const c10::IValue& input, const c10::IValue& expected) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(member(input, "generator_seed").toInt());
  data::RandomDraw draw;
  if (const auto samples = optional_member(input, "num_samples")) draw.num_samples = samples->toInt();
  for (const auto& order : member(expected, "orders").toListRef())
    EXPECT_EQ(order_of(data::random_order(member(input, "size").toInt(), draw, generator)), integers(order));
}

void check_randperm(const c10::IValue& input, const c10::IValue& expected) {
  const int64_t size = member(input, "size").toInt();
  const auto order = integers(member(expected, "order"));
  if (size == 0) {
    EXPECT_TRUE(order.empty());  // a permutation of nothing, which no sampler draws
    return;
  }
  const data::SeedableRandomSampler sampler(size, member(input, "generator_seed").toInt());
  EXPECT_EQ(order_of(sampler.indices(0)), order);
}

TEST(SeedableSamplerParity, SameOrdersAsTheReference) {
  for (const auto& [name, input, expected] : read_cases("seedable_sampler")) {
    SCOPED_TRACE(name);
    const std::string kind = member(input, "kind").toStringRef();
    if (kind == "seedable") {
      check_seedable(input, expected);
    } else if (kind == "seedable_broken_off") {
      check_broken_off(input, expected);
    } else if (kind == "seedable_replacement") {
      check_replacement(input, expected);
    } else if (kind == "random_sampler") {
      check_random_sampler(input, expected);
    } else if (kind == "randperm") {
      check_randperm(input, expected);
    } else {
      ADD_FAILURE() << "kind " << kind << " is not known";
    }
  }
}

}  // namespace seedable_sampler_test
}  // namespace accel::parity
