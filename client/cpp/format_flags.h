#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/scan.pb.h"

namespace octavo::cli {

/// The flags that say how a volume is written.
struct FormatFlags {
  std::string format, codec, shuffle;
  std::vector<uint32_t> chunk, shard;
  int zstd_level = 0, level = 0;
  uint32_t pyramid_levels = 0, nifti_version = 0;
  bool raw = false;
  std::string tiff_plane;
  bool tiff_stack = false;

  /// Adds --format and the flags beside it.
  void AddTo(CLI::App* app);
  /// Everything but the destination; the format stays unset where none was given (--tiff-stack gives one).
  void Fill(v1::CommitOptions* options) const;
};

/// The names of the formats: "zarr", "npy", ...
std::vector<std::string> FormatNames();
/// The format of one of them.
v1::Format ParseFormat(const std::string& name);

}  // namespace octavo::cli
