#include "gpu/base/version.h"

namespace octavo {

const char* Version() { return OCTAVO_VERSION; }

}  // namespace octavo
