// SPDX-License-Identifier: Apache-2.0
#include "kernels/update/factored.hpp"

#include <algorithm>
#include <vector>

#include "kernels/instruction_set.hpp"
#include "kernels/parallel.hpp"
#include "kernels/update/factored_kernels.hpp"

namespace accel::kernels {
namespace {

// Calls work(group) for each group of rows; below 2^15 elements a thread costs more than it saves.
template <typename Work>
void for_all_groups(const FactoredMatrix& matrix, const Work& work) {
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 15) / (kRowGroup * matrix.width));
  parallel_for(matrix.groups(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) work(group);
  });
}

double sum_of(const std::vector<double>& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

}  // namespace

double mean_squares(const FactoredMatrix& matrix, float* rows, float* columns) {
  const FactoredKernels kernels = ACCEL_FASTEST(factored_kernels)();
  const auto width = static_cast<size_t>(matrix.width);
  const auto groups = static_cast<size_t>(matrix.groups());
  std::vector<double> row_sums(groups * kRowGroup);
  std::vector<float> column_parts(groups * width);
  std::vector<double> parameter_sums(groups);
  for_all_groups(matrix, [&](int64_t group) {
    const auto place = static_cast<size_t>(group);
    parameter_sums[place] =
        kernels.measure(matrix, group, row_sums.data() + group * kRowGroup, column_parts.data() + place * width);
  });
  std::vector<double> column_sums(width);
  for (size_t group = 0; group < groups; ++group)
    for (size_t j = 0; j < width; ++j) column_sums[j] += column_parts[group * width + j];
  for (int64_t i = 0; i < matrix.height; ++i)
    rows[i] = static_cast<float>(row_sums[static_cast<size_t>(i)] / static_cast<double>(matrix.width));
  for (size_t j = 0; j < width; ++j)
    columns[j] = static_cast<float>(column_sums[j] / static_cast<double>(matrix.height));
  return sum_of(parameter_sums);
}

double step_squares(const FactoredMatrix& matrix) {
  const FactoredKernels kernels = ACCEL_FASTEST(factored_kernels)();
  std::vector<double> sums(static_cast<size_t>(matrix.groups()));
  for_all_groups(matrix,
                 [&](int64_t group) { sums[static_cast<size_t>(group)] = kernels.step_squares(matrix, group); });
  return sum_of(sums);
}

void take_step(const FactoredMatrix& matrix, float keep, float rate) {
  const FactoredKernels kernels = ACCEL_FASTEST(factored_kernels)();
  for_all_groups(matrix, [&](int64_t group) { kernels.take_step(matrix, group, keep, rate); });
}

}  // namespace accel::kernels
