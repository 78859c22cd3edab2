#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/math/rotation.h"
#include "server/model/tomography_spec.h"

namespace octavo::model {

/// A client's specification of a projection job: all fields as in octavo.v1.ProjectionJob. 0 and
/// empty mean "choose".
struct ProjectionSpec {
  std::string input;  // volumes/<id> or buffers/<id>
  bool adjoint = false;
  std::vector<double> angles_rad;
  std::vector<double> axis_pixels;
  int64_t columns = 0, image_size = 0;
  math::RayInterpolation interpolation = math::RayInterpolation::kLinear;
  double pixel_size = 1;
  double mask_ratio = 0;
  int64_t slices_per_batch = 0;
  ResultPlace place = ResultPlace::kChoose;
  std::string encoded, json;  // as received: for answers, and for the files of the result
};

}  // namespace octavo::model
