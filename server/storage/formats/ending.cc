#include "server/storage/formats/ending.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

struct FormatEnding {
  const char* ending;
  Format format;
};

// The usual endings; HasExtension knows the longer ones too.
constexpr FormatEnding kEndings[] = {{".zarr", Format::kOmeZarr05}, {".npy", Format::kNpy},
                                     {".nrrd", Format::kNrrd},      {".nii", Format::kNifti},
                                     {".tif", Format::kOmeTiff},    {".tiff", Format::kOmeTiff},
                                     {".mat", Format::kMatlab},     {".h5", Format::kHdf5},
                                     {".hdf5", Format::kHdf5},      {".bin", Format::kBin}};

constexpr const char* kPackers[] = {"gz", "bz2", "xz", "zst", "zip", "lz4", "z"};

// Endings of known kinds of files that the server does not write. In alphabetical order.
constexpr const char* kForeign[] = {
    "7z",          "am",    "analyze", "avi",     "avif", "bif",   "bmp",    "btf",    "bz2",
    "cbf",         "cdf",   "csv",     "czi",     "dat",  "dcm",   "dcm30",  "dic",    "dicom",
    "dm3",         "dm4",   "edf",     "eps",     "exr",  "fda",   "fds",    "fit",    "fits",
    "fts",         "gif",   "gipl",    "gz",      "h4",   "h5ad",  "h5py",   "hd5",    "hdf",
    "hdf4",        "hdr",   "he5",     "heic",    "hevc", "ima",   "img",    "ims",    "ipynb",
    "j2k",         "jp2",   "jpeg",    "jpg",     "json", "jxl",   "klb",    "lif",    "log",
    "lsm",         "lz4",   "m4v",     "md",      "mgh",  "mgz",   "mha",    "mhd",    "minc",
    "mj2",         "mkv",   "mnc",     "mov",     "mp4",  "mpeg",  "mpg",    "mrc",    "mrcs",
    "mrxs",        "n5",    "nc",      "nc4",     "nd2",  "ndpi",  "netcdf", "nexus",  "nhdr",
    "nia",         "nifti", "nii1",    "nii2",    "npz",  "numpy", "nx",     "nxs",    "obj",
    "oib",         "oif",   "oir",     "parquet", "pbm",  "pdf",   "pgm",    "pickle", "pkl",
    "ply",         "png",   "ppm",     "ps",      "pt",   "pth",   "pvd",    "rar",    "raw",
    "safetensors", "sdt",   "seq",     "sif",     "spe",  "stl",   "svg",    "svs",    "tar",
    "tdms",        "tga",   "tgz",     "toml",    "tsv",  "txt",   "vff",    "vol",    "vtb",
    "vti",         "vtk",   "vtp",     "vtr",     "vts",  "vtu",   "webm",   "webp",   "wmv",
    "xdmf",        "xls",   "xlsx",    "xmf",     "xml",  "xz",    "yaml",   "yml",    "z",
    "zip",         "zst"};

bool IsOf(const auto& list, absl::string_view word) {
  return std::any_of(std::begin(list), std::end(list),
                     [&](const char* one) { return word == one; });
}

std::optional<Format> FormatOfEnd(const std::string& path) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](Format format) { return HasExtension(path, format); });
  return found == std::end(kFormats) ? std::nullopt : std::optional(*found);
}

}  // namespace

Ending EndingOf(const std::string& path) {
  Ending ending{.format = FormatOfEnd(path), .foreign = {}, .packed = {}};
  const size_t dot = path.find_last_of("./");
  if (ending.format.has_value() || dot == std::string::npos || path[dot] == '/') return ending;
  const std::string word = absl::AsciiStrToLower(path.substr(dot + 1));
  if (!IsOf(kForeign, word)) return ending;
  ending.foreign = path.substr(dot);
  const std::string inner = path.substr(0, dot);
  if (!IsOf(kPackers, word) || !FormatOfEnd(inner).has_value()) return ending;
  ending.packed = absl::StrCat(inner.substr(inner.find_last_of('.')), ending.foreign);
  return ending;
}

std::vector<std::string> FormatEndings() {
  std::vector<std::string> endings;
  for (const FormatEnding& one : kEndings) endings.emplace_back(one.ending);
  return endings;
}

std::string WhyForeign(const std::string& path, const Ending& ending) {
  const std::string allowed =
      absl::StrCat("; allowed are names that end in ", absl::StrJoin(FormatEndings(), ", "),
                   ", and names without an ending");
  if (ending.packed.empty())
    return absl::StrCat("is '", path, "', and files that end in ", ending.foreign,
                        " are not written", allowed);
  return absl::StrCat("is '", path, "', and compressed files (", ending.packed,
                      ") are not written: give the name without ", ending.foreign,
                      ", and compress the file afterwards", allowed);
}

absl::StatusOr<Format> FormatFor(const std::string& field, const std::string& destination,
                                 std::optional<Format> asked) {
  const Ending ending = EndingOf(destination);
  if (!ending.packed.empty() || (!ending.foreign.empty() && !asked.has_value())) {
    return InvalidField(absl::StrCat(field, ".destination"), WhyForeign(destination, ending));
  }
  if (asked.has_value() && ending.format.has_value() && *asked != *ending.format) {
    return InvalidField(
        absl::StrCat(field, ".format"),
        absl::StrCat("is ", FormatName(*asked), ", and '", destination, "' ends as files of ",
                     FormatName(*ending.format),
                     " do; change one of them, or leave the format out: the ending decides"));
  }
  return ending.format.value_or(asked.value_or(Format::kOmeZarr05));
}

}  // namespace octavo::storage
