#include "accelerator/registered_parameters.hpp"
