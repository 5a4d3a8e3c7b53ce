// SPDX-License-Identifier: Apache-2.0
// Section 4a: device meshes.
#include "comm/mesh.hpp"

#include <utility>
#include <vector>

#include "accel.h"
#include "accelerator/accelerator.hpp"
#include "base/error.hpp"
#include "capi/calls/guard.hpp"
#include "capi/calls/handles.hpp"
#include "capi/values/buffer.hpp"

namespace accel::capi {

ACCEL_FUNCTION accel_status_t accel_state_mesh(accel_state_t* state, accel_mesh_t** out) {
  return guarded(__func__, out, [&] {
    const auto& accelerator = accelerator_of(state);
    return std::make_unique<accel_mesh>(accelerator->state().groups().mesh(), accelerator);
  });
}

ACCEL_FUNCTION accel_status_t accel_mesh_create(accel_state_t* state, const char* axes, const int64_t* sizes,
                                                size_t n_axes, accel_mesh_t** out) {
  return guarded(__func__, out, [&] {
    const auto& accelerator = accelerator_of(state);
    check_pointer(axes, "axes");
    auto mesh = std::make_shared<comm::Mesh>(accelerator->state().communicator(),
                                             comm::mesh_axes(axes, read_array(sizes, n_axes, "sizes")));
    return std::make_unique<accel_mesh>(std::move(mesh), accelerator);
  });
}

ACCEL_FUNCTION accel_mesh_t* accel_mesh_retain(accel_mesh_t* mesh) { return retain_handle(__func__, mesh, "mesh"); }

ACCEL_FUNCTION void accel_mesh_release(accel_mesh_t* mesh) { release_handle(mesh); }

ACCEL_FUNCTION accel_status_t accel_mesh_size(const accel_mesh_t* mesh, const char* axes, int64_t* out) {
  return guarded(__func__, out, [&] { return check(mesh, "mesh").mesh->size(check_pointer(axes, "axes")); });
}

ACCEL_FUNCTION accel_status_t accel_mesh_coordinate(const accel_mesh_t* mesh, const char* axes, int64_t* out) {
  return guarded(__func__, out, [&] { return check(mesh, "mesh").mesh->coordinate(check_pointer(axes, "axes")); });
}

ACCEL_FUNCTION accel_status_t accel_mesh_group(accel_mesh_t* mesh, const char* axes, accel_state_t** out) {
  return guarded(__func__, out, [&] {
    const accel_mesh& checked = check(mesh, "mesh");
    const auto& group = checked.mesh->group(check_pointer(axes, "axes"));
    return std::make_shared<accelerator::Accelerator>(*checked.accelerator, group);
  });
}

ACCEL_FUNCTION accel_status_t accel_mesh_describe(const accel_mesh_t* mesh, accel_buffer_t* out) {
  return guarded(__func__, out, [&] { return new_buffer(check(mesh, "mesh").mesh->describe()); });
}

}  // namespace accel::capi
