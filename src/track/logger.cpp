#include "track/logger.hpp"
