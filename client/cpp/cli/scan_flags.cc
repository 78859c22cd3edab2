#include "client/cpp/cli/scan_flags.h"

#include <fstream>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cpp/cli/file_push.h"
#include "client/cpp/cli/format_flags.h"
#include "client/cpp/cli/json_spec.h"
#include "client/cpp/cli/words.h"
#include "client/cpp/wire/seconds.h"

namespace octavo::cli {
namespace {

const std::vector<std::string> kSources = {"simulated", "replay", "push", "camera", "ring"};
const std::vector<std::string> kDTypes = {"u8", "i8", "u16", "f16", "f32", "c64"};

// Words of NumPy, GenICam and SciPy, which octavo's Python client accepts, too.
const std::map<std::string, std::string> kTypesOfOthers = {
    {"uint8", "u8"}, {"int8", "i8"},     {"uint16", "u16"}, {"int16", "i16"},    {"float16", "f16"},
    {"half", "f16"}, {"float32", "f32"}, {"single", "f32"}, {"complex64", "c64"}};
const std::map<std::string, std::string> kRawTypesOfOthers = {{"uint8", "u8"},
                                                              {"uint16", "u16"},
                                                              {"int16", "i16"},
                                                              {"float32", "f32"},
                                                              {"single", "f32"},
                                                              {"mono8", "u8"},
                                                              {"Mono8", "u8"},
                                                              {"mono16", "u16"},
                                                              {"Mono16", "u16"},
                                                              {"mono12p", "u12p"},
                                                              {"Mono12p", "u12p"},
                                                              {"mono12packed", "u12-packed"},
                                                              {"Mono12Packed", "u12-packed"},
                                                              {"u12_packed", "u12-packed"}};
const std::map<std::string, std::string> kWindowsOfOthers = {
    {"hanning", "hann"}, {"boxcar", "rect"},    {"rectangular", "rect"}, {"ones", "rect"},
    {"none", "rect"},    {"gaussian", "gauss"}, {"flattop", "flat-top"}, {"flat_top", "flat-top"}};

const std::vector<FlagOf> kOfSources = {
    {"--seed", {"simulated"}},  {"--fast", {"simulated"}},      {"--path", {"replay"}},
    {"--loops", {"replay"}},    {"--header-bytes", {"replay"}}, {"--allow-partial", {"replay"}},
    {"--camera", {"camera"}},   {"--pixel-format", {"camera"}}, {"--height", {"camera"}},
    {"--exposure", {"camera"}}, {"--frame-rate", {"camera"}},   {"--trigger", {"camera"}}};

std::string NameOf(v1::ScanSpec::SourceCase source) {
  switch (source) {
    case v1::ScanSpec::kSimulated: return "simulated";
    case v1::ScanSpec::kReplay: return "replay";
    case v1::ScanSpec::kPush: return "push";
    case v1::ScanSpec::kCamera: return "camera";
    case v1::ScanSpec::kRing: return "ring";
    case v1::ScanSpec::SOURCE_NOT_SET: break;
  }
  return "";
}

// One number after the other, to the end of the file.
void ReadWavelengths(const std::string& path, v1::Processing::KLinearisation::DoubleArray* out) {
  std::ifstream file(path);
  if (!file)
    throw CLI::ValidationError(
        "--k",
        absl::StrCat("is '", path,
                     "', no file that can be read; allowed none, source, poly or such a file"));
  const bool npy = file.peek() == 0x93;  // as .npy files begin
  for (double nm = 0; file >> nm;) out->add_values(nm);
  if (file.eof() && out->values_size() > 0) return;
  throw CLI::ValidationError(
      "--k", absl::StrCat("is '", path, "', ",
                          npy                       ? "a .npy file"
                          : file.eof()              ? "an empty file"
                          : out->values_size() == 0 ? "which does not begin with a number"
                                                    : absl::StrCat("which holds something that "
                                                                   "is no number behind ",
                                                                   out->values_size(), " numbers"),
                          "; allowed is a text file of wavelengths in nm, one number after the "
                          "other",
                          npy ? " (np.savetxt writes one)" : ""));
}

template <class Enum>
CLI::Option* AddWord(CLI::App* app, const std::string& flag, std::string& to,
                     const std::string& help, const std::map<std::string, std::string>& also = {},
                     bool guess = true) {
  const std::vector<std::string> words = WordsOf<Enum>();
  return app->add_option(flag, to, help + Listed(words))->transform(OneOf(words, also, guess));
}

}  // namespace

void ScanFlags::AddTo(CLI::App* app) {
  app_ = app;
  app->add_option(
      "--json-spec", spec_file_,
      "a ScanSpec: a file of JSON, or JSON itself ('{...}'); flags given beside it win");
  app->add_option("--source", source_, Listed(kSources) + "; --path alone means replay")
      ->check(OneOf(kSources));
  app->add_option("--camera", camera_,
                  "camera: its id (see octavo camera list); default: the only one");
  app->add_option("--pixel-format", pixel_format_,
                  "camera: Mono8 | Mono12 | Mono16 | Mono12Packed | Mono12p");
  app->add_option("--height", camera_height_, "camera: lines of a frame; --samples is its width");
  app->add_option("--exposure", exposure_, "camera: microseconds");
  app->add_option("--frame-rate", frame_rate_, "camera: frames per second");
  app->add_option("--trigger", trigger_, "camera: trigger source; default: free running");
  app->add_option("--queue", queue_,
                  "begin when the scans before it in this queue take no more records");
  AddWord<v1::Queue::Insert>(app, "--insert", insert_, "into the queue: ");
  app->add_option(
      "--path", path_,
      "replay: file under a replay root of the server, or any here, which is pushed (.npy or raw)");
  app->add_option("--loops", loops_,
                  "replay: how often (default 1); 0 = until the scan has its volumes");
  app->add_option("--header-bytes", header_bytes_,
                  "replay of a raw file: what lies before its first record");
  app->add_flag(
      "--allow-partial", allow_partial_,
      "replay: leave the last record of a file that was cut off out, instead of refusing it");
  app->add_option("--seed", seed_, "simulated: seed");
  app->add_flag("--fast", fast_, "simulated: as fast as possible");
  app->add_option("--samples", samples_,
                  "samples per record: 16 to 65536; raw files, push and ring need it; simulated: "
                  "default 1024; .npy and cameras say it");
  AddWord<v1::RawType>(app, "--raw-type", raw_type_,
                       "default u16; u12p and u12-packed: 12 bits, two samples in three bytes; "
                       "NumPy's names do as well: ",
                       kRawTypesOfOthers, /*guess=*/false);
  app->add_option("--adc-bits", adc_bits_,
                  "bits of a sample that carry numbers; 0 = as the source declares");
  app->add_option("--channels", channels_, "interleaved channels of a record; 0 = 1");
  app->add_option("--channel", channel_, "the channel that is processed");
  app->add_option("--record-average", record_average_,
                  "records of the source in one of the pattern; 0 = 1");
  app->add_option("--rate", rate_, "records per second");
  app->add_option("--block", block_, "records per block; 0 = chosen");
  AddPatternFlags(app, pattern_);
  app->add_option("--title", title_, "for people and file names");
  app->add_option("--label", labels_, "key=value, may be repeated");
  AddWord<v1::RetentionMode>(app, "--mode", mode_, "");
  app->add_option("--hold-slots", hold_slots_, "volumes that can be held; 0 = chosen");
  app->add_flag("--hold-raw", hold_raw_,
                "hold the raw spectra of each volume beside it, for octavo job reprocess, "
                "autofocus and calibrate");
  AddWord<v1::OnFull>(app, "--on-full", on_full_, "");
  app->add_option("--on-tier-full", on_tier_full_,
                  "with --on-full spill-...: stop-at-volume | drop-new")
      ->check(OneOf({"stop-at-volume", "drop-new"}));
  app->add_option("--keep-last", keep_last_,
                  "live: a ring of the last so many volumes and those held");
  app->add_option("--ttl", ttl_, "seconds after which volumes are discarded unless held");
  AddWord<v1::Disposition>(app, "--disposition", disposition_, "");
  AddWord<v1::OnRestart>(app, "--on-restart", on_restart_,
                         "what becomes of the scan when the server ends or dies, default end; "
                         "resume: the next start of the server begins it again (needs auto-commit "
                         "and {scan} in --destination): ");
  app->add_option("--destination", destination_,
                  "auto-commit: path, with {scan} {index:05} {title} {date}; its ending tells the "
                  "format, else --format");
  app->add_option("--format", format_, "auto-commit: " + Listed(FormatNames()))
      ->check(OneOf(FormatNames()));
  app->add_option(
         "--dtype", dtype_,
         Listed(kDTypes) +
             " (complex), or NumPy's names; default: u16 for dB of integer samples, else f32")
      ->transform(OneOf(kDTypes, kTypesOfOthers, /*guess=*/false));
  AddWord<v1::Value>(app, "--value", value_, "");
  app->add_option(
         "--levels", levels_,
         "lo,hi in value units; default of integers: what nothing or next to nothing is clipped by")
      ->delimiter(',')
      ->expected(2);
  AddWord<v1::WindowKind>(app, "--window", window_, "default hann: ", kWindowsOfOthers);
  app->add_option("--a2", a2_, "dispersion, rad per sample^2");
  app->add_option("--a3", a3_, "dispersion, rad per sample^3");
  app->add_option("--k", k_, "none | source | poly | a text file of wavelengths in nm");
  app->add_option("--poly", poly_, "coefficients for --k poly")->delimiter(',');
  AddWord<v1::Interpolation>(app, "--interp", interp_, "of the k-linearisation, default cubic: ");
  app->add_option("--background", background_, "none | rolling | bscan; default rolling")
      ->check(OneOf({"none", "rolling", "bscan"}));
  app->add_option("--group-records", group_records_,
                  "rolling background: records that have one; 0 = a B-scan with its flyback, or as "
                  "many B-scans as have 64 records where one has fewer than 8");
  app->add_option("--window-records", window_records_,
                  "rolling background: records that it is the mean of; 0 = the group");
  AddWord<v1::Processing::FixedPatternNoise>(app, "--fixed-pattern-noise", fixed_pattern_,
                                             "subtract that of each B-scan, default keep: ");
  app->add_option("--depth", depth_, "depth samples kept; 0 = half the transform");
  app->add_option("--fft-length", fft_length_, "transform length; 0 = chosen");
  AddWord<v1::Products::MotionContrast>(app, "--angiography", angiography_, "repeated patterns: ");
  app->add_flag("--aip", aip_, "compute the en face mean too");
  app->add_option("--device", device_, "auto | devices/N, or N")->transform(DeviceName());
  app->add_option("--spread", spread_, "devices that share the B-scans; 0 = all healthy ones")
      ->check(CLI::Range(0, 1024));
  app->add_flag("--striped", striped_,
                "volumes stay on the devices that computed them, B-scans in turn; with --spread")
      ->needs("--spread");
}

std::string ScanFlags::SourceOf(const v1::ScanSpec& spec, std::string* why) const {
  if (!source_.empty()) return *why = "--source", source_;
  if (Given("--path")) return *why = "--path", "replay";
  if (spec.source_case() != v1::ScanSpec::SOURCE_NOT_SET)
    return *why = "--json-spec", NameOf(spec.source_case());
  std::string hint;
  for (const FlagOf& one : kOfSources) {
    if (hint.empty() && Given(one.flag))
      hint = absl::StrCat("; ", one.flag, " is for --source ", one.kinds[0]);
  }
  std::string allowed;
  for (const std::string& source : kSources) absl::StrAppend(&allowed, source, ", ");
  throw CLI::ValidationError("--source", absl::StrCat("is not given; allowed ", allowed,
                                                      "or --path FILE, which means replay", hint));
}

void ScanFlags::SetSource(v1::ScanSpec* spec) const {
  std::string why;
  const std::string source = SourceOf(*spec, &why);
  RefuseStrangers(*app_, kOfSources, source,
                  absl::StrCat("the source is ", source, " (", why, ")"));
  if (source == "simulated") {
    auto* to = spec->mutable_simulated();
    if (Given("--seed")) to->set_seed(seed_);
    if (fast_) to->set_as_fast_as_possible(true);
  } else if (source == "replay") {
    const bool begun = spec->has_replay();
    auto* to = spec->mutable_replay();
    if (Given("--path")) to->set_path(path_);
    if (!begun || Given("--loops")) to->set_loops(loops_);
    if (Given("--rate")) to->set_rate_hz(rate_);
    if (Given("--header-bytes")) to->set_header_bytes(header_bytes_);
    if (allow_partial_) to->set_allow_partial(true);
    if (to->path().empty())
      throw CLI::ValidationError("--path", "is not given; the source replay needs a file");
  } else if (source == "push") {
    spec->mutable_push();
  } else if (source == "ring") {
    spec->mutable_ring();
  } else {
    auto* to = spec->mutable_camera();
    if (Given("--camera")) to->set_id(camera_);
    if (Given("--pixel-format")) to->set_pixel_format(pixel_format_);
    if (Given("--height")) to->set_height(camera_height_);
    if (Given("--exposure")) to->set_exposure_us(exposure_);
    if (Given("--frame-rate")) to->set_frame_rate_hz(frame_rate_);
    if (Given("--trigger")) to->set_trigger_source(trigger_);
  }
}

void ScanFlags::SetAcquisition(v1::ScanSpec* spec) const {
  auto* to = spec->mutable_acquisition();
  if (Given("--samples")) to->set_samples_per_record(samples_);
  if (Given("--rate")) to->set_record_rate_hz(rate_);
  if (Given("--block")) to->set_records_per_block(block_);
  if (Given("--raw-type")) to->set_raw_type(ValueOf<v1::RawType>(raw_type_));
  if (Given("--channels")) to->set_channels(channels_);
  if (Given("--channel")) to->set_channel(channel_);
  if (Given("--record-average")) to->set_record_average(record_average_);
  if (Given("--adc-bits")) to->set_adc_bits(adc_bits_);
  if (to->samples_per_record() != 0) return;
  if (spec->has_replay() && !absl::EndsWith(spec->replay().path(), ".npy")) {
    if (const std::string kind = FilePush::KindOfOther(spec->replay().path()); !kind.empty()) {
      throw CLI::ValidationError("--path",
                                 absl::StrCat("is '", spec->replay().path(), "', ", kind,
                                              "; allowed are .npy files and files of raw numbers"));
    }
    throw CLI::ValidationError("--samples",
                               "is not given; a raw file does not say how long its records are (an "
                               ".npy file does): 16 to 65536");
  }
  if (spec->has_push() || spec->has_ring()) {
    throw CLI::ValidationError(
        "--samples", absl::StrCat("is not given; the source ", NameOf(spec->source_case()),
                                  " needs it: 16 to 65536"));
  }
}

void ScanFlags::SetRetention(v1::Retention* to) const {
  if (Given("--mode")) to->set_mode(ValueOf<v1::RetentionMode>(mode_));
  if (Given("--hold-slots")) to->set_hold_slots(hold_slots_);
  if (hold_raw_) to->set_hold_raw(true);
  if (Given("--on-full")) to->set_on_full(ValueOf<v1::OnFull>(on_full_));
  if (Given("--on-tier-full")) to->set_on_tier_full(ValueOf<v1::OnFull>(on_tier_full_));
  if (Given("--keep-last")) to->set_keep_last(keep_last_);
  if (Given("--ttl")) *to->mutable_ttl() = DurationOf(ttl_);
  if (Given("--disposition")) to->set_disposition(ValueOf<v1::Disposition>(disposition_));
  if (Given("--destination")) to->mutable_auto_commit()->set_destination(destination_);
  if (Given("--format")) to->mutable_auto_commit()->set_format(ParseFormat(format_));
  if (Given("--destination") || Given("--format")) {
    to->mutable_auto_commit()->set_format(
        FormatFor("--destination", to->auto_commit().destination(), to->auto_commit().format()));
  }
  const bool spills =
      to->on_full() == v1::ON_FULL_SPILL_HOST || to->on_full() == v1::ON_FULL_SPILL_DISK;
  if (Given("--on-tier-full") && !spills)
    throw CLI::ValidationError("--on-tier-full", "is for --on-full spill-host, spill-disk");
  for (const char* flag : {"--destination", "--format"}) {
    if (Given(flag) && to->disposition() != v1::DISPOSITION_AUTO_COMMIT)
      throw CLI::ValidationError(flag, "is for --disposition auto-commit");
  }
}

void ScanFlags::SetProcessing(v1::Processing* to) const {
  if (Given("--dtype")) to->set_dtype(ValueOf<v1::Dtype>(dtype_));
  if (Given("--value")) to->set_value(ValueOf<v1::Value>(value_));
  if (Given("--levels")) {
    to->mutable_levels()->set_lo(static_cast<float>(levels_[0]));
    to->mutable_levels()->set_hi(static_cast<float>(levels_[1]));
  }
  if (Given("--window")) to->set_window(ValueOf<v1::WindowKind>(window_));
  if (Given("--a2")) to->mutable_dispersion()->set_a2(a2_);
  if (Given("--a3")) to->mutable_dispersion()->set_a3(a3_);
  if (Given("--poly") != (k_ == "poly"))
    throw CLI::ValidationError("--poly", "and --k poly go together; one of them is given alone");
  auto* k = to->mutable_k_linearisation();
  if (k_ == "none") {
    k->set_none(true);
  } else if (k_ == "source") {
    k->set_from_source(true);
  } else if (k_ == "poly") {
    k->mutable_polynomial()->mutable_values()->Add(poly_.begin(), poly_.end());
  } else if (Given("--k")) {
    k->mutable_wavelength_nm()->clear_values();
    ReadWavelengths(k_, k->mutable_wavelength_nm());
  }
  if (Given("--interp")) k->set_interpolation(ValueOf<v1::Interpolation>(interp_));
  if (Given("--interp") && k->none())
    throw CLI::ValidationError("--interp",
                               "belongs to the k-linearisation, and --k none switches that off");
  auto* background = to->mutable_background();
  if (Given("--background"))
    background->set_mode(ValueOf<v1::Processing::Background::Mode>(background_));
  if (Given("--group-records")) background->set_group_records(group_records_);
  if (Given("--window-records")) background->set_window_records(window_records_);
  for (const char* flag : {"--group-records", "--window-records"}) {
    const bool rolling = background->mode() == v1::Processing::Background::MODE_UNSPECIFIED ||
                         background->mode() == v1::Processing::Background::MODE_ROLLING;
    if (Given(flag) && !rolling) throw CLI::ValidationError(flag, "is for --background rolling");
  }
  if (Given("--fixed-pattern-noise"))
    to->set_fixed_pattern_noise(ValueOf<v1::Processing::FixedPatternNoise>(fixed_pattern_));
  if (Given("--depth")) to->set_depth(depth_);
  if (Given("--fft-length")) to->set_fft_length(fft_length_);
}

// Without positions there is no k-linearisation; the simulated source alone brings its own.
void ScanFlags::CheckLinearisation(const v1::ScanSpec& spec) const {
  const auto positions = spec.processing().k_linearisation().positions_case();
  if (!Given("--interp") || spec.has_simulated() ||
      positions != v1::Processing::KLinearisation::POSITIONS_NOT_SET)
    return;
  throw CLI::ValidationError(
      "--interp",
      absl::StrCat(
          "belongs to the k-linearisation, and the scan has none; --k asks for one (the source ",
          NameOf(spec.source_case()), " has none of its own)"));
}

void ScanFlags::SetRest(v1::ScanSpec* spec) const {
  if (Given("--title")) spec->set_title(title_);
  for (const auto& label : labels_) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos)
      throw CLI::ValidationError("--label", "'" + label + "' is not key=value");
    (*spec->mutable_labels())[label.substr(0, equals)] = label.substr(equals + 1);
  }
  if (Given("--angiography"))
    spec->mutable_products()->set_angiography(ValueOf<v1::Products::MotionContrast>(angiography_));
  if (aip_) spec->mutable_products()->set_aip(true);
  if (Given("--queue")) spec->mutable_queue()->set_name(queue_);
  if (Given("--insert")) spec->mutable_queue()->set_insert(ValueOf<v1::Queue::Insert>(insert_));
  if (Given("--on-restart")) spec->set_on_restart(ValueOf<v1::OnRestart>(on_restart_));
  if (Given("--device")) spec->set_device(device_);
  if (striped_) spec->mutable_spread()->set_striped(true);
  if (Given("--spread")) spec->mutable_spread()->set_count(static_cast<uint32_t>(spread_));
}

v1::ScanSpec ScanFlags::Spec() const {
  v1::ScanSpec spec;
  if (Given("--json-spec")) ReadJsonSpec(spec_file_, &spec);
  SetSource(&spec);
  SetAcquisition(&spec);
  BuildPattern(pattern_, app_, spec.mutable_pattern());
  SetRetention(spec.mutable_retention());
  SetProcessing(spec.mutable_processing());
  CheckLinearisation(spec);
  SetRest(&spec);
  return spec;
}

}  // namespace octavo::cli
