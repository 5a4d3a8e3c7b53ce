// SPDX-License-Identifier: Apache-2.0
// The values of one name over the steps of a run, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::report {

struct Point {
  double step = 0;
  double time = 0;  // seconds since 1970
  double value = 0;
  uint32_t version = 0;  // of the report that has read it first
};

// Statistics of the finite values.
struct Statistics {
  int64_t count = 0;
  double sum = 0;
  double least = 0;
  double greatest = 0;

  void add(double value);
};

class Series {
 public:
  // A resumed run takes steps again: the later value of a step holds.
  void add(const Point& point);

  // By step, each step once.
  const std::vector<Point>& points() const;
  const Statistics& statistics() const;
  const Point& latest() const { return latest_; }  // as logged, not by step
  size_t num_logged() const { return num_logged_; }
  bool is_reduced() const { return is_reduced_; }
  size_t num_stored() const { return points_.size(); }

  // Keeps at most `most` points in memory, as reduced() does.
  void reduce(size_t most);

 private:
  void put_in_order() const;

  mutable std::vector<Point> points_;
  mutable Statistics statistics_;
  mutable bool is_in_order_ = true;
  Point latest_;
  size_t num_logged_ = 0;
  bool is_reduced_ = false;
};

// At most `most` of the points, which are in order: the first, the last, and the least and the greatest of as many
// stretches of equal length as fit, so that no peak is lost. Values that are not finite count as peaks.
std::vector<Point> reduced(const std::vector<Point>& points, size_t most);

// The largest number of points that each of the series may keep so that all together have at most `total`.
size_t share_of_points(std::vector<size_t> sizes, size_t total);

}  // namespace accel::report
