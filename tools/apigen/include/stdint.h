/* SPDX-License-Identifier: Apache-2.0 */
/* What accel.h needs of the C library, so that its description is the same on every machine. */
typedef signed int int32_t;
typedef unsigned int uint32_t;
typedef signed long int64_t;
typedef unsigned long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807 - 1)
