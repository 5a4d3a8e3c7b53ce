// SPDX-License-Identifier: Apache-2.0
// Python callables where C takes a function, its user_data and destroy. The user_data is a tuple of the callables of one
// registration. accel_generated.i has the C functions, one for each type of callback.
%include "raised.i"
%include "entry.i"

%{
#include <math.h>

// Calls a callable with `count` arguments, whose references it takes; NULL with an exception.
static PyObject *call_python(void *user_data, int place, int count, ...) {
  PyObject *const callable = PyTuple_GetItem(user_data, place), *const arguments = PyTuple_New(count);
  int made = callable != NULL && arguments != NULL;
  va_list given;
  va_start(given, count);
  for (int i = 0; i < count; i++) {
    PyObject *const argument = va_arg(given, PyObject *);
    made = made && argument != NULL;
    if (arguments != NULL)
      PyTuple_SetItem(arguments, i, argument);
    else
      Py_XDECREF(argument);
  }
  va_end(given);
  PyObject *const answer = made ? PyObject_Call(callable, arguments, NULL) : NULL;
  Py_XDECREF(arguments);
  return answer;
}

// Ends a callback that answers with a status.
static accel_status_t end_callback(PyGILState_STATE lock, PyObject *answer) {
  const accel_status_t status = status_of_python(1);
  Py_XDECREF(answer);
  leave_python(lock);
  return status;
}

// As end_callback(), where StopIteration says that there are no more items.
static accel_status_t end_iteration(PyGILState_STATE lock, PyObject *answer) {
  const int ends = PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration);
  if (ends) PyErr_Clear();
  const accel_status_t status = end_callback(lock, answer);
  return ends ? ACCEL_ITER_END : status;
}

// Of callbacks that answer with a number, or a negative status.
static int64_t end_number_or_status(PyGILState_STATE lock, PyObject *answer) {
  const int64_t number = answer == NULL ? 0 : PyLong_AsLongLong(answer);
  const accel_status_t status = end_callback(lock, answer);
  return status < 0 ? status : number;
}

// Of callbacks that can only answer with a number: NaN, or -1, which the library refuses, stands for what was raised.
static double end_double(PyGILState_STATE lock, PyObject *answer) {
  const double number = answer == NULL ? NAN : PyFloat_AsDouble(answer);
  const accel_status_t status = status_of_python(0);
  Py_XDECREF(answer);
  leave_python(lock);
  return status < 0 ? NAN : number;
}

static int64_t end_int64(PyGILState_STATE lock, PyObject *answer) {
  const int64_t number = answer == NULL ? -1 : PyLong_AsLongLong(answer);
  const accel_status_t status = status_of_python(0);
  Py_XDECREF(answer);
  leave_python(lock);
  return status < 0 ? -1 : number;
}

// Of callbacks that answer nothing: nobody waits for what they raise.
static void end_report(PyGILState_STATE lock, PyObject *answer, void *user_data) {
  if (answer == NULL) PyErr_WriteUnraisable(user_data);
  Py_XDECREF(answer);
  leave_python(lock);
}

static void release_python(void *user_data) {
  PyGILState_STATE lock;
  if (!enter_python(&lock)) return;
  Py_DECREF((PyObject *)user_data);
  leave_python(lock);
}

// A handle that a callback is lent: Python gets an owner of its own, since it may keep it.
static PyObject *handle_to_python(void *handle, swig_type_info *type) { return SWIG_Python_NewPointerObj(NULL, handle, type, SWIG_POINTER_OWN); }

// The numbers that a callback fills in: a memoryview of int64, gone when the callback returns.
static PyObject *numbers_to_python(int64_t *numbers, size_t count) {
  PyObject *const bytes = PyMemoryView_FromMemory((char *)numbers, (Py_ssize_t)(count * sizeof(*numbers)), PyBUF_WRITE);
  PyObject *const view = bytes == NULL ? NULL : PyObject_CallMethod(bytes, "cast", "s", "q");
  Py_XDECREF(bytes);
  return view;
}

static void python_to_new_tensor(PyObject *object, accel_tensor_t **out) {
  void *handle = NULL;
  if (SWIG_IsOK(SWIG_ConvertPtr(object, &handle, SWIGTYPE_p_accel_tensor, 0)) && handle != NULL)
    *out = accel_tensor_retain(handle);
  else
    PyErr_Format(PyExc_TypeError, "the callback returned %.100s; expected a tensor", Py_TYPE(object)->tp_name);
}

static PyObject *integers_to_python(const int64_t *integers, size_t count) {
  PyObject *const list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; i++) {
    PyObject *const integer = PyLong_FromLongLong(integers[i]);
    if (integer == NULL) {
      Py_DECREF(list);
      return NULL;
    }
    PyList_SET_ITEM(list, (Py_ssize_t)i, integer);
  }
  return list;
}

static int is_callable_of_python(void *user_data, int place) {
  return place < PyTuple_GET_SIZE((PyObject *)user_data) && PyTuple_GET_ITEM((PyObject *)user_data, place) != Py_None;
}

// The user_data of a registration: a tuple of up to `count` callables from one callable or a sequence of them. Those behind
// the first `required` ones may be None, or missing.
static int callables_of_python(PyObject *object, int required, int count, void **user_data) {
  *user_data = count == 1 ? PyTuple_Pack(1, object) : PySequence_Tuple(object);
  const Py_ssize_t given = *user_data == NULL ? 0 : PyTuple_GET_SIZE((PyObject *)*user_data);
  int made = *user_data != NULL && given >= required && given <= count;
  for (int i = 0; made && i < given; i++)
    made = PyCallable_Check(PyTuple_GET_ITEM((PyObject *)*user_data, i)) ||
           (i >= required && !is_callable_of_python(*user_data, i));
  if (made) return 1;
  if (!PyErr_Occurred() && count == 1) PyErr_SetString(PyExc_TypeError, "expected a callable");
  if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "expected a tuple of %d callables, of which the first %d are needed", count, required);
  Py_CLEAR(*user_data);
  return 0;
}
%}
%define %accel_callback(TYPE, TRAMPOLINE)
%typemap(in) (TYPE CALLBACK, void *user_data, accel_destroy_fn destroy) {
  $1 = NULL;
  $2 = NULL;
  $3 = NULL;
  if ($input != Py_None) {
    if (!callables_of_python($input, 1, 1, &$2)) SWIG_fail;
    $1 = TRAMPOLINE;
    $3 = release_python;
  }
}
%enddef
