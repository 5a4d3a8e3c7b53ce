// SPDX-License-Identifier: Apache-2.0
// Matmuls on tiles of oneDNN's microkernel against LibTorch's default kernels: equal but for rounding, for every
// operator and layout, and only inside of our calls.
#include "kernels/matmul/matmul_dispatch.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "base/current_call.hpp"
#include "base/log.hpp"
#include "kernels/compute_policy.hpp"
#include "kernels/matmul/autotune_cache.hpp"
#include "kernels/matmul/autotune_table.hpp"
#include "kernels/matmul/skinny_matmul.hpp"

namespace accel::kernels {
namespace matmul_dispatch_test {

constexpr ComputePolicy kTuned{true, false};

// A matrix, or a batch of them, in a layout that is drawn: row-major, transposed, or a part of a larger one.
at::Tensor draw(std::mt19937& random, std::vector<int64_t> shape) {
  const size_t rows = shape.size() - 2;
  switch (random() % 4) {
    case 0: {
      std::swap(shape[rows], shape[rows + 1]);
      return at::randn(shape).transpose(-1, -2);
    }
    case 1: {
      shape[rows + 1] += 3;
      return at::randn(shape).narrow(-1, 1, shape[rows + 1] - 3);
    }
    default:
      return at::randn(shape);
  }
}

int64_t draw_size(std::mt19937& random) {
  constexpr int64_t kSizes[] = {0, 1, 7, 16, 31, 33, 64, 100, 130, 257};
  return kSizes[random() % 10];
}

// The error against float64 may be at most four times that of the default, or what rounding the result alone makes.
void expect_as_exact(const at::Tensor& routed, const at::Tensor& normal, const at::Tensor& exact) {
  ASSERT_EQ(routed.sizes(), normal.sizes());
  ASSERT_EQ(routed.strides(), normal.strides());
  if (routed.numel() == 0) return;
  const double error = (routed.to(at::kDouble) - exact).abs().max().item<double>();
  const double default_error = (normal.to(at::kDouble) - exact).abs().max().item<double>();
  const double scale = exact.abs().max().item<double>();
  EXPECT_LE(error, std::max(4 * default_error, 1e-6 * scale)) << routed.sizes();
}

class MatmulDispatch : public testing::Test {
 protected:
  void SetUp() override { install_matmul_dispatch(MatmulChoice::kAll); }
};

TEST_F(MatmulDispatch, MmAndBmmAgreeForRandomShapesAndLayouts) {
  at::manual_seed(1);
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t m = draw_size(random), k = draw_size(random), n = draw_size(random), batch = 1 + random() % 4;
    const at::Tensor first = draw(random, {m, k}), second = draw(random, {k, n});
    const at::Tensor firsts = draw(random, {batch, m, k}), seconds = draw(random, {batch, k, n});
    const at::Tensor normal = at::mm(first, second), normals = at::bmm(firsts, seconds);
    const ComputeScope scope(kTuned);
    expect_as_exact(at::mm(first, second), normal, at::mm(first.to(at::kDouble), second.to(at::kDouble)));
    expect_as_exact(at::bmm(firsts, seconds), normals, at::bmm(firsts.to(at::kDouble), seconds.to(at::kDouble)));
    at::Tensor given = at::empty({m, n});
    expect_as_exact(at::mm_out(given, first, second), normal, at::mm(first.to(at::kDouble), second.to(at::kDouble)));
  }
}

// More than one tile, panel and tile of the inner dimension, and rows that are packed.
TEST_F(MatmulDispatch, ManyTilesAgree) {
  at::manual_seed(7);
  const int64_t shapes[][3] = {{300, 700, 530}, {70, 1100, 300}, {513, 300, 1100}, {1030, 64, 4200}};
  for (const auto& [m, k, n] : shapes) {
    const at::Tensor bias = at::randn({n}), added = at::randn({m, n});
    for (const bool is_first_transposed : {false, true}) {
      for (const bool is_second_transposed : {false, true}) {
        const at::Tensor first = is_first_transposed ? at::randn({k, m}).t() : at::randn({m, k});
        const at::Tensor second = is_second_transposed ? at::randn({n, k}).t() : at::randn({k, n});
        const at::Tensor normal = at::mm(first, second);
        const at::Tensor exact = at::mm(first.to(at::kDouble), second.to(at::kDouble));
        const ComputeScope scope(kTuned);
        expect_as_exact(at::mm(first, second), normal, exact);
        expect_as_exact(at::addmm(bias, first, second), normal + bias, exact + bias);
        expect_as_exact(at::addmm(added, first, second), normal + added, exact + added);
      }
    }
  }
}

bool has_skinny_kernels(int64_t rows) { return is_skinny(at::randn({rows, 256}), at::randn({512, 256}).t()); }

TEST_F(MatmulDispatch, FewRowsAgree) {
  at::manual_seed(9);
  const int64_t sizes[][2] = {{256, 1024}, {1000, 131}, {2049, 64}};  // columns, inner
  for (int64_t rows = 1; rows <= 33; rows++) {
    for (const auto& [columns, inner] : sizes) {
      const at::Tensor first = at::randn({rows, inner + 5}).narrow(1, 2, inner), bias = at::randn({columns});
      const at::Tensor second = at::randn({columns, inner + 3}).narrow(1, 1, inner).t();
      const at::Tensor normal = at::mm(first, second), normal_added = at::addmm(bias, first, second);
      const at::Tensor exact = at::mm(first.to(at::kDouble), second.to(at::kDouble));
      EXPECT_EQ(is_skinny(first, second), has_skinny_kernels(rows)) << rows;
      const ComputeScope scope(kTuned);
      expect_as_exact(at::mm(first, second), normal, exact);
      expect_as_exact(at::addmm(bias, first, second), normal_added, exact + bias);
      expect_as_exact(at::addmm(bias, first, second, 0.5, 2), at::addmm(bias, first, second, 0.5, 2),
                      2 * exact + 0.5 * bias);
    }
  }
}

TEST_F(MatmulDispatch, FewRowsAreOnlyTakenAsLinearLayersHaveThem) {
  const at::Tensor first = at::randn({1, 256}), second = at::randn({512, 256}).t();
  EXPECT_FALSE(is_skinny(first, at::randn({256, 512}))) << "not transposed";
  EXPECT_FALSE(is_skinny(at::randn({256, 4}).t(), second)) << "strided rows";
  EXPECT_FALSE(is_skinny(first, at::randn({100, 256}).t())) << "small";
  EXPECT_FALSE(is_skinny(at::randn({65, 256}), second)) << "many rows";
  EXPECT_FALSE(is_skinny(at::randn({0, 256}), second));
  EXPECT_FALSE(is_skinny(first, at::randn({1, 256}).expand({512, 256}).t())) << "rows that overlap";
}

TEST_F(MatmulDispatch, FewRowsHaveEqualBitsForAnyNumberOfThreads) {
  at::manual_seed(10);
  const at::Tensor first = at::randn({13, 300}), second = at::randn({701, 300}).t();
  const ComputeScope scope(kTuned);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = at::mm(first, second);
  at::set_num_threads(3);
  const at::Tensor three = at::mm(first, second);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(three));
}

// Tiles are the same whatever thread computes them.
TEST_F(MatmulDispatch, EqualBitsForAnyNumberOfThreads) {
  at::manual_seed(8);
  const at::Tensor first = at::randn({300, 600}), second = at::randn({600, 700}), bias = at::randn({700});
  const ComputeScope scope(kTuned);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = at::addmm(bias, first, second);
  at::set_num_threads(3);
  const at::Tensor three = at::addmm(bias, first, second);
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(three));
}

TEST_F(MatmulDispatch, AddmmAgreesForAllScalesAndExpandedBiases) {
  at::manual_seed(2);
  std::mt19937 random(2);
  constexpr double kScales[] = {0, 1, 0.5, -2};
  for (int round = 0; round < 200; ++round) {
    const int64_t m = draw_size(random), k = draw_size(random), n = draw_size(random), batch = 1 + random() % 3;
    const double beta = kScales[random() % 4], alpha = kScales[random() % 4];
    const std::vector<int64_t> shapes[] = {{m, n}, {n}, {m, 1}, {1, n}};
    const at::Tensor first = draw(random, {m, k}), second = draw(random, {k, n});
    const at::Tensor added = at::randn(shapes[random() % 4]);
    const auto exact = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      return at::addmm(a.to(at::kDouble), b.to(at::kDouble), c.to(at::kDouble), beta, alpha);
    };
    const at::Tensor normal = at::addmm(added, first, second, beta, alpha);
    const at::Tensor firsts = draw(random, {batch, m, k}), seconds = draw(random, {batch, k, n});
    const at::Tensor addeds = at::randn({batch, m, n});
    const at::Tensor normals = at::baddbmm(addeds, firsts, seconds, beta, alpha);
    const at::Tensor exacts =
        at::baddbmm(addeds.to(at::kDouble), firsts.to(at::kDouble), seconds.to(at::kDouble), beta, alpha);
    const ComputeScope scope(kTuned);
    expect_as_exact(at::addmm(added, first, second, beta, alpha), normal, exact(added, first, second));
    at::Tensor in_place = added.expand({m, n}).clone(at::MemoryFormat::Contiguous);
    expect_as_exact(in_place.addmm_(first, second, beta, alpha), normal, exact(added, first, second));
    at::Tensor given = at::empty({m, n});
    expect_as_exact(at::addmm_out(given, added, first, second, beta, alpha), normal, exact(added, first, second));
    expect_as_exact(at::baddbmm(addeds, firsts, seconds, beta, alpha), normals, exacts);
    at::Tensor in_places = addeds.clone();
    expect_as_exact(in_places.baddbmm_(firsts, seconds, beta, alpha), normals, exacts);
  }
}

TEST_F(MatmulDispatch, IllConditionedSumsAreAsExactAsTheDefault) {
  at::manual_seed(3);
  for (const int64_t size : {64, 256, 1024}) {
    // Large terms that cancel.
    at::Tensor first = at::randn({size, size}), second = at::randn({size, size});
    first.slice(1, 0, size / 2).mul_(1e4);
    second.slice(0, 0, size / 4).copy_(second.slice(0, size / 4, size / 2));
    first.slice(1, 0, size / 4).copy_(-first.slice(1, size / 4, size / 2));
    const at::Tensor exact = at::mm(first.to(at::kDouble), second.to(at::kDouble));
    const at::Tensor normal = at::mm(first, second);
    const ComputeScope scope(kTuned);
    expect_as_exact(at::mm(first, second), normal, exact);
  }
}

TEST_F(MatmulDispatch, CarriesNanAndInfinityAsTheDefault) {
  at::Tensor first = at::ones({128, 128}), second = at::ones({128, 128}), added = at::zeros({128, 128});
  first[3][5] = std::numeric_limits<float>::quiet_NaN();
  second[7][9] = std::numeric_limits<float>::infinity();
  first[20][7] = 0;  // times infinity
  added[1][1] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor normal = at::mm(first, second), summed = at::addmm(added, first, second);
  const at::Tensor without = at::addmm(added, first, second, /*beta=*/0);
  const ComputeScope scope(kTuned);
  EXPECT_TRUE(at::mm(first, second).equal(normal) ||
              at::allclose(at::mm(first, second), normal, 0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(at::allclose(at::addmm(added, first, second), summed, 0, 0, true));
  EXPECT_TRUE(at::allclose(at::addmm(added, first, second, 0), without, 0, 0, true));
  EXPECT_FALSE(without[1][1].isnan().item<bool>());
}

TEST_F(MatmulDispatch, EqualBitsFromRunToRun) {
  const at::Tensor first = at::randn({300, 200}), second = at::randn({200, 100});
  const ComputeScope scope(kTuned);
  const at::Tensor result = at::mm(first, second);
  for (int run = 0; run < 5; ++run) EXPECT_TRUE(at::mm(first, second).equal(result));
}

TEST_F(MatmulDispatch, WrongShapesHaveTheErrorsOfTheDefault) {
  const at::Tensor first = at::randn({128, 128}), second = at::randn({127, 128});
  const ComputeScope scope(kTuned);
  EXPECT_THROW(at::mm(first, second), c10::Error);
  EXPECT_THROW(at::mm(first, second.to(at::kDouble)), c10::Error);
  EXPECT_THROW(at::addmm(at::randn({5}), first, first), c10::Error);
  EXPECT_THROW(at::bmm(first, first), c10::Error);
}

// LibTorch overwrites the factor while it reads it, and so do we.
TEST_F(MatmulDispatch, ResultThatIsAFactorIsLeftToLibTorch) {
  const at::Tensor square = at::randn({128, 128}), other = at::randn({128, 128});
  at::Tensor normal = square.clone(), routed = square.clone();
  normal.addmm_(normal, other);
  const ComputeScope scope(kTuned);
  routed.addmm_(routed, other);
  EXPECT_TRUE(routed.equal(normal));
}

// The bits of the tiles differ from the default's somewhere in a product this large, which tells which one computed.
struct Bits {
  at::Tensor first = at::randn({512, 512});
  at::Tensor second = at::randn({512, 512});
  at::Tensor normal = at::mm(first, second);
  bool routed() const { return !at::mm(first, second).equal(normal); }
};

TEST_F(MatmulDispatch, ActsInsideOurCallsOnly) {
  at::manual_seed(4);
  const Bits bits;
  {
    const ComputeScope scope(kTuned);
    if (!bits.routed()) GTEST_SKIP() << "both kernels give the same bits on this processor";
  }
  EXPECT_FALSE(bits.routed());
  set_default_policy(kTuned);
  EXPECT_FALSE(bits.routed()) << "outside of a call";
  {
    const CurrentCall call("accel_op_call");
    EXPECT_TRUE(bits.routed());
    const ComputeScope off(ComputePolicy{});
    EXPECT_FALSE(bits.routed()) << "in a state that keeps the default";
    std::thread([&] { EXPECT_FALSE(bits.routed()) << "another thread of the program"; }).join();
  }
  set_default_policy({});
}

TEST_F(MatmulDispatch, BackwardHasThePolicyOfItsCaller) {
  at::manual_seed(5);
  const at::Tensor first = at::randn({512, 512}).requires_grad_(), second = at::randn({512, 512});
  const at::Tensor seed = at::randn({512, 512});
  const auto gradient = [&] {
    const at::Tensor product = at::mm(first, second);
    return torch::autograd::grad({product}, {first}, {seed})[0];
  };
  const at::Tensor normal = gradient();
  const ComputeScope scope(kTuned);
  const at::Tensor routed = gradient();
  EXPECT_TRUE(at::allclose(routed, normal, 1e-4, 1e-3));
  // A thread of autograd takes over the state of the caller as LibTorch hands it over.
  const at::ThreadLocalState state;
  ComputePolicy there;
  std::thread([&] {
    const at::ThreadLocalStateGuard guard(state);
    there = compute_policy();
  }).join();
  EXPECT_EQ(there, kTuned);
}

TEST_F(MatmulDispatch, LessThanFloat32IsLeftToLibTorch) {
  at::manual_seed(6);
  const Bits bits;
  at::globalContext().setFloat32MatmulPrecision("high");
  const at::Tensor normal = at::mm(bits.first, bits.second);
  {
    const ComputeScope scope(kTuned);
    EXPECT_TRUE(at::mm(bits.first, bits.second).equal(normal));
  }
  at::globalContext().setFloat32MatmulPrecision("highest");
}

// Times in seconds as a model gives them: a constant and multiply-adds by rates.
AutotuneTable table_of(double normal_rate, double tiled_rate, double constant, double max_time = 1.04) {
  const auto time = [=](const Gemm& gemm, bool tiled) {
    return tiled ? constant + gemm.multiply_adds() / tiled_rate : gemm.multiply_adds() / normal_rate;
  };
  return AutotuneTable::measure(time, max_time);
}

TEST(MatmulAutotuneTable, SelectsNothingWhereTheDefaultIsFaster) {
  const AutotuneTable table = table_of(100e9, 93e9, 1e-5);
  EXPECT_FALSE(table.selects_any());
  EXPECT_FALSE(table.selects({1, 2048, 2048, 2048, Layout::kPlain}));
}

TEST(MatmulAutotuneTable, SelectsFromTheBreakEvenOn) {
  const AutotuneTable table = table_of(50e9, 100e9, 1e-5);
  EXPECT_TRUE(table.selects_any());
  // 1e-5 seconds are won back after 1e6 multiply-adds, and later with the margin.
  EXPECT_FALSE(table.selects({1, 64, 64, 128, Layout::kPlain}));
  EXPECT_TRUE(table.selects({1, 256, 256, 256, Layout::kPlain}));
  EXPECT_TRUE(table.selects({16, 64, 64, 256, Layout::kSecondTransposed})) << "the matrices of a batch count together";
  EXPECT_FALSE(table.selects({1, 8, 4096, 4096, Layout::kPlain})) << "too thin";
}

TEST(MatmulAutotuneTable, SelectsTilesWhereMeasurementsAreClose) {
  for (const double tiled_rate : {49e9, 52e9}) {
    const AutotuneTable table = table_of(50e9, tiled_rate, 1e-6);
    EXPECT_TRUE(table.selects({1, 1024, 256, 512, Layout::kPlain}));
    EXPECT_FALSE(table.selects({1, 64, 64, 128, Layout::kPlain}));
    EXPECT_EQ(table, table_of(50e9, 51e9, 2e-6)) << "the same in every process";
    EXPECT_FALSE(table_of(50e9, tiled_rate, 1e-6, 0.9).selects_any());
  }
}

TEST(MatmulAutotuneTable, IsTheSameWhenItIsMeasuredAgainWithNoise) {
  EXPECT_EQ(table_of(50e9, 100e9, 1.0e-5), table_of(50.4e9, 99e9, 1.02e-5));
}

TEST(MatmulAutotuneTable, RoundTripsThroughJson) {
  const AutotuneTable table = table_of(50e9, 100e9, 1e-5);
  EXPECT_EQ(AutotuneTable::from_json(table.to_json()), table);
  for (const char* damaged :
       {"", "{", "[]", "{}", "{\"least_multiply_adds\": 5}", "{\"least_multiply_adds\": [1, 2]}",
        "{\"least_multiply_adds\": [1, 2, 3, 4, 5, \"6\"]}", "{\"least_multiply_adds\": [1, 2, 3, 4, 5, -6]}"})
    EXPECT_FALSE(AutotuneTable::from_json(damaged)) << damaged;
}

class MatmulAutotuneCache : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_ = testing::TempDir() + "autotune_cacheXXXXXX";
};

TEST_F(MatmulAutotuneCache, KeepsATableForTheSameMachineOnly) {
  const AutotuneCache cache(folder_ + "/new/libaccel", "A (tm) / B", "2.13.0", 2);
  EXPECT_FALSE(cache.load());
  cache.store(AutotuneTable::always());
  EXPECT_EQ(cache.load(), AutotuneTable::always());
  EXPECT_FALSE(AutotuneCache(folder_ + "/new/libaccel", "A (tm) / B", "2.13.0", 1).load());
  EXPECT_FALSE(AutotuneCache(folder_ + "/new/libaccel", "C", "2.13.0", 2).load());
  EXPECT_FALSE(AutotuneCache(folder_ + "/new/libaccel", "A (tm) / B", "2.14.0", 2).load());
}

TEST_F(MatmulAutotuneCache, ReplacesADamagedFile) {
  const AutotuneCache cache(folder_, "A", "2.13.0", 1);
  std::ofstream(cache.path()) << "{\"least_multi";
  EXPECT_FALSE(cache.load());
  cache.store(AutotuneTable::always());
  EXPECT_EQ(cache.load(), AutotuneTable::always());
}

TEST_F(MatmulAutotuneCache, UsesADisturbedTableForAnHour) {
  const AutotuneCache cache(folder_, "A", "2.13.0", 1);
  cache.store(AutotuneTable::always(), true);
  EXPECT_EQ(cache.load(), AutotuneTable::always());
  const timespec times[] = {{time(nullptr) - 3601, 0}, {time(nullptr) - 3601, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, cache.disturbed_path().c_str(), times, 0), 0);
  EXPECT_FALSE(cache.load());
  // An undisturbed one counts instead.
  cache.store(table_of(50e9, 100e9, 1e-5));
  cache.store(AutotuneTable::always(), true);
  EXPECT_EQ(cache.load(), table_of(50e9, 100e9, 1e-5));
}

TEST_F(MatmulAutotuneCache, DoesWithoutAFolderThatCannotBeWritten) {
  std::ofstream(folder_ + "/file") << "no folder";
  const AutotuneCache cache(folder_ + "/file", "A", "2.13.0", 1);
  cache.store(AutotuneTable::always());
  EXPECT_FALSE(cache.load());
}

// What is logged while it lives.
class LoggedLines {
 public:
  LoggedLines() {
    set_log_callback([](int32_t, const char* line, void* all) { *static_cast<std::string*>(all) += line; }, &lines,
                     nullptr);
  }
  ~LoggedLines() { set_log_callback(nullptr, nullptr, nullptr); }
  std::string lines;
};

TEST_F(MatmulAutotuneCache, DoesWithoutANameOfTheProcessor) {
  const LoggedLines logged;
  const std::string list = folder_ + "/cpuinfo";
  EXPECT_FALSE(processor_name(list));
  std::ofstream(list) << "processor: 0\nfeatures\t: few\n\nmodel name\t: of the second one\n";
  EXPECT_FALSE(processor_name(list));
  EXPECT_FALSE(AutotuneCache::find("2.13.0", 1, "", list));
  EXPECT_NE(logged.lines.find("is not saved: " + list + " names no processor"), std::string::npos) << logged.lines;
  std::ofstream(list) << "processor\t: 0\ncpu family\t: 25\nmodel name\t: A\n";
  EXPECT_EQ(processor_name(list), "25 A");
  EXPECT_TRUE(AutotuneCache::find("2.13.0", 1, "", list));
}

// In a process of its own, as routes are installed once.
TEST(MatmulDispatchDeathTest, WithoutTheMicrokernelMatmulsAreTheDefaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto route_without = [] {
    LoggedLines logged;
    install_matmul_dispatch(MatmulChoice::kAll, "no_such_function");
    const at::Tensor matrix = at::randn({256, 256}), normal = at::mm(matrix, matrix);
    const ComputeScope scope(kTuned);
    const bool is_default = at::mm(matrix, matrix).equal(normal);
    const bool is_logged = logged.lines.find("no no_such_function") != std::string::npos;
    std::exit(is_default && is_logged && describe_matmul_dispatch() == "LibTorch's kernels" ? 0 : 1);
  };
  EXPECT_EXIT(route_without(), testing::ExitedWithCode(0), "");
}

TEST(MatmulDispatchChoice, MeasuresOnceAndSaysWhatItFound) {
  install_matmul_dispatch(MatmulChoice::kMeasured);
  const at::Tensor matrix = at::randn({256, 256});
  const at::Tensor normal = at::mm(matrix, matrix);
  {
    const ComputeScope scope(kTuned);
    EXPECT_TRUE(at::allclose(at::mm(matrix, matrix), normal, 1e-4, 1e-3));
  }
  const std::string said = describe_matmul_dispatch();
  if (said == "LibTorch's kernels") GTEST_SKIP() << "LibTorch has no microkernel on this processor";
  EXPECT_NE(said.find("measured"), std::string::npos) << said;
  EXPECT_EQ(said.find("at the first large product"), std::string::npos) << said;
}

}  // namespace matmul_dispatch_test
}  // namespace accel::kernels
