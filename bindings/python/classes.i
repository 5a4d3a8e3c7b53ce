// SPDX-License-Identifier: Apache-2.0
// Python's own classes for what the library makes: subclasses of the handles, and of Error. The package above sets them once.
%{
// Handles of the kind that `cls` is a subclass of are made as instances of `cls` from here on.
static PyObject *use_class(PyObject *self, PyObject *args) {
  PyObject *cls;
  (void)self;
  if (!PyArg_ParseTuple(args, "O!:use_class", &PyType_Type, &cls)) return NULL;
  for (size_t i = 0; i < swig_module.size; i++) {
    SwigPyClientData *const data = swig_module.types[i] == NULL ? NULL : swig_module.types[i]->clientdata;
    if (data == NULL || data->pytype == NULL || data->pytype == SwigPyObject_type()) continue;
    if (!PyType_IsSubtype((PyTypeObject *)cls, data->pytype)) continue;
    if (((PyTypeObject *)cls)->tp_basicsize != data->pytype->tp_basicsize)
      return PyErr_Format(PyExc_TypeError, "%s needs __slots__ = ()", ((PyTypeObject *)cls)->tp_name);
    Py_INCREF(cls);
    data->pytype = (PyTypeObject *)cls;
    Py_RETURN_NONE;
  }
  return PyErr_Format(PyExc_TypeError, "%s is not a subclass of a handle", ((PyTypeObject *)cls)->tp_name);
}

static PyObject *use_errors(PyObject *self, PyObject *args) {
  PyObject *classes;
  (void)self;
  if (!PyArg_ParseTuple(args, "O!:use_errors", &PyDict_Type, &classes)) return NULL;
  Py_INCREF(classes);
  Py_XSETREF(error_classes, classes);
  Py_RETURN_NONE;
}
%}
%native(use_class) PyObject *use_class(PyObject *self, PyObject *args);
%native(use_errors) PyObject *use_errors(PyObject *self, PyObject *args);
