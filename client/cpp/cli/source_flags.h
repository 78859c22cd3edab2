#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

#include "octavo/v1/ingest.pb.h"

namespace octavo::cli {

/// The flags about a file that becomes a volume, for what it does not say itself: of `octavo
/// convert` and `octavo volume import`.
struct SourceFlags {
  std::string format, raw_type, dataset, dtype, order;
  std::vector<int64_t> raw_shape;
  std::vector<std::string> axes, select, spacing_um;
  int64_t raw_offset = 0;
  bool raw_big_endian = false, raw_fortran = false, raw_trailing = false, unknown_spacing = false,
       scaled = false;
  std::optional<uint32_t> image, from_level;

  void AddTo(CLI::App* app);
  /// The import that the flags describe, without its source. `array`: of a buffer, which has more
  /// types than a volume. InvalidArgument names the flag.
  absl::StatusOr<v1::ImportJob> Make(bool array = false) const;
};

/// "f32" for DTYPE_F32, as storage::ElementTypeNamed takes it.
std::string TypeWord(v1::Dtype dtype);

}  // namespace octavo::cli
