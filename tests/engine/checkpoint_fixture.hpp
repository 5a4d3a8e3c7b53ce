// SPDX-License-Identifier: Apache-2.0
// What the tests of checkpoints share: folders, comparison of nested values, an example of a training state.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "checkpoint/load_training_state.hpp"
#include "checkpoint/save_training_state.hpp"
#include "checkpoint/training_state.hpp"
#include "expect_error.hpp"
#include "tensor/tree.hpp"

namespace accel::checkpoint::tests {

using accel::tests::expect_error;
namespace fs = std::filesystem;

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "accel-checkpoint-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  std::string path_;
};

// Nothing here survives a power cut, so nothing needs to reach the disk.
class QuickFiles : public FileSystem {
 public:
  int sync(int) override { return 0; }

 protected:
  ~QuickFiles() = default;
};

inline FileSystem& quick_files() {
  struct Files final : QuickFiles {};
  static Files files;
  return files;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline bool same(const c10::IValue& a, const c10::IValue& b) {
  if (a.isTensor()) return b.isTensor() && same(a.toTensor(), b.toTensor());
  if (a.isDouble()) {
    const double x = a.toDouble(), y = b.isDouble() ? b.toDouble() : 0;
    return b.isDouble() && std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (a.isCapsule()) return tree::equal(a, b);  // bytes, element types
  if (tree::is_sequence(a)) {
    if (!tree::is_sequence(b) || a.isTuple() != b.isTuple()) return false;
    const auto x = tree::sequence_items(a), y = tree::sequence_items(b);
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) { return same(p, q); });
  }
  if (a.isGenericDict()) {
    if (!b.isGenericDict() || a.toGenericDict().size() != b.toGenericDict().size()) return false;
    auto other = b.toGenericDict().begin();
    for (const auto& entry : a.toGenericDict()) {  // in the same order
      if (!tree::equal(entry.key(), other->key()) || !same(entry.value(), other->value())) return false;
      ++other;
    }
    return true;
  }
  return a == b;
}

constexpr at::ScalarType kDtypes[] = {at::kByte,
                                      at::kChar,
                                      at::kShort,
                                      at::kInt,
                                      at::kLong,
                                      at::kHalf,
                                      at::kFloat,
                                      at::kDouble,
                                      at::kComplexFloat,
                                      at::kBool,
                                      at::kBFloat16,
                                      at::kFloat8_e5m2,
                                      at::kFloat8_e4m3fn,
                                      at::kFloat8_e5m2fnuz,
                                      at::kFloat8_e4m3fnuz,
                                      at::kFloat8_e8m0fnu,
                                      at::kUInt16,
                                      at::kUInt32,
                                      at::kUInt64};

inline at::Tensor random_tensor(std::mt19937& random) {
  std::vector<int64_t> shape;
  for (int dims = static_cast<int>(random() % 4); dims > 0; dims--) shape.push_back(random() % 5);
  const at::ScalarType dtype = kDtypes[random() % std::size(kDtypes)];
  at::Tensor tensor = at::empty(shape, dtype);
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); i++)
    bytes[i] = static_cast<uint8_t>(dtype == at::kBool ? random() % 2 : random());
  return tensor.dim() >= 2 && random() % 2 == 0 ? tensor.transpose(0, 1) : tensor;
}

inline std::string random_text(std::mt19937& random) {
  static const char* const parts[] = {"a",  "$tensor", "$map", ".", "é", "\"", "\\u0000",
                                      "\n", "漢",      "0",    "$", "/", " ",  "\x01"};
  std::string text;
  for (auto length = random() % 4; length > 0; length--) text += parts[random() % std::size(parts)];
  return text;
}

inline c10::IValue map_of(const std::vector<std::pair<std::string, c10::IValue>>& entries) {
  c10::impl::GenericDict map(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, value] : entries) map.insert(key, value);
  return map;
}

inline void save_training_state(const std::string& folder, const TrainingState& state, const Ranks& ranks,
                                FileSystem& files = system_files(), const SaveOptions& options = {}) {
  checkpoint::save_training_state(
      folder, [&](const std::string&) { return state; }, options, ranks, files);
}

inline TrainingState load_training_state(const std::string& folder, const TrainingState& like, const Ranks& ranks) {
  return checkpoint::load_training_state(folder, like, {}, ranks).entries;
}

inline TrainingState example(int rank, double number) {
  const at::Tensor tied = at::full({3, 2}, number);
  return {
      {StateKind::kModel, "", model_state({{"a", tied}, {"b", at::full({2}, number)}, {"head", tied}}), {}},
      {StateKind::kModel, "", model_state({{"c", at::full({1}, number)}}), {}},
      {StateKind::kOptimizer,
       "",
       map_of({{"state", tree::new_map({{int64_t{0}, map_of({{"step", at::scalar_tensor(number)}})}})}}),
       {}},
      {StateKind::kScheduler, "", map_of({{"last_epoch", static_cast<int64_t>(number)}, {"lr", number / 3}}), {}},
      {StateKind::kCustom, "mine", map_of({{"x", number}}), {}},
      {StateKind::kRandom, "torch_manual_seed", at::full({4}, rank * 10 + number), {}},
      {StateKind::kDataloader, "", map_of({{"rank", rank}}), {}},
      {StateKind::kDataloader, "", map_of({{"epoch", number}}), {}},
      {StateKind::kRankState, "gradients", at::full({4}, rank * 10 + number), {}},
  };
}

// The n-th entry of a kind.
inline StateEntry& entry_of(TrainingState& state, StateKind kind, size_t index = 0) {
  for (StateEntry& entry : state)
    if (entry.kind == kind && index-- == 0) return entry;
  throw std::out_of_range("no such entry");
}

inline void remove_entry(TrainingState& state, StateKind kind, size_t index = 0) {
  const StateEntry* const entry = &entry_of(state, kind, index);
  state.erase(state.begin() + (entry - state.data()));
}

// Whatever the order of the tensors of a model.
inline bool same(const TrainingState& a, const TrainingState& b) {
  const auto same_entries = [](const StateEntry& x, const StateEntry& y) {
    if (x.kind != y.kind || x.name != y.name) return false;
    if (x.kind != StateKind::kModel) return same(x.state, y.state);
    const auto tensors = model_tensors(x.state);
    const auto others = y.state.toGenericDict();
    return tensors.size() == others.size() && std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
             return others.contains(tensor.first) && same(tensor.second, others.at(tensor.first).toTensor());
           });
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_entries);
}

// Which of two complete states a folder holds; 0 for neither.
inline double number_of(const std::string& folder) {
  TrainingState loaded = load_training_state(folder, example(0, 0), Ranks());
  const double number = model_tensors(entry_of(loaded, StateKind::kModel, 1).state).front().second.item<double>();
  return same(loaded, example(0, number)) ? number : 0;
}

// Ranks as threads.
class ThreadAllGather {
 public:
  explicit ThreadAllGather(int size) : texts_(static_cast<size_t>(size)) {}
  std::vector<std::string> all_gather(int rank, const std::string& text) {
    std::unique_lock<std::mutex> lock(mutex_);
    texts_[static_cast<size_t>(rank)] = text;
    const int round = round_;
    if (++arrived_ == static_cast<int>(texts_.size())) {
      result_ = texts_;
      arrived_ = 0;
      round_++;
      all_here_.notify_all();
    } else if (!all_here_.wait_for(lock, std::chrono::seconds(30), [&] { return round_ != round; })) {
      fail(Status::kTimeout, "a rank is missing");
    }
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<std::string> texts_, result_;
  int arrived_ = 0, round_ = 0;
};

template <typename Body>
void on_ranks(int size, Body&& body) {
  ThreadAllGather gather(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; rank++)
    threads.emplace_back([&, rank] {
      Ranks ranks;
      ranks.rank = rank;
      ranks.size = size;
      ranks.all_gather = [&, rank](const std::string& text) { return gather.all_gather(rank, text); };
      body(ranks);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace accel::checkpoint::tests
