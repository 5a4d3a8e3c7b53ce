// Python callables where C takes a function, its user_data and destroy. The user_data is a tuple of the callables of one
// registration. accel_generated.i has the C functions, one for each type of callback.
%{
// The latest exception of a callback on this thread; the outer call raises it again.
static _Thread_local PyObject *raised;

// Calls a callable with `count` arguments, whose references it takes; NULL with an exception.
static PyObject *call_python(void *user_data, int place, int count, ...) {
  PyObject *const callable = PyTuple_GetItem(user_data, place), *const arguments = PyTuple_New(count);
  Py_CLEAR(raised);
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

// What an exception means to the library: one of its own errors keeps its status, lack of memory is told as such.
static accel_status_t status_of_exception(PyObject *value) {
  if (PyErr_GivenExceptionMatches(value, PyExc_MemoryError)) return ACCEL_ERROR_OUT_OF_MEMORY;
  PyObject *const status = PyObject_IsInstance(value, error_type) == 1 ? PyObject_GetAttrString(value, "status") : NULL;
  const long number = status == NULL ? 0 : PyLong_AsLong(status);
  Py_XDECREF(status);
  PyErr_Clear();
  return number < 0 ? (accel_status_t)number : ACCEL_ERROR_USER;
}

// After a callback: its exception is kept for the outer call, and its text becomes the message of the status.
static accel_status_t status_of_python(void) {
  PyObject *type, *value, *traceback;
  if (!PyErr_Occurred()) return ACCEL_OK;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != NULL) PyException_SetTraceback(value, traceback);
  const accel_status_t status = status_of_exception(value);
  PyObject *const text = PyObject_Str(value);
  const char *const message = text == NULL ? NULL : PyUnicode_AsUTF8(text);
  accel_error_set(status, message == NULL ? "a Python callback failed" : message);
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  Py_XSETREF(raised, value);
  return status;
}

// Whether the thread's error is what its latest callback raised.
static int is_raised(accel_status_t status) {
  if (raised == NULL || status == ACCEL_ERROR_USER) return raised != NULL;
  if (status_of_exception(raised) != status) return 0;
  PyObject *const text = PyObject_Str(raised);
  const char *const message = text == NULL ? NULL : PyUnicode_AsUTF8(text);
  const int same = message != NULL && strcmp(message, accel_last_error()) == 0;
  Py_XDECREF(text);
  PyErr_Clear();
  return same;
}

static void release_python(void *user_data) {
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE lock = PyGILState_Ensure();
  Py_DECREF((PyObject *)user_data);
  PyGILState_Release(lock);
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

// As status_of_python(), where StopIteration says that there are no more items.
static accel_status_t end_or_status_of_python(void) {
  if (!PyErr_Occurred() || !PyErr_ExceptionMatches(PyExc_StopIteration)) return status_of_python();
  PyErr_Clear();
  return ACCEL_ITER_END;
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
