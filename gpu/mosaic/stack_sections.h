#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/sliced_program.h"
#include "gpu/mosaic/mosaic_ops.h"
#include "gpu/mosaic/register_tiles.h"
#include "gpu/mosaic/tile_layout.h"
#include "gpu/mosaic/z_overlap.h"

namespace octavo::inline gpu {

inline constexpr int64_t kMostSections = 256;

/// As octavo.v1.StackSectionsRequest, with its defaults.
struct StackSectionsSpec {
  std::vector<Vector3> position_um;  // of each section
  Vector3 spacing_um;
  bool center_on_middle = false, whole_voxels = false;
  std::vector<int64_t> overlap;  // empty: searched for
  int64_t moving_first_plane = 0;
  double slicing_interval_um = 0, search_range_um = 0, min_correlation = 0.5;
  int64_t consistency_min_pairs = 3;
  double consistency_tolerance = 0.3, consistency_min_correlation = 0.6;
  double refine_limit_um = 0, refine_min_confidence = 0.5, refine_min_correlation = 0.2;
  bool match_intensity = false;
  int64_t gain_min_voxels = 1000;
  double gain_least = 0.5, gain_most = 2;
  SectionBlend blend = SectionBlend::kDefault;
  double valid_above = 0;
  std::optional<double> gap;
  Scalar scalar{};  // 0: of the sections
};

// As in octavo.v1.
enum class OverlapState : uint8_t {
  kNone = 0,
  kGiven = 1,
  kFound = 2,
  kFallback = 3,
  kCorrected = 4
};
enum class RefinementState : uint8_t {
  kNone = 0,
  kApplied = 1,
  kSmall = 2,
  kBeyondLimit = 3,
  kUnsure = 4,
  kNothingCommon = 5,
};

/// As octavo.v1.StackedSection.
struct StackedSection {
  Vector3 position_um;
  int64_t first_plane = 0, planes = 0, overlap = 0;
  OverlapState overlap_state = OverlapState::kNone;
  double correlation = 0;
  int64_t found_overlap = 0, expected_overlap = 0;
  Vector3 refinement_um;
  double refinement_confidence = 0;
  RefinementState refinement_state = RefinementState::kNone;
  double gain = 1, measured_gain = 0;
  int64_t gain_voxels = 0;
};

/// The overlaps of neighbours that were searched for, one after the other.
struct SectionOverlap {
  int64_t planes = 0;      // that they may have in common at most
  int64_t overlap = 0;     // found, or expected
  double correlation = 0;  // 0: not found
};
/// Which of them contradict the others, and what they become (StackSectionsRequest). Each is true
/// or false in `corrected`.
std::vector<int64_t> ConsistentOverlaps(const std::vector<SectionOverlap>& found, int64_t min_pairs,
                                        double tolerance, double min_correlation,
                                        std::vector<bool>* corrected);

/// Runs a program on the sections of these numbers and returns the bytes of its result.
using MeasureSections = std::function<absl::StatusOr<std::vector<char>>(
    const SlicedProgram& program, const std::vector<size_t>& sections)>;

/// Sections on their way to one array: what is known of them, and the programs that find the rest.
class SectionStack {
 public:
  /// InvalidArgument names the fields of StackSectionsRequest. `types`: of the sections.
  static absl::StatusOr<SectionStack> Plan(const StackSectionsSpec& spec,
                                           const std::vector<ArrayType>& types);
  /// Finds overlaps, shifts and gains, as far as they are asked for. Once.
  absl::Status Measure(const MeasureSections& measure);
  /// The program that makes the array of all sections, its inputs, in their order. InvalidArgument
  /// (TOO_MANY_ELEMENTS).
  absl::StatusOr<std::unique_ptr<const SlicedProgram>> Program() const;
  /// What was done with each section.
  const std::vector<StackedSection>& sections() const { return report_; }
  /// Of the first voxel of the array.
  Vector3 origin_um() const { return origin_um_; }
  int64_t total_z() const { return extent_[0]; }

 private:
  /// Planes of a section that are used.
  int64_t PlanesOf(size_t section) const;
  int64_t FirstOf(size_t section) const { return section == 0 ? 0 : spec_.moving_first_plane; }
  /// Position of a section along y (1) or x (2), in voxels from the frame's origin.
  double VoxelsOf(size_t section, int d) const;
  absl::Status FindOverlaps(const MeasureSections& measure);
  absl::Status FindOverlap(size_t section, const MeasureSections& measure, SectionOverlap* found);
  absl::Status Refine(size_t section, const MeasureSections& measure);
  /// All sections, from where the stage has them on.
  absl::Status RefineAll(const MeasureSections& measure);
  absl::Status Place();
  absl::Status MatchIntensity(size_t section, const MeasureSections& measure);
  StackSpec Spec() const;
  std::vector<SectionRange> Planes() const;

  StackSectionsSpec spec_;
  std::vector<ArrayType> types_;
  double gap_ = 0;
  Scalar out_{};
  std::vector<double> moved_[3];  // of each section, by refinements, in voxels
  std::vector<PlacedSection> placed_;
  int64_t extent_[3] = {1, 1, 1};
  Vector3 origin_um_;
  std::vector<StackedSection> report_;
};

}  // namespace octavo::inline gpu
