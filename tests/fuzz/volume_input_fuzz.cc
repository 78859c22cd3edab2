// A file of any kind, by its descriptor: NumPy, TIFF, NIfTI, NRRD, MATLAB. Opens it and reads a
// small box at each end. Neither may crash, hang or take more memory than the limits say.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "server/storage/formats/volume_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using octavo::storage::InputFormat;
  const absl::string_view head(reinterpret_cast<const char*>(data), std::min<size_t>(size, 4096));
  const auto format = octavo::storage::RecogniseInput(head);
  // The HDF5 library trusts files: another process opens them first.
  if (format == InputFormat::kHdf5) return 0;
  octavo::UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!fd || ::write(fd.get(), data, size) != static_cast<ssize_t>(size)) return 0;
  octavo::storage::VolumeInputOptions options;
  options.most_chunk_bytes = 16 << 20;
  options.dataset = format == InputFormat::kMatlab ? "volume" : "";
  const auto input = octavo::storage::OpenVolumeInput(std::move(fd), "fuzzed", options);
  if (!input.ok()) return 0;
  const auto& info = (*input)->info();
  for (const bool last : {false, true}) {
    octavo::base::ArrayBox box;
    int64_t elements = 1;
    for (const int64_t extent : info.shape()) {
      const int64_t count = std::min<int64_t>(extent, 4);
      box.start.push_back(last ? extent - count : 0);
      box.count.push_back(count);
      elements *= count;
    }
    if (elements > (1 << 20)) return 0;
    std::vector<char> out(static_cast<size_t>(elements * info.type.bytes));
    (void)(*input)->Read(box, absl::MakeSpan(out));
  }
  return 0;
}
