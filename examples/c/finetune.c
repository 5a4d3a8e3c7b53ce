/* Trains a model from a folder of Hugging Face further: on a text, or on chats, one {"messages": [...]} in each line of
 * a file that ends with .jsonl, as the folder's template writes them.
 *
 *     accel launch --num-processes 2 --mixed-precision bf16 -- ./finetune FOLDER chats.jsonl OUTPUT --steps 1000
 *
 * Run again after an interruption, it goes on from its last checkpoint in OUTPUT. In the end OUTPUT has the files of a
 * model that is opened like FOLDER. With --lora RANK only an adapter of that rank is trained, and OUTPUT has PEFT's
 * files of it; with --quantize KIND, too, the weights below it are quantized as they are read (QLoRA). */
#include <accel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_LABEL = -100 }; /* fills short rows; the loss leaves it out */

#define CHECK(call) ((call) < 0 ? (fprintf(stderr, "%s\n", accel_last_error()), exit(1)) : (void)0)

static const char usage[] =
    "usage: %s FOLDER TEXT|CHATS.jsonl OUTPUT [--steps 100] [--batch 4] [--length 256] [--lr 1e-5] "
    "[--save-every 50] [--seed 0] [--lora 0 [--quantize nf4|fp4|int4|int8]]\n";

/* What the program was asked for. */
struct request {
  const char *folder, *data, *output, *quantize;
  int64_t steps, batch, length, save_every, seed, lora;
  double lr;
};

static struct request read_request(int argc, char **argv) {
  struct request request = {.steps = 100, .batch = 4, .length = 256, .save_every = 50, .lr = 1e-5};
  const char *const names[] = {"--steps", "--batch", "--length", "--save-every", "--seed", "--lora"};
  int64_t *const numbers[] = {&request.steps,      &request.batch, &request.length,
                              &request.save_every, &request.seed,  &request.lora};
  if (argc < 4 || argc % 2 != 0) fprintf(stderr, usage, argv[0]), exit(2);
  request.folder = argv[1], request.data = argv[2], request.output = argv[3];
  for (int i = 4; i < argc; i += 2) {
    int which = 0;
    while (which < 6 && strcmp(argv[i], names[which]) != 0) which++;
    if (which < 6)
      *numbers[which] = atoll(argv[i + 1]);
    else if (strcmp(argv[i], "--lr") == 0)
      request.lr = atof(argv[i + 1]);
    else if (strcmp(argv[i], "--quantize") == 0)
      request.quantize = argv[i + 1];
    else
      fprintf(stderr, usage, argv[0]), exit(2);
  }
  if (request.quantize != NULL && request.lora == 0) /* quantized weights are not trained */
    fprintf(stderr, usage, argv[0]), exit(2);
  return request;
}

static accel_module_t *load_model(const struct request *request) {
  static const char *const names[] = {"nf4", "fp4", "int4", "int8"};
  static const accel_quantization_kind_t kinds[] = {ACCEL_QUANTIZATION_KIND_NF4, ACCEL_QUANTIZATION_KIND_FP4,
                                                    ACCEL_QUANTIZATION_KIND_INT4, ACCEL_QUANTIZATION_KIND_INT8};
  accel_quantization_options_t quantization = ACCEL_QUANTIZATION_OPTIONS_INIT;
  accel_module_t *model = NULL;
  if (request->quantize != NULL) {
    int which = 0;
    while (which < 4 && strcmp(request->quantize, names[which]) != 0) which++;
    if (which == 4) fprintf(stderr, usage, "finetune"), exit(2);
    quantization.kind = kinds[which];
  }
  CHECK(accel_module_from_folder(request->folder, &quantization, &model));
  return model;
}

/* Leaves the model as it is, and trains small matrices beside its linear layers. */
static void add_adapter(accel_module_t *model, int64_t rank) {
  accel_lora_options_t lora = ACCEL_LORA_OPTIONS_INIT;
  lora.rank = rank;
  lora.alpha = 2 * (double)rank;
  CHECK(accel_module_add_adapter(model, "finetuned", &lora));
}

static accel_status_t save_step(accel_value_t *out, void *step) {
  *out = accel_arg_int(*(int64_t *)step);
  return ACCEL_OK;
}

static accel_status_t load_step(const accel_value_t *saved, void *step) {
  *(int64_t *)step = saved->as.integer;
  return ACCEL_OK;
}

/* Batches of [tokens, next tokens]. */
static accel_dataloader_t *new_loader(const struct request *request) {
  accel_tokenizer_t *tokenizer = NULL;
  accel_dataset_t *rows = NULL;
  accel_dataloader_t *loader = NULL;
  const char *const end = strrchr(request->data, '.');
  CHECK(accel_tokenizer_load(request->folder, &tokenizer));
  if (end != NULL && strcmp(end, ".jsonl") == 0)
    CHECK(accel_dataset_chats(request->data, NULL, tokenizer, request->length, 0, &rows));
  else
    CHECK(accel_dataset_encoded_text(request->data, NULL, tokenizer, request->length, &rows));
  accel_dataloader_options_t options = ACCEL_DATALOADER_OPTIONS_INIT;
  options.batch_size = request->batch;
  options.shuffle = 1;
  options.seed = request->seed;
  options.collate = ACCEL_COLLATE_PAD;
  options.padding_value = NO_LABEL;
  CHECK(accel_dataloader_create(rows, &options, &loader));
  accel_dataset_release(rows);
  accel_tokenizer_release(tokenizer);
  return loader;
}

/* Returns the mean of the processes' losses. */
static double train_step(accel_state_t *state, const accel_prepare_item_t *run) {
  const accel_op_t *clamp_min = NULL;
  accel_value_t batch = ACCEL_VALUE_INIT, tokens = ACCEL_VALUE_INIT, logits = ACCEL_VALUE_INIT, mean = ACCEL_VALUE_INIT;
  accel_tensor_t *loss = NULL;
  accel_scope_t *accumulate = NULL;
  size_t n_results = 0;
  double number = 0;
  accel_status_t status = accel_dataloader_next(run[2].loader, &batch);
  if (status == ACCEL_ITER_END) status = accel_dataloader_next(run[2].loader, &batch); /* the next epoch */
  CHECK(status);
  CHECK(accel_op_find("aten::clamp_min", "", &clamp_min)); /* the filling behind short chats becomes a token */
  const accel_value_t least[] = {*accel_value_at(&batch, 0), accel_arg_int(0)};
  CHECK(accel_op_call(clamp_min, least, 2, &tokens, 1, &n_results));
  CHECK(accel_accumulate_begin(state, &run[0].module, 1, &accumulate));
  CHECK(accel_module_call(run[0].module, &tokens, 1, &logits));
  CHECK(accel_cross_entropy(logits.as.tensor, accel_value_at(&batch, 1)->as.tensor, &loss));
  CHECK(accel_backward(state, loss, NULL));
  CHECK(accel_clip_grad_norm(state, run[0].module, 1, 2, NULL));
  CHECK(accel_optimizer_step(run[1].optimizer));
  CHECK(accel_optimizer_zero_grad(run[1].optimizer, 1));
  CHECK(accel_scope_end(accumulate));
  const accel_value_t mine = accel_arg_tensor(loss);
  CHECK(accel_reduce(state, &mine, ACCEL_REDUCE_MEAN, 1, &mean));
  CHECK(accel_tensor_item(mean.as.tensor, &number));
  accel_value_dispose(&mean);
  accel_tensor_release(loss);
  accel_value_dispose(&logits);
  accel_value_dispose(&tokens);
  accel_value_dispose(&batch);
  return number;
}

int main(int argc, char **argv) {
  const struct request request = read_request(argc, argv);
  accel_state_t *state = NULL;
  accel_project_options_t project = ACCEL_PROJECT_OPTIONS_INIT;
  project.project_dir = request.output;
  project.automatic_checkpoint_naming = 1;
  project.total_limit = 2;
  CHECK(accel_state_create(NULL, &state)); /* the launcher says which precision */
  CHECK(accel_set_project(state, &project));
  CHECK(accel_set_seed(state, request.seed, 0, 0));

  int64_t step = 0;
  accel_adam_options_t adam = ACCEL_ADAM_OPTIONS_INIT;
  adam.lr = request.lr;
  accel_prepare_item_t plain[3] = {ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT, ACCEL_PREPARE_ITEM_INIT}, run[3];
  plain[0].module = load_model(&request);
  CHECK(accel_module_to(plain[0].module, ACCEL_DTYPE_FLOAT32, accel_device(state)));
  if (request.lora > 0) add_adapter(plain[0].module, request.lora);
  CHECK(accel_optimizer_adamw(plain[0].module, &adam, &plain[1].optimizer));
  plain[2].loader = new_loader(&request);
  CHECK(accel_prepare(state, plain, 3, run));
  CHECK(accel_register_for_checkpointing(state, "step", save_step, load_step, &step, NULL));
  const accel_status_t loaded = accel_load_state(state, NULL, NULL); /* the newest checkpoint */
  if (loaded != ACCEL_ERROR_NOT_FOUND) CHECK(loaded);

  const int says = accel_is_main_process(state);
  if (says) printf("from step: %lld\n", (long long)step);
  while (step < request.steps) {
    const double loss = train_step(state, run);
    step++;
    if (says) printf("step %lld loss: %.4f\n", (long long)step, loss), fflush(stdout);
    if (step % request.save_every == 0 && step < request.steps) CHECK(accel_save_state(state, NULL, NULL));
  }
  if (request.lora > 0)
    CHECK(accel_save_adapter(state, run[0].module, "finetuned", request.output));
  else
    CHECK(accel_save_model_folder(state, run[0].module, request.folder, request.output, NULL));
  if (says) printf("saved: %s\n", request.output);

  CHECK(accel_end_training(state));
  for (int i = 0; i < 2; i++) {
    accel_prepare_item_t *const items = i == 0 ? plain : run;
    accel_module_release(items[0].module);
    accel_optimizer_release(items[1].optimizer);
    accel_dataloader_release(items[2].loader);
  }
  accel_state_release(state);
  return 0;
}
