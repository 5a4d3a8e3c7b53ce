// SPDX-License-Identifier: Apache-2.0
// DLPack in Python: tensors are passed as capsules, which whoever takes the tensor renames (data-apis.org, Python array API).
%{
// The frozen beginning of the two structs, as far as the flags and the deleter.
struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned *);
  uint64_t flags;
};
struct DLManagedTensor {
  struct {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *);
};

// A tensor of LibTorch can always be written to.
static int is_writable_dltensor_versioned(const struct DLManagedTensorVersioned *tensor) {
  const uint64_t read_only = 1;
  if (tensor->version.major != 1 || (tensor->flags & read_only) == 0) return 1;
  PyErr_SetString(PyExc_BufferError, "the tensor is read-only; copy it first");
  return 0;
}
static int is_writable_dltensor(const struct DLManagedTensor *tensor) { return tensor != NULL; } /* it does not say */
%}

%define %accel_dlpack(STRUCT, NAME)
%{
static void free_##NAME(PyObject *capsule) {
  struct STRUCT *const tensor = PyCapsule_IsValid(capsule, #NAME) ? PyCapsule_GetPointer(capsule, #NAME) : NULL;
  if (tensor != NULL && tensor->deleter != NULL) tensor->deleter(tensor);
}
%}
%typemap(in, numinputs=0) struct STRUCT **OUTPUT (struct STRUCT *lent = NULL) { $1 = &lent; }
%typemap(argout) struct STRUCT **OUTPUT {
  $result = SWIG_Python_AppendOutput($result, PyCapsule_New(*$1, #NAME, free_##NAME));
}
%typemap(in) struct STRUCT *tensor {
  $1 = PyCapsule_GetPointer($input, #NAME);
  if ($1 == NULL || !is_writable_##NAME($1) || PyCapsule_SetName($input, "used_" #NAME) != 0) SWIG_fail;
}
%enddef
%accel_dlpack(DLManagedTensorVersioned, dltensor_versioned)
%accel_dlpack(DLManagedTensor, dltensor)
