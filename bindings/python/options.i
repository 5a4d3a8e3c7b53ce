// SPDX-License-Identifier: Apache-2.0
// Structs of options: made with the fields that are given by name, and without any other attribute.
%{
// Refuses what is not a field, and names the nearest one.
static int is_field(PyObject *options, PyObject *name, PyObject *error) {
  PyTypeObject *const type = Py_TYPE(options);
  if (PyObject_HasAttr((PyObject *)type, name)) return 1;
  PyObject *const difflib = PyImport_ImportModule("difflib");
  PyObject *const fields = PyObject_Dir((PyObject *)type);
  PyObject *const nearest = difflib == NULL || fields == NULL ? NULL : PyObject_CallMethod(difflib, "get_close_matches", "OOi", name, fields, 1);
  if (nearest != NULL && PyList_Size(nearest) == 1)
    PyErr_Format(error, "%s has no field %R; the nearest name is %R", strrchr(type->tp_name, '.') + 1, name, PyList_GetItem(nearest, 0));
  else if (nearest != NULL)
    PyErr_Format(error, "%s has no field %R", strrchr(type->tp_name, '.') + 1, name);
  Py_XDECREF(nearest);
  Py_XDECREF(fields);
  Py_XDECREF(difflib);
  return 0;
}

static int set_field(PyObject *self, PyObject *name, PyObject *value) {
  if (!is_field(self, name, PyExc_AttributeError)) return -1;
  if (value != NULL) return PyObject_GenericSetAttr(self, name, value);
  PyErr_Format(PyExc_AttributeError, "%S cannot be deleted", name);
  return -1;
}

// A field that is None stays unset.
static int set_fields(PyObject *self, PyObject *named) {
  PyObject *name, *value;
  Py_ssize_t place = 0;
  while (named != NULL && PyDict_Next(named, &place, &name, &value)) {
    if (!is_field(self, name, PyExc_TypeError)) return -1;
    if (value != Py_None && PyObject_GenericSetAttr(self, name, value) != 0) return -1;
  }
  return 0;
}
%}

// Texts are copied.
%typemap(memberin) const char * {
  free((char *)$1);
  $1 = $input == NULL ? NULL : strdup($input);
}

// Handles and structs are only used: whoever sets them keeps them alive. (SWIG would take them away from Python.)
%define %accel_borrowed(TYPE, NAME)
%typemap(in) TYPE *NAME, const TYPE *NAME {
  if (!SWIG_IsOK(SWIG_ConvertPtr($input, (void **)&$1, $descriptor(TYPE *), 0))) {
    PyErr_SetString(PyExc_TypeError, #NAME ": expected a " #TYPE " or None");
    SWIG_fail;
  }
}
%enddef

// INIT unsets all fields, FREE frees what the struct owns. STRUCT_text is its signature and documentation.
%define %accel_options(STRUCT, INIT, FREE)
%{
static int _wrap_new_##STRUCT##_t(PyObject *self, PyObject *arguments, PyObject *named);
static int init_##STRUCT(PyObject *self, PyObject *arguments, PyObject *named) {
  return _wrap_new_##STRUCT##_t(self, arguments, NULL) != 0 ? -1 : set_fields(self, named);
}
%}
%init %{
  SwigPyBuiltin__##STRUCT##_type.ht_type.tp_doc = STRUCT##_text; // SWIG's own begins with an empty line, and Python finds no signature
%}
%feature("python:tp_init") STRUCT "init_" #STRUCT;
%feature("python:tp_setattro") STRUCT "set_field";
%extend STRUCT {
  STRUCT() {
    STRUCT##_t *const options = calloc(1, sizeof(*options));
    if (options != NULL) *options = (STRUCT##_t)INIT;
    return options;
  }
  ~STRUCT() { FREE free($self); }
}
%enddef
