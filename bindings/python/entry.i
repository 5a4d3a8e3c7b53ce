// The way of the library's threads into the interpreter, while there is one.
%{
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

// An interpreter that ends kills each thread that enters it, in the middle of the library's own functions. So when it begins
// to end (close_callbacks(), by atexit) no thread enters any more, and those that are inside are waited for.
static atomic_int is_closed, threads_inside;
static unsigned long closing_thread;
static pid_t loading_process; // a child that was forked off has no threads of the library
static _Thread_local int calls_inside; // of this thread
#define PATIENCE_MS 5000

// Whether this thread is the one that ends the interpreter, and it is still there.
static int is_closing_thread(void) {
  return PyThread_get_thread_ident() == closing_thread && PyGILState_GetThisThreadState() != NULL;
}

static int enter_python(PyGILState_STATE *lock) {
  if (calls_inside == 0) {
    atomic_fetch_add(&threads_inside, 1);
    if (atomic_load(&is_closed) ? !is_closing_thread() : !Py_IsInitialized()) {
      atomic_fetch_sub(&threads_inside, 1);
      return 0;
    }
  }
  calls_inside += 1;
  *lock = PyGILState_Ensure();
  return 1;
}

static void leave_python(PyGILState_STATE lock) {
  PyGILState_Release(lock);
  calls_inside -= 1;
  if (calls_inside == 0) atomic_fetch_sub(&threads_inside, 1);
}

// A callback that comes too late. A thread of Python's own (a daemon) stays here, as it would at its next line of Python; a
// thread of the library continues with an error.
static accel_status_t refuse_callback(void) {
  if (PyGILState_GetThisThreadState() != NULL) {
    if (PyGILState_Check()) PyEval_SaveThread();
    for (;;) pause();
  }
  accel_error_set(ACCEL_ERROR_CANCELLED, "Python is ending; its functions cannot be called any more");
  return ACCEL_ERROR_CANCELLED;
}

static PyObject *close_callbacks(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  if (getpid() != loading_process) Py_RETURN_NONE;
  closing_thread = PyThread_get_thread_ident();
  atomic_store(&is_closed, 1);
  Py_BEGIN_ALLOW_THREADS
  const struct timespec moment = {0, 1000000};
  for (int waited = 0; waited < PATIENCE_MS && atomic_load(&threads_inside) > (calls_inside > 0); waited++) nanosleep(&moment, NULL);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}
%}
%native(close_callbacks) PyObject *close_callbacks(PyObject *self, PyObject *args);
