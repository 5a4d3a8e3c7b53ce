#include "profile/profiler.hpp"
