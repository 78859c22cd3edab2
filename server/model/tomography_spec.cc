#include "server/model/tomography_spec.h"

#include <cmath>

namespace octavo::model {

int64_t TryCentersSpec::count() const {
  return static_cast<int64_t>(std::floor((end - begin) / step + 1e-9)) + 1;
}

}  // namespace octavo::model
