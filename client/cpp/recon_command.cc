// octavo recon: a whole reconstruction from the command line.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <png.h>
#include <sstream>

#include "octavo/v1/job.grpc.pb.h"
#include "octavo/v1/volume.grpc.pb.h"

#include "client/cpp/commands.h"
#include "client/cpp/format_flags.h"
#include "client/cpp/job_flags.h"
#include "client/cpp/words.h"

namespace octavo::cli {
namespace {

using Options = v1::TomographyAlgorithmOptions;

const std::map<std::string, Options::Algorithm> kAlgorithms = {
    {"fbp", Options::FBP}, {"sirt", Options::SIRT}, {"mlem", Options::MLEM}, {"cgls", Options::CGLS}};
const std::map<std::string, Options::Interpolation> kInterpolations = {
    {"nearest", Options::NEAREST}, {"linear", Options::LINEAR_RAYS}, {"cubic", Options::CUBIC_RAYS}};
const std::map<std::string, Options::Filter> kFilters = {{"ramp", Options::RAMP},
                                                         {"shepp-logan", Options::SHEPP_LOGAN},
                                                         {"cosine", Options::COSINE},
                                                         {"hann", Options::HANN_FILTER},
                                                         {"hamming", Options::HAMMING_FILTER},
                                                         {"parzen", Options::PARZEN},
                                                         {"butterworth", Options::BUTTERWORTH}};
const std::map<std::string, v1::RotationCenter::Method> kCenters = {{"auto", v1::RotationCenter::VO},
                                                                    {"vo", v1::RotationCenter::VO},
                                                                    {"entropy", v1::RotationCenter::ENTROPY},
                                                                    {"phase", v1::RotationCenter::PHASE_CORRELATION}};
using Rings = v1::TomographyPreparation::Rings;
const std::map<std::string, Rings::Method> kRings = {{"sorting", Rings::SORTING},
                                                     {"large", Rings::LARGE_STRIPE},
                                                     {"dead", Rings::DEAD_STRIPE},
                                                     {"all", Rings::ALL_STRIPE},
                                                     {"wavelet", Rings::FOURIER_WAVELET}};
const std::map<std::string, std::string> kEndings = {{".zarr", "zarr"}, {".npy", "npy"}, {".nrrd", "nrrd"}, {".nii", "nifti"}, {".tif", "tiff"},
                                                     {".tiff", "tiff"}, {".mat", "mat"}, {".h5", "hdf5"},   {".hdf5", "hdf5"}, {".bin", "bin"}};

std::vector<double> Numbers(const std::string& flag, const std::string& text, char separator) {
  std::vector<double> numbers;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, separator);) {
    char* end = nullptr;
    numbers.push_back(part.empty() ? 0 : std::strtod(part.c_str(), &end));
    if (!part.empty() && *end != '\0') throw CLI::ValidationError(flag, "'" + part + "' is no number");
  }
  return numbers;
}

// begin:end:step, as in Python; parts may be left out.
void SetRange(const std::string& flag, const std::string& text, v1::IndexRange* range) {
  const auto numbers = Numbers(flag, text, ':');
  if (numbers.size() > 3) throw CLI::ValidationError(flag, "needs begin:end:step, not '" + text + "'");
  for (const double n : numbers) {
    if (n < 0 || n != std::floor(n) || n > 4e9) throw CLI::ValidationError(flag, "needs whole numbers that are not negative");
  }
  if (numbers.size() == 1 && text.find(':') == std::string::npos) {
    range->set_begin(static_cast<uint32_t>(numbers[0]));
    range->set_end(static_cast<uint32_t>(numbers[0]) + 1);
    return;
  }
  if (!numbers.empty()) range->set_begin(static_cast<uint32_t>(numbers[0]));
  if (numbers.size() > 1) range->set_end(static_cast<uint32_t>(numbers[1]));
  if (numbers.size() > 2) range->set_step(static_cast<uint32_t>(numbers[2]));
}

struct ReconFlags {
  std::string path, output, png, algorithm = "fbp", center, rows, columns, projections, interpolation, filter, angles, flats, darks, angles_file,
                                 try_centers;
  std::string projections_at;
  std::vector<std::string> rings;
  std::vector<double> outliers, phase;
  std::optional<double> min, max, mask, overlap;
  std::optional<uint32_t> padding, slice, row;
  uint32_t iterations = 0, subsets = 0, batch = 0, size = 0, bin = 0;
  double relaxation = 0, stop_change = 0, stop_residual = 0, pixel = 0;
  bool tomopy = false, sinograms = false, no_log = false, extend = false, on_disk = false, median = false, in_time = false, stitch_right = false;
  bool stitch_left = false, radians = false, to_zero = false;
  FormatFlags format;
  JobFlags job;

  void AddTo(CLI::App* app) {
    app->add_option("file", path, "HDF5 (Data Exchange, NXtomo), .npy or Zarr, below a replay root of the server")->required();
    app->add_option("-o,--output", output,
                    "commit the result as this, below a storage root; the ending says the format: .zarr .npy .nrrd .nii .tiff .mat .h5");
    app->add_option("--png", png, "write a slice as a picture");
    app->add_option("--slice", slice, "of --png; default: the middle one");
    app->add_option("--algorithm", algorithm, "fbp (default) | sirt | mlem | cgls")->check(OneOf(KeysOf(kAlgorithms)));
    app->add_option("--iterations", iterations, "default 1");
    app->add_option("--center", center, "column of the rotation axis (pixel index), or auto | vo | entropy | phase; default: the middle");
    app->add_option("--center-row", row, "row of the detector that the search looks at");
    app->add_option("--try-centers", try_centers, "begin:end:step, a slice for each axis instead of a volume");
    app->add_option("--rows", rows, "begin:end:step of the detector: the slices");
    app->add_option("--columns", columns, "begin:end of the detector");
    app->add_option("--projections", projections, "begin:end:step");
    app->add_option("--angles", angles, "first:last:count in degrees, evenly, in place of the file's");
    app->add_option("--angles-file", angles_file, "further .npy, or dataset, with the angles");
    app->add_flag("--radians", radians, "angles of the file are in radians");
    app->add_option("--flats", flats, "further .npy, or dataset; - = none");
    app->add_option("--darks", darks, "the same");
    app->add_option("--data", projections_at, "dataset of the projections, if not the usual one");
    app->add_flag("--median", median, "flat and dark fields by their median");
    app->add_flag("--flats-in-time", in_time, "interpolate flat fields over the scan");
    app->add_flag("--sinograms", sinograms, "the file holds sinograms already: no fields, no logarithm");
    app->add_flag("--no-log", no_log, "no minus logarithm");
    app->add_option("--outliers", outliers, "WINDOW,DIFFERENCE: medians in place of bright spots")->delimiter(',')->expected(2);
    app->add_option("--bin", bin, "1 | 2 | 4, rows and columns");
    app->add_option("--phase", phase, "PIXEL_UM,DISTANCE_MM,ENERGY_KEV,DELTA_BETA: Paganin's phase retrieval")->delimiter(',')->expected(4);
    app->add_option("--rings", rings, "sorting | large | dead | all | wavelet; may be repeated")->check(OneOf(KeysOf(kRings)));
    app->add_flag("--stitch-left", stitch_left, "360 degrees with the axis near the first column");
    app->add_flag("--stitch-right", stitch_right, "360 degrees with the axis near the last column");
    app->add_option("--overlap", overlap, "of stitching; default: found");
    app->add_option("--interpolation", interpolation, "nearest | linear | cubic")->check(OneOf(KeysOf(kInterpolations)));
    app->add_option("--filter", filter, "fbp: ramp | shepp-logan | cosine | hann | hamming | parzen | butterworth")->check(OneOf(KeysOf(kFilters)));
    app->add_flag("--extend-edges", extend, "fbp: for objects wider than the detector");
    app->add_flag("--tomopy", tomopy, "sirt, mlem as TomoPy's accelerated CPU code");
    app->add_option("--size", size, "rows and columns of a slice");
    app->add_option("--padding", padding, "pixels on every side while iterating; default: as far as rays reach");
    app->add_option("--mask", mask, "circle that counts, part of the half width; 0 = none");
    app->add_option("--min", min, "least value of a pixel");
    app->add_option("--max", max, "largest value of a pixel");
    app->add_option("--relaxation", relaxation, "sirt");
    app->add_option("--subsets", subsets, "sirt, mlem");
    app->add_option("--stop-change", stop_change, "stop when the image changes by less than this part");
    app->add_option("--stop-residual", stop_residual, "stop when the residual is this part of the data");
    app->add_flag("--negative-to-zero", to_zero, "mlem: negative data become 0");
    app->add_option("--batch", batch, "slices at a time; default: chosen from the memory that is free");
    app->add_flag("--on-disk", on_disk, "keep the result in the tier DISK, whatever fits");
    app->add_option("--pixel-um", pixel, "size of a detector's pixel in the sample");
    format.AddTo(app);
    job.AddTo(app);
  }

  v1::JobSpec Spec() const {
    v1::JobSpec spec = job.Spec();
    auto* t = spec.mutable_tomography();
    auto* file = t->mutable_file();
    file->set_path(path);
    if (!projections_at.empty()) file->set_projections(projections_at);
    if (!flats.empty()) file->set_flats(flats);
    if (!darks.empty()) file->set_darks(darks);
    if (!angles_file.empty()) file->set_angles(angles_file);
    if (radians) file->set_angle_unit(v1::RADIANS);
    if (!angles.empty()) {
      const auto numbers = Numbers("--angles", angles, ':');
      if (numbers.size() != 3 || numbers[2] < 1) throw CLI::ValidationError("--angles", "needs first:last:count in degrees");
      const auto count = static_cast<int64_t>(numbers[2]);
      for (int64_t i = 0; i < count; ++i) {
        const double part = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
        t->add_angles_rad((numbers[0] + (numbers[1] - numbers[0]) * part) * M_PI / 180);
      }
    }
    if (!rows.empty()) SetRange("--rows", rows, t->mutable_rows());
    if (!columns.empty()) SetRange("--columns", columns, t->mutable_columns());
    if (!projections.empty()) SetRange("--projections", projections, t->mutable_projections());
    auto* p = t->mutable_preparation();
    p->set_already_sinograms(sinograms);
    p->set_no_logarithm(no_log);
    p->set_flat_median(median);
    p->set_dark_median(median);
    p->set_flats_in_time(in_time);
    if (!outliers.empty()) {
      p->mutable_outliers()->set_window(static_cast<uint32_t>(outliers[0]));
      p->mutable_outliers()->set_difference(outliers[1]);
    }
    p->set_bin_rows(bin);
    p->set_bin_columns(bin);
    if (!phase.empty()) {
      p->mutable_phase()->set_pixel_size_um(phase[0]);
      p->mutable_phase()->set_distance_mm(phase[1]);
      p->mutable_phase()->set_energy_kev(phase[2]);
      p->mutable_phase()->set_delta_beta(phase[3]);
    }
    for (const auto& ring : rings) p->add_rings()->set_method(kRings.at(ring));
    if (stitch_left || stitch_right) {
      p->mutable_stitching()->set_axis_right(stitch_right);
      if (overlap.has_value()) p->mutable_stitching()->set_overlap(*overlap);
    }
    if (const auto method = kCenters.find(center); method != kCenters.end()) {
      t->mutable_center()->set_method(method->second);
    } else if (!center.empty()) {
      t->mutable_center()->add_pixels(Numbers("--center", center, ':').at(0));
    }
    if (row.has_value()) {
      t->mutable_center()->set_row(*row);
      t->mutable_center()->set_row_set(true);
    }
    if (!try_centers.empty()) {
      const auto numbers = Numbers("--try-centers", try_centers, ':');
      if (numbers.size() != 3) throw CLI::ValidationError("--try-centers", "needs begin:end:step");
      auto* tries = t->mutable_try_centers();
      tries->set_begin(numbers[0]);
      tries->set_end(numbers[1]);
      tries->set_step(numbers[2]);
      if (row.has_value()) {
        tries->set_row(*row);
        tries->set_row_set(true);
      }
    }
    auto* r = t->mutable_reconstruction();
    r->set_algorithm(kAlgorithms.at(algorithm));
    if (tomopy) r->set_form(Options::TOMOPY);
    if (!interpolation.empty()) r->set_interpolation(kInterpolations.at(interpolation));
    if (!filter.empty()) r->set_filter(kFilters.at(filter));
    r->set_extend_edges(extend);
    r->set_image_size(size);
    r->set_iterations(iterations);
    r->set_relaxation(relaxation);
    r->set_subsets(subsets);
    r->set_stop_change(stop_change);
    r->set_stop_residual(stop_residual);
    r->set_negative_data_to_zero(to_zero);
    const auto optional = [&](const auto& value, auto set, auto set_flag) {
      if (!value.has_value()) return;
      (r->*set)(*value);
      (r->*set_flag)(true);
    };
    optional(padding, &Options::set_padding, &Options::set_padding_set);
    optional(mask, &Options::set_mask_ratio, &Options::set_mask_ratio_set);
    optional(min, &Options::set_min_value, &Options::set_min_value_set);
    optional(max, &Options::set_max_value, &Options::set_max_value_set);
    t->set_slices_per_batch(batch);
    if (on_disk) t->set_place(v1::RESULT_ON_DISK);
    t->set_pixel_size_um(pixel);
    return spec;
  }

  // What `output` asks for.
  v1::CommitOptions Commit() const {
    v1::CommitOptions options;
    format.Fill(&options);
    options.set_destination(output);
    if (options.format() == v1::FORMAT_UNSPECIFIED) {
      const size_t dot = output.rfind('.');
      const auto ending = dot == std::string::npos ? kEndings.end() : kEndings.find(output.substr(dot));
      if (ending == kEndings.end()) throw CLI::ValidationError("--output", "'" + output + "' has no ending of a format; or say --format");
      options.set_format(ParseFormat(ending->second));
    }
    return options;
  }
};

// The f32 values of one slice [y, x].
std::optional<std::vector<float>> ReadSlice(Session& session, const v1::Volume& volume, int64_t slice) {
  grpc::ClientContext context;
  v1::ReadVolumeRequest request;
  request.set_name(volume.name());
  for (const int64_t start : {slice, int64_t{0}, int64_t{0}}) request.add_start(start);
  request.add_count(1);
  request.add_count(volume.shape(1));
  request.add_count(volume.shape(2));
  auto reader = v1::VolumeService::NewStub(session.channel())->ReadVolume(&context, request);
  std::string bytes;
  for (v1::ReadVolumeResponse part; reader->Read(&part);) bytes += part.data();
  if (!Check(session, reader->Finish())) return std::nullopt;
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// Grey, from the 0.2th to the 99.8th percentile.
bool WriteGrey(const std::string& path, const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> sorted = values;
  const auto at = [&](double part) {
    const auto nth = sorted.begin() + std::lround(part * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), nth, sorted.end());
    return *nth;
  };
  const float lo = at(0.002), hi = std::max(at(0.998), std::nextafter(lo, HUGE_VALF));
  std::vector<uint8_t> pixels(values.size());
  std::transform(values.begin(), values.end(), pixels.begin(),
                 [&](float v) { return static_cast<uint8_t>(std::lround(std::clamp(255 * (v - lo) / (hi - lo), 0.0f, 255.0f))); });
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(columns);
  image.height = static_cast<png_uint_32>(rows);
  image.format = PNG_FORMAT_GRAY;
  return png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0;
}

void Run(Session& session, ReconFlags& flags) {
  const v1::JobSpec spec = flags.Spec();
  std::optional<v1::CommitOptions> commit;
  if (!flags.output.empty()) commit = flags.Commit();
  flags.job.watch = !flags.job.plan;
  const v1::Job job = flags.job.Submit(session, spec);
  if (job.state() != v1::JOB_DONE || job.volumes().empty()) return;
  v1::GetVolumeRequest get;
  get.set_name(job.volumes(0));
  v1::Volume volume;
  if (!Check(session, v1::VolumeService::NewStub(session.channel())->GetVolume(session.Context().get(), get, &volume))) return;
  if (!flags.png.empty()) {
    const int64_t slice = flags.slice.has_value() ? *flags.slice : volume.shape(0) / 2;
    const auto values = ReadSlice(session, volume, slice);
    if (!values.has_value()) return;
    if (!WriteGrey(flags.png, *values, volume.shape(1), volume.shape(2))) {
      std::cerr << "octavo: could not write " << flags.png << "\n";
      session.exit_code = kFailed;
      return;
    }
    if (!session.json) std::cout << flags.png << "  slice " << slice << "\n";
  }
  if (!commit.has_value()) return;
  v1::CommitVolumeRequest request;
  request.set_name(volume.name());
  *request.mutable_options() = *commit;
  CommitVolume(session, request);
}

}  // namespace

void AddReconCommand(CLI::App& app, Session& session) {
  auto* recon = app.add_subcommand("recon", "reconstruct a tomography scan: read, prepare, reconstruct, commit");
  auto flags = std::make_shared<ReconFlags>();
  flags->AddTo(recon);
  recon->callback([&session, flags] { Run(session, *flags); });
}

}  // namespace octavo::cli
