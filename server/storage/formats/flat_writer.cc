#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/formats/single_file.h"

namespace octavo::storage {
namespace {

/// The voxels in their order, the last axis fastest. In .npy, NumPy's header (format 1.0), padded
/// to 64 bytes, precedes them; .bin has no header.
class FlatWriter final : public StreamedFileWriter {
 public:
  FlatWriter(std::string path, const VolumeMeta& meta, const WriterOptions& options)
      : StreamedFileWriter(std::move(path), meta, options) {
    if (options.format == Format::kBin) return;
    std::string dict = absl::StrCat("{'descr': '", Info(meta_.dtype).numpy,
                                    "', 'fortran_order': False, 'shape': (", meta_.shape[0], ", ",
                                    meta_.shape[1], ", ", meta_.shape[2], "), }");
    dict.append(63 - (10 + dict.size()) % 64, ' ');
    dict += '\n';
    head_ = std::string("\x93NUMPY\x01\x00", 8);
    Put(&head_, static_cast<uint16_t>(dict.size()));
    head_ += dict;
  }

  absl::Status Start() { return Open(static_cast<int64_t>(head_.size()), VolumeBytes()); }

 private:
  absl::Status Slab(int64_t, int64_t bscans, const char* data) override {
    return Append(data, bscans * PlaneBytes());
  }
  absl::StatusOr<std::string> Head() override { return head_; }

  std::string head_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeFlatWriter(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options) {
  return Started<FlatWriter>(path, meta, options);
}

}  // namespace octavo::storage
