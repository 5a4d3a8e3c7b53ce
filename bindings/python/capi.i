// SPDX-License-Identifier: Apache-2.0
// The low layer of Python: the functions of accel.h under their names, with Python's own values, exceptions and strings.
// Here stand the typemaps; accel_generated.i has the functions, whose parameters bear the names of these typemaps.
%module(package="accel") capi

%pythonbegin %{
from .engine import libtorch as _libtorch
_libtorch.load()
%}

// Handles may be made as instances of Python's own subclasses (classes.i), which the garbage collector knows.
%begin %{
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static PyObject *new_object(PyTypeObject *type) { return PyType_IS_GC(type) ? _PyObject_GC_New(type) : _PyObject_New(type); }
#undef PyObject_New
#define PyObject_New(TYPE, TYPE_OBJECT) ((TYPE *)new_object(TYPE_OBJECT))
%}

%{
#include "accel.h"
typedef accel_status_t information_t; /* a status that a loop acts on, for example ACCEL_ITER_END */
static PyObject *error_type;
static PyObject *error_classes; /* {status: class}, from Python */
%}
%include <stdint.i>
%include <typemaps.i>
%include "values.i"
%include "dlpack.i"
%include "arrow.i"
%include "callbacks.i"

// ---- Statuses -------------------------------------------------------------------------------------------------------

%{

static int set_attribute(PyObject *error, const char *name, PyObject *value) {
  const int failed = value == NULL || PyObject_SetAttrString(error, name, value) != 0;
  Py_XDECREF(value);
  return !failed;
}

// The exception of the callback that failed, or the thread's error as one.
static void raise_error(accel_status_t status) {
  if (PyErr_Occurred() || PyErr_CheckSignals() != 0) return; // Ctrl-C during the call is what the program wants to hear of
  if (raise_again()) return;
  accel_error_t *taken = NULL;
  const int known = accel_error_take(&taken) == ACCEL_OK;
  PyObject *const number = PyLong_FromLong(status);
  PyObject *class = number == NULL || error_classes == NULL ? NULL : PyDict_GetItem(error_classes, number);
  if (class == NULL) class = error_type;
  PyObject *const error = PyObject_CallFunction(class, "s", known ? accel_error_message(taken) : accel_last_error());
  if (error != NULL && set_attribute(error, "code", PyUnicode_FromString(accel_status_name(status))) &&
      set_attribute(error, "function", PyUnicode_FromString(known ? accel_error_function(taken) : "")) &&
      set_attribute(error, "rank", PyLong_FromLong(known ? accel_error_rank(taken) : -1)) &&
      PyObject_SetAttrString(error, "status", number) == 0)
    PyErr_SetObject(class, error);
  Py_XDECREF(number);
  Py_XDECREF(error);
  accel_error_release(taken);
}
%}
%init %{
  error_type = PyErr_NewExceptionWithDoc("accel.Error", "An error of libaccel. `status` is its number, `code` the name of that, "
                                         "`function` what failed, `rank` who reported it (-1: no process group).", NULL, NULL);
  if (error_type == NULL || PyModule_AddObject(m, "Error", error_type) != 0) return NULL;
  Py_INCREF(error_type);
#if defined(SWIGPYTHON_BUILTIN)
  SwigPyBuiltin_AddPublicSymbol(public_interface, "Error");
  SwigPyBuiltin_AddPublicSymbol(public_interface, "use_class");
  SwigPyBuiltin_AddPublicSymbol(public_interface, "use_errors");
  SwigPyBuiltin_AddPublicSymbol(public_interface, "accel_tensor_from_blob");
  SwigPyBuiltin_AddPublicSymbol(public_interface, "close_callbacks");
  SwigPyBuiltin_AddPublicSymbol(public_interface, "send_messages");
  SwigPyBuiltin_AddPublicSymbol(public_interface, "watch_thread");
  SwigPyBuiltin_AddPublicSymbol(public_interface, "waiting_call");
#endif
%}

// ---- Arguments of other kinds ---------------------------------------------------------------------------------------

// SWIG's own words are "in method 'accel_x', argument 2 of type 'int64_t'"; these say what was given and what is expected.
%wrapper %{
static const char *kind_in_words(const char *type) {
  if (strstr(type, "int") != NULL || strstr(type, "size_t") != NULL || strcmp(type, "accel_flag_t") == 0) return "an integer";
  if (strcmp(type, "double") == 0 || strcmp(type, "float") == 0) return "a number";
  if (strstr(type, "char") != NULL) return "a text";
  return type;
}

static void raise_wrong_argument(int code, const char *message, PyObject *args) {
  char function[128], type[128];
  int number = 0;
  if (sscanf(message, "in method '%127[^']', argument %d of type '%127[^']'", function, &number, type) != 3) {
    SWIG_Error(code, message);
    return;
  }
  PyObject *given = args;
  if (PyTuple_Check(args)) { // methods count their object, which the tuple does not have
    const Py_ssize_t size = PyTuple_GET_SIZE(args), place = number <= size ? number - 1 : number - 2;
    given = place >= 0 && place < size ? PyTuple_GET_ITEM(args, place) : NULL;
  }
  if (given == NULL) {
    SWIG_Error(code, message);
    return;
  }
  PyErr_Clear();
  if (code == SWIG_ValueError)
    PyErr_Format(SWIG_ErrorType(code), "%s(): argument %d is %.60R; expected a text without the character NUL", function, number, given);
  else if (code == SWIG_OverflowError)
    PyErr_Format(SWIG_ErrorType(code), "%s(): argument %d is %.60R; expected %s in the range of %s", function, number, given, kind_in_words(type), type);
  else
    PyErr_Format(SWIG_ErrorType(code), "%s(): argument %d is %.60R, a %s; expected %s", function, number, given, Py_TYPE(given)->tp_name,
                 kind_in_words(type));
}

// A text with a NUL would end there, as another path for example.
static int text_of_argument(PyObject *given, char **text, int *allocated) {
  size_t size = 0;
  const int result = SWIG_AsCharPtrAndSize(given, text, &size, allocated);
  if (!SWIG_IsOK(result) || *text == NULL || strlen(*text) + 1 == size) return result;
  if (*allocated == SWIG_NEWOBJ) free(*text);
  *allocated = 0;
  return SWIG_ValueError;
}
#define SWIG_AsCharPtrAndSize(given, text, size, allocated) text_of_argument(given, text, allocated)
#undef SWIG_exception_fail
#define SWIG_exception_fail(code, message) do { raise_wrong_argument(code, message, args); SWIG_fail; } while (0)
%}

%include "classes.i"
%include "messages.i"
%include "waits.i"
%include "memory.i"
%include "options.i"

%typemap(out) accel_status_t {
  if ($1 < 0) {
    raise_error($1);
    SWIG_fail;
  }
  $result = SWIG_Py_Void();
}
// Where a status says more than success it is the first result.
%typemap(out) information_t {
  if ($1 < 0) {
    raise_error($1);
    SWIG_fail;
  }
  $result = PyLong_FromLong($1);
}
// Getters: what stands for an error is one only when the thread's error says so, which a NULL pointer does.
%typemap(out) const char * {
  $result = $1 == NULL ? SWIG_Py_Void() : PyUnicode_FromString($1);
}

// A handle that the library lends becomes the caller's.
%define %accel_retained(NAME, RETAIN)
%exception NAME {
  $action
  if (result != NULL) RETAIN(result);
}
%newobject NAME;
%enddef

// ---- Handles --------------------------------------------------------------------------------------------------------

%{
static void accel_leave(const void *handle) { (void)handle; }
%}

// Where the last release waits for threads that may be in a callback, the interpreter continues meanwhile.
%accel_waits(accel_state::~accel_state)
%accel_waits(accel_dataloader::~accel_dataloader)

%define %accel_handle(STRUCT, RELEASE)
%nodefaultctor STRUCT;
struct STRUCT {};
typedef struct STRUCT STRUCT##_t;
%extend STRUCT {
  ~STRUCT() { RELEASE($self); }
}
%typemap(in, numinputs=0) STRUCT##_t **OUTPUT (STRUCT##_t *handle = NULL), const STRUCT##_t **OUTPUT (STRUCT##_t *handle = NULL) {
  $1 = ($1_ltype)&handle;
}
%typemap(argout) STRUCT##_t **OUTPUT, const STRUCT##_t **OUTPUT {
  PyObject *const made = handle$argnum == NULL ? SWIG_Py_Void()
                                               : SWIG_NewPointerObj(handle$argnum, $descriptor(STRUCT##_t *), SWIG_POINTER_OWN);
  $result = SWIG_Python_AppendOutput($result, made);
}
%typemap(in) (STRUCT##_t *const *ITEMS, size_t COUNT) {
  if (!handles_of_python($input, $descriptor(STRUCT##_t *), (void ***)&$1, &$2)) SWIG_fail;
}
%typemap(freearg) (STRUCT##_t *const *ITEMS, size_t COUNT) { PyMem_Free((void *)$1); }
%enddef

%typemap(in, numinputs=0) accel_device_t *OUTPUT (accel_device_t device) { $1 = &device; }
%typemap(argout) accel_device_t *OUTPUT {
  PyObject *const made = device_to_python($1);
  if (made == NULL) SWIG_fail;
  $result = SWIG_Python_AppendOutput($result, made);
}
%typemap(out) const accel_device_t * {
  if ($1 == NULL) raise_error(ACCEL_ERROR_INVALID_HANDLE);
  $result = $1 == NULL ? NULL : device_to_python($1);
  if ($result == NULL) SWIG_fail;
}

// ---- Text, numbers, memory ------------------------------------------------------------------------------------------

%typemap(in, numinputs=0) accel_buffer_t *OUTPUT (accel_buffer_t buffer = ACCEL_BUFFER_INIT) { $1 = &buffer; }
%typemap(argout) accel_buffer_t *OUTPUT {
  $result = SWIG_Python_AppendOutput($result, PyUnicode_DecodeUTF8($1->data, (Py_ssize_t)$1->size, "replace"));
}
%typemap(freearg) accel_buffer_t *OUTPUT { accel_buffer_dispose($1); }

%typemap(in, numinputs=0) size_t *OUTPUT (size_t number = 0) { $1 = &number; }
%typemap(argout) size_t *OUTPUT { $result = SWIG_Python_AppendOutput($result, PyLong_FromSize_t(*$1)); }

// Arrays of Python's items.
%define %accel_items(TYPE, READ, ITEM)
%typemap(in) (TYPE ITEMS, size_t COUNT) {
  if (!READ($input, (ITEM **)&$1, &$2)) SWIG_fail;
}
%typemap(freearg) (TYPE ITEMS, size_t COUNT) { PyMem_Free((void *)$1); }
%enddef
%accel_items(const int64_t *, integers_of_python, int64_t)
%accel_items(const double *, numbers_of_python, double)
%accel_items(const char *const *, texts_of_python, const char *)

// Names or tensors, and as many numbers.
%define %accel_items_for_numbers(TYPE, READ, NUMBERS, WORD)
%typemap(in) TYPE ITEMS (size_t n_items = 0) {
  if (!READ) SWIG_fail;
}
%typemap(freearg) TYPE ITEMS { PyMem_Free((void *)$1); }
%typemap(check) (TYPE ITEMS, NUMBERS ITEMS, size_t COUNT) {
  if (n_items$argnum != $3) {
    PyErr_Format(PyExc_ValueError, "%zu " WORD " for %zu numbers", n_items$argnum, $3);
    SWIG_fail;
  }
}
%enddef
%accel_items_for_numbers(const char *const *, texts_of_python($input, (const char ***)&$1, &n_items), const double *, "names")
%accel_items_for_numbers(accel_tensor_t *const *, handles_of_python($input, $descriptor(accel_tensor_t *), (void ***)&$1, &n_items),
                         const int64_t *, "tensors")

// The bytes of any object with the buffer protocol.
%typemap(in) (const void *ITEMS, size_t COUNT) (Py_buffer view = {0}) {
  if (PyObject_GetBuffer($input, &view, PyBUF_SIMPLE) != 0) SWIG_fail;
  $1 = view.buf;
  $2 = (size_t)view.len;
}
%typemap(freearg) (const void *ITEMS, size_t COUNT) { PyBuffer_Release(&view$argnum); }

// Sizes and strides become a tuple.
%typemap(in, numinputs=0) const int64_t **OUTPUT (const int64_t *sizes = NULL) { $1 = &sizes; }
%typemap(argout) const int64_t **OUTPUT {
  size_t ndim = 0;
  const accel_status_t known = accel_tensor_ndim(arg1, &ndim);
  PyObject *const tuple = known == ACCEL_OK ? PyTuple_New((Py_ssize_t)ndim) : NULL;
  for (size_t i = 0; tuple != NULL && i < ndim; i++) PyTuple_SetItem(tuple, (Py_ssize_t)i, PyLong_FromLongLong(sizes$argnum[i]));
  if (tuple == NULL) SWIG_fail;
  $result = SWIG_Python_AppendOutput($result, tuple);
}

// An address; the tensor must outlive its use.
%typemap(in, numinputs=0) void **OUTPUT (void *address = NULL) { $1 = &address; }
%typemap(argout) void **OUTPUT { $result = SWIG_Python_AppendOutput($result, PyLong_FromVoidPtr(address$argnum)); }

// Elements out of any object with the buffer protocol, row-major, as many as the shape says.
%{
static int holds_elements(const Py_buffer *view, const int64_t *shape, size_t ndim, accel_dtype_t dtype) {
  int64_t bytes = (int64_t)accel_dtype_size(dtype);
  for (size_t i = 0; i < ndim; i++) bytes *= shape[i];
  if (view->obj == NULL || view->len == bytes) return 1;
  PyErr_Format(PyExc_ValueError, "the buffer has %zd bytes; the shape and dtype ask for %lld", view->len, (long long)bytes);
  return 0;
}
%}
%typemap(in) const void *data (Py_buffer view = {NULL}) {
  if ($input != Py_None && PyObject_GetBuffer($input, &view, PyBUF_C_CONTIGUOUS) != 0) SWIG_fail;
  $1 = view.buf;
}
%typemap(freearg) const void *data { PyBuffer_Release(&view$argnum); }
%exception accel_tensor_from_data {
  if (!holds_elements(&view1, arg2, arg3, arg4)) SWIG_fail;
  BEGIN_WAIT
  $action
  END_WAIT
}

// Addresses of the tensors of torch.
%typemap(in) void *tensor_impl {
  $1 = PyLong_AsVoidPtr($input);
  if (PyErr_Occurred()) SWIG_fail;
}

%pythoncode %{
import atexit as _atexit
from .engine import messages as _messages
_messages.begin()
_atexit.register(close_callbacks)
_atexit.register(send_messages, None)
%}
%include "accel_generated.i"
