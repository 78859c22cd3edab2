#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "gpu/base/status.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/single_file.h"
#include "server/storage/io/deflate.h"

namespace octavo::storage {
namespace {

const char* TypeName(DType dtype) {
  switch (dtype) {
    case DType::kU8: return "uint8";
    case DType::kI8: return "int8";
    case DType::kU16: return "uint16";
    case DType::kI16: return "int16";
    case DType::kF64: return "double";
    default: return "float";  // complex: pairs of it
  }
}

/// NRRD0004 with an attached header. The header lists the axes fastest first, each with its
/// direction in a space (x, y, z) in micrometres, so that readers know the spacing and the
/// orientation. Complex voxels are an axis of kind "complex" before those. Source:
/// https://teem.sourceforge.net/nrrd/format.html
class NrrdWriter final : public StreamedFileWriter {
 public:
  using StreamedFileWriter::StreamedFileWriter;

  absl::Status Start() {
    head_ = MakeHead();
    OCTAVO_RETURN_IF_ERROR(
        Open(static_cast<int64_t>(head_.size()), options_.compress ? 0 : VolumeBytes()));
    if (!options_.compress) return absl::OkStatus();
    gzip_.emplace(DeflateStream::Wrap::kGzip, options_.level);
    const std::string begin = gzip_->Head();
    return Append(begin.data(), static_cast<int64_t>(begin.size()));
  }

 private:
  absl::Status Slab(int64_t, int64_t bscans, const char* data) override {
    if (!gzip_) return Append(data, bscans * PlaneBytes());
    OCTAVO_ASSIGN_OR_RETURN(const auto pieces, gzip_->Add(data, bscans * PlaneBytes()));
    for (const std::string& piece : pieces)
      OCTAVO_RETURN_IF_ERROR(Append(piece.data(), static_cast<int64_t>(piece.size())));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Head() override {
    if (gzip_) {
      const std::string end = gzip_->Tail();
      OCTAVO_RETURN_IF_ERROR(Append(end.data(), static_cast<int64_t>(end.size())));
    }
    return head_;
  }

  std::string MakeHead() const {
    const bool complex = meta_.dtype == DType::kC64;
    // A line break would end a field, which has no escapes; a key's value has them.
    const auto one_line = [](std::string text) {
      for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
      return text;
    };
    const auto escaped = [](const std::string& text) {
      return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\n", "\\n"}});
    };
    const auto number = [](double value) { return absl::StrFormat("%.17g", value); };
    std::string out = "NRRD0004\n# written by octavo\n";
    std::string directions, labels;  // fastest first
    for (int d = 2; d >= 0; --d) {
      double direction[3] = {0, 0, 0};
      direction[meta_.axes[d][0] - 'x'] = meta_.spacing_um[d];
      absl::StrAppend(&directions, d == 2 ? "(" : " (", number(direction[0]), ",",
                      number(direction[1]), ",", number(direction[2]), ")");
      absl::StrAppend(&labels, d == 2 ? "\"" : " \"", meta_.axes[d], "\"");
    }
    absl::StrAppend(&out, "type: ", TypeName(meta_.dtype), "\n");
    absl::StrAppend(&out, "dimension: ", complex ? 4 : 3, "\n");
    absl::StrAppend(&out, "space dimension: 3\n");
    absl::StrAppend(&out, "sizes: ", complex ? "2 " : "", meta_.shape[2], " ", meta_.shape[1], " ",
                    meta_.shape[0], "\n");
    absl::StrAppend(&out, "space directions: ", complex ? "none " : "", directions, "\n");
    absl::StrAppend(&out, "kinds: ", complex ? "complex " : "", "domain domain domain\n");
    absl::StrAppend(&out, "labels: ", complex ? "\"\" " : "", labels, "\n");
    if (SizeOf(meta_.dtype) > 1) absl::StrAppend(&out, "endian: little\n");
    absl::StrAppend(&out, "encoding: ", options_.compress ? "gzip" : "raw", "\n");
    const auto unit = [&](char axis) {
      return meta_.spacing_assumed[AxisAt(meta_, axis)] ? "\"\"" : "\"um\"";
    };
    absl::StrAppend(&out, "space units: ", unit('x'), " ", unit('y'), " ", unit('z'), "\n");
    absl::StrAppend(&out, "space origin: (0,0,0)\n");
    if (!meta_.title.empty()) absl::StrAppend(&out, "content: ", one_line(meta_.title), "\n");
    if (meta_.has_levels)
      absl::StrAppend(&out, "old min: ", number(meta_.level_lo),
                      "\nold max: ", number(meta_.level_hi), "\n");
    absl::StrAppend(&out, "octavo:=", escaped(MetaText(meta_)), "\n\n");
    return out;
  }

  std::string head_;
  std::optional<DeflateStream> gzip_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeNrrdWriter(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options) {
  return Started<NrrdWriter>(path, meta, options);
}

}  // namespace octavo::storage
