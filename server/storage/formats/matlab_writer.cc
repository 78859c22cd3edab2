#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/single_file.h"
#include "server/storage/io/deflate.h"

namespace octavo::storage {
namespace {

// Types of elements and classes of arrays, by MATLAB's names mi... and mx...
enum Element : uint32_t {
  kInt8 = 1,
  kUint8 = 2,
  kInt16 = 3,
  kUint16 = 4,
  kInt32 = 5,
  kUint32 = 6,
  kSingle = 7,
  kDouble = 9,
  kMatrix = 14,
  kCompressed = 15,
  kUtf8 = 16
};
enum Class : uint32_t {
  kCharClass = 4,
  kDoubleClass = 6,
  kSingleClass = 7,
  kInt8Class = 8,
  kUint8Class = 9,
  kInt16Class = 10,
  kUint16Class = 11
};
constexpr uint32_t kComplexFlag = 0x800;

struct Type {
  Element element;
  Class array;
};
Type TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kU8: return {kUint8, kUint8Class};
    case DType::kI8: return {kInt8, kInt8Class};
    case DType::kU16: return {kUint16, kUint16Class};
    case DType::kI16: return {kInt16, kInt16Class};
    case DType::kF64: return {kDouble, kDoubleClass};
    default: return {kSingle, kSingleClass};
  }
}

std::string Tag(Element type, int64_t bytes) {
  std::string out;
  Put(&out, static_cast<uint32_t>(type));
  Put(&out, static_cast<uint32_t>(bytes));
  return out;
}
std::string Padding(int64_t bytes) {
  return std::string(static_cast<size_t>((8 - bytes % 8) % 8), '\0');
}
std::string WholeElement(Element type, const std::string& data) {
  return Tag(type, static_cast<int64_t>(data.size())) + data +
         Padding(static_cast<int64_t>(data.size()));
}

/// The beginning of a matrix: flags, extents, name.
std::string MatrixBegin(uint32_t flags, const std::vector<int64_t>& extents,
                        const std::string& name) {
  std::string flag_words, extent_words;
  Put(&flag_words, flags);
  Put(&flag_words, uint32_t{0});
  for (const int64_t extent : extents) Put(&extent_words, static_cast<int32_t>(extent));
  return WholeElement(kUint32, flag_words) + WholeElement(kInt32, extent_words) +
         WholeElement(kInt8, name);
}
std::string WholeMatrix(uint32_t flags, const std::vector<int64_t>& extents,
                        const std::string& name, Element type, const std::string& data) {
  return WholeElement(kMatrix, MatrixBegin(flags, extents, name) + WholeElement(type, data));
}
std::string Text(const std::string& name, const std::string& ascii) {
  return WholeMatrix(kCharClass, {1, static_cast<int64_t>(ascii.size())}, name, kUtf8, ascii);
}
std::string Doubles(const std::string& name, const std::vector<double>& values) {
  std::string data;
  for (const double value : values) Put(&data, value);
  return WholeMatrix(kDoubleClass, {1, static_cast<int64_t>(values.size())}, name, kDouble, data);
}

/// MATLAB v5 (what `save -v6` and `-v7` write). MATLAB's first index is its fastest, so `volume`
/// has the volume's axes in reverse: [z, x, y], and volume(:, :, k) is a B-scan with depth along
/// its columns. Beside it `axes` ('zxy'), `spacing_um` (in that order), `display`, `levels` (if
/// there are any) and `octavo`, all metadata as JSON for jsondecode. Compressed with zlib unless
/// asked not to; complex voxels, whose real and imaginary parts are apart in this format, are not
/// compressed. Source: MathWorks, MAT-File Format, Level 5
class MatlabWriter final : public StreamedFileWriter {
 public:
  using StreamedFileWriter::StreamedFileWriter;

  absl::Status Start() {
    const bool complex = meta_.dtype == DType::kC64, compressed = options_.compress && !complex;
    const Type type = TypeOf(meta_.dtype);
    head_ = "MATLAB 5.0 MAT-file, written by octavo";
    head_.resize(124, ' ');
    head_ += std::string("\x00\x01IM", 4);
    head_ +=
        Text("axes", absl::StrCat(meta_.axes[2], meta_.axes[1], meta_.axes[0])) +
        Doubles("spacing_um", {meta_.spacing_um[2], meta_.spacing_um[1], meta_.spacing_um[0]}) +
        Doubles("display", {meta_.display_lo, meta_.display_hi});
    std::string assumed;
    for (int d = 2; d >= 0; --d) {
      if (meta_.spacing_assumed[d]) assumed += meta_.axes[d];
    }
    if (!assumed.empty()) head_ += Text("spacing_assumed", assumed);
    if (meta_.has_levels) head_ += Doubles("levels", {meta_.level_lo, meta_.level_hi});
    head_ += Text("octavo", MetaText(meta_));
    // The real part; the imaginary part has as many bytes.
    const int64_t part = complex ? VolumeBytes() / 2 : VolumeBytes();
    const std::string data_tag = Tag(type.element, part), pad = Padding(part), name = "volume";
    std::string begin = MatrixBegin(type.array | (complex ? kComplexFlag : 0),
                                    {meta_.shape[2], meta_.shape[1], meta_.shape[0]}, name) +
                        data_tag;
    const int64_t matrix =
        static_cast<int64_t>(begin.size() + pad.size()) + part +
        (complex ? static_cast<int64_t>(data_tag.size() + pad.size()) + part : 0);
    begin = Tag(kMatrix, matrix) + begin;
    after_ = pad;
    if (compressed) {
      size_at_ = head_.size() + 4;
      head_ += Tag(kCompressed, 0);
      zlib_.emplace(DeflateStream::Wrap::kZlib, options_.level);
    } else {
      head_ += begin;
    }
    OCTAVO_RETURN_IF_ERROR(
        Open(static_cast<int64_t>(head_.size()), compressed ? 0 : VolumeBytes()));
    if (complex) return BeginRows(2, part, pad + data_tag);
    if (!compressed) return absl::OkStatus();
    body_begin_ = position();
    const std::string stream = zlib_->Head();
    OCTAVO_RETURN_IF_ERROR(Append(stream.data(), static_cast<int64_t>(stream.size())));
    return AppendDeflated(begin.data(), static_cast<int64_t>(begin.size()));
  }

 private:
  absl::Status AppendDeflated(const void* data, int64_t bytes) {
    OCTAVO_ASSIGN_OR_RETURN(const auto pieces, zlib_->Add(data, bytes));
    for (const std::string& piece : pieces)
      OCTAVO_RETURN_IF_ERROR(Append(piece.data(), static_cast<int64_t>(piece.size())));
    return absl::OkStatus();
  }

  absl::Status Slab(int64_t, int64_t bscans, const char* data) override {
    const int64_t bytes = bscans * PlaneBytes();
    if (zlib_) return AppendDeflated(data, bytes);
    if (meta_.dtype != DType::kC64) return Append(data, bytes);
    const int64_t count = bytes / 8;
    absl::Status results[2];
    tbb::parallel_for(0, 2, [&](int part) {  // real, imaginary
      const char* const in = data + 4 * part;
      results[part] = AppendToRows(part, 1, 4 * count, [&](char* const* places) {
        for (int64_t i = 0; i < count; ++i) std::memcpy(places[0] + 4 * i, in + 8 * i, 4);
      });
    });
    OCTAVO_RETURN_IF_ERROR(results[0]);
    return results[1];
  }

  absl::StatusOr<std::string> Head() override {
    if (zlib_) {
      OCTAVO_RETURN_IF_ERROR(AppendDeflated(after_.data(), static_cast<int64_t>(after_.size())));
      const std::string end = zlib_->Tail();
      OCTAVO_RETURN_IF_ERROR(Append(end.data(), static_cast<int64_t>(end.size())));
      std::string size;
      Put(&size, static_cast<uint32_t>(position() - body_begin_));
      head_.replace(size_at_, 4, size);
      return head_;
    }
    if (meta_.dtype == DType::kC64) OCTAVO_RETURN_IF_ERROR(EndRows());
    OCTAVO_RETURN_IF_ERROR(Append(after_.data(), static_cast<int64_t>(after_.size())));
    return head_;
  }

  std::string head_, after_;  // before and after the voxels
  size_t size_at_ = 0;        // position of the compressed size in the head
  int64_t body_begin_ = 0;
  std::optional<DeflateStream> zlib_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeMatlabWriter(const std::string& path,
                                                                 const VolumeMeta& meta,
                                                                 const WriterOptions& options) {
  return Started<MatlabWriter>(path, meta, options);
}

}  // namespace octavo::storage
