/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "everyday_work.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROWS = 8, CLASSES = 4, STEPS = 3 };

static const accel_device_t kCpu = {ACCEL_DEVICE_CPU, -1};

#define TRY(call) \
  if ((call) != ACCEL_OK) return report(#call)

static int report(const char* call) {
  fprintf(stderr, "%s: %s\n", call, accel_last_error());
  return 1;
}

static int32_t free_port(void) {
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (struct sockaddr*)&address, size) == 0) getsockname(listener, (struct sockaddr*)&address, &size);
  close(listener);
  return ntohs(address.sin_port);
}

static void* join_group(void* argument) {
  struct rank* rank = argument;
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  options.cpu = 1;
  options.process_index = options.local_process_index = rank->index;
  options.num_processes = options.local_num_processes = 2;
  options.main_process_ip = "127.0.0.1";
  options.main_process_port = rank->port;
  options.timeout_ms = 30000;
  if (accel_state_create(&options, &rank->state) == ACCEL_OK) return NULL;
  report("accel_state_create");
  return rank;
}

static void* add_in_group(void* argument) {
  struct rank* rank = argument;
  const int64_t shape[] = {ROWS};
  accel_tensor_t* tensor = NULL;
  void* data = NULL;
  const int failed = accel_tensor_full(shape, 1, rank->index + 1, ACCEL_DTYPE_FLOAT32, &kCpu, &tensor) != ACCEL_OK ||
                     accel_all_reduce(rank->state, tensor, ACCEL_REDUCE_SUM) != ACCEL_OK ||
                     accel_tensor_data(tensor, &data) != ACCEL_OK || ((float*)data)[ROWS - 1] != 3.0f;
  accel_tensor_release(tensor);
  if (failed) report("accel_all_reduce");
  return failed ? rank : NULL;
}

/* The second rank runs on a thread of its own. */
static int on_both(struct rank ranks[2], void* (*body)(void*)) {
  pthread_t thread;
  void* failed[2];
  if (pthread_create(&thread, NULL, body, &ranks[1]) != 0) return 1;
  failed[0] = body(&ranks[0]);
  pthread_join(thread, &failed[1]);
  return failed[0] != NULL || failed[1] != NULL;
}

int open_pair(struct rank ranks[2]) {
  static int32_t port =
      0; /* one for all pairs, as in a job: the store that listens there stays until the process ends */
  int32_t i;
  if (port == 0) port = free_port();
  for (i = 0; i < 2; i++) {
    ranks[i].index = i;
    ranks[i].port = port;
    ranks[i].state = NULL;
  }
  return on_both(ranks, join_group);
}

int add_on_pair(struct rank ranks[2]) { return on_both(ranks, add_in_group); }

void close_pair(struct rank ranks[2]) {
  accel_state_release(ranks[0].state);
  accel_state_release(ranks[1].state);
}

static int use_operator(accel_tensor_t* tensor) {
  const accel_op_t* add = NULL;
  accel_value_t terms[2], sum = ACCEL_VALUE_INIT;
  size_t count = 0;
  terms[0] = terms[1] = accel_arg_tensor(tensor);
  TRY(accel_op_find("aten::add", "Tensor", &add));
  TRY(accel_op_call(add, terms, 2, &sum, 1, &count));
  accel_value_dispose(&sum);
  return 0;
}

static int train(accel_state_t* state, accel_module_t* model, accel_optimizer_t* optimizer,
                 accel_dataloader_t* loader) {
  accel_value_t batch = ACCEL_VALUE_INIT, logits = ACCEL_VALUE_INIT;
  accel_tensor_t* loss = NULL;
  accel_status_t status;
  while ((status = accel_dataloader_next(loader, &batch)) == ACCEL_OK) {
    TRY(accel_module_call(model, accel_value_at(&batch, 0), 1, &logits));
    TRY(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
    TRY(accel_backward(state, loss, NULL));
    TRY(accel_optimizer_step(optimizer));
    TRY(accel_optimizer_zero_grad(optimizer, 1));
    accel_tensor_release(loss);
    accel_value_dispose(&logits);
    accel_value_dispose(&batch);
  }
  return status == ACCEL_ITER_END ? 0 : report("accel_dataloader_next");
}

static int work_alone(void) {
  const int64_t input_shape[] = {ROWS, CLASSES}, label_shape[] = {ROWS};
  accel_state_options_t options = ACCEL_STATE_OPTIONS_INIT;
  accel_dataloader_options_t loading = ACCEL_DATALOADER_OPTIONS_INIT;
  accel_state_t* state = NULL;
  accel_tensor_t* tensors[2];
  accel_dataset_t* dataset = NULL;
  accel_dataloader_t *plain = NULL, *loader = NULL;
  accel_module_t *model = NULL, *prepared = NULL;
  accel_optimizer_t *adamw = NULL, *optimizer = NULL;
  options.cpu = 1;
  options.process_index = 0;
  options.num_processes = 1;
  loading.batch_size = ROWS / STEPS;
  TRY(accel_state_create(&options, &state));
  TRY(accel_set_seed(state, 7, 0, 0));
  TRY(accel_tensor_randn(input_shape, 2, ACCEL_DTYPE_FLOAT32, &kCpu, &tensors[0]));
  TRY(accel_tensor_randint(0, CLASSES, label_shape, 1, &tensors[1]));
  if (use_operator(tensors[0]) != 0) return 1;
  TRY(accel_dataset_tensors(tensors, 2, &dataset));
  TRY(accel_dataloader_create(dataset, &loading, &plain));
  TRY(accel_module_linear(CLASSES, CLASSES, 1, &model));
  TRY(accel_optimizer_adamw(model, NULL, &adamw));
  TRY(accel_prepare_model(state, model, NULL, &prepared));
  TRY(accel_prepare_optimizer(state, adamw, &optimizer));
  TRY(accel_prepare_data_loader(state, plain, NULL, &loader));
  if (train(state, prepared, optimizer, loader) != 0) return 1;
  accel_optimizer_release(optimizer);
  accel_optimizer_release(adamw);
  accel_module_release(prepared);
  accel_module_release(model);
  accel_dataloader_release(loader);
  accel_dataloader_release(plain);
  accel_dataset_release(dataset);
  accel_tensor_release(tensors[0]);
  accel_tensor_release(tensors[1]);
  accel_state_release(state);
  return 0;
}

int do_everyday_work(void) {
  struct rank ranks[2];
  if (work_alone() != 0 || open_pair(ranks) != 0 || add_on_pair(ranks) != 0) return 1;
  close_pair(ranks);
  if (accel_debug_live_objects() == 0) return 0;
  fprintf(stderr, "%lld handles were not released\n", (long long)accel_debug_live_objects());
  return 1;
}
