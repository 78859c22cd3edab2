#include <algorithm>
#include <cmath>
#include <string>
#include <vector>
#include <zlib.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tbb/enumerable_thread_specific.h"
#include "tbb/parallel_for.h"

#include "gpu/base/status.h"
#include "server/storage/meta_json.h"
#include "server/storage/single_file.h"

namespace octavo::storage {
namespace {

constexpr int64_t kHeadBytes = 16;

std::string Xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML 1.0 has no control characters
    }
  }
  return out;
}

const char* OmeType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float";
    case DType::kF64: return "double";
    case DType::kC64: return "complex";
    default: return Info(dtype).zarr;  // uint8 ... int16
  }
}

uint16_t SampleFormat(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kU16: return 1;
    case DType::kI8:
    case DType::kI16: return 2;
    case DType::kC64: return 6;
    default: return 3;
  }
}

/// A directory of BigTIFF: entries in order of their tags; values of more than 8 bytes follow it.
class Directory {
 public:
  template <class T>
  void Add(uint16_t tag, uint16_t type, const std::vector<T>& values) {
    Entry entry{.tag = tag, .type = type, .count = values.size(), .value = {}};
    for (const T& value : values) Put(&entry.value, value);
    entries_.push_back(std::move(entry));
  }
  void Rational(uint16_t tag, uint32_t numerator, uint32_t denominator) {
    Add<uint32_t>(tag, 5, {numerator, denominator});
    entries_.back().count = 1;
  }
  void Short(uint16_t tag, uint16_t value) { Add<uint16_t>(tag, 3, {value}); }
  void Long(uint16_t tag, int64_t value) { Add<uint32_t>(tag, 4, {static_cast<uint32_t>(value)}); }
  void Text(uint16_t tag, const std::string& text) { entries_.push_back({.tag = tag, .type = 2, .count = text.size() + 1, .value = text + '\0'}); }
  /// Its bytes at `offset`, a multiple of 8; another one follows unless `last`.
  std::string Bytes(int64_t offset, bool last) const {
    std::string extra, out;
    const int64_t entries_end = offset + 8 + 20 * static_cast<int64_t>(entries_.size()) + 8, extra_at = (entries_end + 7) / 8 * 8;
    Put(&out, static_cast<uint64_t>(entries_.size()));
    for (const Entry& entry : entries_) {
      Put(&out, entry.tag);
      Put(&out, entry.type);
      Put(&out, static_cast<uint64_t>(entry.count));
      std::string value = entry.value;
      if (value.size() > 8) {
        value.clear();
        Put(&value, static_cast<uint64_t>(extra_at + static_cast<int64_t>(extra.size())));
        extra += entry.value;
        extra.append((8 - extra.size() % 8) % 8, '\0');
      }
      value.resize(8);
      out += value;
    }
    Put(&out, last ? uint64_t{0} : static_cast<uint64_t>(extra_at + static_cast<int64_t>(extra.size())));
    out.append(static_cast<size_t>(extra_at - entries_end), '\0');
    return out + extra;
  }

 private:
  struct Entry {
    uint16_t tag, type;
    size_t count;
    std::string value;
  };
  std::vector<Entry> entries_;
};

/// BigTIFF with OME-XML (2016-06): a page is an en face plane [y, x], so that X, Y and Z of OME are x, y and z; strips are
/// the B-scans of a slab, raw or deflated, in the order in which slabs come; directories are at the end. libtiff is no help
/// here: it writes one page after the other, while every slab belongs to all pages.
/// Source: TIFF 6.0; https://www.awaresystems.be/imaging/tiff/bigtiff.html; OME-TIFF specification
class TiffWriter final : public StreamedFileWriter {
 public:
  using StreamedFileWriter::StreamedFileWriter;

  absl::Status Start() { return Open(kHeadBytes, options_.compress ? 0 : VolumeBytes()); }
  int64_t SlabBscans() const override { return BscansOf(32 << 20); }

 private:
  struct Strips {
    std::string bytes;
    std::vector<int64_t> sizes;
    absl::Status status;
  };

  absl::Status Slab(int64_t y_begin, int64_t bscans, const char* data) override {
    constexpr int64_t kPlanes = 32;
    if (y_begin % SlabBscans() != 0) return absl::InternalError(absl::StrCat("slab from ", y_begin, "; strips have ", SlabBscans(), " B-scans"));
    const int64_t rows = bscans * meta_.shape[1], depth = meta_.shape[2], size = SizeOf(meta_.dtype), strip = rows * size;
    std::vector<Strips> blocks(static_cast<size_t>((depth + kPlanes - 1) / kPlanes));
    tbb::parallel_for(size_t{0}, blocks.size(), [&](size_t i) {
      std::string& planes = scratch_.local();
      const int64_t z = static_cast<int64_t>(i) * kPlanes, count = std::min(kPlanes, depth - z);
      planes.resize(static_cast<size_t>(count * strip));
      TransposePlanes(data, rows, depth, size, z, count, planes.data());
      Strips& out = blocks[i];
      if (!options_.compress) {
        out.sizes.assign(static_cast<size_t>(count), strip);
        out.bytes = planes;
        return;
      }
      for (int64_t p = 0; p < count; ++p) {
        const size_t begin = out.bytes.size();
        uLongf room = compressBound(static_cast<uLong>(strip));
        out.bytes.resize(begin + room);
        const int result = compress2(reinterpret_cast<Bytef*>(out.bytes.data() + begin), &room,
                                     reinterpret_cast<const Bytef*>(planes.data() + p * strip), static_cast<uLong>(strip), options_.level);
        if (result != Z_OK)
          out.status = result == Z_MEM_ERROR ? absl::ResourceExhaustedError("no memory for a deflate encoder")
                                             : absl::InternalError(absl::StrCat("deflate: ", result));
        out.bytes.resize(begin + room);
        out.sizes.push_back(static_cast<int64_t>(room));
      }
    });
    std::vector<int64_t>& at = offsets_.emplace_back();
    std::vector<int64_t>& sizes = sizes_.emplace_back();
    for (const Strips& block : blocks) {
      OCTAVO_RETURN_IF_ERROR(block.status);
      int64_t offset = position();
      for (const int64_t bytes : block.sizes) {
        at.push_back(offset);
        sizes.push_back(bytes);
        offset += bytes;
      }
      OCTAVO_RETURN_IF_ERROR(Append(block.bytes.data(), static_cast<int64_t>(block.bytes.size())));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Head() override {
    const std::string pad(static_cast<size_t>((8 - position() % 8) % 8), '\0');
    OCTAVO_RETURN_IF_ERROR(Append(pad.data(), static_cast<int64_t>(pad.size())));
    std::string head("II\x2b\0\x08\0\0\0", 8);
    Put(&head, static_cast<uint64_t>(position()));
    std::string out;
    for (int64_t z = 0; z < meta_.shape[2]; ++z) {
      out += Page(z).Bytes(position() + static_cast<int64_t>(out.size()), z + 1 == meta_.shape[2]);
      if (out.size() < (1 << 20) && z + 1 < meta_.shape[2]) continue;
      OCTAVO_RETURN_IF_ERROR(Append(out.data(), static_cast<int64_t>(out.size())));
      out.clear();
    }
    return head;
  }

  Directory Page(int64_t z) const {
    std::vector<uint64_t> offsets, sizes;
    for (size_t slab = 0; slab < offsets_.size(); ++slab) {
      offsets.push_back(static_cast<uint64_t>(offsets_[slab][static_cast<size_t>(z)]));
      sizes.push_back(static_cast<uint64_t>(sizes_[slab][static_cast<size_t>(z)]));
    }
    // Pixels per centimetre, as a fraction of 32-bit numbers.
    Directory out;
    const auto resolution = [&](uint16_t tag, double spacing_um) {
      const double per_cm = 1e4 / spacing_um, scale = std::clamp(std::floor(4e9 / std::max(per_cm, 1.0)), 1.0, 1e6);
      out.Rational(tag, static_cast<uint32_t>(std::lround(std::min(per_cm * scale, 4e9))), static_cast<uint32_t>(scale));
    };
    out.Long(254, 0);
    out.Long(256, meta_.shape[1]);
    out.Long(257, meta_.shape[0]);
    out.Short(258, static_cast<uint16_t>(8 * SizeOf(meta_.dtype)));
    out.Short(259, options_.compress ? 8 : 1);
    out.Short(262, 1);  // low is black
    if (z == 0) out.Text(270, Ome());
    out.Add(273, 16, offsets);
    out.Short(277, 1);
    out.Long(278, SlabBscans());
    out.Add(279, 16, sizes);
    resolution(282, meta_.spacing_um[1]);
    resolution(283, meta_.spacing_um[0]);
    out.Short(284, 1);
    out.Short(296, 3);
    if (!meta_.software.empty()) out.Text(305, meta_.software);
    out.Short(339, SampleFormat(meta_.dtype));
    return out;
  }

  std::string Ome() const {
    const auto number = [](double value) { return absl::StrFormat("%.17g", value); };
    const std::string begun = MetaJson(meta_)["acquired_begin"];
    std::string physical;
    for (const auto& [axis, index] : {std::pair{"X", 1}, std::pair{"Y", 0}, std::pair{"Z", 2}}) {
      absl::StrAppend(&physical, " Size", axis, "=\"", meta_.shape[index], "\" PhysicalSize", axis, "=\"", number(meta_.spacing_um[index]),
                      "\" PhysicalSize", axis, "Unit=\"&#181;m\"");
    }
    return absl::StrCat(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<OME xmlns=\"http://www.openmicroscopy.org/Schemas/OME/2016-06\" "
        "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:schemaLocation=\"http://www.openmicroscopy.org/Schemas/OME/2016-06 "
        "http://www.openmicroscopy.org/Schemas/OME/2016-06/ome.xsd\" Creator=\"",
        Xml(meta_.software), "\">\n<Image ID=\"Image:0\" Name=\"", Xml(meta_.title.empty() ? meta_.volume_name : meta_.title), "\"><AcquisitionDate>",
        begun, "</AcquisitionDate>", "<Pixels ID=\"Pixels:0\" DimensionOrder=\"XYZCT\" Type=\"", OmeType(meta_.dtype),
        "\" BigEndian=\"false\" Interleaved=\"false\" SizeC=\"1\" SizeT=\"1\"", physical, "><Channel ID=\"Channel:0:0\" Name=\"",
        Xml(meta_.value_kind), "\" SamplesPerPixel=\"1\"/><TiffData FirstC=\"0\" FirstT=\"0\" FirstZ=\"0\" IFD=\"0\" PlaneCount=\"", meta_.shape[2],
        "\"/></Pixels><AnnotationRef ID=\"Annotation:0\"/></Image>\n<StructuredAnnotations><CommentAnnotation ID=\"Annotation:0\" "
        "Namespace=\"octavo\"><Value>",
        Xml(MetaText(meta_)), "</Value></CommentAnnotation></StructuredAnnotations></OME>\n");
  }

  std::vector<std::vector<int64_t>> offsets_, sizes_;  // [slab][z]
  tbb::enumerable_thread_specific<std::string> scratch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeTiffWriter(const std::string& path, const VolumeMeta& meta, const WriterOptions& options) {
  return Started<TiffWriter>(path, meta, options);
}

}  // namespace octavo::storage
