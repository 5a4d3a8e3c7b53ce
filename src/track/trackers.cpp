#include "track/trackers.hpp"
