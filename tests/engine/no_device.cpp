// SPDX-License-Identifier: Apache-2.0
// A library that registers no device.
extern "C" int accel_test_nothing() { return 0; }
