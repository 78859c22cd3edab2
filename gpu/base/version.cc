#include "gpu/base/version.h"

namespace octavo::inline gpu {

const char* Version() { return OCTAVO_VERSION; }

}  // namespace octavo::inline gpu
