#include "profile/memory_timeline.hpp"
