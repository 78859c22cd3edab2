#include "gpu/device/importable_memory.h"

namespace octavo::inline gpu {

ImportableMemory* ImportableOf(Device& device) { return dynamic_cast<ImportableMemory*>(&device); }

}  // namespace octavo::inline gpu
