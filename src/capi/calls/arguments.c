/* The functions that the header defines in place, for languages that look them up in the library. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* their definitions are all there is */
#endif
#define ACCEL_INLINE(major, minor) ACCEL_EXPORT
#include "accel.h"
