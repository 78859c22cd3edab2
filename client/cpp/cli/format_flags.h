#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/scan.pb.h"

namespace octavo::cli {

/// The flags for writing a volume.
struct FormatFlags {
  std::string format, codec, shuffle;
  std::vector<uint32_t> chunk, shard;
  int zstd_level = 0, level = 0;
  uint32_t pyramid_levels = 0, nifti_version = 0;
  bool raw = false;
  std::string tiff_plane, ngff;
  std::vector<double> pyramid_um;
  bool tiff_stack = false;

  static constexpr const char* kAll[] = {
      "--format",     "--chunk", "--shard",   "--pyramid",       "--codec",
      "--zstd",       "--level", "--shuffle", "--nifti-version", "--tiff-plane",
      "--tiff-stack", "--raw",   "--ngff",    "--pyramid-um"};

  /// Adds --format and the flags beside it.
  void AddTo(CLI::App* app);
  /// The commit options. `what` is the flag or argument that gives the destination. The format is
  /// FormatFor's (--tiff-stack asks for one, too). Throws CLI::ValidationError like that, and for
  /// flags without effect in this format.
  void Fill(const std::string& what, const std::string& destination,
            v1::CommitOptions* options) const;

 private:
  void Refuse(const std::string& chosen) const;

  const CLI::App* app_ = nullptr;
};

/// The names of the formats: "zarr", "npy", ...
std::vector<std::string> FormatNames();
/// The format of one of them.
v1::Format ParseFormat(const std::string& name);
/// The endings of file names that say a format: ".zarr", ".npy", ...
std::vector<std::string> FormatEndings();

/// Throws CLI::ValidationError if the file name that `flag` gives does not look like a .npy file.
void CheckNpyName(const std::string& flag, const std::string& path);

/// The format of `destination`, which `what` (a flag or an argument) gives: by its ending, else
/// `asked`, which may be FORMAT_UNSPECIFIED; `by` is the flag that sets it. Throws
/// CLI::ValidationError if the two contradict each other, if the destination ends in '/', and, like
/// storage::FormatFor, for endings of files that Octavo does not write.
v1::Format FormatFor(const std::string& what, const std::string& destination, v1::Format asked,
                     const std::string& by = "--format");

}  // namespace octavo::cli
