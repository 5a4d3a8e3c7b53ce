// SPDX-License-Identifier: Apache-2.0
#include "comm/ucx/progress/task.hpp"

#include <iterator>

namespace accel::comm::ucx {
namespace {

template <typename Items>
void move_all(Items& to, Items& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void Task::append(Task&& other) {
  move_all(parts, other.parts);
  move_all(held, other.held);
  move_all(copies, other.copies);
  move_all(outputs, other.outputs);
  timeout = other.timeout;
  is_async = is_async || other.is_async;
}

}  // namespace accel::comm::ucx
