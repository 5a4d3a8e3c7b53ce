// SPDX-License-Identifier: Apache-2.0
#include "report/series.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace accel::report {
namespace {

constexpr size_t kFewestPoints = 4;

// NaN is the least.
double rank_of(double value) { return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value; }

bool is_lower(const Point& one, const Point& other) { return rank_of(one.value) < rank_of(other.value); }

}  // namespace

void Statistics::add(double value) {
  if (!std::isfinite(value)) return;
  least = count == 0 ? value : std::min(least, value);
  greatest = count == 0 ? value : std::max(greatest, value);
  sum += value;
  ++count;
}

void Series::add(const Point& point) {
  if (!points_.empty() && !(points_.back().step < point.step)) is_in_order_ = false;
  points_.push_back(point);
  statistics_.add(point.value);
  latest_ = point;
  ++num_logged_;
}

const std::vector<Point>& Series::points() const {
  put_in_order();
  return points_;
}

const Statistics& Series::statistics() const {
  put_in_order();
  return statistics_;
}

void Series::put_in_order() const {
  if (is_in_order_) return;
  is_in_order_ = true;
  std::stable_sort(points_.begin(), points_.end(),
                   [](const Point& one, const Point& other) { return one.step < other.step; });
  size_t kept = 0;
  for (const Point& point : points_) {
    if (kept > 0 && points_[kept - 1].step == point.step)
      points_[kept - 1] = point;
    else
      points_[kept++] = point;
  }
  points_.resize(kept);
  if (is_reduced_) return;  // what was dropped still counts
  statistics_ = {};
  for (const Point& point : points_) statistics_.add(point.value);
}

void Series::reduce(size_t most) {
  put_in_order();
  if (points_.size() <= most) return;
  points_ = reduced(points_, most);
  points_.shrink_to_fit();
  is_reduced_ = true;
}

std::vector<Point> reduced(const std::vector<Point>& points, size_t most) {
  most = std::max(most, kFewestPoints);
  if (points.size() <= most) return points;
  std::vector<Point> kept{points.front()};
  const size_t inner = points.size() - 2, stretches = (most - 2) / 2;
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + 1 + static_cast<std::ptrdiff_t>(inner * i / stretches);
    const auto end = points.begin() + 1 + static_cast<std::ptrdiff_t>(inner * (i + 1) / stretches);
    if (begin == end) continue;
    const auto [least, greatest] = std::minmax_element(begin, end, is_lower);
    const auto [first, second] = std::minmax(least, greatest);
    kept.push_back(*first);
    if (first != second) kept.push_back(*second);
  }
  kept.push_back(points.back());
  return kept;
}

size_t share_of_points(std::vector<size_t> sizes, size_t total) {
  std::sort(sizes.begin(), sizes.end());
  size_t left = total;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t share = left / (sizes.size() - i);
    if (sizes[i] > share) return std::max(share, kFewestPoints);
    left -= sizes[i];
  }
  return std::max(total, kFewestPoints);
}

}  // namespace accel::report
