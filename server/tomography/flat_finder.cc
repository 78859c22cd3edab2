#include "server/tomography/flat_finder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/tomography/flat_components.h"
#include "server/base/errors.h"
#include "server/storage/projections/prefetch.h"
#include "server/tomography/row_preparer.h"

namespace octavo::tomography {
namespace {

using Kind = FlatComponentFinder::Kind;

constexpr int64_t kMostReaders = 6;
constexpr double kFar = 2;  // of the largest weight among the flat fields

/// Frames that follow each other are read as one piece.
int64_t FramesOfPiece(const model::IndexRange& range, int64_t at_once) {
  return range.step == 1 ? std::min(at_once, range.count()) : 1;
}
/// The memory that reads ahead: slots of a piece each, one more than there are readers.
struct ReadAhead {
  int64_t readers = 1, slot_bytes = 0;
  int64_t bytes() const { return (readers + 1) * slot_bytes; }
};
ReadAhead ReadAheadOf(const FlatComponentsConfig& config, const model::IndexRange& range) {
  const int64_t total = range.count();
  if (total == 0) return {};
  const int64_t together = FramesOfPiece(range, config.frames_at_once),
                pieces = config.groups * ((total + together - 1) / together);
  return {.readers = std::clamp<int64_t>(std::thread::hardware_concurrency() / 2, 1,
                                         std::min(kMostReaders, pieces)),
          .slot_bytes = together * config.group_rows * config.columns * SizeOf(config.dtype)};
}
model::IndexRange AllOf(int64_t frames) { return {.begin = 0, .end = frames, .step = 1}; }

/// Frames of one kind that are read in pieces: each piece is a group of rows of some frames.
struct Frames {
  Kind kind = Kind::kFlat;
  storage::FrameKind stored = storage::FrameKind::kFlat;
  model::IndexRange range;
  int64_t count() const { return range.count(); }
};

class FlatFinder {
 public:
  FlatFinder(const ScannedObject& object, job::JobRun& run, const std::stop_token& stop,
             JobNotes& notes)
      : object_(object),
        run_(run),
        stop_(stop),
        notes_(notes),
        config_(object.layout.FlatSearch()),
        groups_(object.layout.FlatGroups()) {}

  absl::StatusOr<FlatComponents> Find(model::TomographyReport& report) {
    OCTAVO_ASSIGN_OR_RETURN(finder_, FlatComponentFinder::Create(config_, run_.device()));
    for (const Frames& fields :
         {Frames{Kind::kFlat, storage::FrameKind::kFlat, AllOf(config_.flats)},
          Frames{Kind::kDark, storage::FrameKind::kDark, AllOf(config_.darks)}}) {
      OCTAVO_RETURN_IF_ERROR(ForAll(fields, [&](int64_t count) {
        return finder_->TakeFields(run_.stream(), fields.kind, count);
      }));
    }
    OCTAVO_ASSIGN_OR_RETURN(FlatPrincipals found, finder_->Learn(run_.stream(), Until(stop_)));
    report.flat_components = found.components;
    report.largest_flat_weight = 0;
    FlatComponents out{.components = found.components, .mixture = {}, .weights = {}};
    if (found.components == 0) {
      notes_.warnings.push_back(absl::StrCat(
          "The ", config_.flats,
          " flat fields do not differ by more than their noise: preparation.dynamic_flats has no "
          "effect, and their mean is used."));
      return out;
    }
    const Frames projections{Kind::kProjection, storage::FrameKind::kProjection,
                             object_.layout.projections()};
    OCTAVO_RETURN_IF_ERROR(ForAll(projections, [&](int64_t count) -> absl::Status {
      OCTAVO_ASSIGN_OR_RETURN(const std::vector<double> weights,
                              finder_->Weights(run_.stream(), count));
      out.weights.insert(out.weights.end(), weights.begin(), weights.end());
      return absl::OkStatus();
    }));
    Tell(found, out, report);
    out.mixture = std::move(found.mixture);
    return out;
  }

 private:
  /// Adds all frames, as many at a time as the finder takes, and calls take(count) after each time.
  template <class Take>
  absl::Status ForAll(const Frames& frames, const Take& take) {
    const int64_t at_once = config_.frames_at_once, total = frames.count();
    if (total == 0) return absl::OkStatus();
    const int64_t together = FramesOfPiece(frames.range, at_once);
    std::vector<storage::ProjectionBox> boxes;
    std::vector<std::pair<int64_t, int64_t>> places;  // group, first frame of the turn
    for (int64_t turn = 0; turn < total; turn += at_once) {
      const int64_t end = std::min(turn + at_once, total);
      for (size_t g = 0; g < groups_.size(); ++g) {
        for (int64_t i = turn; i < end; i += together) {
          boxes.push_back({.kind = frames.stored,
                           .first_frame = frames.range.begin + i * frames.range.step,
                           .frames = std::min(together, end - i),
                           .first_row = groups_[g],
                           .rows = config_.group_rows,
                           .first_column = 0,
                           .columns = config_.columns});
          places.emplace_back(static_cast<int64_t>(g), i - turn);
        }
      }
    }
    const auto [readers, slot_bytes] = ReadAheadOf(config_, frames.range);
    std::vector<PinnedBuffer> memory;
    std::vector<void*> slots;
    for (int64_t i = 0; i < readers + 1; ++i) {
      OCTAVO_ASSIGN_OR_RETURN(PinnedBuffer slot, run_.device().AllocatePinned(slot_bytes));
      slots.push_back(slot.data());
      memory.push_back(std::move(slot));
    }
    OCTAVO_ASSIGN_OR_RETURN(const auto prefetch,
                            storage::ProjectionPrefetch::Start(
                                object_.input, boxes, std::move(slots), slot_bytes, readers));
    int64_t next = 0;
    for (int64_t turn = 0; turn < total; turn += at_once) {
      const int64_t count = std::min(at_once, total - turn),
                    pieces = (count + together - 1) / together * std::ssize(groups_);
      for (int64_t i = 0; i < pieces; ++i, ++next) {
        OCTAVO_ASSIGN_OR_RETURN(const storage::ProjectionPrefetch::Slab slab,
                                prefetch->Next(stop_));
        const auto [group, first] = places[static_cast<size_t>(next)];
        OCTAVO_RETURN_IF_ERROR(
            finder_->Add(run_.stream(), slab.data(), first, slab.box().frames, group));
      }
      OCTAVO_RETURN_IF_ERROR(take(count));
    }
    return absl::OkStatus();
  }

  void Tell(const FlatPrincipals& found, const FlatComponents& used,
            model::TomographyReport& report) {
    double share = 0;
    for (const double part : found.shares) share += part;
    int64_t far = 0;
    for (int64_t a = 0; a < object_.layout.frames(); ++a) {
      double most = 0;
      for (int64_t k = 0; k < used.components; ++k)
        most = std::max(most, std::abs(used.weights[static_cast<size_t>(a * used.components + k)]));
      report.largest_flat_weight = std::max(report.largest_flat_weight, most);
      if (most > kFar * found.largest) ++far;
    }
    notes_.log.push_back(absl::StrFormat(
        "dynamic flat fields: %d of their components, with %.1f %% of their variance, in %d rows; "
        "the largest weight is %.2f standard deviations, among the flat fields themselves %.2f",
        used.components, 100 * share, config_.groups * config_.group_rows,
        report.largest_flat_weight, found.largest));
    if (far == 0) return;
    notes_.warnings.push_back(absl::StrFormat(
        "The open beam of %d of %d projections lies further from the mean flat field than any flat "
        "field does (the largest weight is %.1f, among the flat fields %.1f): take more flat "
        "fields, or fewer components (preparation.dynamic_flats.components).",
        far, object_.layout.frames(), report.largest_flat_weight, found.largest));
  }

  const ScannedObject& object_;
  job::JobRun& run_;
  const std::stop_token stop_;
  JobNotes& notes_;
  const FlatComponentsConfig config_;
  const std::vector<int64_t> groups_;  // the first row of each
  std::unique_ptr<FlatComponentFinder> finder_;
};

}  // namespace

absl::StatusOr<int64_t> FlatFinderBytes(const TomographyLayout& layout, Device& device) {
  if (!layout.dynamic_flats()) return 0;
  auto bytes = FlatComponentFinder::DeviceBytes(layout.FlatSearch(), device);
  if (!bytes.ok()) return base::AtField("tomography.preparation.dynamic_flats.", bytes.status());
  return bytes;
}

absl::StatusOr<int64_t> FlatFinderHostBytes(const TomographyLayout& layout) {
  if (!layout.dynamic_flats()) return 0;
  const FlatComponentsConfig config = layout.FlatSearch();
  const auto bytes = FlatComponentFinder::HostBytes(config);
  if (!bytes.ok()) return base::AtField("tomography.preparation.dynamic_flats.", bytes.status());
  const int64_t ahead = std::max({ReadAheadOf(config, layout.projections()).bytes(),
                                  ReadAheadOf(config, AllOf(config.flats)).bytes(),
                                  ReadAheadOf(config, AllOf(config.darks)).bytes()});
  constexpr int64_t kWeight = sizeof(double), kTwice = 2;  // while the vector of them grows
  return *bytes + ahead + kTwice * layout.frames() * math::kMostFlatComponents * kWeight;
}

absl::StatusOr<TomographyLayout> WithDynamicFlats(const ScannedObject& object, job::JobRun& run,
                                                  const std::stop_token& stop,
                                                  model::TomographyReport& report,
                                                  JobNotes& notes) {
  if (!object.layout.dynamic_flats()) return object.layout;
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, FlatFinderBytes(object.layout, run.device()));
  OCTAVO_RETURN_IF_ERROR(run.Charge(bytes));
  absl::StatusOr<FlatComponents> found = FlatFinder(object, run, stop, notes).Find(report);
  run.Discharge(bytes);
  OCTAVO_RETURN_IF_ERROR(found.status());
  return object.layout.WithFlatComponents(*std::move(found));
}

}  // namespace octavo::tomography
