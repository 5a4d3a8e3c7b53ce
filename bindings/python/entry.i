// SPDX-License-Identifier: Apache-2.0
// The way into the interpreter, while there is one: for callbacks, and for threads of Python that return from a call.
%{
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

// An interpreter that ends kills each thread that enters it, in the middle of the library's own functions, and frees what
// the thread needs to enter. So when it begins to end (close_callbacks(), by atexit) the threads that are on their way in are
// waited for; after that no thread of the library enters, and those of Python (daemons) stay outside, as all do since 3.14.
static atomic_int is_closed, threads_inside;
static unsigned long closing_thread;
static _Thread_local int calls_inside; // of this thread
enum { PATIENCE_MS = 5000, LATE_MS = 1000 };

static void wait_a_millisecond(void) {
  const struct timespec moment = {0, 1000000};
  nanosleep(&moment, NULL);
}

// Whether this thread is the one that ends the interpreter, and it is still there.
static int is_closing_thread(void) {
  return PyThread_get_thread_ident() == closing_thread && PyGILState_GetThisThreadState() != NULL;
}

// For a thread that comes when it is closed: does not return to one of Python's own when the interpreter ends. Other functions of
// atexit may wait for such a thread: when they take long, it continues.
static int may_enter_late(void) {
  static _Thread_local int has_waited;
  if (PyGILState_GetThisThreadState() == NULL) return 0; // one of the library
  if (PyGILState_Check()) return 1;                      // it holds the interpreter
  for (int waited = 0; !has_waited && waited < LATE_MS && Py_IsInitialized(); waited++) wait_a_millisecond();
  while (!Py_IsInitialized()) pause();
  has_waited = 1;
  return 1;
}

static int begin_entry(void) {
  if (calls_inside == 0) {
    atomic_fetch_add(&threads_inside, 1);
    if (atomic_load(&is_closed) && !is_closing_thread()) {
      atomic_fetch_sub(&threads_inside, 1);
      if (!may_enter_late()) return 0;
      atomic_fetch_add(&threads_inside, 1);
    }
  }
  calls_inside += 1;
  return 1;
}

static void end_entry(void) {
  calls_inside -= 1;
  if (calls_inside == 0) atomic_fetch_sub(&threads_inside, 1);
}

static int enter_python(PyGILState_STATE *lock) {
  if (!begin_entry()) return 0;
  *lock = PyGILState_Ensure();
  return 1;
}

static void leave_python(PyGILState_STATE lock) {
  PyGILState_Release(lock);
  end_entry();
}

static void return_to_python(PyThreadState *thread) {
  while (!begin_entry()) pause();
  PyEval_RestoreThread(thread);
  end_entry();
}

// A thread of the library that comes too late continues with an error.
static accel_status_t refuse_callback(void) {
  accel_error_set(ACCEL_ERROR_CANCELLED, "Python is ending; its functions cannot be called any more");
  return ACCEL_ERROR_CANCELLED;
}

static PyObject *close_callbacks(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  closing_thread = PyThread_get_thread_ident();
  atomic_store(&is_closed, 1);
  Py_BEGIN_ALLOW_THREADS
  for (int waited = 0; waited < PATIENCE_MS && atomic_load(&threads_inside) > (calls_inside > 0); waited++) wait_a_millisecond();
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

// A child has the thread that forked, and no other.
static void forget_other_threads(void) { atomic_store(&threads_inside, calls_inside > 0); }
%}
%native(close_callbacks) PyObject *close_callbacks(PyObject *self, PyObject *args);
%init %{
  if (pthread_atfork(NULL, NULL, forget_other_threads) != 0) return PyErr_NoMemory();
%}
