#include "track/profile_schedule.hpp"
