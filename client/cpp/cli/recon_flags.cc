#include "client/cpp/cli/recon_flags.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "client/cpp/cli/scan_names.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

using Options = v1::TomographyAlgorithmOptions;
using Rings = v1::TomographyPreparation::Rings;

const std::map<std::string, Options::Algorithm> kAlgorithms = {
    {"fbp", Options::ALGORITHM_FBP},
    {"sirt", Options::ALGORITHM_SIRT},
    {"mlem", Options::ALGORITHM_MLEM},
    {"cgls", Options::ALGORITHM_CGLS},
    {"fourier", Options::ALGORITHM_FOURIER},
    {"auto", Options::ALGORITHM_AUTO},
    {"tv", Options::ALGORITHM_TV}};
const std::map<std::string, Options::Interpolation> kInterpolations = {
    {"nearest", Options::INTERPOLATION_NEAREST},
    {"linear", Options::INTERPOLATION_LINEAR},
    {"cubic", Options::INTERPOLATION_CUBIC}};
const std::map<std::string, Options::Filter> kFilters = {
    {"ramp", Options::FILTER_RAMP},
    {"shepp-logan", Options::FILTER_SHEPP_LOGAN},
    {"cosine", Options::FILTER_COSINE},
    {"hann", Options::FILTER_HANN},
    {"hamming", Options::FILTER_HAMMING},
    {"parzen", Options::FILTER_PARZEN},
    {"butterworth", Options::FILTER_BUTTERWORTH}};
const std::map<std::string, v1::RotationCenter::Method> kCenters = {
    {"auto", v1::RotationCenter::METHOD_AUTO},
    {"pairs", v1::RotationCenter::METHOD_PAIRS},
    {"vo", v1::RotationCenter::METHOD_VO},
    {"entropy", v1::RotationCenter::METHOD_ENTROPY},
    {"phase", v1::RotationCenter::METHOD_PHASE_CORRELATION},
    {"middle", v1::RotationCenter::METHOD_UNSPECIFIED}};  // the file's, else the middle
using Phase = v1::TomographyPreparation::Phase;
const std::map<std::string, Phase::Method> kPhaseMethods = {
    {"paganin", Phase::METHOD_PAGANIN},
    {"generalized-paganin", Phase::METHOD_GENERALIZED_PAGANIN},
    {"farago", Phase::METHOD_FARAGO}};
const std::map<std::string, Rings::Method> kRings = {{"sorting", Rings::METHOD_SORTING},
                                                     {"large", Rings::METHOD_LARGE_STRIPE},
                                                     {"dead", Rings::METHOD_DEAD_STRIPE},
                                                     {"all", Rings::METHOD_ALL_STRIPE},
                                                     {"wavelet", Rings::METHOD_FOURIER_WAVELET}};
const std::map<std::string, v1::Dtype> kSamples = {
    {"u8", v1::DTYPE_U8}, {"u16", v1::DTYPE_U16}, {"f16", v1::DTYPE_F16}, {"f32", v1::DTYPE_F32}};
const std::map<std::string, v1::HalfTurn> kHalfTurns = {{"all", v1::HALF_TURN_ALL},
                                                        {"first", v1::HALF_TURN_FIRST},
                                                        {"second", v1::HALF_TURN_SECOND},
                                                        {"best", v1::HALF_TURN_BEST}};
const std::map<std::string, v1::RotationCenter::AlongRows> kAlongRows = {
    {"one", v1::RotationCenter::ALONG_ROWS_ONE},
    {"line", v1::RotationCenter::ALONG_ROWS_LINE},
    {"turn", v1::RotationCenter::ALONG_ROWS_TURN}};
const std::vector<FlagOf> kOfAlgorithms = {{"--filter", {"fbp", "fourier", "auto"}},
                                           {"--extend-edges", {"fbp", "fourier", "auto"}},
                                           {"--fourier-accuracy", {"fourier"}},
                                           {"--iterations", {"sirt", "mlem", "cgls", "tv"}},
                                           {"--padding", {"sirt", "mlem", "cgls", "tv"}},
                                           {"--stop-change", {"sirt", "mlem", "cgls", "tv"}},
                                           {"--stop-residual", {"sirt", "mlem", "cgls", "tv"}},
                                           {"--min", {"sirt", "mlem", "tv"}},
                                           {"--max", {"sirt", "mlem", "tv"}},
                                           {"--relaxation", {"sirt"}},
                                           {"--tv-weight", {"tv"}},
                                           {"--subsets", {"sirt", "mlem"}},
                                           {"--tomopy", {"sirt", "mlem"}},
                                           {"--negative-to-zero", {"mlem"}}};

/// Flags of what makes slices of sinograms.
constexpr const char* kOfSlices[] = {"--algorithm",     "--iterations",   "--interpolation",
                                     "--filter",        "--extend-edges", "--fourier-accuracy",
                                     "--tomopy",        "--size",         "--padding",
                                     "--mask",          "--min",          "--max",
                                     "--relaxation",    "--subsets",      "--stop-change",
                                     "--stop-residual", "--tv-weight",    "--negative-to-zero",
                                     "--try-centers"};

/// Flags that --tomopy excludes.
constexpr const char* kNotOfTomopy[] = {"--center",      "--center-row",   "--center-doubt",
                                        "--along-rows",  "--size",         "--relaxation",
                                        "--subsets",     "--min",          "--max",
                                        "--stop-change", "--stop-residual"};

/// Flags of one result, which several files and --output-dir exclude.
constexpr const char* kOfOneFile[] = {"--output",  "--png",        "--axis-png", "--try-centers",
                                      "--no-wait", "--request-id", "--series"};

[[noreturn]] void Refuse(const char* flag, const std::string& value, const std::string& allowed) {
  throw CLI::ValidationError(flag, absl::StrCat("is '", value, "'; allowed ", allowed));
}

// Finite numbers between colons, exactly `count`.
std::vector<double> Numbers(const char* flag, const std::string& text, size_t count,
                            const std::string& allowed) {
  std::vector<double> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ':')) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number) || !std::isfinite(number)) Refuse(flag, text, allowed);
    numbers.push_back(number);
  }
  if (numbers.size() != count) Refuse(flag, text, allowed);
  return numbers;
}

// begin:end:step, as in Python; parts may be left out, one number alone is one index.
void SetRange(const char* flag, const std::string& text, v1::IndexRange* range) {
  const std::string allowed = "one index, or begin:end:step in whole numbers, end above begin";
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() > 3) Refuse(flag, text, allowed);
  uint32_t numbers[3] = {0, 0, 0};
  for (size_t i = 0; i < parts.size(); ++i) {
    if ((!parts[i].empty() || parts.size() == 1) && !absl::SimpleAtoi(parts[i], &numbers[i]))
      Refuse(flag, text, allowed);
  }
  const auto [begin, end, step] = numbers;
  range->set_begin(begin);
  if (parts.size() == 1) {
    if (begin == UINT32_MAX) Refuse(flag, text, allowed);
    range->set_end(begin + 1);
    return;
  }
  // 0 would mean "to the end" on the wire.
  if (!parts[1].empty() && end <= begin) Refuse(flag, text, allowed);
  if (parts.size() == 3 && !parts[2].empty() && step == 0)
    Refuse(flag, text, allowed + ", step from 1 on");
  range->set_end(end);
  range->set_step(step);
}

// Names of other programs are accepted for users who know those.
CLI::Validator OneAlgorithm() {
  static const std::map<std::string, std::string> kOthers = {
      {"gridrec", "auto"}, {"fourierrec", "fourier"}, {"astrasirt", "sirt"}, {"astracgls", "cgls"}};
  CLI::Validator known = OneOf(KeysOf(kAlgorithms));
  return {[known](std::string& text) {
            const std::string problem = known(text);
            const auto other = kOthers.find(text);
            return other == kOthers.end()
                       ? problem
                       : absl::StrCat(problem, " (", text, " is another program's name of ",
                                      other->second, ")");
          },
          ""};
}

// Whatever the spelling, and through links.
bool AreOneFile(const std::string& one, const std::string& other) {
  std::error_code error;
  if (std::filesystem::equivalent(one, other, error)) return true;
  const auto place = [](const std::string& path) {
    std::error_code ignored;
    const auto whole = std::filesystem::absolute(path, ignored);
    const auto resolved = std::filesystem::weakly_canonical(whole, ignored);
    return resolved.empty() ? whole.lexically_normal() : resolved;
  };
  return place(one) == place(other);
}

std::string NameOf(Options::Algorithm algorithm) {
  for (const auto& [name, value] : kAlgorithms) {
    if (value == algorithm) return name;
  }
  return "auto";  // the server's choice
}

}  // namespace

void ReconFlags::AddTo(CLI::App* app) {
  app_ = app;
  settings_.AddTo(app, [this](const auto& setting, const auto& value, const auto& by_hand) {
    return Replaces(setting, value, by_hand);
  });
  app->add_option(
      "file", files_,
      "scans: HDF5 (Data Exchange, NXtomo), .npy, TIFF (a file of pages, or a folder "
      "of files) or Zarr, below a replay root of the server. Several, a pattern in quotes "
      "('scans/*.h5') or a folder of scans: each is a job whose result goes to "
      "--output-dir");
  auto* output = app->add_option(
      "-o,--output", output_,
      "commit the result as this, below a storage root; the ending says the "
      "format: .zarr .npy .nrrd .nii .tiff .mat .h5. {scan} (the job's id), {index}, "
      "{title} and {date} may stand in it");
  app->add_option("--output-dir", output_dir_,
                  "folder below a storage root of the server: each result is committed to it under "
                  "the name of its scan, in --format (default zarr). With several scans the "
                  "default is the root itself")
      ->excludes(output);
  app->add_flag("--skip-existing", skip_existing_,
                "of several scans, or with --output-dir: leave out those whose result was written "
                "whole, as after a stop, and wait for those that a job of an earlier call is still "
                "making; else they are refused, and the others made. What is there in part, or of "
                "another program, is not left out: the scan fails and says why");
  app->add_flag("--stop-on-error", stop_on_error_,
                "of several scans: begin no more after one that fails");
  app->add_option("--jobs-at-a-time", jobs_at_a_time_,
                  "of several scans: how many the server has at once (default 2, so that one is "
                  "read while another is computed)")
      ->check(WholeFrom(1, 64));
  app->add_option("--png", png_,
                  "write a slice as a picture; with --try-centers all of them (default "
                  "centers.png). Without -o the server keeps nothing");
  app->add_option("--slice", slice_, "of --png; default: the middle one")->needs("--png");
  auto* preview = app->add_option(
      "--preview", preview_,
      "folder on this computer for two pictures of each scan, before anything is reconstructed: a "
      "projection after the correction by flat and dark fields, and the prepared sinogram of a "
      "row. Without -o, --output-dir, --png, --axis-png and --try-centers they are all that is "
      "made");
  app->add_option("--preview-row", preview_row_,
                  "row of the detector; default: the middle one of --rows")
      ->needs(preview);
  app->add_option("--preview-projection", preview_projection_,
                  "index in the scan; default: the first of --projections")
      ->needs(preview);
  app->add_flag("--preview-only", preview_only_, "make nothing but the pictures of --preview")
      ->needs(preview);
  app->add_option(
      "--axis-png", axis_png_,
      "write a picture that shows how well the axis fits: the scores of the search, its "
      "positions along the rows, and two projections half a turn apart, one mirrored "
      "about the axis; of --half-turn how well each fits, of stitching the overlap. Not with "
      "--follow, whose projections cannot be read again");
  app->add_option("--algorithm", algorithm_,
                  "auto (default: fourier where it is faster and as good, else fbp) | fbp | "
                  "fourier | sirt | mlem | cgls | tv")
      ->check(OneAlgorithm());
  app->add_option("--iterations", iterations_, "sirt, mlem: default 100; cgls: 20; tv: 200")
      ->check(WholeFrom(1));
  auto* center =
      app->add_option("--center", center_,
                      "column of the rotation axis (pixel index), or auto | pairs | vo | entropy | "
                      "phase: it is searched; middle: the file's, else the middle. Default: the "
                      "file's, else auto; the middle with --tomopy");
  app->add_option("--center-row", row_,
                  "row of the detector that the search looks at; auto, pairs and phase look at up "
                  "to 16 from it on");
  app->add_option("--center-doubt", center_doubt_,
                  "warn (default) | fail, if a second method puts the axis elsewhere")
      ->check(OneOf({"warn", "fail"}));
  auto* along = app->add_option(
      "--along-rows", along_rows_,
      "one (default): one axis for all slices | line: the axis leans, and each slice has its own, "
      "on a line through several groups of rows | turn: the same line, and projections are turned "
      "until it is upright. line and turn search the axis, by auto unless --center names a method");
  along->check(OneOf(KeysOf(kAlongRows)));
  app->add_option("--roll", roll_,
                  "degrees, -5 to 5, by which the axis leans in the plane of the detector, if it "
                  "is known: above 0 it moves to larger columns in larger rows. Projections are "
                  "turned by it");
  app->add_option("--try-centers", try_centers_,
                  "begin:end:step, a slice for each axis instead of a volume, all in one picture "
                  "with their scores")
      ->excludes("--axis-png")
      ->excludes(along)
      ->excludes(center);
  app->add_option("--rows", rows_, "begin:end:step of the detector: the slices");
  app->add_option("--columns", columns_, "begin:end of the detector");
  app->add_option("--projections", projections_, "begin:end:step");
  auto* half_turn =
      app->add_option("--half-turn", half_turn_,
                      "of a scan over 360 degrees or more: all (default) | first | second | best, "
                      "the half turn whose projections fit together best")
          ->check(OneOf(KeysOf(kHalfTurns)));
  app->add_option("--series", series_,
                  "PROJECTIONS:STEP, a volume of so many projections every STEP of them (4-D); "
                  "without :STEP they follow each other. The server writes each to --output, "
                  "whose name gets _0000 and so on, or its number where that has {index}")
      ->excludes("--try-centers")
      ->excludes("--png")
      ->excludes("--axis-png")
      ->excludes(half_turn);
  auto* angles = app->add_option("--angles", angles_,
                                 "first:last:count in degrees, evenly, in place of the file's");
  app->add_option("--angles-file", angles_file_, "further .npy, or dataset, with the angles")
      ->excludes(angles);
  auto* radians =
      app->add_flag("--radians", radians_, "angles of the file are in radians, whatever it says")
          ->excludes(angles);
  app->add_flag("--degrees", degrees_, "angles of the file are in degrees, whatever it says")
      ->excludes(angles)
      ->excludes(radians);
  AddTilesTo(app);
  auto* flats = app->add_option("--flats", flats_, "further .npy or TIFF, or dataset; - = none");
  auto* darks = app->add_option("--darks", darks_, "the same");
  app->add_option("--data", projections_at_, "dataset of the projections, if not the usual one");
  auto* median = app->add_flag("--median", median_, "flat and dark fields by their median");
  auto* in_time =
      app->add_flag("--flats-in-time", in_time_, "interpolate flat fields over the scan");
  auto* dynamic = app->add_flag("--dynamic-flats", dynamic_flats_,
                                "a beam that changes: the flat field of each projection, from the "
                                "principal components of the flat fields");
  app->add_option("--flat-components", flat_components_,
                  "of --dynamic-flats: 1 to 8; default: those that exceed noise")
      ->needs(dynamic);
  for (CLI::Option* other : {median, in_time}) dynamic->excludes(other);
  auto* sinograms = app->add_flag("--sinograms", sinograms_,
                                  "the file holds sinograms already: no fields, no logarithm");
  auto* transmissions =
      app->add_flag("--transmissions", transmissions_,
                    "the values are transmissions already: no flat and dark fields are used");
  for (CLI::Option* other : {flats, darks, median, in_time, dynamic, sinograms})
    transmissions->excludes(other);
  for (CLI::Option* other : {flats, darks, median, in_time, dynamic}) sinograms->excludes(other);
  app->add_option("--cutoff", cutoff_, "largest transmission; larger ones become this")
      ->check(AboveZero());
  app->add_option("--air", air_,
                  "LEFT,RIGHT: columns at the ends of the detector that show air, which becomes 1")
      ->delimiter(',')
      ->expected(2);
  app->add_option("--not-finite", not_finite_,
                  "value in the sinograms in place of NaN and infinite ones; default 0");
  app->add_flag("--no-log", no_log_, "no minus logarithm");
  app->add_option("--outliers", outliers_, "WINDOW,DIFFERENCE: medians in place of bright spots")
      ->delimiter(',')
      ->expected(2);
  auto* drift = app->add_flag("--row-drift", row_drift_,
                              "find and undo shifts of the projections along the rotation axis");
  app->add_option("--most-row-drift", most_row_drift_,
                  "of --row-drift: the largest shift in rows, up to 64; default 5")
      ->needs(drift);
  app->add_option("--bin", bin_, "1 | 2 | 4, rows and columns");
  app->add_option("--phase", phase_,
                  "PIXEL_UM,DISTANCE_MM,ENERGY_KEV,DELTA_BETA: phase retrieval of one material")
      ->delimiter(',')
      ->expected(4);
  auto* method = app->add_option("--phase-method", phase_method_,
                                 "paganin (default) | generalized-paganin | farago")
                     ->needs("--phase")
                     ->check(OneOf(KeysOf(kPhaseMethods)));
  app->add_option("--phase-feature", phase_feature_,
                  "of generalized-paganin: size of a feature in um; default: of a pixel")
      ->needs(method);
  app->add_option(
         "--beam-hardening", hardening_,
         "A,B,...: a line integral p becomes A p + B p^2 + ...; up to 6 numbers, the first "
         "mostly 1")
      ->delimiter(',')
      ->expected(1, 6);
  app->add_option("--rings", rings_, "sorting | large | dead | all | wavelet; may be repeated")
      ->check(OneOf(KeysOf(kRings)));
  auto* left = app->add_flag("--stitch-left", stitch_left_,
                             "360 degrees with the axis near the first column")
                   ->excludes(along)
                   ->excludes(half_turn);
  app->add_flag("--stitch-right", stitch_right_, "360 degrees with the axis near the last column")
      ->excludes(left)
      ->excludes(along)
      ->excludes(half_turn);
  app->add_option("--overlap", overlap_, "of stitching; default: found")->check(AboveZero());
  app->add_option("--interpolation", interpolation_, "nearest | linear | cubic")
      ->check(OneOf(KeysOf(kInterpolations)));
  app->add_option(
         "--filter", filter_,
         "fbp, fourier, auto: ramp | shepp-logan | cosine | hann | hamming | parzen | butterworth")
      ->check(OneOf(KeysOf(kFilters)));
  app->add_flag("--extend-edges", extend_,
                "fbp, fourier, auto: for objects wider than the detector");
  app->add_option("--fourier-accuracy", accuracy_,
                  "fourier: relative error of the gridding, 1e-6 to 1e-2; default 1e-4")
      ->check(AboveZero());
  app->add_flag("--tomopy", tomopy_, "sirt, mlem as TomoPy's accelerated CPU code");
  app->add_option("--size", size_, "rows and columns of a slice")->check(WholeFrom(1));
  app->add_option("--padding", padding_,
                  "pixels on every side while iterating; default: as far as rays reach, and as "
                  "wide as an object that the detector sees in part");
  app->add_option("--mask", mask_, "circle that counts, part of the half width; 0 = none");
  app->add_option("--min", min_, "least value of a pixel");
  app->add_option("--max", max_, "largest value of a pixel");
  app->add_option("--relaxation", relaxation_, "sirt")->check(AboveZero());
  app->add_option("--subsets", subsets_, "sirt, mlem")->check(WholeFrom(1));
  app->add_option("--tv-weight", tv_weight_,
                  "tv: how much edges cost, about the noise of an fbp slice; needed");
  app->add_flag(
      "--prepare-only", prepare_only_,
      "the result is the prepared sinograms [row, angle, column], not reconstructed; --png "
      "shows one");
  app->add_option(
      "--stop-change", stop_change_,
      "stop when the image changes by less than this part, up to 1: 0.001 is a thousandth");
  app->add_option("--stop-residual", stop_residual_,
                  "stop when the residual is this part of the data, up to 1");
  app->add_flag("--negative-to-zero", to_zero_, "mlem: negative data become 0");
  app->add_option("--batch", batch_,
                  "slices at a time; default: chosen from the memory that is free");
  app->add_flag("--on-disk", on_disk_, "keep the result in the tier DISK, whatever fits");
  app->add_option("--samples", samples_,
                  "type of the result's voxels: u8 | u16 | f16 | f32 (default)")
      ->check(OneOf(KeysOf(kSamples)));
  app->add_option(
         "--window", window_,
         "LOW:HIGH, the values that become 0 and the largest number of u8 and u16; default: "
         "found in a few slices")
      ->needs("--samples");
  app->add_flag("--no-wait", no_wait_,
                "end when the job is queued; the server writes --output by itself after the last "
                "slice")
      ->needs("--output")
      ->excludes("--axis-png")
      ->excludes("--png");
  app->add_option("--pixel-um", pixel_, "size of a detector's pixel in the sample");
  format_.AddTo(app);
  job_.AddTo(app);
  preview->excludes("--plan");
  AddFollowingTo(app);
  for (const char* flag : kOfOneFile) {
    if (flag != std::string("--output"))
      app->get_option("--output-dir")->excludes(app->get_option(flag));
  }
}

void ReconFlags::AddTilesTo(CLI::App* app) {
  app->add_option("--tile-columns", tile_columns_,
                  "A,B,...: the scans are tiles of one that is wider than the detector; where the "
                  "first column of each lies, in columns. They are one job, named after the first. "
                  "--flats and --darks are for all, or A,B,... one for each");
  app->add_option("--tile-rows", tile_rows_,
                  "the same of their first rows; alone: tiles one above "
                  "the other");
  app->add_option("--tile-search", tile_search_,
                  "of tiles: positions may be wrong by so many pixels between neighbours, and are "
                  "found; up to 512. Default: they are as given");
}

void ReconFlags::AddFollowingTo(CLI::App* app) {
  auto* follow = app->add_flag("--follow", follow_,
                               "the file is on this computer and still being written, or not there "
                               "yet: HDF5 (Data Exchange, "
                               "or --data, --flats, --darks, --angles-file), Zarr, or a folder of "
                               "TIFF files. Each projection "
                               "is sent to the server as it comes");
  for (const char* other : {"--preview", "--no-wait", "--plan", "--output-dir", "--request-id",
                            "--axis-png", "--tile-columns", "--tile-rows"})
    follow->excludes(app->get_option(other));
  const std::pair<const char*, std::pair<std::optional<uint32_t>*, const char*>> counts[] = {
      {"--follow-count",
       {&following_.projections,
        "projections that will come; default: the number of --angles, else of a dataset that "
        "cannot "
        "grow"}},
      {"--follow-flats",
       {&following_.flats,
        "flat fields that will come; default: of a dataset that cannot grow, else those that are "
        "there with the first projection; if there are none, those that come later. 0: none are "
        "used"}},
      {"--follow-darks",
       {&following_.darks, "the same of dark fields; there need not be any. 0: none are used"}}};
  for (const auto& [flag, to] : counts) app->add_option(flag, *to.first, to.second)->needs(follow);
  app->add_option(
         "--follow-timeout", following_.timeout_s,
         "seconds without anything new after which the scan has stopped (default 60): then "
         "the job is cancelled, and the command fails")
      ->needs(follow)
      ->check(SecondsAboveZero());
  app->add_flag("--follow-partial", following_.partial,
                "reconstruct what came of a scan that has stopped")
      ->needs(follow);
}

// The command line is not parsed yet: only its words count.
std::string ReconFlags::Replaces(const std::string& setting, const std::string& value,
                                 const std::set<std::string>& by_hand) const {
  const std::string flag = "--" + setting;
  const auto word = [&](const char* name) -> std::string {
    return by_hand.contains(name) ? app_->get_option(std::string("--") + name)->results().back()
                                  : "";
  };
  const auto among = [&](const auto& flags) {
    return std::find(std::begin(flags), std::end(flags), flag) != std::end(flags);
  };
  double column = 0;
  if (by_hand.contains("prepare-only")) {
    if (among(kOfSlices) || (setting == "center" && absl::SimpleAtod(value, &column)))
      return "--prepare-only";
  }
  if (by_hand.contains("tomopy") && among(kNotOfTomopy)) return "--tomopy";
  const auto needs = std::find_if(kOfAlgorithms.begin(), kOfAlgorithms.end(),
                                  [&](const FlagOf& one) { return flag == one.flag; });
  if (const std::string algorithm = word("algorithm");
      needs != kOfAlgorithms.end() && kAlgorithms.contains(algorithm) &&
      std::find(needs->kinds.begin(), needs->kinds.end(), algorithm) == needs->kinds.end())
    return "--algorithm " + algorithm;
  if (setting == "center-row" || setting == "center-doubt") {
    const std::string center = word("center");
    if (center == "middle" || absl::SimpleAtod(center, &column)) return "--center " + center;
    if (setting == "center-doubt" && by_hand.contains("try-centers")) return "--try-centers";
  }
  const auto leans = [](const std::string& along) { return along == "line" || along == "turn"; };
  if (setting == "along-rows" && leans(value)) {
    const std::string center = word("center");
    if (center == "middle" || absl::SimpleAtod(center, &column)) return "--center " + center;
    if (by_hand.contains("center-row")) return "--center-row";
    if (value == "turn" && by_hand.contains("roll")) return "--roll";
  }
  if (const std::string along = word("along-rows"); leans(along)) {
    const bool given =
        setting == "center" && (value == "middle" || absl::SimpleAtod(value, &column));
    if (given || setting == "center-row" || (along == "turn" && setting == "roll"))
      return "--along-rows " + along;
  }
  if (setting == "slice" && by_hand.contains("try-centers")) return "--try-centers";
  if (const std::string samples = word("samples");
      setting == "window" && (samples == "f16" || samples == "f32"))
    return "--samples " + samples;
  return "";
}

void ReconFlags::SetFile(const std::string& path, v1::TomographyJob* job) const {
  auto* file = job->mutable_file();
  file->set_path(path);
  if (Given("--data")) file->set_projections(projections_at_);
  if (Given("--flats")) file->set_flats(flats_);
  if (Given("--darks")) file->set_darks(darks_);
  if (Given("--angles-file")) file->set_angles(angles_file_);
  if (radians_) file->set_angle_unit(v1::ANGLE_UNIT_RADIANS);
  if (degrees_) file->set_angle_unit(v1::ANGLE_UNIT_DEGREES);
  if (Given("--angles")) {
    constexpr double kMost = 1'000'000;
    const std::string allowed = "first:last:count, degrees and a whole number from 1 to 1000000";
    const std::vector<double> numbers = Numbers("--angles", angles_, 3, allowed);
    if (numbers[2] < 1 || numbers[2] > kMost || numbers[2] != std::floor(numbers[2]))
      Refuse("--angles", angles_, allowed);
    const auto count = static_cast<int64_t>(numbers[2]);
    job->clear_angles_rad();
    for (int64_t i = 0; i < count; ++i) {
      const double part = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
      job->add_angles_rad((numbers[0] + (numbers[1] - numbers[0]) * part) * M_PI / 180);
    }
  }
  if (Given("--rows")) SetRange("--rows", rows_, job->mutable_rows());
  if (Given("--columns")) SetRange("--columns", columns_, job->mutable_columns());
  if (Given("--projections")) SetRange("--projections", projections_, job->mutable_projections());
  if (Given("--half-turn")) job->set_half_turn(kHalfTurns.at(half_turn_));
  if (HasTiles()) {
    SetTiles(job);
  } else if (Given("--tile-search")) {
    throw CLI::ValidationError("--tile-search", "is of --tile-columns and --tile-rows");
  }
}

// All scans as tiles, each with what SetFile said of the first one.
void ReconFlags::SetTiles(v1::TomographyJob* job) const {
  const auto places = [&](const char* flag, const std::string& text) {
    if (!Given(flag)) return std::vector<double>(files_.size(), 0.0);
    std::vector<double> numbers;
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
      double number = 0;
      if (!absl::SimpleAtod(part, &number) || !std::isfinite(number))
        Refuse(flag, text, "finite numbers, with commas between them");
      numbers.push_back(number);
    }
    if (numbers.size() != files_.size())
      Refuse(flag, text, absl::StrCat(files_.size(), " numbers, one for each scan"));
    return numbers;
  };
  const std::vector<double> columns = places("--tile-columns", tile_columns_),
                            rows = places("--tile-rows", tile_rows_);
  // One for all tiles, or one for each.
  const auto fields = [&](const std::string& text) {
    const std::vector<std::string> each = absl::StrSplit(text, ',');
    return each.size() == files_.size() ? each : std::vector<std::string>(files_.size(), text);
  };
  const v1::ProjectionFile file = job->file();
  const std::vector<std::string> flats = fields(file.flats()), darks = fields(file.darks());
  v1::ProjectionMosaic* const mosaic = job->mutable_mosaic();
  for (size_t i = 0; i < files_.size(); ++i) {
    v1::ProjectionMosaic::Tile* const tile = mosaic->add_tiles();
    *tile->mutable_file() = file;
    tile->mutable_file()->set_path(files_[i]);
    tile->mutable_file()->set_flats(flats[i]);
    tile->mutable_file()->set_darks(darks[i]);
    tile->set_first_column(columns[i]);
    tile->set_first_row(rows[i]);
  }
  mosaic->set_search(tile_search_);
}

void ReconFlags::SetPreparation(v1::TomographyPreparation* to) const {
  if (sinograms_) to->set_already_sinograms(true);
  if (transmissions_) to->set_ignore_fields(true);
  if (no_log_) to->set_logarithm(false);
  if (median_) to->set_flat_median(true), to->set_dark_median(true);
  if (in_time_) to->set_flats_in_time(true);
  // 0 stands for the default on the wire.
  if (flat_components_ == 0U)
    Refuse("--flat-components", "0", "1 to 8, or without it those that exceed noise");
  if (Given("--most-row-drift") && most_row_drift_ == 0)
    Refuse("--most-row-drift", "0", "above 0 to 64, or without it 5");
  if (dynamic_flats_) to->mutable_dynamic_flats()->set_components(flat_components_.value_or(0));
  if (Given("--outliers")) {
    constexpr double kMostWindow = 15;
    if (!(outliers_[0] >= 3 && outliers_[0] <= kMostWindow && std::fmod(outliers_[0], 2) == 1)) {
      Refuse("--outliers", absl::StrJoin(outliers_, ","),
             "WINDOW,DIFFERENCE with an odd window of 3 to 15");
    }
    to->mutable_outliers()->set_window(static_cast<uint32_t>(outliers_[0]));
    to->mutable_outliers()->set_difference(outliers_[1]);
  }
  if (Given("--roll")) {
    if (!(std::abs(roll_) <= 5)) Refuse("--roll", absl::StrCat(roll_), "degrees from -5 to 5");
    to->set_roll_degrees(roll_);
  }
  if (row_drift_) to->mutable_row_drift()->set_most_rows(most_row_drift_);
  if (Given("--cutoff")) to->set_cutoff(cutoff_);
  if (Given("--air")) to->set_air_left(air_[0]), to->set_air_right(air_[1]);
  if (not_finite_.has_value()) to->set_not_finite_value(*not_finite_);
  if (Given("--bin")) to->set_bin_rows(bin_), to->set_bin_columns(bin_);
  if (Given("--phase")) {
    to->mutable_phase()->set_pixel_size_um(phase_[0]);
    to->mutable_phase()->set_distance_mm(phase_[1]);
    to->mutable_phase()->set_energy_kev(phase_[2]);
    to->mutable_phase()->set_delta_beta(phase_[3]);
    if (Given("--phase-method"))
      to->mutable_phase()->set_retrieval_method(kPhaseMethods.at(phase_method_));
    if (Given("--phase-feature")) to->mutable_phase()->set_feature_size_um(phase_feature_);
  }
  for (const double coefficient : hardening_) to->add_beam_hardening(coefficient);
  for (const auto& ring : rings_) to->add_rings()->set_removal_method(kRings.at(ring));
  if (stitch_left_ || stitch_right_) to->mutable_stitching()->set_axis_right(stitch_right_);
  if (overlap_.has_value() && !to->has_stitching())
    throw CLI::ValidationError("--overlap", "is of --stitch-left and --stitch-right");
  if (overlap_.has_value()) to->mutable_stitching()->set_overlap(*overlap_);
}

void ReconFlags::SetCenter(v1::TomographyJob* job) const {
  if (Given("--center")) {
    job->clear_center();
    double column = 0;
    if (const auto method = kCenters.find(center_); method != kCenters.end()) {
      job->mutable_center()->set_search_method(method->second);
    } else if (absl::SimpleAtod(center_, &column) && std::isfinite(column)) {
      job->mutable_center()->add_pixels(column);
    } else {
      Refuse("--center", center_,
             "a column, or auto, pairs, vo, entropy, phase, middle; --try-centers begin:end:step "
             "tries several");
    }
  }
  if (Given("--try-centers")) {
    const std::string allowed =
        "begin:end:step in columns, end not below begin, step above 0, at most 1024 axes";
    const std::vector<double> numbers = Numbers("--try-centers", try_centers_, 3, allowed);
    if (numbers[2] <= 0 || numbers[1] < numbers[0] ||
        (numbers[1] - numbers[0]) / numbers[2] > 1023.5)
      Refuse("--try-centers", try_centers_, allowed);
    auto* tries = job->mutable_try_centers();
    tries->set_begin(numbers[0]);
    tries->set_end(numbers[1]);
    tries->set_step(numbers[2]);
  }
  SetAlongRows(job);
  SetUsualCenter(job);
  if (Given("--center-doubt")) {
    const auto& stitching = job->preparation().stitching();
    const bool finds_overlap = job->preparation().has_stitching() && stitching.overlap() == 0;
    const bool searches = !job->has_try_centers() &&
                          job->center().search_method() != v1::RotationCenter::METHOD_UNSPECIFIED;
    if (!searches && !finds_overlap) {
      throw CLI::ValidationError("--center-doubt",
                                 "is of a search: --center auto, pairs, vo, entropy, phase, or "
                                 "stitching without --overlap");
    }
    job->mutable_center()->set_on_doubt(center_doubt_ == "fail"
                                            ? v1::RotationCenter::ON_DOUBT_FAIL
                                            : v1::RotationCenter::ON_DOUBT_WARN);
  }
  if (!row_.has_value()) return;
  if (job->has_try_centers()) {
    job->mutable_try_centers()->set_row(*row_);
  } else if (job->center().search_method() != v1::RotationCenter::METHOD_UNSPECIFIED) {
    job->mutable_center()->set_row(*row_);
  } else {
    throw CLI::ValidationError(
        "--center-row",
        "is of a search: --center auto, pairs, vo, entropy, phase, or --try-centers");
  }
}

// An axis that leans is found by a search alone, in rows all over the detector.
void ReconFlags::SetAlongRows(v1::TomographyJob* job) const {
  if (!Given("--along-rows")) return;
  v1::RotationCenter& center = *job->mutable_center();
  center.set_along_rows(kAlongRows.at(along_rows_));
  if (center.along_rows() == v1::RotationCenter::ALONG_ROWS_ONE) return;
  const auto refuse = [&](const std::string& beside, const char* why) {
    throw CLI::ValidationError("--along-rows",
                               absl::StrCat("is '", along_rows_, "' with ", beside, ": ", why));
  };
  if (tomopy_ || job->reconstruction().form() == Options::FORM_TOMOPY)
    refuse("--tomopy", "the axis is the middle there; allowed is one of the two");
  if (Given("--center") && center.search_method() == v1::RotationCenter::METHOD_UNSPECIFIED) {
    refuse("--center " + center_,
           "only a search tells how the axis leans; allowed are --center auto, pairs, vo, entropy, "
           "phase, or none, which is auto; --roll gives a lean that is known");
  }
  if (!Given("--center") && center.pixels_size() > 0)
    refuse("tomography.center.pixels of --json-spec",
           "only a search tells how the axis leans; allowed is one of the two");
  if (row_.has_value() || center.has_row())
    refuse(row_.has_value() ? absl::StrCat("--center-row ", *row_)
                            : absl::StrCat("tomography.center.row ", center.row()),
           "it looks at rows all over the detector; allowed is one of the two");
  if (center.along_rows() == v1::RotationCenter::ALONG_ROWS_TURN &&
      job->preparation().roll_degrees() != 0)
    refuse(absl::StrCat("--roll ", job->preparation().roll_degrees()),
           "it finds the roll itself; allowed is one of the two, or --along-rows line, which tells "
           "what is left of the lean");
  if (center.along_rows() == v1::RotationCenter::ALONG_ROWS_TURN && job->rows().step() > 1)
    refuse(absl::StrCat("a step of ", job->rows().step(), " in --rows"),
           "turned rows are made of neighbouring ones; allowed is a step of 1");
  // The file's axis would be one for all rows, without a word.
  if (center.search_method() == v1::RotationCenter::METHOD_UNSPECIFIED ||
      center.search_method() == v1::RotationCenter::METHOD_FILE_OR_AUTO)
    center.set_search_method(v1::RotationCenter::METHOD_AUTO);
}

// Without a word about the axis: that of the file, else it is searched, where a search is allowed.
void ReconFlags::SetUsualCenter(v1::TomographyJob* job) const {
  const bool tomopy = tomopy_ || job->reconstruction().form() == Options::FORM_TOMOPY;
  if (OnlyPrepares(*job) || Given("--center") || job->has_try_centers() ||
      job->preparation().has_stitching() || tomopy || job->center().pixels_size() > 0 ||
      job->center().search_method() != v1::RotationCenter::METHOD_UNSPECIFIED)
    return;
  job->mutable_center()->set_search_method(v1::RotationCenter::METHOD_FILE_OR_AUTO);
}

bool ReconFlags::OnlyPrepares(const v1::TomographyJob& job) {
  return job.output() == v1::TOMOGRAPHY_OUTPUT_SINOGRAMS;
}

void ReconFlags::CheckOnlyPrepares(const v1::TomographyJob& job) const {
  for (const char* flag : kOfSlices) {
    if (Given(flag))
      throw CLI::ValidationError(flag, "is of a reconstruction; --prepare-only makes none");
  }
  if (Given("--axis-png") && job.center().search_method() == v1::RotationCenter::METHOD_UNSPECIFIED)
    throw CLI::ValidationError(
        "--axis-png",
        "is of an axis; --prepare-only needs none: give --center auto, pairs, "
        "vo, entropy, phase to search it");
  if (job.center().pixels_size() > 0)
    throw CLI::ValidationError("--center",
                               absl::StrCat("is '", center_,
                                            "' with --prepare-only, which needs no "
                                            "axis; allowed a method that searches it: auto, pairs, "
                                            "vo, entropy, phase"));
}

void ReconFlags::SetAlgorithm(Options* to) const {
  if (Given("--algorithm")) to->set_algorithm(kAlgorithms.at(algorithm_));
  const std::string algorithm = NameOf(to->algorithm());
  RefuseStrangers(*app_, kOfAlgorithms, algorithm, "the algorithm is " + algorithm);
  if (tomopy_) to->set_form(Options::FORM_TOMOPY);
  if (Given("--interpolation")) to->set_interpolation(kInterpolations.at(interpolation_));
  if (Given("--filter")) to->set_filter(kFilters.at(filter_));
  if (extend_) to->set_extend_edges(true);
  if (Given("--fourier-accuracy")) to->set_fourier_accuracy(accuracy_);
  if (Given("--size")) to->set_image_size(size_);
  if (Given("--iterations")) to->set_iterations(iterations_);
  if (Given("--relaxation")) to->set_relaxation(relaxation_);
  if (Given("--tv-weight")) to->set_tv_weight(tv_weight_);
  if (to->algorithm() == Options::ALGORITHM_TV && to->tv_weight() == 0 && !Given("--tv-weight"))
    throw CLI::ValidationError("--tv-weight",
                               "is not given with --algorithm tv; allowed a number above 0, in the "
                               "unit of the result: about the noise of an fbp slice");
  if (Given("--subsets")) to->set_subsets(subsets_);
  if (Given("--stop-change")) to->set_stop_change(stop_change_);
  if (Given("--stop-residual")) to->set_stop_residual(stop_residual_);
  if (to_zero_) to->set_negative_data_to_zero(true);
  if (padding_.has_value()) to->set_padding(*padding_);
  if (mask_.has_value()) to->set_mask_ratio(*mask_);
  if (min_.has_value()) to->set_min_value(*min_);
  if (max_.has_value()) to->set_max_value(*max_);
}

void ReconFlags::SetSamples(v1::TomographyJob* job) const {
  if (Given("--samples")) job->mutable_samples()->set_type(kSamples.at(samples_));
  if (!Given("--window")) return;
  if (samples_ != "u8" && samples_ != "u16") {
    throw CLI::ValidationError("--window", absl::StrCat("is of --samples u8 and u16; ", samples_,
                                                        " holds the values themselves"));
  }
  const std::string allowed = "LOW:HIGH, finite numbers, high above low";
  const std::vector<double> numbers = Numbers("--window", window_, 2, allowed);
  if (!(numbers[0] < numbers[1])) Refuse("--window", window_, allowed);
  job->mutable_samples()->set_low(numbers[0]);
  job->mutable_samples()->set_high(numbers[1]);
}

void ReconFlags::SetSeries(v1::TomographyJob* job) const {
  if (!Given("--series")) return;
  const std::string allowed = "PROJECTIONS or PROJECTIONS:STEP, whole numbers from 1 on";
  const std::vector<std::string> parts = absl::StrSplit(series_, ':');
  uint32_t numbers[2] = {0, 0};
  if (parts.size() > 2) Refuse("--series", series_, allowed);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!absl::SimpleAtoi(parts[i], &numbers[i]) || numbers[i] == 0)
      Refuse("--series", series_, allowed);
  }
  job->mutable_series()->set_projections(numbers[0]);
  job->mutable_series()->set_step(parts.size() == 1 ? numbers[0] : numbers[1]);
}

void ReconFlags::CheckTogether(const v1::TomographyJob& job) const {
  if (job.preparation().roll_degrees() != 0 && Given("--roll") && job.rows().step() > 1) {
    throw CLI::ValidationError(
        "--roll", absl::StrCat("is ", roll_, " with a step of ", job.rows().step(),
                               " in --rows: turned rows are made of neighbouring ones; allowed is "
                               "a step of 1"));
  }
  if (slice_.has_value() && job.has_try_centers())
    throw CLI::ValidationError("--slice", "is of one volume; --try-centers shows all its slices");
  if (Given("--output") && output_.empty())
    throw CLI::ValidationError("--output",
                               "is empty; leave it out to keep the result on the server");
  for (const auto& [flag, path] :
       {std::pair("--png", &png_), std::pair("--axis-png", &axis_png_)}) {
    if (Given(flag) && path->empty())
      throw CLI::ValidationError(flag, "is empty; allowed is the name of a file for the picture");
  }
  if (Given("--preview") && preview_.empty())
    throw CLI::ValidationError("--preview", "is empty; allowed is a folder for the pictures");
  if (Given("--png") && Given("--axis-png") && AreOneFile(png_, axis_png_)) {
    throw CLI::ValidationError(
        "--axis-png", absl::StrCat("is '", axis_png_, "', the same file as --png '", png_,
                                   "': one picture would replace the other; allowed is another "
                                   "file"));
  }
  if (no_wait_ && job_.watch)
    throw CLI::ValidationError("--watch", "waits for the end of the job; --no-wait does not");
  for (const char* flag : FormatFlags::kAll) {
    if (Given(flag) && output_.empty() && !batch() && !settings_.Set(flag + 2))
      throw CLI::ValidationError(flag, "says how to write --output, and --output is not given");
  }
  if (batch()) return;
  for (const char* flag : {"--skip-existing", "--stop-on-error", "--jobs-at-a-time"}) {
    if (Given(flag) && !settings_.Set(flag + 2)) {
      throw CLI::ValidationError(flag, "is of several files, or of --output-dir; this is one file");
    }
  }
}

void ReconFlags::CheckOfBatch() const {
  for (const char* flag : kOfOneFile) {
    if (Given(flag))
      throw CLI::ValidationError(
          flag,
          absl::StrCat("is of one file; ", many_.empty() ? absl::StrCat(files_.size(), " are given")
                                                         : absl::StrCat(many_,
                                                                        ", whose results go to "
                                                                        "--output-dir")));
  }
  // One of two results could not be written, after all its work; pictures would replace others.
  std::map<std::string, std::string> files;
  const auto add = [&](const std::string& place, const std::string& file, const char* folder) {
    const auto [other, first] = files.emplace(place, file);
    if (first) return;
    throw CLI::ValidationError(
        "file", absl::StrCat("'", other->second, "' and '", file, "' would both be written to '",
                             place, "'; give each a call with its own ", folder));
  };
  for (const std::string& file : files_) {
    if (preview_.empty() || (HasPlace() && !preview_only_))
      add(CommitInFolder(file).destination(), file, "--output-dir");
  }
  files.clear();  // these are on this computer
  for (const std::string& file : files_) {
    if (!preview_.empty()) add(PreviewOf(file, "projection"), file, "--preview folder");
  }
}

std::string ReconFlags::PreviewOf(const std::string& file, const char* kind) const {
  return std::filesystem::path(preview_) / absl::StrCat(NameOfScan(file), "_", kind, ".png");
}

void ReconFlags::CheckFollowing(const v1::TomographyJob& job) const {
  if (files_.size() == 1 && files_.front().find_first_of("*?") != std::string::npos) {
    throw CLI::ValidationError("--follow",
                               absl::StrCat("is of one scan; '", files_.front(), "' is a pattern"));
  }
  if (files_.size() > 1)
    throw CLI::ValidationError("--follow",
                               absl::StrCat("is of one scan; ", files_.size(), " are given"));
  const v1::TomographyPreparation& preparation = job.preparation();
  const bool none = preparation.ignore_fields() || preparation.already_sinograms();
  for (const auto& [flag, at] : {std::pair("--follow-flats", &job.file().flats()),
                                 std::pair("--follow-darks", &job.file().darks())}) {
    if (Given(flag) && (none || *at == "-"))
      throw CLI::ValidationError(flag, "counts fields, and none are used here");
  }
  if (following_.projections == 0U)
    throw CLI::ValidationError("--follow-count", "is 0; allowed are 1 or more");
  const int count = job.angles_rad_size();
  if (following_.projections.has_value() && count > 0 &&
      static_cast<int64_t>(*following_.projections) != count) {
    throw CLI::ValidationError("--follow-count",
                               absl::StrCat("is ", *following_.projections, ", and --angles gives ",
                                            count, "; allowed is the same number"));
  }
}

bool ReconFlags::MayNameMany() const {
  // A folder is one tile.
  return HasTiles() ? HasPattern() : std::any_of(files_.begin(), files_.end(), MayStandForMany);
}

bool ReconFlags::HasPattern() const {
  return std::any_of(files_.begin(), files_.end(), cli::HasPattern);
}

std::vector<std::string> ReconFlags::FindScans(std::vector<std::string> roots,
                                               const std::string& address) {
  const v1::JobSpec spec = job_.Spec();
  const v1::TomographyPreparation& preparation = spec.tomography().preparation();
  ScanNames found = ScanFinder({.roots = std::move(roots),
                                .address = address,
                                .fields = {flats_, darks_, angles_file_},
                                .sinograms = sinograms_ || preparation.already_sinograms(),
                                .transmissions = transmissions_ || preparation.ignore_fields()})
                        .Find(files_);
  files_ = std::move(found.files);
  if (!HasTiles()) many_ = std::move(found.many);  // tiles are one job
  return std::move(found.notes);
}

std::vector<std::string> ReconFlags::files() const {
  if (files_.empty()) throw CLI::RequiredError("file");
  return HasTiles() ? std::vector<std::string>{files_.front()} : files_;
}

v1::JobSpec ReconFlags::Spec(const std::string& file) const {
  v1::JobSpec spec = job_.Spec();
  auto* job = spec.mutable_tomography();
  SetFile(file, job);
  SetPreparation(job->mutable_preparation());
  if (prepare_only_) job->set_output(v1::TOMOGRAPHY_OUTPUT_SINOGRAMS);
  SetCenter(job);
  if (OnlyPrepares(*job)) {
    CheckOnlyPrepares(*job);
  } else {
    SetAlgorithm(job->mutable_reconstruction());
  }
  if (Given("--batch")) job->set_slices_per_batch(batch_);
  if (on_disk_) job->set_place(v1::RESULT_PLACE_DISK);
  SetSamples(job);
  SetSeries(job);
  if (Given("--pixel-um")) job->set_pixel_size_um(pixel_);
  CheckTogether(*job);
  if (follow_) CheckFollowing(*job);
  if (batch() && !HasTiles() && file == files_.front()) CheckOfBatch();
  if (job->has_series()) {
    if (const auto commit = CommitOfSeries(); commit.has_value()) *spec.mutable_commit() = *commit;
  } else if (no_wait_) {
    *spec.mutable_commit() = *Commit();
  }
  return spec;
}

std::string ReconFlags::ChosenIterations() const {
  const v1::JobSpec spec = Spec(files().front());
  const Options& options = spec.tomography().reconstruction();
  static const std::map<Options::Algorithm, int> kUsual = {{Options::ALGORITHM_SIRT, 100},
                                                           {Options::ALGORITHM_MLEM, 100},
                                                           {Options::ALGORITHM_CGLS, 20},
                                                           {Options::ALGORITHM_TV, 200}};
  const auto usual = kUsual.find(options.algorithm());
  if (options.iterations() != 0 || usual == kUsual.end()) return "";
  return absl::StrCat("--iterations is not given: ", usual->second, ", as is usual with ",
                      NameOf(options.algorithm()));
}

std::optional<v1::CommitOptions> ReconFlags::Commit() const {
  if (output_.empty()) return std::nullopt;
  v1::CommitOptions options;
  format_.Fill("--output", output_, &options);
  if (options.format() == v1::FORMAT_UNSPECIFIED) {
    Refuse("--output", output_,
           absl::StrCat("a name that ends in ", absl::StrJoin(FormatEndings(), ", "),
                        ", or --format"));
  }
  return options;
}

std::string NameOfScan(const std::string& file) {
  std::string name(absl::StripSuffix(file, "/"));
  name = name.substr(name.rfind('/') + 1);
  for (const char* ending : {".h5", ".hdf5", ".hdf", ".nxs", ".nx", ".npy", ".tif", ".tiff", ".btf",
                             ".ome.zarr", ".zarr"}) {
    if (absl::EndsWithIgnoreCase(name, ending) && name.size() > std::string(ending).size())
      return name.substr(0, name.size() - std::string(ending).size());
  }
  return name;
}

std::optional<v1::CommitOptions> ReconFlags::CommitOfSeries() const {
  std::optional<v1::CommitOptions> options = Commit();
  if (!options.has_value() || absl::StrContains(options->destination(), "{index")) return options;
  const std::string& path = options->destination();
  // Before the ending, of which OME-Zarr has two.
  const size_t name = path.rfind('/') + 1;
  size_t dot = path.rfind('.');
  if (absl::EndsWithIgnoreCase(path, ".ome.zarr")) dot = path.size() - 9;
  if (absl::EndsWithIgnoreCase(path, ".nii.gz")) dot = path.size() - 7;
  if (dot == std::string::npos || dot <= name) dot = path.size();
  options->set_destination(absl::StrCat(path.substr(0, dot), "_{index:04}", path.substr(dot)));
  return options;
}

v1::CommitOptions ReconFlags::CommitInFolder(const std::string& file) const {
  static const std::map<std::string, std::string> kEndings = {
      {"zarr", ".zarr"}, {"npy", ".npy"}, {"nrrd", ".nrrd"}, {"nifti", ".nii"},
      {"tiff", ".tiff"}, {"mat", ".mat"}, {"hdf5", ".h5"},   {"bin", ".bin"}};
  const std::string format = !format_.format.empty() ? format_.format
                             : format_.tiff_stack    ? "tiff"
                                                     : "zarr";
  const std::string folder(absl::StripSuffix(output_dir_, "/"));
  v1::CommitOptions options;
  // A stack of TIFF is a folder, which has no ending.
  format_.Fill("--output-dir",
               absl::StrCat(folder == "." ? "" : folder, folder.empty() || folder == "." ? "" : "/",
                            NameOfScan(file), format_.tiff_stack ? "" : kEndings.at(format)),
               &options);
  return options;
}

}  // namespace octavo::cli
