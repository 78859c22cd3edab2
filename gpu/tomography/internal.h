#pragma once

// Private to the search for the axis: center*.cc and opposite_rows.cc. A method of CenterMethod is
// a class in a file of its own, which FindCenter calls through the functions at the end.

#include <cstdint>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/base/status.h"
#include "gpu/device/buffer.h"
#include "gpu/device/device_span.h"
#include "gpu/tomography/center.h"
#include "gpu/tomography/directions.h"
#include "gpu/tomography/families.h"

namespace octavo::inline gpu {

/// The part of the search range that lies on the detector, as centres.
std::pair<double, double> CenterSearchRange(const CenterConfig& c);

/// A request to FindCenter, with the operators that serve it. All referenced objects must outlive
/// the search.
struct CenterRequest {
  StreamRef stream;
  const CenterConfig& config;
  const CenterInput& input;
  Device& device;
  TomographyFamilies families;
};

/// One search and its access to the sinograms on the device. Work per sinogram runs on the calling
/// thread in double precision; work per trial runs on the device.
class CenterSearch {
 public:
  using Doubles = std::vector<double>;
  static constexpr int64_t kFloat = sizeof(float);
  /// Limit on the device memory of all trials of a batch together.
  static constexpr int64_t kWorkBytes = int64_t{512} << 20;

  explicit CenterSearch(const CenterRequest& request)
      : stream_(request.stream),
        config_(request.config),
        input_(request.input),
        device_(request.device),
        families_(request.families) {}

 protected:
  int64_t angles() const { return static_cast<int64_t>(config_.angles_rad.size()); }

  /// Copies all of `from` to the beginning of `to`, and waits for it.
  template <class T>
  absl::Status Download(HostSpan<T> to, std::type_identity_t<DeviceSpan<const T>> from) const {
    OCTAVO_RETURN_IF_ERROR(device_.Download(stream_, to, from));
    return stream_.Synchronize();
  }
  template <class T>
  absl::StatusOr<DeviceBuffer> Upload(const std::vector<T>& values) const {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer buffer, device_.Allocate(bytes));
    OCTAVO_RETURN_IF_ERROR(device_.Upload(stream_, buffer.span<T>(), values));
    OCTAVO_RETURN_IF_ERROR(stream_.Synchronize());
    return buffer;
  }
  static absl::Status NotFinite();
  /// Mean over the slices, [angle, detector].
  absl::StatusOr<Doubles> MeanSinogram() const;
  /// Cancelled if the caller has given up the search.
  absl::Status GoOn() const { return CheckCancelled(stream_, input_.goes_on); }

  const StreamRef stream_;
  const CenterConfig& config_;
  const CenterInput& input_;
  Device& device_;
  const TomographyFamilies families_;
};

/// A search that compares projections with their opposites.
class OppositeSearch : public CenterSearch {
 public:
  using CenterSearch::CenterSearch;

  /// The number of pairs of opposite views taken from each slice, and the transform length of their
  /// rows.
  static int64_t PairsOf(int64_t slices);
  static int64_t PairLength(int64_t detectors);
  static absl::StatusOr<int64_t> DeviceBytes(const CenterConfig& c, ArrayOps& arrays);

 protected:
  /// Some projections of a slice.
  struct SliceRows {
    std::map<int64_t, int64_t> place;  // the position of a projection within `values`
    Doubles values;
    Doubles Sum(const WeightedRows& rows, int64_t columns) const;
  };
  /// Reads the projections that `views` are made of.
  absl::StatusOr<SliceRows> RowsOf(int64_t slice,
                                   const std::vector<const OppositeViews*>& views) const;
  /// Transforms each row of `length` in place, on the device.
  absl::Status Transform(int64_t length, bool inverse, std::vector<ComplexF>* rows) const;
};

// The methods, and the device memory that they take.
absl::StatusOr<CenterResult> SearchByVo(const CenterRequest& request);       // center_vo.cc
absl::StatusOr<CenterResult> SearchByEntropy(const CenterRequest& request);  // center_entropy.cc
absl::StatusOr<CenterResult> SearchByPhase(const CenterRequest& request);    // center_phase.cc
absl::StatusOr<CenterResult> SearchByPairs(const CenterRequest& request);    // center_pairs.cc
absl::StatusOr<int64_t> VoBytes(const CenterConfig& config, ArrayOps& arrays);
absl::StatusOr<int64_t> EntropyBytes(const CenterConfig& config, Device& device);

}  // namespace octavo::inline gpu
