// SPDX-License-Identifier: Apache-2.0
// The library's log messages on their way to Python. They come from any thread, which may hold locks of the library: if it waited for the
// interpreter, a thread that holds that could wait for one of these. So messages are kept. A thread of Python hands them over at the end of
// the call that it is in; for one of the library another one does that waits in its place.
%{
enum { MOST_MESSAGES = 10000 };
typedef struct log_message {
  struct log_message *next;
  int32_t level;
  char text[];
} log_message_t;
static _Atomic(log_message_t *) log_messages; // the latest first
static atomic_int queued_messages, is_delivering;
static PyObject *log_target; // only touched with the interpreter's lock

static void hand_over_message(const log_message_t *message) {
  PyObject *const text = PyUnicode_DecodeUTF8(message->text, (Py_ssize_t)strlen(message->text), "replace");
  PyObject *const answer = text == NULL ? NULL : PyObject_CallFunction(log_target, "iO", (int)message->level, text);
  if (answer == NULL && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt(); // the program shall hear of it
  } else if (answer == NULL) {
    PyErr_WriteUnraisable(log_target);
  }
  Py_XDECREF(answer);
  Py_XDECREF(text);
}

static void hand_over_messages(void) {
  if (atomic_load(&log_messages) == NULL) return;
  log_message_t *latest = atomic_exchange(&log_messages, NULL), *first = NULL;
  while (latest != NULL) {
    log_message_t *const earlier = latest->next;
    latest->next = first;
    first = latest;
    latest = earlier;
  }
  while (first != NULL) {
    log_message_t *const message = first;
    first = message->next;
    atomic_fetch_sub(&queued_messages, 1);
    if (log_target != NULL) hand_over_message(message);
    free(message);
  }
}

static void *deliver_messages(void *unused) {
  PyGILState_STATE lock;
  (void)unused;
  const int has_entered = enter_python(&lock);
  atomic_store(&is_delivering, 0); // what comes from here on needs another thread; what came while this one waited does not
  if (has_entered) {
    hand_over_messages();
    leave_python(lock);
  }
  return NULL;
}

static void start_delivery(void) {
  pthread_t thread;
  if (atomic_load(&is_closed) || atomic_exchange(&is_delivering, 1)) return;
  if (pthread_create(&thread, NULL, deliver_messages, NULL) == 0)
    pthread_detach(thread);
  else
    atomic_store(&is_delivering, 0); // the next call of Python hands it over
}

static void queue_message(int32_t level, const char *text, void *unused) {
  (void)unused;
  const int before = atomic_fetch_add(&queued_messages, 1);
  if (before == MOST_MESSAGES) text = "messages are left out from here on, because Python does not take them as fast as they come";
  log_message_t *const message = before > MOST_MESSAGES ? NULL : malloc(sizeof *message + strlen(text) + 1);
  if (message == NULL) {
    atomic_fetch_sub(&queued_messages, 1);
    return;
  }
  message->level = level;
  strcpy(message->text, text);
  message->next = atomic_load(&log_messages);
  while (!atomic_compare_exchange_weak(&log_messages, &message->next, message)) {}
  if (PyGILState_GetThisThreadState() == NULL)
    start_delivery();
  else if (PyGILState_Check())
    hand_over_messages();
}

// Messages go to a callable of a level and a text from here on; None: to nothing.
static PyObject *send_messages(PyObject *self, PyObject *args) {
  PyObject *target;
  (void)self;
  if (!PyArg_ParseTuple(args, "O:send_messages", &target)) return NULL;
  hand_over_messages();
  if (accel_set_log_callback(target == Py_None ? NULL : queue_message, NULL, NULL) < 0)
    return PyErr_Format(PyExc_RuntimeError, "%s", accel_last_error());
  Py_INCREF(target);
  Py_XSETREF(log_target, target);
  if (target == Py_None) Py_CLEAR(log_target);
  Py_RETURN_NONE;
}

// A child has messages of its own.
static void forget_messages(void) {
  atomic_store(&log_messages, NULL);
  atomic_store(&queued_messages, 0);
  atomic_store(&is_delivering, 0);
}
%}
%native(send_messages) PyObject *send_messages(PyObject *self, PyObject *args);
%init %{
  if (pthread_atfork(NULL, NULL, forget_messages) != 0) return PyErr_NoMemory();
%}
