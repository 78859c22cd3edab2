#include "server/storage/formats/file_kind.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace octavo::storage {
namespace {

struct Signature {
  absl::string_view begins;  // four bytes or more: two samples of 16 bits may be anything
  const char* kind;
};
constexpr Signature kSignatures[] = {{"\x89PNG\r\n\x1a\n", "a PNG picture"},
                                     {"\xff\xd8\xff\xe0", "a JPEG picture"},
                                     {"GIF8", "a GIF picture"},
                                     {"\x89HDF\r\n\x1a\n", "an HDF5 file"},
                                     {"MATLAB 5.0 MAT-file", "a MATLAB file"},
                                     {"MATLAB 7.3 MAT-file", "a MATLAB file"},
                                     {"\x93NUMPY", "a .npy file under another name"},
                                     {"PK\x03\x04", "a ZIP file (an .npz is one, too)"},
                                     {absl::string_view("\x1f\x8b\x08\0", 4), "a gzip file"},
                                     {"\x1f\x8b\x08\x08", "a gzip file"},
                                     {"%PDF-", "a PDF file"},
                                     {"NRRD000", "an NRRD file"},
                                     {absl::string_view("II*\0", 4), "a TIFF file"},
                                     {absl::string_view("MM\0*", 4), "a TIFF file"},
                                     {absl::string_view("CDF\x01", 4), "a NetCDF file"},
                                     {absl::string_view("CDF\x02", 4), "a NetCDF file"}};

// Text to its end; vendors' headers in front of samples are text, too, but end.
bool IsText(absl::string_view bytes) {
  constexpr size_t kLeast = 64;
  return bytes.size() >= kLeast && absl::StrContains(bytes, '\n') &&
         std::all_of(bytes.begin(), bytes.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte >= ' ' ? byte != 0x7f : c == '\n' || c == '\r' || c == '\t';
         });
}

}  // namespace

std::string KindOfFile(absl::string_view beginning) {
  for (const Signature& one : kSignatures) {
    if (absl::StartsWith(beginning, one.begins)) return one.kind;
  }
  return IsText(beginning) ? "a text file" : "";
}

}  // namespace octavo::storage
