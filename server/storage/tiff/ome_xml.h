#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace octavo::storage {

/// Where planes of an image lie: `plane_count` pages from `ifd` on, or those that are left.
struct OmeTiffData {
  int64_t first_z = 0, first_c = 0, first_t = 0;
  std::optional<int64_t> ifd, plane_count;
  std::string file_name;  // "" = this file
};

/// An image of OME-XML. Arrays are in the order X, Y, Z, C, T.
struct OmeXmlImage {
  std::string name;
  std::string dimension_order;  // "XYZCT": the fastest first
  std::string type;             // "uint16"
  int64_t size[5] = {1, 1, 1, 1, 1};
  std::optional<double> physical_size[3];
  std::string physical_unit[3];   // "µm" where none is given, as the schema has it
  int64_t samples_per_pixel = 1;  // the most of its channels
  std::vector<std::string> channels;
  std::vector<OmeTiffData> tiff_data;
};

struct OmeDocument {
  std::vector<OmeXmlImage> images;
  /// Texts of comment annotations, by namespace.
  std::map<std::string, std::string> comments;
  std::string metadata_file;  // of a file that leaves its description to another one
};

/// Parses OME-XML of any version. Untrusted: documents with a DOCTYPE, and so with entities of
/// their own, are refused. InvalidArgument; the message continues a sentence: "is no XML: ...".
absl::StatusOr<OmeDocument> ParseOmeXml(absl::string_view text);

/// Whether a page's description is OME-XML.
bool LooksLikeOmeXml(absl::string_view text);

}  // namespace octavo::storage
