/* SPDX-License-Identifier: Apache-2.0 */
/* What accel.h needs of the C library, so that its description is the same on every machine. */
typedef unsigned long size_t;
#define NULL ((void *)0)
