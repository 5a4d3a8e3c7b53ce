// SPDX-License-Identifier: Apache-2.0
// Nested values: Python's None, bool, int, float, str, bytes, list, tuple and dict, and the handles of tensors.
%{
#define PY_SSIZE_T_CLEAN
#include <stdlib.h>
#include <string.h>

static PyObject *value_to_python(const accel_value_t *value);

static PyObject *device_to_python(const accel_device_t *device) {
  accel_device_t *const copy = malloc(sizeof(*copy));
  if (copy == NULL) return PyErr_NoMemory();
  *copy = *device;
  return SWIG_Python_NewPointerObj(NULL, copy, SWIGTYPE_p_accel_device, SWIG_POINTER_OWN);
}

// Bytes with a type are objects.TypedBytes.
static int bytes_to_new_value(PyObject *object, accel_value_t *out) {
  PyObject *const type = PyBytes_CheckExact(object) ? NULL : PyObject_GetAttrString(object, "type");
  if (type == NULL) PyErr_Clear();
  const char *const text = type != NULL && PyUnicode_Check(type) ? PyUnicode_AsUTF8(type) : NULL;
  const int made = accel_value_bytes(PyBytes_AS_STRING(object), (size_t)PyBytes_GET_SIZE(object), text, out) == ACCEL_OK;
  Py_XDECREF(type);
  return made;
}

static PyObject *bytes_to_python(const accel_bytes_t *bytes) {
  if (bytes->type == NULL) return PyBytes_FromStringAndSize(bytes->data, (Py_ssize_t)bytes->size);
  PyObject *const objects = PyImport_ImportModule("accel.engine.objects");
  PyObject *const made = objects == NULL ? NULL : PyObject_CallMethod(objects, "TypedBytes", "y#s", bytes->data == NULL ? "" : bytes->data,
                                                                      (Py_ssize_t)bytes->size, bytes->type);
  Py_XDECREF(objects);
  return made;
}

// A list with the values; a new reference, or NULL with an exception.
static PyObject *values_to_python(const accel_value_t *values, size_t count) {
  PyObject *const list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; i++) {
    PyObject *const item = value_to_python(&values[i]);
    if (item == NULL) {
      Py_DECREF(list);
      return NULL;
    }
    PyList_SetItem(list, (Py_ssize_t)i, item);
  }
  return list;
}

static PyObject *map_to_python(const accel_value_t *map) {
  PyObject *const dict = PyDict_New();
  const size_t count = accel_value_count(map);
  for (size_t i = 0; dict != NULL && i < count; i++) {
    PyObject *const key = value_to_python(accel_value_key_at(map, i));
    PyObject *const item = key == NULL ? NULL : value_to_python(accel_value_at(map, i));
    const int failed = item == NULL || PyDict_SetItem(dict, key, item) != 0;
    Py_XDECREF(key);
    Py_XDECREF(item);
    if (failed) {
      Py_DECREF(dict);
      return NULL;
    }
  }
  return dict;
}

static PyObject *value_to_python(const accel_value_t *value) {
  if (value == NULL) return PyErr_NoMemory(); // an item that could not be made
  switch (value->kind) {
    case ACCEL_VALUE_NONE:
      Py_RETURN_NONE;
    case ACCEL_VALUE_BOOL:
      return PyBool_FromLong(value->as.integer != 0);
    case ACCEL_VALUE_INT:
      return PyLong_FromLongLong(value->as.integer);
    case ACCEL_VALUE_DOUBLE:
      return PyFloat_FromDouble(value->as.number);
    case ACCEL_VALUE_STRING:
      return PyUnicode_FromString(value->as.string);
    case ACCEL_VALUE_BYTES:
      return bytes_to_python(value->as.bytes);
    case ACCEL_VALUE_TENSOR:
      return SWIG_Python_NewPointerObj(NULL, accel_tensor_retain(value->as.tensor), SWIGTYPE_p_accel_tensor, SWIG_POINTER_OWN);
    case ACCEL_VALUE_DTYPE:
      return PyUnicode_FromString(accel_dtype_name(value->as.dtype));
    case ACCEL_VALUE_DEVICE:
      return device_to_python(&value->as.device);
    case ACCEL_VALUE_MAP:
      return map_to_python(value);
    default: {
      PyObject *const list = PyList_New(0);
      const size_t count = accel_value_count(value);
      for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *const item = value_to_python(accel_value_at(value, i));
        const int failed = item == NULL || PyList_Append(list, item) != 0;
        Py_XDECREF(item);
        if (failed) {
          Py_DECREF(list);
          return NULL;
        }
      }
      if (list == NULL || value->kind == ACCEL_VALUE_LIST) return list;
      PyObject *const tuple = PyList_AsTuple(list);
      Py_DECREF(list);
      return tuple;
    }
  }
}

// A value that owns what it points to, to be disposed; 0 with an exception when there is none for the object.
static int python_to_new_value(PyObject *object, accel_value_t *out);

static int list_to_new_value(PyObject *object, accel_value_t *out) {
  PyObject *const items = PySequence_Fast(object, "expected a list or tuple");
  if (items == NULL) return 0;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(items);
  accel_value_t *const values = PyMem_Calloc((size_t)count + 1, sizeof *values);
  Py_ssize_t converted = 0;
  if (values == NULL) PyErr_NoMemory();
  while (values != NULL && converted < count && python_to_new_value(PySequence_Fast_GET_ITEM(items, converted), &values[converted]))
    converted++;
  const int made = values != NULL && converted == count &&
                   (PyTuple_Check(object) ? accel_value_tuple : accel_value_list)(values, (size_t)count, out) == ACCEL_OK;
  while (values != NULL && converted > 0) accel_value_dispose(&values[--converted]);
  PyMem_Free(values);
  Py_DECREF(items);
  return made;
}

// Texts and integers, which borrow.
static int key_of_python(PyObject *key, accel_value_t *out) {
  if (PyUnicode_Check(key)) {
    const char *const text = PyUnicode_AsUTF8(key);
    *out = text == NULL ? accel_arg_none() : accel_arg_string(text);
  } else if (PyLong_Check(key) && !PyBool_Check(key)) {
    *out = accel_arg_int(PyLong_AsLongLong(key));
  } else {
    PyErr_Format(PyExc_TypeError, "a key of a dict is a %.100s; expected str or int", Py_TYPE(key)->tp_name);
  }
  return !PyErr_Occurred();
}

static int dict_to_new_value(PyObject *object, accel_value_t *out) {
  PyObject *key, *content;
  Py_ssize_t place = 0;
  int made = accel_value_map(out) == ACCEL_OK;
  while (made && PyDict_Next(object, &place, &key, &content)) {
    accel_value_t item = ACCEL_VALUE_INIT;
    accel_value_t name = ACCEL_VALUE_INIT;
    made = key_of_python(key, &name) && python_to_new_value(content, &item) && accel_value_put(out, &name, &item) == ACCEL_OK;
    accel_value_dispose(&item);
  }
  return made;
}

static int python_to_new_value(PyObject *object, accel_value_t *out) {
  void *handle = NULL;
  int made = 1;
  if (object == Py_None) {
    *out = accel_arg_none();
  } else if (PyBool_Check(object)) {
    *out = accel_arg_bool(object == Py_True);
  } else if (PyLong_Check(object)) {
    *out = accel_arg_int(PyLong_AsLongLong(object));
    made = !PyErr_Occurred();
  } else if (PyFloat_Check(object)) {
    *out = accel_arg_double(PyFloat_AS_DOUBLE(object));
  } else if (PyUnicode_Check(object)) {
    const char *const text = PyUnicode_AsUTF8(object);
    made = text != NULL && accel_value_string(text, out) == ACCEL_OK;
  } else if (PyBytes_Check(object)) {
    made = bytes_to_new_value(object, out);
  } else if (PyDict_Check(object)) {
    made = dict_to_new_value(object, out);
  } else if (SWIG_IsOK(SWIG_ConvertPtr(object, &handle, SWIGTYPE_p_accel_tensor, 0)) && handle != NULL) {
    made = accel_value_tensor(handle, out) == ACCEL_OK;
  } else if (SWIG_IsOK(SWIG_ConvertPtr(object, &handle, SWIGTYPE_p_accel_device, 0)) && handle != NULL) {
    *out = accel_arg_device(handle);
  } else if (PyList_Check(object) || PyTuple_Check(object)) {
    made = list_to_new_value(object, out);
  } else {
    PyErr_Format(PyExc_TypeError, "%.100s is not a value of libaccel; expected None, bool, int, float, str, bytes, list, tuple, dict or a tensor",
                 Py_TYPE(object)->tp_name);
    made = 0;
  }
  if (!made && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, accel_last_error());
  if (!made) accel_value_dispose(out);
  return made;
}

static void dispose_values(accel_value_t *values, size_t count) {
  for (size_t i = 0; values != NULL && i < count; i++) accel_value_dispose(&values[i]);
  PyMem_Free(values);
}

// The items of a sequence, None for none; 0 with an exception.
static int sequence_of_python(PyObject *object, PyObject **items, size_t *count) {
  *items = NULL;
  *count = 0;
  if (object == Py_None) return 1;
  *items = PySequence_Fast(object, "expected a list or tuple");
  if (*items == NULL) return 0;
  *count = (size_t)PySequence_Fast_GET_SIZE(*items);
  return 1;
}

static int values_of_python(PyObject *object, accel_value_t **values, size_t *count) {
  PyObject *items;
  *values = NULL;
  if (!sequence_of_python(object, &items, count)) return 0;
  int made = items == NULL || (*values = PyMem_Calloc(*count + 1, sizeof(**values))) != NULL;
  for (size_t i = 0; made && i < *count; i++) made = python_to_new_value(PySequence_Fast_GET_ITEM(items, i), &(*values)[i]);
  Py_XDECREF(items);
  return made;
}

static int integers_of_python(PyObject *object, int64_t **integers, size_t *count) {
  PyObject *items;
  *integers = NULL;
  if (!sequence_of_python(object, &items, count)) return 0;
  int made = items == NULL || (*integers = PyMem_Calloc(*count + 1, sizeof(**integers))) != NULL;
  for (size_t i = 0; made && i < *count; i++) {
    (*integers)[i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items, i));
    made = !PyErr_Occurred();
  }
  Py_XDECREF(items);
  return made;
}

static int numbers_of_python(PyObject *object, double **numbers, size_t *count) {
  PyObject *items;
  *numbers = NULL;
  if (!sequence_of_python(object, &items, count)) return 0;
  int made = items == NULL || (*numbers = PyMem_Calloc(*count + 1, sizeof(**numbers))) != NULL;
  for (size_t i = 0; made && i < *count; i++) {
    (*numbers)[i] = PyFloat_AsDouble(PySequence_Fast_GET_ITEM(items, i));
    made = !PyErr_Occurred();
  }
  Py_XDECREF(items);
  return made;
}

// The texts live as long as the objects in the caller's sequence.
static int texts_of_python(PyObject *object, const char ***texts, size_t *count) {
  PyObject *items;
  *texts = NULL;
  if (!sequence_of_python(object, &items, count)) return 0;
  int made = items == NULL || (*texts = PyMem_Calloc(*count + 1, sizeof(**texts))) != NULL;
  for (size_t i = 0; made && i < *count; i++) made = ((*texts)[i] = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(items, i))) != NULL;
  Py_XDECREF(items);
  return made;
}

static int handles_of_python(PyObject *object, swig_type_info *type, void ***handles, size_t *count) {
  PyObject *items;
  *handles = NULL;
  if (!sequence_of_python(object, &items, count)) return 0;
  int made = items == NULL || (*handles = PyMem_Calloc(*count + 1, sizeof(**handles))) != NULL;
  for (size_t i = 0; made && i < *count; i++) {
    made = SWIG_IsOK(SWIG_ConvertPtr(PySequence_Fast_GET_ITEM(items, i), &(*handles)[i], type, 0));
    if (!made) PyErr_Format(PyExc_TypeError, "item %zu is not a %s", i, SWIG_TypePrettyName(type));
  }
  Py_XDECREF(items);
  return made;
}
%}

%typemap(in) const accel_value_t * (accel_value_t value = ACCEL_VALUE_INIT) {
  if (!python_to_new_value($input, &value)) SWIG_fail;
  $1 = &value;
}
%typemap(freearg) const accel_value_t * { accel_value_dispose($1); }
%typemap(in) const accel_value_t *NULLABLE (accel_value_t value = ACCEL_VALUE_INIT) {
  if ($input == Py_None) {
    $1 = NULL;
  } else {
    if (!python_to_new_value($input, &value)) SWIG_fail;
    $1 = &value;
  }
}
// Values in options are copied.
%{
static void free_value(accel_value_t *value) {
  if (value != NULL) accel_value_dispose(value);
  free(value);
}

static accel_value_t *new_copy_of_value(const accel_value_t *value) {
  accel_value_t *const copy = value == NULL || value->kind == ACCEL_VALUE_NONE ? NULL : calloc(1, sizeof(*copy));
  if (copy == NULL || accel_value_copy(value, copy) == ACCEL_OK) return copy;
  free(copy);
  return NULL;
}
%}
%typemap(memberin) const accel_value_t * {
  free_value((accel_value_t *)$1);
  $1 = new_copy_of_value($input);
}
%typemap(in, numinputs=0) accel_value_t *OUTPUT (accel_value_t value = ACCEL_VALUE_INIT) { $1 = &value; }
%typemap(argout) accel_value_t *OUTPUT { $result = SWIG_Python_AppendOutput($result, value_to_python($1)); }
%typemap(freearg) accel_value_t *OUTPUT { accel_value_dispose($1); }

%typemap(in) (const accel_value_t *ITEMS, size_t COUNT) {
  if (!values_of_python($input, (accel_value_t **)&$1, &$2)) SWIG_fail;
}
%typemap(freearg) (const accel_value_t *ITEMS, size_t COUNT) { dispose_values((accel_value_t *)$1, $2); }

// Arguments by name: a dict.
%typemap(in) (const char *const *NAMES, const accel_value_t *ITEMS, size_t COUNT) {
  PyObject *const keys = $input == Py_None ? NULL : PyMapping_Keys($input);
  PyObject *const contents = $input == Py_None ? NULL : PyMapping_Values($input);
  const int read = $input == Py_None || (keys != NULL && contents != NULL && texts_of_python(keys, (const char ***)&$1, &$3) &&
                                         values_of_python(contents, (accel_value_t **)&$2, &$3));
  Py_XDECREF(keys);
  Py_XDECREF(contents);
  if (!read) SWIG_fail;
}
%typemap(freearg) (const char *const *NAMES, const accel_value_t *ITEMS, size_t COUNT) {
  PyMem_Free((void *)$1);
  dispose_values((accel_value_t *)$2, $3);
}

// Results of an operator: a list. No operator of LibTorch has more.
%{
#define MOST_RESULTS 16
%}
%typemap(in, numinputs=0) (accel_value_t *RESULTS, size_t MAX_RESULTS, size_t *OUT_N_RESULTS)
    (accel_value_t results[MOST_RESULTS], size_t count = 0) {
  memset(results, 0, sizeof(results));
  $1 = results;
  $2 = MOST_RESULTS;
  $3 = &count;
}
%typemap(argout) (accel_value_t *RESULTS, size_t MAX_RESULTS, size_t *OUT_N_RESULTS) {
  $result = SWIG_Python_AppendOutput($result, values_to_python($1, *$3));
}
%typemap(freearg) (accel_value_t *RESULTS, size_t MAX_RESULTS, size_t *OUT_N_RESULTS) {
  for (size_t i = 0; i < *$3; i++) accel_value_dispose(&$1[i]);
}
