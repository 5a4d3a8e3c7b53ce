// SPDX-License-Identifier: Apache-2.0
// Arrow in Python: its structs are passed as capsules, whose destructors release what nobody took over (the Arrow PyCapsule interface).
%define %accel_arrow(STRUCT, PARAMETER, NAME)
%typemap(in) struct STRUCT *PARAMETER {
  $1 = PyCapsule_GetPointer($input, #NAME);
  if ($1 == NULL) SWIG_fail;
}
%enddef
%accel_arrow(ArrowSchema, schema, arrow_schema)
%accel_arrow(ArrowArray, array, arrow_array)
%accel_arrow(ArrowArrayStream, stream, arrow_array_stream)
