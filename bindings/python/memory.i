// SPDX-License-Identifier: Apache-2.0
// Memory of Python objects as tensors, without a copy: the buffer is held until the last tensor that shares it goes.
%{
#define MOST_DIMENSIONS 64

static void release_buffer(void *user_data) {
  PyGILState_STATE lock;
  if (!enter_python(&lock)) return;
  PyBuffer_Release((Py_buffer *)user_data);
  PyMem_Free(user_data);
  leave_python(lock);
}

// (buffer, dtype) -> tensor. Sizes and strides are those of the buffer, which must be writable.
static PyObject *tensor_from_blob(PyObject *self, PyObject *args) {
  PyObject *object;
  int dtype;
  (void)self;
  if (!PyArg_ParseTuple(args, "Oi:accel_tensor_from_blob", &object, &dtype)) return NULL;
  Py_buffer *const view = PyMem_Calloc(1, sizeof(*view));
  if (view == NULL) return PyErr_NoMemory();
  if (PyObject_GetBuffer(object, view, PyBUF_STRIDED) != 0) {
    PyMem_Free(view);
    return NULL;
  }
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS];
  accel_tensor_t *tensor = NULL;
  accel_status_t status = ACCEL_ERROR_USER;
  if (view->ndim > MOST_DIMENSIONS || (size_t)view->itemsize != accel_dtype_size(dtype))
    PyErr_Format(PyExc_ValueError, "a buffer of %d dimensions and items of %zd bytes is not a tensor of this dtype", view->ndim, view->itemsize);
  for (int i = 0; !PyErr_Occurred() && i < view->ndim; i++) {
    shape[i] = view->shape[i];
    strides[i] = view->strides[i] / view->itemsize;
    if (view->strides[i] < 0 || view->strides[i] % view->itemsize != 0)
      PyErr_SetString(PyExc_ValueError, "a buffer with negative strides, or strides between items, is not a tensor; copy it first");
  }
  if (!PyErr_Occurred())
    status = accel_tensor_from_blob(view->buf, shape, (size_t)view->ndim, strides, dtype, &(accel_device_t){ACCEL_DEVICE_CPU, -1},
                                    view, release_buffer, &tensor);
  else
    release_buffer(view);
  if (status == ACCEL_OK) return SWIG_NewPointerObj(tensor, SWIGTYPE_p_accel_tensor, SWIG_POINTER_OWN);
  raise_error(status);
  return NULL;
}
%}
%native(accel_tensor_from_blob) PyObject *tensor_from_blob(PyObject *self, PyObject *args);
