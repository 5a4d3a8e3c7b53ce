// SPDX-License-Identifier: Apache-2.0
// The names that a pickle may use, and what they stand for: containers of Python, tensors and types of torch, arrays of
// NumPy. Nothing of Python is executed.
#pragma once

#include <string>

#include "checkpoint/formats/torch/pickle_node.hpp"

namespace accel::checkpoint {

// Errors of these functions lack the file's name: kCorrupt for wrong arguments, kUnsupported for what values lack.

// Finds the meaning of a name by itself: a dtype, or the name, which is to be called. False if it is not known.
bool find_pickled_name(const std::string& name, PickleNode& found);

// Whether calling it makes an object here.
bool is_pickled_call(const std::string& name);

// The object that Python would make by calling what the name stands for.
PickleNode call_pickled_name(const std::string& name, const PickleItems& arguments);

// Sets a state as Python's __setstate__() does.
void set_pickled_state(PickleNode& object, const PickleNode& state);

// Arrays and scalars of NumPy (numpy_objects.cpp); the same three functions.
bool is_numpy_name(const std::string& name);
PickleNode call_numpy_name(const std::string& name, const PickleItems& arguments);
void set_numpy_state(PickleNode& object, const PickleNode& state);

}  // namespace accel::checkpoint
