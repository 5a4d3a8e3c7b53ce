/* SPDX-License-Identifier: Apache-2.0 */
/* A library without symbols. */
typedef int no_symbols; /* C99 asks for one declaration at least */
