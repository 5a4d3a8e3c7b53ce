// Parameters of an application with an autograd of its own: named memory that optimizers update in place.
#pragma once

namespace accel::accelerator {}  // namespace accel::accelerator
