#include "server/storage/projections/plain_frames.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

constexpr int64_t kConvert = 1 << 20;  // numbers converted at a time

}  // namespace

absl::Status PlainFrames::Read(const int64_t start[3], const int64_t count[3], DType dtype,
                               char* out) {
  // Read the longest pieces that are contiguous both in the file and in memory: rows, the rows of
  // a frame, or everything.
  const bool whole_rows = count[2] == shape[2], whole_frames = whole_rows && count[1] == shape[1];
  const int64_t piece = whole_frames ? count[0] * count[1] * count[2]
                        : whole_rows ? count[1] * count[2]
                                     : count[2];
  const int64_t rows = whole_rows ? 1 : count[1], frames = whole_frames ? 1 : count[0],
                step = piece * SizeOf(dtype);
  const bool convert = !type.IsAs(dtype);
  std::vector<char> memory(convert ? static_cast<size_t>(std::min(piece, kConvert) * type.bytes)
                                   : 0);
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t r = 0; r < rows; ++r, out += step) {
      const int64_t first = ((start[0] + f) * shape[1] + start[1] + r) * shape[2] + start[2];
      if (!convert) {
        OCTAVO_RETURN_IF_ERROR(ReadAt(out, piece, first));
        continue;
      }
      for (int64_t done = 0; done < piece; done += kConvert) {
        const int64_t n = std::min(kConvert, piece - done);
        OCTAVO_RETURN_IF_ERROR(ReadAt(memory.data(), n, first + done));
        LoadNumbers(memory.data(), type, n, dtype, out + done * SizeOf(dtype));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlainFrames::ReadAt(char* out, int64_t count, int64_t first) const {
  absl::Status read =
      ReadAllAt(file_.get(), "the file", out, static_cast<size_t>(count * type.bytes),
                offset_ + first * type.bytes);
  if (read.ok()) return read;
  return DamagedProjections(path_, dataset,
                            absl::StrCat("cannot be read: ", std::string(read.message())));
}

}  // namespace octavo::storage
