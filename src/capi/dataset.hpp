// Handles of datasets.
#pragma once

#include <memory>

#include "accel.h"
#include "capi/handles.hpp"

namespace accel::capi {

// Writes an output only when nothing can fail any more.
void give_dataset(accel_dataset_t** out, std::shared_ptr<const data::Dataset> dataset);
void give_stream(accel_dataset_t** out, std::shared_ptr<const data::Stream> stream);

}  // namespace accel::capi
