// SPDX-License-Identifier: Apache-2.0
// What callbacks raise, on its way through the library to the outer call.
%{
// What a callback raised is kept until the outer call raises it again, which may be on another thread: the latest of each
// thread, oldest first. Only touched with the interpreter's lock.
#define MOST_RAISED 16
typedef struct {
  PyObject *error, *message; // the message is what the library was told
  unsigned long thread;
  int is_told; // 0: the callback could only answer with a number that stands for no answer
} raised_t;
static raised_t raised[MOST_RAISED];
static int raised_count;

static void forget_raised(int place) {
  PyObject *const error = raised[place].error, *const message = raised[place].message;
  raised_count -= 1;
  memmove(&raised[place], &raised[place + 1], (size_t)(raised_count - place) * sizeof(*raised));
  Py_DECREF(message);
  Py_DECREF(error); // may run Python
}

static void forget_raised_here(void) {
  for (int i = 0; i < raised_count; i++)
    if (raised[i].thread == PyThread_get_thread_ident()) {
      forget_raised(i);
      return;
    }
}

static void keep_raised(PyObject *error, PyObject *message, int is_told) {
  forget_raised_here();
  if (raised_count == MOST_RAISED) forget_raised(0);
  raised[raised_count++] = (raised_t){error, message, PyThread_get_thread_ident(), is_told};
}

// The latest exception of this thread's callbacks, or of those of other threads, that is the reason of an error; or -1.
static int find_raised(const char *reason, int of_this_thread) {
  for (int i = raised_count - 1; i >= 0; i--) {
    if ((raised[i].thread == PyThread_get_thread_ident()) != of_this_thread) continue;
    if ((of_this_thread && !raised[i].is_told) || strstr(reason, PyUnicode_AsUTF8(raised[i].message)) != NULL) return i;
  }
  return -1;
}

// Raises again what a callback raised, if that is why a call failed on this thread.
static int raise_again(void) {
  int found = find_raised(accel_last_error(), 1);
  if (found < 0) found = find_raised(accel_last_error(), 0);
  if (found < 0) return 0;
  PyObject *const error = raised[found].error;
  Py_INCREF(error);
  forget_raised(found);
  PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_DECREF(error);
  return 1;
}

// What an exception means to the library: one of its own errors keeps its status, lack of memory is told as such.
static accel_status_t status_of_exception(PyObject *value) {
  if (PyErr_GivenExceptionMatches(value, PyExc_MemoryError)) return ACCEL_ERROR_OUT_OF_MEMORY;
  PyObject *const status = PyObject_IsInstance(value, error_type) == 1 ? PyObject_GetAttrString(value, "status") : NULL;
  const long number = status == NULL ? 0 : PyLong_AsLong(status);
  Py_XDECREF(status);
  PyErr_Clear();
  return number < 0 ? (accel_status_t)number : ACCEL_ERROR_USER;
}

// "KeyError: 'x'", on one line and short, since other ranks are told it; the text alone of the library's own errors.
static PyObject *message_of_exception(PyObject *value) {
  const int is_ours = PyObject_IsInstance(value, error_type) == 1;
  PyObject *text = PyObject_Str(value);
  if (text == NULL) PyErr_Clear();
  const char *const kind = Py_TYPE(value)->tp_name;
  PyObject *const whole = is_ours && text != NULL                          ? PyUnicode_FromFormat("%U", text)
                          : text == NULL || PyUnicode_GetLength(text) == 0 ? PyUnicode_FromString(kind)
                                                                           : PyUnicode_FromFormat("%s: %U", kind, text);
  Py_XDECREF(text);
  PyObject *const lines = whole == NULL ? NULL : PyUnicode_Splitlines(whole, 0);
  PyObject *const blank = PyUnicode_FromString(" ");
  PyObject *const line = lines == NULL || blank == NULL ? NULL : PyUnicode_Join(blank, lines);
  PyObject *const message = line == NULL ? NULL : PyUnicode_Substring(line, 0, 900);
  Py_XDECREF(whole);
  Py_XDECREF(lines);
  Py_XDECREF(blank);
  Py_XDECREF(line);
  if (message == NULL || PyUnicode_AsUTF8(message) == NULL) PyErr_Clear();
  return message == NULL || PyUnicode_AsUTF8(message) == NULL ? PyUnicode_FromString(kind) : message;
}

// After a callback: its exception is kept for the outer call.
static accel_status_t status_of_python(int is_told) {
  PyObject *type, *value, *traceback;
  if (!PyErr_Occurred()) return ACCEL_OK;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != NULL) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  const accel_status_t status = status_of_exception(value);
  PyObject *const message = message_of_exception(value);
  accel_error_set(status, PyUnicode_AsUTF8(message));
  keep_raised(value, message, is_told);
  return status;
}
%}
