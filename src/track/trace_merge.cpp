#include "track/trace_merge.hpp"
