#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "server/storage/formats/meta_json.h"
#include "server/storage/formats/single_file.h"
#include "server/storage/formats/tiff_pages.h"

namespace octavo::storage {
namespace {

std::string Xml(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML 1.0 has no control characters
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

/// BigTIFF with OME-XML (2016-06). OME's X runs along the columns and Y down the rows of a page,
/// and Z from page to page; `pages` in the metadata names the volume's axes for them. Strips lie in
/// the order in which slabs arrive, directories at the end. libtiff cannot be used here: it writes
/// one page after the other, while a slab may belong to all pages. Source: TIFF 6.0;
/// https://www.awaresystems.be/imaging/tiff/bigtiff.html; OME-TIFF specification
class TiffWriter final : public StreamedFileWriter {
 public:
  using StreamedFileWriter::StreamedFileWriter;

  absl::Status Start() {
    return Open(TiffPages::HeadBytes(true), options_.compress ? 0 : VolumeBytes());
  }
  int64_t SlabBscans() const override { return pages_.SlabPlanes(); }

 private:
  void AddTo(nlohmann::json* meta) const override { (*meta)["pages"] = pages_.Axes(); }

  absl::Status Slab(int64_t y_begin, int64_t bscans, const char* data) override {
    if (y_begin % SlabBscans() != 0)
      return absl::InternalError(
          absl::StrCat("slab from ", y_begin, "; strips have ", SlabBscans(), " planes"));
    OCTAVO_ASSIGN_OR_RETURN(const auto blocks, pages_.Encode(bscans, data));
    for (const TiffPages::Block& block : blocks) {
      int64_t offset = position();
      for (const auto& strip : block.strips) {
        pages_.Wrote(strip.page, offset, strip.bytes);
        offset += strip.bytes;
      }
      OCTAVO_RETURN_IF_ERROR(Append(block.bytes.data(), std::ssize(block.bytes)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Head() override {
    const std::string pad(static_cast<size_t>((8 - position() % 8) % 8), '\0');
    OCTAVO_RETURN_IF_ERROR(Append(pad.data(), std::ssize(pad)));
    std::string head = pages_.Head(position()), out;
    for (int64_t page = 0; page < pages_.count(); ++page) {
      const bool last = page + 1 == pages_.count();
      out += pages_.Directory(page, page == 0 ? Ome() : "", position() + std::ssize(out), last);
      if (out.size() < (1 << 20) && !last) continue;
      OCTAVO_RETURN_IF_ERROR(Append(out.data(), std::ssize(out)));
      out.clear();
    }
    return head;
  }

  std::string Ome() const {
    const auto number = [](double value) { return absl::StrFormat("%.17g", value); };
    nlohmann::json about = MetaJson(meta_);
    const std::string begun = about["acquired_begin"];
    AddTo(&about);
    std::string physical;
    const int64_t sizes[] = {pages_.columns(), pages_.rows(), pages_.count()};
    for (int d = 0; d < 3; ++d) {
      const char axis = "XYZ"[d];
      absl::StrAppend(&physical, " Size", std::string(1, axis), "=\"", sizes[d], "\"");
      if (pages_.spacing_assumed(2 - d)) continue;
      absl::StrAppend(&physical, " PhysicalSize", std::string(1, axis), "=\"",
                      number(pages_.spacing_um(2 - d)), "\" PhysicalSize", std::string(1, axis),
                      "Unit=\"&#181;m\"");
    }
    return absl::StrCat(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<OME "
        "xmlns=\"http://www.openmicroscopy.org/Schemas/OME/2016-06\" "
        "xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" "
        "xsi:schemaLocation=\"http://www.openmicroscopy.org/Schemas/OME/2016-06 "
        "http://www.openmicroscopy.org/Schemas/OME/2016-06/ome.xsd\" Creator=\"",
        Xml(meta_.software), "\">\n<Image ID=\"Image:0\" Name=\"",
        Xml(meta_.title.empty() ? meta_.volume_name : meta_.title), "\"><AcquisitionDate>", begun,
        "</AcquisitionDate>", "<Pixels ID=\"Pixels:0\" DimensionOrder=\"XYZCT\" Type=\"",
        OmeType(meta_.dtype),
        "\" BigEndian=\"false\" Interleaved=\"false\" SizeC=\"1\" SizeT=\"1\"", physical,
        "><Channel ID=\"Channel:0:0\" Name=\"", Xml(meta_.value_kind),
        "\" SamplesPerPixel=\"1\"/><TiffData FirstC=\"0\" FirstT=\"0\" FirstZ=\"0\" IFD=\"0\" "
        "PlaneCount=\"",
        pages_.count(),
        "\"/></Pixels><AnnotationRef "
        "ID=\"Annotation:0\"/></Image>\n<StructuredAnnotations><CommentAnnotation "
        "ID=\"Annotation:0\" "
        "Namespace=\"octavo\"><Value>",
        Xml(TextOf(about)), "</Value></CommentAnnotation></StructuredAnnotations></OME>\n");
  }

  TiffPages pages_{meta_, options_, /*big=*/true};
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileListWriter>> MakeTiffWriter(const std::string& path,
                                                               const VolumeMeta& meta,
                                                               const WriterOptions& options) {
  return Started<TiffWriter>(path, meta, options);
}

}  // namespace octavo::storage
