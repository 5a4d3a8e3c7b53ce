/* libaccel: distributed training for every language, as a C library.
 * SPDX-License-Identifier: Apache-2.0
 *
 * ---------------------------------------------------------------------------------------------------------------------
 * The manual, on one page
 * ---------------------------------------------------------------------------------------------------------------------
 * Each process holds one accel_state_t, its handle to the distributed job: it knows the rank, the device and the precision,
 * from the environment that the launcher set (`accel launch`, torchrun, mpirun, srun). All other objects are created from
 * it:
 *
 *     accel_state_t *state = NULL;
 *     accel_module_t *model = NULL, *prepared = NULL;
 *     accel_optimizer_t *adamw = NULL, *optimizer = NULL;
 *     CHECK(accel_state_create(NULL, &state));
 *     CHECK(accel_module_from_config("config.json", &model));
 *     CHECK(accel_optimizer_adamw(model, NULL, &adamw));
 *     CHECK(accel_prepare_model(state, model, NULL, &prepared));
 *     CHECK(accel_prepare_optimizer(state, adamw, &optimizer));
 *     while ((status = accel_dataloader_next(loader, &batch)) == ACCEL_OK) {
 *         CHECK(accel_accumulate_begin(state, &prepared, 1, &scope));
 *         CHECK(accel_module_call(prepared, accel_value_at(&batch, 0), 1, &logits));
 *         CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
 *         CHECK(accel_backward(state, loss, NULL));
 *         CHECK(accel_optimizer_step(optimizer));
 *         CHECK(accel_optimizer_zero_grad(optimizer, 1));
 *         CHECK(accel_scope_end(scope));
 *     }
 *
 * Errors. Every function that can fail returns an accel_status_t: 0 is success, a positive number is information that
 * is not a failure (ACCEL_ITER_END), a negative number is an error. accel_last_error() is the thread's message: one line
 * with the offending value and what was expected. After an error the outputs are untouched and there is nothing to
 * clean up. Never look at the message to find out whether something failed: success does not clear it. Errors that every
 * call can return are not repeated at each function: INVALID_ARGUMENT for a NULL pointer, INVALID_HANDLE, OUT_OF_MEMORY,
 * INTERNAL,
 * UNSUPPORTED when another LibTorch is loaded than the one it was built for, INVALID_STATE in a process that was forked
 * off. Functions that return a value and not a status cannot fail on valid arguments; for an invalid handle they return
 * -1, 0 for a size, NULL for a pointer, and set the thread's error.
 *
 * Ownership. Handles are counted: `_retain` adds an owner, `_release` removes one and takes NULL. Outputs marked
 * ACCEL_OWNED belong to the caller; returned pointers and outputs marked ACCEL_BORROWED stay valid as long as the text
 * beside them says; inputs are never consumed unless they are marked ACCEL_TAKES. Objects keep alive what they use: a
 * tensor or module may be released as soon as it has been handed on. NULL is refused except where ACCEL_NULLABLE
 * stands. A handle of a wrong kind, or one that was released, is INVALID_HANDLE wherever that can be detected. The text
 * of an array begins with its length: `[n_items]`.
 *
 * Options. Every options struct begins with `struct_size` and is made by its INIT macro or init function, which mark
 * each field as unset. Unset fields come from the environment (ACCELERATE_*, the names of Hugging Face Accelerate),
 * then from the default that the field's comment names. NULL means that everything is unset.
 *
 * Threads. Different handles may be used from different threads, and reading an accel_state_t is always safe. Beside
 * each function stands who may call it:
 *     @threads any         any thread at any time, also on the same handle (its handles are `const`)
 *     @threads object      one thread at a time for each handle that is not `const`
 *     @threads collective  as object, and all ranks must make the same calls of one state in the same order
 *     @threads thread      belongs to the calling thread: scopes and the last error
 * `waits` stands beside calls that can take longer than a moment, because they compute, read files or wait for other
 * ranks: bindings let their interpreter continue meanwhile. Beside callbacks, `caller` is the thread of the outer call. A
 * handle must have an owner until the call that uses it ends: threads that share one retain it each.
 *
 * Callbacks come with `user_data` and `destroy`, always the three together; `destroy` (NULL allowed) runs exactly once:
 * when the callback is replaced or its holder is released, or at once when the registration fails. A negative result
 * stops the operation and is returned unchanged by the outer call; accel_error_set() sets its message. Nothing may
 * be thrown, and no longjmp may pass, through a callback.
 *
 * Waiting. No call waits for ever: collectives end with ACCEL_ERROR_TIMEOUT after the state's timeout on every rank that
 * waits, with ACCEL_ERROR_PEER_LOST when a rank has died, with ACCEL_ERROR_COLLECTIVE_MISMATCH on every rank when they
 * disagree, and with ACCEL_ERROR_CANCELLED after accel_interrupt().
 *
 * The library never prints (except accel_print), never exits, installs no signal handler (except for SIGBUS during calls
 * that read mapped files, for the pages of its own mappings), changes neither locale nor working directory. It cannot be
 * unloaded. After fork() only exec() is allowed, except in the ranks of accel_launch(), and
 * between accel_prepare_fork() and accel_accept_fork().
 */
#ifndef ACCEL_H
#define ACCEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "accel/error.h"
#include "accel/value.h"
#include "accel/device.h"
#include "accel/state.h"
#include "accel/communication.h"
#include "accel/mesh.h"
#include "accel/tensor.h"
#include "accel/operator.h"
#include "accel/module.h"
#include "accel/quantization.h"
#include "accel/generation.h"
#include "accel/adapters.h"
#include "accel/optimizer_options.h"
#include "accel/optimizer.h"
#include "accel/scheduler.h"
#include "accel/dataset.h"
#include "accel/sampler.h"
#include "accel/dataloader.h"
#include "accel/tokenizer.h"
#include "accel/parallelism.h"
#include "accel/pipeline.h"
#include "accel/prepare.h"
#include "accel/fp8.h"
#include "accel/training_loop.h"
#include "accel/capture.h"
#include "accel/parameters.h"
#include "accel/accelerator.h"
#include "accel/random.h"
#include "accel/memory.h"
#include "accel/device_map.h"
#include "accel/big_model.h"
#include "accel/checkpoint.h"
#include "accel/tracking.h"
#include "accel/report.h"
#include "accel/logger.h"
#include "accel/progress.h"
#include "accel/profiler.h"
#include "accel/option.h"
#include "accel/configuration.h"
#include "accel/launch.h"
#include "accel/options_init.h"

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ACCEL_H */
