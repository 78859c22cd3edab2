#pragma once

// Two filters of HDF5 that detectors and beamlines compress frames with: LZ4 and bitshuffle. HDF5
// has them as plug-ins, which it loads from a folder and which trust their input. Debian has no
// library of bitshuffle beside that plug-in, therefore the transposition of bits is this program's
// own; LZ4 and zstd are their libraries'. Formats:
//   https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
//   https://github.com/kiyo-masui/bitshuffle

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace octavo::storage {

/// Their numbers, as The HDF Group has registered them.
inline constexpr int kHdf5Lz4 = 32004, kHdf5Bitshuffle = 32008;

/// Blocks of LZ4, each with its length; the chunk says all the rest.
struct Hdf5Lz4 {};

/// Bit k of byte j of all elements of a block lies together, and each block may then be compressed.
struct Hdf5Bitshuffle {
  enum class Inside : uint8_t { kNothing, kLz4, kZstd };
  int64_t element_bytes = 1;  // 1, 2, 4, 8
  // A multiple of 8, 0 = DefaultBlock; only with kNothing: else the chunk says it.
  int64_t block_elements = 0;
  Inside inside = Inside::kNothing;

  /// The block that bitshuffle chooses if it is not told one.
  static int64_t DefaultBlock(int64_t element_bytes);
};

/// The decoder of one thread, kept between chunks. No input makes it write or read beyond what it
/// is given, or allocate more than a chunk. DataLoss: "damaged chunk: …". Bytes behind the last
/// block are left out, as the plug-ins do.
class Hdf5FilterDecoder {
 public:
  Hdf5FilterDecoder();
  ~Hdf5FilterDecoder();
  Hdf5FilterDecoder(const Hdf5FilterDecoder&) = delete;

  /// Decodes to exactly `bytes` bytes, at most 2^30, at `out`.
  absl::Status Decode(const Hdf5Lz4& filter, absl::string_view encoded, char* out, int64_t bytes);
  absl::Status Decode(const Hdf5Bitshuffle& filter, absl::string_view encoded, char* out,
                      int64_t bytes);

 private:
  struct Contexts;
  absl::Status Unpack(Hdf5Bitshuffle::Inside inside, absl::string_view packed, char* out,
                      int64_t bytes);

  std::unique_ptr<Contexts> contexts_;
  std::vector<char> block_;  // one, decompressed
};

}  // namespace octavo::storage
