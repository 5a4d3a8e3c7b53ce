#include "track/progress_bar.hpp"
