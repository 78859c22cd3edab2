#include "server/projection/geometry.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/errors.h"
#include "server/model/angle_span.h"

namespace octavo::projection {
namespace {

constexpr int64_t kMostAngles = 65535, kMostExtent = 32768, kLeastColumns = 2;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", shape[0], ", ", shape[1], ", ", shape[2], "]");
}

const char* NameOf(math::RayInterpolation interpolation) {
  switch (interpolation) {
    case math::RayInterpolation::kNearest: return "nearest";
    case math::RayInterpolation::kLinear: return "linear";
    case math::RayInterpolation::kCubic: return "cubic";
  }
  return "?";
}

absl::Status CheckInput(const model::ProjectionSpec& spec, const std::vector<int64_t>& shape) {
  const int64_t least = spec.adjoint ? kLeastColumns : 1;
  const auto fits = [&](int64_t extent) { return extent >= least && extent <= kMostExtent; };
  if (!spec.adjoint && (shape[1] != shape[2] || !fits(shape[2]))) {
    return FieldNotAllowed("projection.input", ShapeText(shape),
                           absl::StrCat("are square images [slice, y, x], y = x up to ",
                                        kMostExtent, "; adjoint takes sinograms"));
  }
  if (spec.adjoint && !fits(shape[2])) {
    return FieldNotAllowed("projection.input", ShapeText(shape),
                           absl::StrCat("are sinograms [slice, angle, column] of ", kLeastColumns,
                                        " to ", kMostExtent, " columns"));
  }
  return absl::OkStatus();
}

absl::Status CheckAngles(const model::ProjectionSpec& spec, const std::vector<int64_t>& shape) {
  constexpr const char* kField = "projection.angles_rad";
  const auto count = std::ssize(spec.angles_rad);
  if (count < 1 || count > kMostAngles) {
    return InvalidField(kField, absl::StrCat("has ", count, " values; allowed 1 to ", kMostAngles,
                                             ", one per projection"));
  }
  if (spec.adjoint && count != shape[1]) {
    return InvalidField(kField,
                        absl::StrCat("has ", count, " values; allowed ", shape[1],
                                     ", one per projection of the input ", ShapeText(shape)));
  }
  for (int64_t i = 0; i < count; ++i) {
    const double angle = spec.angles_rad[static_cast<size_t>(i)];
    if (!std::isfinite(angle))
      return FieldNotAllowed(absl::StrCat(kField, "[", i, "]"), angle, "are finite radians");
  }
  return model::CheckRadians(kField, spec.angles_rad);
}

absl::Status CheckAxis(const model::ProjectionSpec& spec, int64_t slices, int64_t columns) {
  constexpr const char* kField = "projection.axis_pixels";
  const auto count = std::ssize(spec.axis_pixels);
  if (count > 1 && count != slices) {
    return InvalidField(
        kField, absl::StrCat("has ", count, " values; allowed none (the middle), one, or ", slices,
                             ", one per slice"));
  }
  const auto d = static_cast<double>(columns);
  for (int64_t i = 0; i < count; ++i) {
    const double axis = spec.axis_pixels[static_cast<size_t>(i)];
    if (!(axis >= -d && axis <= 2 * d)) {
      return FieldNotAllowed(absl::StrCat(kField, "[", i, "]"), axis,
                             absl::StrCat("are pixel indices from ", -columns, " to ", 2 * columns,
                                          ", minus the columns to twice the columns"));
    }
  }
  return absl::OkStatus();
}

/// The extent that the result has in `field`: as given, else `usual`; that of the input if it has
/// it.
absl::StatusOr<int64_t> Extent(const char* field, int64_t given, int64_t least,
                               std::optional<int64_t> of_input, int64_t usual) {
  if (of_input.has_value()) {
    if (given != 0 && given != *of_input) {
      return FieldNotAllowed(field, given,
                             absl::StrCat("are 0 and ", *of_input, ", which the input has"));
    }
    return *of_input;
  }
  if (given != 0 && (given < least || given > kMostExtent)) {
    return FieldNotAllowed(
        field, given,
        absl::StrCat("are 0 (", usual, ", as the input has) and ", least, " to ", kMostExtent));
  }
  return given == 0 ? usual : given;
}

}  // namespace

absl::StatusOr<ProjectionGeometry> ProjectionGeometry::Make(const model::ProjectionSpec& spec,
                                                            const std::vector<int64_t>& input) {
  OCTAVO_RETURN_IF_ERROR(CheckInput(spec, input));
  OCTAVO_RETURN_IF_ERROR(CheckAngles(spec, input));
  const int64_t width = input[2];
  const auto known = [&](bool by_input) {
    return by_input ? std::optional<int64_t>(width) : std::nullopt;
  };
  OCTAVO_ASSIGN_OR_RETURN(const int64_t columns, Extent("projection.columns", spec.columns,
                                                        kLeastColumns, known(spec.adjoint), width));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t size, Extent("projection.image_size", spec.image_size, 1,
                                                     known(!spec.adjoint), width));
  if (columns < kLeastColumns) {
    return FieldNotAllowed("projection.columns", "0 for images of one column",
                           absl::StrCat(kLeastColumns, " to ", kMostExtent));
  }
  OCTAVO_RETURN_IF_ERROR(CheckAxis(spec, input[0], columns));
  return ProjectionGeometry(spec, input[0], columns, size);
}

ProjectorConfig ProjectionGeometry::ConfigFor(int64_t first, int64_t count) const {
  ProjectorConfig config{.angles_rad = spec_.angles_rad,
                         .detectors = columns_,
                         .slices = count,
                         .centers = spec_.axis_pixels,
                         .image_size = image_size_,
                         .pixel_size = spec_.pixel_size,
                         .interpolation = spec_.interpolation,
                         .mask_ratio = spec_.mask_ratio};
  if (!shared_axis()) {
    const auto begin = spec_.axis_pixels.begin() + first;
    config.centers.assign(begin, begin + count);
  }
  return config;
}

absl::StatusOr<int64_t> ProjectionGeometry::ProjectorBytes(int64_t count, Device& device) const {
  ProjectorConfig config = ConfigFor(0, count);
  const auto bytes = [&] { return Projector::DeviceBytes(config, device); };
  auto most = bytes();
  if (most.ok() && !shared_axis()) {
    // Slices of one axis are interleaved, in a batch of different axes they are not.
    config.centers = {0};
    const auto shared = bytes();
    config.centers.assign(static_cast<size_t>(count), 0);
    config.centers.back() = 1;
    const auto separate = bytes();
    if (shared.ok()) most = std::max(*most, *shared);
    if (separate.ok()) most = std::max(*most, *separate);
  }
  if (!most.ok()) return base::AtField("projection.", most.status());
  return most;
}

std::string ProjectionGeometry::Text() const {
  const auto array = [&](bool images) {
    const auto extents = images ? image() : sinogram();
    return absl::StrCat(images ? "images [" : "sinograms [", slices_, ", ", extents[0], ", ",
                        extents[1], "]");
  };
  const auto [least, most] =
      std::minmax_element(spec_.axis_pixels.begin(), spec_.axis_pixels.end());
  const std::string axis =
      spec_.axis_pixels.empty() ? absl::StrFormat("axis in the middle, at column %g",
                                                  static_cast<double>(columns_ - 1) / 2)
      : shared_axis()           ? absl::StrFormat("axis at column %g", *least)
                                : absl::StrFormat("axes at columns %g to %g", *least, *most);
  const model::AngleSpan span = model::SpanOf(spec_.angles_rad);
  return absl::StrCat(
      spec_.adjoint ? "adjoint projection: " : "projection: ", array(!spec_.adjoint), " of ",
      spec_.input, " become ", array(spec_.adjoint), "\n",
      absl::StrFormat("geometry: %d angles from %g to %g rad, %s, pixel size %g, %s interpolation",
                      std::ssize(spec_.angles_rad), span.least, span.most, axis, spec_.pixel_size,
                      NameOf(spec_.interpolation)),
      spec_.mask_ratio == 0
          ? ", whole image\n"
          : absl::StrFormat(", a circle of %g times the half width\n", spec_.mask_ratio));
}

std::vector<std::string> ProjectionGeometry::Warnings() const {
  std::vector<std::string> warnings;
  if (auto doubt = model::DoubtRadians(spec_.angles_rad)) warnings.push_back(*std::move(doubt));
  // Half a column beyond either end is still the detector.
  const double last = static_cast<double>(columns_) - 0.5;
  const auto beside = std::find_if(spec_.axis_pixels.begin(), spec_.axis_pixels.end(),
                                   [&](double axis) { return axis < -0.5 || axis > last; });
  if (beside != spec_.axis_pixels.end()) {
    warnings.push_back(absl::StrFormat(
        "The axis %g lies beside the detector, whose columns are 0 to %d.", *beside, columns_ - 1));
  }
  return warnings;
}

}  // namespace octavo::projection
