// SPDX-License-Identifier: Apache-2.0
// Calls that can take longer than a moment: the interpreter continues meanwhile, and interrupts.py can tell which of them a thread is in.
%{
static unsigned long watched_thread; /* its identifier; 0 for none */
static unsigned long calls_begun;    /* by that thread */
static unsigned long call_in_hand;   /* the number of one of them; 0 for none */

static unsigned long begin_call(void) {
  const unsigned long outer = call_in_hand;
  if (PyThread_get_thread_ident() == watched_thread) call_in_hand = ++calls_begun;
  return outer;
}

static void end_call(unsigned long outer) {
  if (PyThread_get_thread_ident() == watched_thread) call_in_hand = outer;
}

#define BEGIN_WAIT                                 \
  {                                                \
    const unsigned long outer_call = begin_call(); \
    PyThreadState *const this_thread = PyEval_SaveThread();
#define END_WAIT                   \
    return_to_python(this_thread); \
    hand_over_messages();          \
    end_call(outer_call);          \
  }

static PyObject *watch_thread(PyObject *self, PyObject *args) {
  (void)self;
  if (!PyArg_ParseTuple(args, "k:watch_thread", &watched_thread)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *waiting_call(PyObject *self, PyObject *args) {
  (void)self;
  (void)args;
  return PyLong_FromUnsignedLong(call_in_hand);
}
%}
%native(watch_thread) PyObject *watch_thread(PyObject *self, PyObject *args);
%native(waiting_call) PyObject *waiting_call(PyObject *self, PyObject *args);

%define %accel_waits(NAME)
%exception NAME {
  BEGIN_WAIT
  $action
  END_WAIT
}
%enddef
