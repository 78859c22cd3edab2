#include "server/storage/tiff/ome_xml.h"

#include <algorithm>
#include <iterator>
#include <libxml/xmlreader.h>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace octavo::storage {
namespace {

constexpr size_t kMostText = 64 << 20;
constexpr char kAxes[] = "XYZCT";

class Parser {
 public:
  explicit Parser(absl::string_view text)
      : reader_(xmlReaderForMemory(
                    text.data(), static_cast<int>(text.size()), "", nullptr,
                    XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_NOCDATA),
                xmlFreeTextReader) {}

  absl::StatusOr<OmeDocument> Parse() {
    if (reader_ == nullptr) return absl::ResourceExhaustedError("no memory for an XML reader");
    int more = 0;
    while ((more = xmlTextReaderRead(reader_.get())) == 1) {
      switch (xmlTextReaderNodeType(reader_.get())) {
        case XML_READER_TYPE_DOCUMENT_TYPE:
          return absl::InvalidArgumentError("has a DOCTYPE; allowed is XML without one");
        case XML_READER_TYPE_ELEMENT:
          if (absl::Status status = Begin(); !status.ok()) return status;
          if (xmlTextReaderIsEmptyElement(reader_.get()) == 1) End();
          break;
        case XML_READER_TYPE_TEXT:
        case XML_READER_TYPE_CDATA:
        case XML_READER_TYPE_SIGNIFICANT_WHITESPACE:
          if (text_ != nullptr) text_->append(Value(xmlTextReaderConstValue(reader_.get())));
          break;
        case XML_READER_TYPE_END_ELEMENT: End(); break;
        default: break;
      }
    }
    if (more != 0) {
      const int line = xmlTextReaderGetParserLineNumber(reader_.get());
      return absl::InvalidArgumentError(absl::StrCat("is no XML: a mistake in line ", line));
    }
    return std::move(out_);
  }

 private:
  static std::string Value(const xmlChar* text) {
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }
  std::string Name() const { return Value(xmlTextReaderConstLocalName(reader_.get())); }
  std::optional<std::string> Attribute(const char* name) const {
    xmlChar* const value =
        xmlTextReaderGetAttribute(reader_.get(), reinterpret_cast<const xmlChar*>(name));
    if (value == nullptr) return std::nullopt;
    std::string out = Value(value);
    xmlFree(value);
    return out;
  }
  absl::Status Integer(const char* name, int64_t least, int64_t* out) const {
    const auto text = Attribute(name);
    if (!text.has_value()) return absl::OkStatus();
    if (absl::SimpleAtoi(*text, out) && *out >= least && *out <= (int64_t{1} << 40))
      return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("has ", Name(), ".", name, " '",
                                                   text->substr(0, 40),
                                                   "'; allowed are integers from ", least));
  }
  absl::Status Integer(const char* name, int64_t least, std::optional<int64_t>* out) const {
    if (!Attribute(name).has_value()) return absl::OkStatus();
    int64_t value = 0;
    absl::Status status = Integer(name, least, &value);
    if (status.ok()) *out = value;
    return status;
  }

  absl::Status Begin() {
    const std::string name = Name();
    path_.push_back(name);
    const std::string parent = path_.size() < 2 ? "" : path_[path_.size() - 2];
    if (name == "Image" && parent == "OME") {
      out_.images.emplace_back();
      out_.images.back().name = Attribute("Name").value_or("");
    } else if (name == "BinaryOnly") {
      out_.metadata_file = Attribute("MetadataFile").value_or("?");
    } else if (name == "CommentAnnotation") {
      comment_ = Attribute("Namespace").value_or("");
    } else if (name == "Value" && parent == "CommentAnnotation") {
      text_ = &out_.comments[comment_];
    }
    if (out_.images.empty()) return absl::OkStatus();
    OmeXmlImage& image = out_.images.back();
    if (name == "Pixels" && parent == "Image") return ReadPixels(&image);
    if (name == "Channel" && parent == "Pixels") {
      image.channels.push_back(Attribute("Name").value_or(""));
      int64_t samples = 1;
      absl::Status status = Integer("SamplesPerPixel", 1, &samples);
      image.samples_per_pixel = std::max(image.samples_per_pixel, samples);
      return status;
    }
    if (name == "TiffData" && parent == "Pixels") {
      OmeTiffData& data = image.tiff_data.emplace_back();
      absl::Status status = Integer("FirstZ", 0, &data.first_z);
      if (status.ok()) status = Integer("FirstC", 0, &data.first_c);
      if (status.ok()) status = Integer("FirstT", 0, &data.first_t);
      if (status.ok()) status = Integer("IFD", 0, &data.ifd);
      if (status.ok()) status = Integer("PlaneCount", 0, &data.plane_count);
      return status;
    }
    if (name == "UUID" && parent == "TiffData" && !image.tiff_data.empty())
      image.tiff_data.back().file_name = Attribute("FileName").value_or("");
    return absl::OkStatus();
  }

  void End() {
    if (!path_.empty() && path_.back() == "Value") text_ = nullptr;
    if (!path_.empty()) path_.pop_back();
  }

  absl::Status ReadPixels(OmeXmlImage* image) {
    image->type = Attribute("Type").value_or(Attribute("PixelType").value_or(""));
    image->dimension_order = Attribute("DimensionOrder").value_or("XYZCT");
    std::string sorted = image->dimension_order;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != "CTXYZ" || image->dimension_order.substr(0, 2) != "XY")
      return absl::InvalidArgumentError(absl::StrCat("has Pixels.DimensionOrder '",
                                                     image->dimension_order.substr(0, 20),
                                                     "'; allowed are XY and then Z, C, T"));
    for (size_t d = 0; d < 5; ++d) {
      const std::string axis(1, kAxes[d]);
      if (absl::Status status = Integer(("Size" + axis).c_str(), 1, &image->size[d]); !status.ok())
        return status;
      if (d > 2) continue;
      const auto size = Attribute(("PhysicalSize" + axis).c_str());
      double value = 0;
      if (size.has_value() && absl::SimpleAtod(*size, &value)) image->physical_size[d] = value;
      image->physical_unit[d] =
          Attribute(("PhysicalSize" + axis + "Unit").c_str()).value_or("\xC2\xB5m");
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<xmlTextReader, void (*)(xmlTextReaderPtr)> reader_;
  OmeDocument out_;
  std::vector<std::string> path_;
  std::string comment_;
  std::string* text_ = nullptr;
};

}  // namespace

absl::StatusOr<OmeDocument> ParseOmeXml(absl::string_view text) {
  if (text.size() > kMostText)
    return absl::InvalidArgumentError(
        absl::StrCat("has ", text.size(), " bytes; allowed up to ", kMostText));
  return Parser(text).Parse();
}

bool LooksLikeOmeXml(absl::string_view text) {
  const absl::string_view head = text.substr(0, 1000);
  return (absl::StartsWith(head, "<?xml") || absl::StartsWith(head, "<OME") ||
          absl::StartsWith(head, "<!--")) &&
         absl::StrContains(head, "<OME");
}

}  // namespace octavo::storage
