#include "profile/key_averages.hpp"
