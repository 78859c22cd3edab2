#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/device/cancellation.h"
#include "gpu/device/device.h"
#include "gpu/math/flat_weights.h"
#include "gpu/tomography/preprocess.h"

// Flat fields that change during a scan: their principal components, and the weights of these
// behind each projection (gpu/math/flat_weights.h). Both are found in some rows of the detector; a
// Preparer applies them to any rows (PrepareConfig::flat_components).
namespace octavo::inline gpu {

/// Where the components are found, and how many.
struct FlatComponentsConfig {
  DType dtype = DType::kU16;   // of all frames: u8, u16, i16, f32
  int64_t flats = 0;           // 2 … 512
  int64_t darks = 0;           // 0 … 4096
  int64_t columns = 0;         // of the detector
  int64_t groups = 1;          // of neighbouring rows, all of the same number
  int64_t group_rows = 1;      // rows of a group
  int64_t frames_at_once = 1;  // frames that are added at a time, at most
  int64_t components = 0;  // 0 = as many as stand out from noise; else 1 … flats − 1, at most 8
  OutlierRemoval outliers;  // as in PrepareConfig
  static constexpr int64_t kMostFlats = 512;
};

/// The principal components of flat fields.
struct FlatPrincipals {
  int64_t components = 0;
  /// Component k is Σ_f mixture[f · components + k] flat_f: its weights have a mean of 0 and a
  /// standard deviation of 1 among the flat fields.
  std::vector<double> mixture;
  std::vector<double> shares;  // of each: its part of the variance of the flat fields
  double largest = 0;          // of the weights of the flat fields themselves, without sign
};
/// Of `flats` fields [flat, pixel] in f32. `components` = 0: as many as stand out from noise, at
/// most math::kMostFlatComponents. A component that has no variance is left out.
///
/// Parallel analysis (J. L. Horn, Psychometrika 30 (1965) 179): component k counts if its variance
/// exceeds what the largest of independent noise would have, which has the variance that is left at
/// each pixel after the components before it (S. B. Green et al., Educ. Psychol. Meas. 72 (2012)
/// 357). The largest variance of noise follows the Tracy-Widom law of order 1 and need not be
/// simulated; what 99 of 100 stay below is the bound.
///
/// Cancelled if `goes_on`, which it asks between pieces of some milliseconds, says so.
absl::StatusOr<FlatPrincipals> FindFlatPrincipals(int64_t flats, const std::vector<float>& fields,
                                                  int64_t components,
                                                  const CancelCheck& goes_on = {});

/// Finds components and weights. Give all flat and dark fields, then Learn, then projections.
class FlatComponentFinder {
 public:
  /// InvalidArgument names the field; ResourceExhausted if the device has too little memory.
  static absl::StatusOr<std::unique_ptr<FlatComponentFinder>> Create(
      const FlatComponentsConfig& config, Device& device);
  /// The bytes of device memory that Create would take. InvalidArgument as Create.
  static absl::StatusOr<int64_t> DeviceBytes(const FlatComponentsConfig& config, Device& device);
  /// The most bytes of host memory that a finder takes at a time: mostly the flat fields, twice.
  /// InvalidArgument as Create.
  static absl::StatusOr<int64_t> HostBytes(const FlatComponentsConfig& config);

  virtual ~FlatComponentFinder() = default;
  enum class Kind { kFlat, kDark, kProjection };
  /// Adds one group of rows of frames [first, first + count) of those that are added at a time:
  /// [frame, group row, column] in page-locked host memory. Waits for the stream. All groups of the
  /// frames must be given before they are taken.
  virtual absl::Status Add(StreamRef stream, const void* frames, int64_t first, int64_t count,
                           int64_t group) = 0;
  /// All groups of these frames were added: fields are kept on the host.
  virtual absl::Status TakeFields(StreamRef stream, Kind kind, int64_t count) = 0;
  /// All fields were taken: finds the components. Cancelled if `goes_on` says so; it may be asked
  /// to learn again then.
  virtual absl::StatusOr<FlatPrincipals> Learn(StreamRef stream,
                                               const CancelCheck& goes_on = {}) = 0;
  /// All groups of these projections were added: their weights [frame, component], in standard
  /// deviations among the flat fields. Waits for the stream. FailedPrecondition without components.
  virtual absl::StatusOr<std::vector<double>> Weights(StreamRef stream, int64_t count) = 0;
};

}  // namespace octavo::inline gpu
