#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/base/mutex.h"
#include "gpu/mosaic/register_tiles.h"
#include "gpu/mosaic/resample_tiles.h"
#include "gpu/mosaic/stack_sections.h"
#include "gpu/mosaic/stitch_tiles.h"
#include "gpu/mosaic/z_overlap.h"
#include "server/buffer/buffer_store.h"
#include "server/model/buffer_types.h"

namespace octavo::mosaic {

/// An array of a call.
using Source = buffer::LongWorkSpec::Input;
/// The buffer that a call makes.
struct NewBuffer {
  std::map<std::string, std::string> labels;
  double ttl_seconds = 0;
  std::string request_id, request_digest;
};

// Requests in plain types. Fields as in octavo.v1.
struct RegisterTilesCall {
  Source tiles;
  RegistrationSpec spec;
};
struct StitchTilesCall {
  Source tiles;
  StitchTilesSpec spec;
  NewBuffer made;
};
struct StitchedTiles {
  model::BufferStatus buffer;
  Vector3 origin_um;
};
struct FindZOverlapCall {
  Source fixed, moving;
  ZOverlapSpec spec;
};
struct StackSectionsCall {
  std::vector<Source> sections;
  StackSectionsSpec spec;
  NewBuffer made;
};
struct StackReport {
  Vector3 origin_um;
  int64_t total_z = 0;
  std::vector<StackedSection> sections;
};
struct StackedSections {
  model::BufferStatus buffer;
  StackReport report;
};
struct ResampleTilesCall {
  Source tiles;
  ResampleTilesSpec spec;
  NewBuffer made;
};
struct ResampledBuffer {
  model::BufferStatus buffer;
  ResampledTiles tiles;
};

/// The parts of a mosaic, as calls on arrays: plans them (gpu/mosaic) and has the store of buffers
/// run them, which knows leases and memory. All calls wait for the device, as long as `may_go_on`
/// (null: always) lets them. Thread-safe.
class Mosaics {
 public:
  explicit Mosaics(buffer::BufferStore* buffers) : buffers_(*buffers) {}

  absl::StatusOr<TilePositions> Register(const RegisterTilesCall& call, const model::Caller& caller,
                                         const buffer::MayGoOn& may_go_on = nullptr);
  absl::StatusOr<StitchedTiles> Stitch(const StitchTilesCall& call, const model::Caller& caller,
                                       const buffer::MayGoOn& may_go_on = nullptr);
  absl::StatusOr<ZOverlapResult> FindZOverlap(const FindZOverlapCall& call,
                                              const model::Caller& caller,
                                              const buffer::MayGoOn& may_go_on = nullptr);
  absl::StatusOr<StackedSections> Stack(const StackSectionsCall& call, const model::Caller& caller,
                                        const buffer::MayGoOn& may_go_on = nullptr);
  absl::StatusOr<ResampledBuffer> Resample(const ResampleTilesCall& call,
                                           const model::Caller& caller,
                                           const buffer::MayGoOn& may_go_on = nullptr);

 private:
  static constexpr size_t kReports = 64;

  absl::Status CheckSize(const ArrayType& made, const std::string& field) const;
  /// What the answer says of a new buffer beside the buffer itself.
  struct Report {
    StackReport stack;
    ResampledTiles tiles;
  };
  void Keep(const std::string& buffer, Report report);
  /// That of a buffer of before; empty if it is forgotten.
  Report Kept(const std::string& buffer);

  buffer::BufferStore& buffers_;
  Mutex mutex_;
  // Of the last buffers, for retries; the newest is the first one.
  std::list<std::pair<std::string, Report>> reports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace octavo::mosaic
