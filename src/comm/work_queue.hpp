// Calls that were started and not waited for run here one after the other, in the order of their start: the order that
// all ranks agree on. Its thread begins with the first of them.
#pragma once

#include <c10/core/DeviceType.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "comm/work.hpp"

namespace accel::comm {

class WorkQueue {
 public:
  using Call = std::function<c10::IValue()>;

  // Calls run beside the computation on devices of the type, and have ended when the device is done with them.
  explicit WorkQueue(std::optional<c10::DeviceType> device = std::nullopt);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();

  // The call has the settings of this thread: gradients, autocast, and what it is called.
  std::shared_ptr<Work> start(Call call);
  // Counts work that ends elsewhere, or has new callbacks, to what progress() looks after.
  void watch(const std::shared_ptr<Work>& work);
  void end_watched(Work& work, std::exception_ptr error);

  // Returns when the calls started so far have ended; at once on the queue's own thread.
  void wait_until_idle() const;

  // Runs the callbacks of what has ended. Waits for one up to `longest` while something is under way. Whether something
  // still is.
  bool progress(std::chrono::microseconds longest);

  // Calls that have not begun fail, and later ones are refused.
  void close();
  // Waits for the thread's end, but not on that thread.
  void join();

 private:
  struct Shared;
  static void run(const std::shared_ptr<Shared>& shared);

  // The thread may be the one that lets go of the queue's owner, and outlives the queue then.
  const std::shared_ptr<Shared> shared_;
};

}  // namespace accel::comm
