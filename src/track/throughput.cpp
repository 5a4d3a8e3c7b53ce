#include "track/throughput.hpp"
