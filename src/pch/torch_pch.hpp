// Precompiled: the part of LibTorch that the engine uses. Sources still include what they use.
#ifndef ACCEL_TORCH_PCH_HPP  // not a pragma: the file is also compiled by itself
#define ACCEL_TORCH_PCH_HPP

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/script.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#endif  // ACCEL_TORCH_PCH_HPP
