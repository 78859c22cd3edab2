#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu/mosaic/register_tiles.h"
#include "gpu/mosaic/stitch_tiles.h"
#include "gpu/mosaic/z_overlap.h"
#include "server/buffer/buffer_store.h"
#include "server/model/buffer_types.h"

namespace octavo::mosaic {

// Requests in plain types. Fields as in octavo.v1.
struct RegisterTilesCall {
  model::BufferProgramSpec::Input tiles;
  RegistrationSpec spec;
};
struct StitchTilesCall {
  model::BufferProgramSpec::Input tiles;
  StitchTilesSpec spec;
  std::map<std::string, std::string> labels;
  double ttl_seconds = 0;
  std::string request_id, request_digest;
};
struct StitchedTiles {
  model::BufferStatus buffer;
  Vector3 origin_um;
};
struct FindZOverlapCall {
  model::BufferProgramSpec::Input fixed, moving;
  ZOverlapSpec spec;
};

/// The parts of a mosaic, as calls on arrays: plans them (gpu/mosaic) and has the store of buffers
/// run them, which knows leases, memory and the order of all work. Thread-safe; has no state.
class Mosaics {
 public:
  explicit Mosaics(buffer::BufferStore* buffers) : buffers_(*buffers) {}

  /// Waits for the device.
  absl::StatusOr<TilePositions> Register(const RegisterTilesCall& call,
                                         const model::Caller& caller);
  absl::StatusOr<StitchedTiles> Stitch(const StitchTilesCall& call, const model::Caller& caller);
  /// Waits for the device.
  absl::StatusOr<ZOverlapResult> FindZOverlap(const FindZOverlapCall& call,
                                              const model::Caller& caller);

 private:
  buffer::BufferStore& buffers_;
};

}  // namespace octavo::mosaic
