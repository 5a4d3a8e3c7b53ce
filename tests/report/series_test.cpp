// SPDX-License-Identifier: Apache-2.0
// Series: order, resumed steps, reduction that keeps peaks.
#include "report/series.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace accel::report {
namespace {

Point at(double step, double value, uint32_t version = 1) { return {step, 1e9 + step, value, version}; }

TEST(Series, HoldsPointsByStep) {
  Series series;
  for (const double step : {0.0, 5.0, 7.0}) series.add(at(step, step * 2));
  ASSERT_EQ(series.points().size(), 3U);
  EXPECT_EQ(series.points()[1].value, 10);
  EXPECT_EQ(series.statistics().count, 3);
  EXPECT_EQ(series.statistics().sum, 24);
  EXPECT_EQ(series.latest().step, 7);
}

TEST(Series, LaterValueOfAStepHolds) {
  Series series;
  for (const double step : {0.0, 1.0, 2.0, 3.0}) series.add(at(step, 100));
  for (const double step : {1.0, 2.0}) series.add(at(step, step, 2));
  const std::vector<Point>& points = series.points();
  ASSERT_EQ(points.size(), 4U);
  EXPECT_EQ(points[0].value, 100);
  EXPECT_EQ(points[1].value, 1);
  EXPECT_EQ(points[2].value, 2);
  EXPECT_EQ(points[3].value, 100);
  EXPECT_EQ(series.statistics().count, 4);
  EXPECT_EQ(series.statistics().sum, 203);
  EXPECT_EQ(series.num_logged(), 6U);
  EXPECT_EQ(series.latest().step, 2);
}

TEST(Series, WhatIsNotFiniteIsNoStatistic) {
  Series series;
  series.add(at(0, std::nan("")));
  series.add(at(1, std::numeric_limits<double>::infinity()));
  series.add(at(2, -3));
  EXPECT_EQ(series.points().size(), 3U);
  EXPECT_EQ(series.statistics().count, 1);
  EXPECT_EQ(series.statistics().least, -3);
  EXPECT_EQ(series.statistics().greatest, -3);
}

TEST(Series, ReductionKeepsEndsAndPeaks) {
  std::vector<Point> points;
  for (int i = 0; i < 100000; ++i) points.push_back(at(i, std::sin(i * 0.001)));
  points[31234].value = 50;
  points[77777].value = -50;
  points[50000].value = std::nan("");
  const std::vector<Point> kept = reduced(points, 1000);
  EXPECT_LE(kept.size(), 1000U);
  EXPECT_GE(kept.size(), 900U);
  EXPECT_EQ(kept.front().step, 0);
  EXPECT_EQ(kept.back().step, 99999);
  const auto has = [&kept](double step) {
    return std::any_of(kept.begin(), kept.end(), [step](const Point& point) { return point.step == step; });
  };
  EXPECT_TRUE(has(31234));
  EXPECT_TRUE(has(77777));
  EXPECT_TRUE(has(50000));
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(),
                             [](const Point& one, const Point& other) { return one.step < other.step; }));
}

TEST(Series, ShortOnesStayWhole) {
  std::vector<Point> points;
  for (int i = 0; i < 10; ++i) points.push_back(at(i, i));
  EXPECT_EQ(reduced(points, 10).size(), 10U);
  EXPECT_EQ(reduced(points, 5).size(), 4U);
  EXPECT_EQ(reduced({}, 0).size(), 0U);
  EXPECT_EQ(reduced({at(1, 1)}, 0).size(), 1U);
}

TEST(Series, StatisticsSurviveReduction) {
  Series series;
  for (int i = 0; i < 1000; ++i) series.add(at(i, i));
  series.reduce(100);
  EXPECT_LE(series.num_stored(), 100U);
  EXPECT_TRUE(series.is_reduced());
  for (int i = 1000; i < 1100; ++i) series.add(at(i, i));
  EXPECT_EQ(series.statistics().count, 1100);
  EXPECT_EQ(series.statistics().sum, 1100.0 * 1099 / 2);
  EXPECT_EQ(series.statistics().greatest, 1099);
}

TEST(Series, SharesFillWhatShortOnesLeave) {
  EXPECT_EQ(share_of_points({10, 10, 10}, 1000), 1000U);
  EXPECT_EQ(share_of_points({10, 500, 500}, 510), 250U);
  EXPECT_EQ(share_of_points({1000000}, 100000), 100000U);
  EXPECT_EQ(share_of_points({}, 5), 5U);
}

}  // namespace
}  // namespace accel::report
