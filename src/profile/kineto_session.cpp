#include "profile/kineto_session.hpp"
