#include "client/cpp/format_flags.h"

#include <map>

#include "client/cpp/words.h"

namespace octavo::cli {
namespace {

const std::map<std::string, v1::Format> kFormats = {{"zarr", v1::OME_ZARR_05}, {"npy", v1::NPY},       {"nrrd", v1::NRRD}, {"nifti", v1::NIFTI},
                                                    {"tiff", v1::OME_TIFF},    {"mat", v1::MATLAB_V5}, {"hdf5", v1::HDF5}, {"bin", v1::BIN}};
const std::map<std::string, v1::Codec> kCodecs = {
    {"zstd", v1::CODEC_ZSTD}, {"gzip", v1::CODEC_GZIP}, {"blosc-zstd", v1::CODEC_BLOSC_ZSTD}, {"blosc-lz4", v1::CODEC_BLOSC_LZ4}};
const std::map<std::string, v1::Shuffle> kShuffles = {{"none", v1::SHUFFLE_NONE}, {"byte", v1::SHUFFLE_BYTE}, {"bit", v1::SHUFFLE_BIT}};

const std::map<std::string, v1::TiffPlane> kTiffPlanes = {{"bscan", v1::TIFF_BSCAN}, {"en-face", v1::TIFF_EN_FACE}};

}  // namespace

void FormatFlags::AddTo(CLI::App* app) {
  app->add_option("--format", format, "zarr (OME-Zarr 0.5) | npy | nrrd | nifti | tiff (OME) | mat (MATLAB v5) | hdf5 | bin")
      ->check(OneOf(KeysOf(kFormats)));
  app->add_option("--chunk", chunk, "zarr, hdf5: voxels along the volume's axes: y,x,z; tomograms z,y,x")->delimiter(',')->expected(3);
  app->add_option("--shard", shard, "zarr: the same of a shard")->delimiter(',')->expected(3);
  app->add_option("--pyramid", pyramid_levels, "zarr: arrays in all, each half as large as the one before");
  app->add_option("--codec", codec, "zarr: zstd | gzip | blosc-zstd | blosc-lz4")->check(OneOf(KeysOf(kCodecs)));
  app->add_option("--zstd", zstd_level, "level of zstd, 1 to 19");
  app->add_option("--level", level, "level of gzip and blosc, 1 to 9");
  app->add_option("--shuffle", shuffle, "blosc, hdf5: none | byte | bit (blosc)")->check(OneOf(KeysOf(kShuffles)));
  app->add_option("--nifti-version", nifti_version, "1 or 2 (default 1 where the volume fits)");
  app->add_option("--tiff-plane", tiff_plane, "tiff: a page for each y (bscan) or z (en-face); default: as the volume is stored")
      ->check(OneOf(KeysOf(kTiffPlanes)));
  app->add_flag("--tiff-stack", tiff_stack, "tiff: a folder with a file for each page");
  app->add_flag("--raw", raw, "no compression");
}

void FormatFlags::Fill(v1::CommitOptions* options) const {
  if (!format.empty()) options->set_format(kFormats.at(format));
  if (format.empty() && tiff_stack) options->set_format(v1::OME_TIFF);
  if (!tiff_plane.empty()) options->set_tiff_plane(kTiffPlanes.at(tiff_plane));
  options->set_tiff_stack(tiff_stack);
  if (!codec.empty()) options->set_codec(kCodecs.at(codec));
  if (!shuffle.empty()) options->set_shuffle(kShuffles.at(shuffle));
  options->mutable_chunk()->Add(chunk.begin(), chunk.end());
  options->mutable_shard()->Add(shard.begin(), shard.end());
  options->set_zstd_level(zstd_level);
  options->set_level(level);
  options->set_pyramid_levels(pyramid_levels);
  options->set_nifti_version(nifti_version);
  options->set_uncompressed(raw);
}

std::vector<std::string> FormatNames() { return KeysOf(kFormats); }

v1::Format ParseFormat(const std::string& name) { return kFormats.at(name); }

}  // namespace octavo::cli
