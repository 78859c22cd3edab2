#pragma once
#include "tests/support/tsan/tbb/tbb_for_tsan.h"
