// Tables of products as this process or an earlier one measured them, one for each number of threads.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/product_table.hpp"

namespace accel::kernels {

class MeasuredTables {
 public:
  using Measurement = ProductTable (*)();

  // `kind` is a part of the name of the file that keeps a table; empty for float32.
  MeasuredTables(std::string kind, Measurement measure) : kind_(std::move(kind)), measure_(measure) {}

  // Of the present number of threads; the first time it is measured, or read from the cache.
  const ProductTable& table();

  struct Measured {
    int threads;
    ProductTable table;
    std::string source;    // where it comes from, for a person
    const Measured* next;  // of another number of threads
  };
  // Of the present number of threads; null when that is not measured yet.
  const Measured* find() const;

 private:
  Measured measure(int threads) const;

  const std::string kind_;
  const Measurement measure_;
  std::mutex mutex_;                              // of the measurement
  std::atomic<const Measured*> latest_{nullptr};  // never deleted: a product may still read it
};

}  // namespace accel::kernels
