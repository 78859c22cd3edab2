#include "client/cpp/cli/format_flags.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cpp/cli/words.h"
#include "server/storage/formats/ending.h"

namespace octavo::cli {
namespace {

const std::map<std::string, v1::Format> kFormats = {
    {"zarr", v1::FORMAT_OME_ZARR_05}, {"npy", v1::FORMAT_NPY},       {"nrrd", v1::FORMAT_NRRD},
    {"nifti", v1::FORMAT_NIFTI},      {"tiff", v1::FORMAT_OME_TIFF}, {"mat", v1::FORMAT_MATLAB_V5},
    {"hdf5", v1::FORMAT_HDF5},        {"bin", v1::FORMAT_BIN}};
const std::map<std::string, v1::Codec> kCodecs = {{"zstd", v1::CODEC_ZSTD},
                                                  {"gzip", v1::CODEC_GZIP},
                                                  {"blosc-zstd", v1::CODEC_BLOSC_ZSTD},
                                                  {"blosc-lz4", v1::CODEC_BLOSC_LZ4}};
const std::map<std::string, v1::Shuffle> kShuffles = {
    {"none", v1::SHUFFLE_NONE}, {"byte", v1::SHUFFLE_BYTE}, {"bit", v1::SHUFFLE_BIT}};

const std::map<std::string, v1::TiffPlane> kTiffPlanes = {{"bscan", v1::TIFF_PLANE_BSCAN},
                                                          {"en-face", v1::TIFF_PLANE_EN_FACE}};
const std::map<std::string, v1::NgffVersion> kNgffVersions = {{"0.4", v1::NGFF_VERSION_04},
                                                              {"0.5", v1::NGFF_VERSION_05}};

// Refuses options that a format would silently ignore; the server refuses the others.
const std::vector<FlagOf> kOfFormats = {
    {"--chunk", {"zarr", "hdf5"}}, {"--shard", {"zarr"}}, {"--zstd", {"zarr"}}};

std::string NameOf(v1::Format format) {
  for (const auto& [name, value] : kFormats) {
    if (value == format) return name;
  }
  return "zarr";  // the server's choice
}

}  // namespace

void FormatFlags::AddTo(CLI::App* app) {
  app_ = app;
  app->add_option(
         "--format", format,
         "zarr (OME-Zarr) | npy | nrrd | nifti | tiff (OME) | mat (MATLAB v5) | hdf5 | bin")
      ->check(OneOf(KeysOf(kFormats)));
  app->add_option("--chunk", chunk,
                  "zarr, hdf5: voxels along the volume's axes: y,x,z; tomograms z,y,x")
      ->delimiter(',')
      ->expected(3);
  app->add_option("--shard", shard, "zarr: the same of a shard")->delimiter(',')->expected(3);
  app->add_option("--pyramid", pyramid_levels,
                  "zarr: arrays in all, each half as large as the one before");
  app->add_option("--pyramid-um", pyramid_um,
                  "zarr: instead of halves, arrays with voxels of these sizes in um: 10,25,50,100")
      ->delimiter(',');
  app->add_option("--ngff", ngff,
                  "zarr: version of OME-Zarr: 0.5 (default; Zarr v3) or 0.4 (Zarr v2, no shards)")
      ->check(OneOf(KeysOf(kNgffVersions)));
  app->add_option("--codec", codec, "zarr: zstd | gzip | blosc-zstd | blosc-lz4")
      ->check(OneOf(KeysOf(kCodecs)));
  app->add_option("--zstd", zstd_level, "level of zstd, 1 to 19");
  app->add_option("--level", level, "level of gzip and blosc, 1 to 9");
  app->add_option("--shuffle", shuffle, "blosc, hdf5: none | byte | bit (blosc)")
      ->check(OneOf(KeysOf(kShuffles)));
  app->add_option("--nifti-version", nifti_version, "1 or 2 (default 1 where the volume fits)");
  app->add_option(
         "--tiff-plane", tiff_plane,
         "tiff: a page for each y (bscan) or z (en-face); default: as the volume is stored")
      ->check(OneOf(KeysOf(kTiffPlanes)));
  app->add_flag("--tiff-stack", tiff_stack, "tiff: a folder with a file for each page");
  app->add_flag("--raw", raw, "no compression");
}

void FormatFlags::Fill(const std::string& what, const std::string& destination,
                       v1::CommitOptions* options) const {
  options->set_destination(destination);
  const bool stack = format.empty() && tiff_stack;
  const v1::Format asked = stack            ? v1::FORMAT_OME_TIFF
                           : format.empty() ? v1::FORMAT_UNSPECIFIED
                                            : kFormats.at(format);
  options->set_format(FormatFor(what, destination, asked, stack ? "--tiff-stack" : "--format"));
  if (app_ != nullptr) Refuse(NameOf(options->format()));
  if (!tiff_plane.empty()) options->set_tiff_plane(kTiffPlanes.at(tiff_plane));
  options->set_tiff_stack(tiff_stack);
  if (!ngff.empty()) options->set_ngff(kNgffVersions.at(ngff));
  if (!codec.empty()) options->set_codec(kCodecs.at(codec));
  if (!shuffle.empty()) options->set_shuffle(kShuffles.at(shuffle));
  options->mutable_chunk()->Add(chunk.begin(), chunk.end());
  options->mutable_shard()->Add(shard.begin(), shard.end());
  options->set_zstd_level(zstd_level);
  options->set_level(level);
  options->set_pyramid_levels(pyramid_levels);
  options->mutable_pyramid_um()->Add(pyramid_um.begin(), pyramid_um.end());
  options->set_nifti_version(nifti_version);
  if (raw) options->set_codec(v1::CODEC_NONE);
}

void FormatFlags::Refuse(const std::string& chosen) const {
  RefuseStrangers(*app_, kOfFormats, chosen, "the format is " + chosen);
  if (raw && !codec.empty())
    throw CLI::ValidationError("--raw",
                               absl::StrCat("says that nothing is compressed; --codec is ", codec));
  if (app_->count("--zstd") == 0) return;
  if (raw)
    throw CLI::ValidationError("--zstd",
                               "is the level of zstd; --raw says that nothing is compressed");
  if (!codec.empty() && codec != "zstd")
    throw CLI::ValidationError("--zstd", absl::StrCat("is the level of zstd; --codec is ", codec,
                                                      ", whose level is --level"));
}

std::vector<std::string> FormatNames() { return KeysOf(kFormats); }

v1::Format ParseFormat(const std::string& name) { return kFormats.at(name); }

std::vector<std::string> FormatEndings() { return storage::FormatEndings(); }

void CheckNpyName(const std::string& flag, const std::string& path) {
  const storage::Ending ending = storage::EndingOf(path);
  if (ending.format.has_value() ? *ending.format == storage::Format::kNpy : ending.foreign.empty())
    return;
  throw CLI::ValidationError(flag, absl::StrCat("is '", path,
                                                "', and a volume is read into a .npy file; allowed "
                                                "are names that end in .npy, and names ",
                                                "without an ending. octavo volume commit writes "
                                                "the other formats, at the server's side"));
}

v1::Format FormatFor(const std::string& what, const std::string& destination, v1::Format asked,
                     const std::string& by) {
  if (absl::EndsWith(destination, "/")) {
    throw CLI::ValidationError(
        what, absl::StrCat("is '", destination, "', a folder; allowed are names of files, such as ",
                           destination, "{index:05}"));
  }
  const storage::Ending ending = storage::EndingOf(destination);
  if (!ending.packed.empty())
    throw CLI::ValidationError(what, storage::WhyForeign(destination, ending));
  if (!ending.foreign.empty() && asked == v1::FORMAT_UNSPECIFIED) {
    throw CLI::ValidationError(what, absl::StrCat(storage::WhyForeign(destination, ending),
                                                  " (--format sets the format)"));
  }
  if (!ending.format.has_value()) return asked;
  const auto format = static_cast<v1::Format>(*ending.format);
  if (asked != v1::FORMAT_UNSPECIFIED && asked != format) {
    throw CLI::ValidationError(
        by, absl::StrCat(by == "--format" ? "is " : "is for ", NameOf(asked), ", and '",
                         destination, "' ends as files of ", NameOf(format),
                         " do; change one of them, or leave ", by, " out: the ending decides"));
  }
  return format;
}

}  // namespace octavo::cli
