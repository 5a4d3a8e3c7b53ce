/* SPDX-License-Identifier: Apache-2.0 */
/* Part of accel.h, which programs include. */
#ifndef ACCEL_H
#error "include accel.h"
#endif

/* =====================================================================================================================
 * 4a. Mesh: the ranks as a grid of named axes
 *
 * The axes of a state's mesh are "pipeline", "replicate", "shard", "context" and "tensor", from the one whose neighbours are
 * furthest apart to the one whose neighbours have consecutive ranks; their sizes are options of the state. Where the library
 * needs a number of ranks it asks the mesh: loaders share out data, and schedulers and metrics count, over
 * "replicate,shard"; gradients are averaged over "replicate,shard,context"; ranks of one "tensor" group draw the same random
 * numbers. With the default sizes all ranks are replicas.
 * ================================================================================================================== */

/** The mesh of a state.
 * @param state A state. The mesh of a group has replicas only.
 * @param out The mesh, which keeps the state alive.
 * @return ACCEL_OK.
 * @threads any
 * @accelerate torch_device_mesh */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t accel_state_mesh(accel_state_t *state, accel_mesh_t *ACCEL_OWNED *out);

/** Another mesh over the ranks of a state, for the application's own communication. Nothing in the library uses it.
 * @param state A state, or a group.
 * @param axes Different names, separated by commas. Along the last axis neighbours have consecutive ranks.
 * @param sizes [n_axes] Of each axis, at least 1; their product is the number of ranks.
 * @param n_axes The number of axes.
 * @param out The mesh, which keeps the state alive.
 * @return ACCEL_OK; INVALID_ARGUMENT for sizes that do not fit.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_mesh_create(accel_state_t *state, const char *axes, const int64_t *sizes, size_t n_axes,
                  accel_mesh_t *ACCEL_OWNED *out);

/** Adds an owner.
 * @param mesh A mesh.
 * @return This mesh, which has one owner more.
 * @threads any */
ACCEL_SINCE(0, 1) accel_mesh_t *accel_mesh_retain(accel_mesh_t *mesh);

/** Removes an owner.
 * @param mesh A mesh, or NULL.
 * @threads any, waits */
ACCEL_SINCE(0, 1) void accel_mesh_release(accel_mesh_t *ACCEL_NULLABLE mesh);

/** The number of ranks along an axis, or along several. A state's mesh has the sizes of its options, and computed sizes
 * where they are unset; accel_state_describe() says where each came from.
 * @param mesh A mesh.
 * @param axes A name, or several that are separated by commas: their product.
 * @param out The size.
 * @return ACCEL_OK; NOT_FOUND for an unknown axis.
 * @threads any
 * @accelerate parallelism_config */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_mesh_size(const accel_mesh_t *mesh, const char *axes, int64_t *out);

/** Where this rank is along an axis, or along several that are flattened to one in the order of the mesh.
 * @param mesh A mesh.
 * @param axes A name, or several that are separated by commas.
 * @param out From 0 to accel_mesh_size() - 1; the rank in accel_mesh_group().
 * @return ACCEL_OK; NOT_FOUND for an unknown axis.
 * @threads any
 * @accelerate data_parallel_rank, data_parallel_shard_rank, tensor_parallel_rank, pipeline_parallel_rank,
 *   context_parallel_rank */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_mesh_coordinate(const accel_mesh_t *mesh, const char *axes, int64_t *out);

/** The ranks that differ from this one along these axes only, as a group. The first call forms it; later ones return states
 * over the same connections.
 * @param mesh A mesh.
 * @param axes A name, or several that are separated by commas.
 * @param out The group, ordered by coordinate; of this rank alone where the axes have size 1.
 * @return ACCEL_OK; NOT_FOUND for an unknown axis; TIMEOUT that names the ranks that did not come.
 * @threads collective, waits */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_mesh_group(accel_mesh_t *mesh, const char *axes, accel_state_t *ACCEL_OWNED *out);

/** The axes with their sizes, and this rank's place.
 * @param mesh A mesh.
 * @param out A line: "replicate 2, tensor 4; this rank is at 0, 3".
 * @return ACCEL_OK.
 * @threads any */
ACCEL_SINCE(0, 1) ACCEL_NODISCARD accel_status_t
accel_mesh_describe(const accel_mesh_t *mesh, accel_buffer_t *ACCEL_OWNED out);
