#include "client/cpp/cli/field_flags.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace octavo::cli {
namespace {

struct FieldFlag {
  const char* field;  // the end of the field's path, or a part of it
  const char* flag;
};

constexpr FieldFlag kFields[] = {
    // Scans.
    {"acquisition.samples_per_record", "--samples"},
    {"acquisition.raw_type", "--raw-type"},
    {"acquisition.adc_bits", "--adc-bits"},
    {"acquisition.channels", "--channels"},
    {"acquisition.channel", "--channel"},
    {"acquisition.record_average", "--record-average"},
    {"acquisition.record_rate_hz", "--rate"},
    {"acquisition.records_per_block", "--block"},
    {"replay.rate_hz", "--rate"},
    {"simulated.seed", "--seed"},
    {"replay.path", "--path"},
    {"replay.loops", "--loops"},
    {"replay.header_bytes", "--header-bytes"},
    {"replay.allow_partial", "--allow-partial"},
    {"camera.id", "--camera"},
    {"camera.pixel_format", "--pixel-format"},
    {"camera.exposure_us", "--exposure"},
    {"camera.frame_rate_hz", "--frame-rate"},
    {"ascans_per_bscan", "--ascans"},
    {"bscans_per_volume", "--bscans"},
    {"ascans_per_ring", "--ascans"},
    {"spiral.rings", "--bscans"},
    {"ascans_per_row", "--ascans"},
    {"lissajous.rows", "--bscans"},
    {"raster.volumes", "--volumes"},
    {"radial.volumes", "--volumes"},
    {"spiral.volumes", "--volumes"},
    {"lissajous.volumes", "--volumes"},
    {"freeform.volumes", "--volumes"},
    {"volume_flyback_records", "--volume-flyback"},
    {"flyback_records", "--flyback"},
    {"pattern.flyback", "--flyback-policy"},
    {"extent_x_mm", "--extent-x"},
    {"extent_y_mm", "--extent-y"},
    {"radius_begin_mm", "--radius"},
    {"radius_end_mm", "--radius"},
    {"inner_radius_mm", "--radius"},
    {"outer_radius_mm", "--radius"},
    {"angle_begin_deg", "--angle"},
    {"angle_end_deg", "--angle"},
    {"repeat.count", "--repeats"},
    {"repeat.period", "--repeat-period"},
    {"cycles_x", "--cycles"},
    {"cycles_y", "--cycles"},
    {"phase_x_deg", "--phase"},
    {"phase_y_deg", "--phase"},
    {"freeform.x_mm", "--points"},
    {"freeform.y_mm", "--points"},
    {"offset_x_mm", "--offset"},
    {"offset_y_mm", "--offset"},
    {"rotation_deg", "--rotation"},
    {"angular_warp.factor", "--warp-factor"},
    {"galvo_lens_spacing_mm", "--lens-spacing"},
    {"scanner.x.velocity", "--max-velocity"},
    {"scanner.y.velocity", "--max-velocity"},
    {"scanner.x.acceleration", "--max-acceleration"},
    {"scanner.y.acceleration", "--max-acceleration"},
    {"camera.height", "--height"},
    {"processing.dispersion", "--a2, --a3"},
    {"dispersion.a2", "--a2"},
    {"dispersion.a3", "--a3"},
    {"processing.window", "--window"},
    {"device", "--device"},
    {"title", "--title"},
    {"priority", "--priority"},
    {"group", "--group"},
    {"request_id", "--request-id"},
    {"labels", "--label"},
    {"results", "--results"},
    {"processing.dtype", "--dtype"},
    {"processing.value", "--value"},
    {"processing.levels", "--levels"},
    {"processing.depth", "--depth"},
    {"processing.fft_length", "--fft-length"},
    {"processing.k_linearisation", "--k"},
    {"background.group_records", "--group-records"},
    {"background.window_records", "--window-records"},
    {"retention.hold_slots", "--hold-slots"},
    {"retention.hold_raw", "--hold-raw"},
    {"retention.keep_last", "--keep-last"},
    {"retention.ttl", "--ttl"},
    {"retention.on_full", "--on-full"},
    {"retention.on_tier_full", "--on-tier-full"},
    {"auto_commit.destination", "--destination"},
    {"products.angiography", "--angiography"},
    {"queue.name", "--queue"},
    {"on_restart", "--on-restart"},
    {"spread.count", "--spread"},
    {"spread.striped", "--striped"},
    // Tomography.
    {"tomography.file.flats", "--flats"},
    {"tomography.file.darks", "--darks"},
    {"tomography.file.projections", "--data"},
    {"tomography.file.angles", "--angles-file"},
    {"tomography.file.angle_unit", "--degrees, --radians"},
    {"tomography.angles_rad", "--angles"},
    {"tomography.rows", "--rows"},
    {"tomography.columns", "--columns"},
    {"tomography.projections", "--projections"},
    {"tomography.half_turn", "--half-turn"},
    {"tomography.series", "--series"},
    {"tomography.push.frames", "--follow-count"},
    {"mosaic.search", "--tile-search"},
    {"mosaic.tiles.first_column", "--tile-columns"},
    {"mosaic.tiles.first_row", "--tile-rows"},
    {"tomography.center", "--center"},
    {"center.pixels", "--center"},
    {"center.search_method", "--center"},
    {"center.on_doubt", "--center-doubt"},
    {"center.along_rows", "--along-rows"},
    {"preparation.roll_degrees", "--roll"},
    {"tomography.center.row", "--center-row"},
    {"try_centers", "--try-centers"},
    {"preparation.ignore_fields", "--transmissions"},
    {"preparation.already_sinograms", "--sinograms"},
    {"preparation.logarithm", "--no-log"},
    {"preparation.flat_median", "--median"},
    {"preparation.flats_in_time", "--flats-in-time"},
    {"preparation.dynamic_flats.components", "--flat-components"},
    {"preparation.dynamic_flats", "--dynamic-flats"},
    {"preparation.row_drift.most_rows", "--most-row-drift"},
    {"preparation.row_drift", "--row-drift"},
    {"preparation.outliers", "--outliers"},
    {"preparation.cutoff", "--cutoff"},
    {"preparation.air_left", "--air"},
    {"preparation.air_right", "--air"},
    {"preparation.not_finite_value", "--not-finite"},
    {"preparation.bin_rows", "--bin"},
    {"preparation.bin_columns", "--bin"},
    {"preparation.phase.retrieval_method", "--phase-method"},
    {"preparation.phase.feature_size_um", "--phase-feature"},
    {"preparation.phase", "--phase"},
    {"preparation.beam_hardening", "--beam-hardening"},
    {"preparation.rings", "--rings"},
    {"tomography.output", "--prepare-only"},
    {"reconstruction.algorithm", "--algorithm"},
    {"reconstruction.form", "--tomopy"},
    {"reconstruction.interpolation", "--interpolation"},
    {"reconstruction.filter", "--filter"},
    {"reconstruction.fourier_accuracy", "--fourier-accuracy"},
    {"reconstruction.negative_data_to_zero", "--negative-to-zero"},
    {"reconstruction.tv_weight", "--tv-weight"},
    {"preparation.stitching", "--stitch-left, --stitch-right"},
    {"stitching.overlap", "--overlap"},
    {"stitching.axis_right", "--stitch-right"},
    {"reconstruction.extend_edges", "--extend-edges"},
    {"reconstruction.image_size", "--size"},
    {"reconstruction.iterations", "--iterations"},
    {"reconstruction.relaxation", "--relaxation"},
    {"reconstruction.subsets", "--subsets"},
    {"reconstruction.mask_ratio", "--mask"},
    {"reconstruction.min_value", "--min"},
    {"reconstruction.max_value", "--max"},
    {"reconstruction.stop_change", "--stop-change"},
    {"reconstruction.stop_residual", "--stop-residual"},
    {"reconstruction.padding", "--padding"},
    {"tomography.slices_per_batch", "--batch"},
    {"tomography.place", "--on-disk"},
    {"tomography.pixel_size_um", "--pixel-um"},
    {"tomography.samples.type", "--samples"},
    {"tomography.samples.low", "--window"},
    {"tomography.samples.high", "--window"},
    // How files are read.
    {"volume_import.format", "--from-format"},
    {"volume_import.raw.shape", "--raw-shape"},
    {"volume_import.raw.dtype", "--raw-type"},
    {"volume_import.raw.offset_bytes", "--raw-offset"},
    {"volume_import.raw", "--raw-shape, --raw-type"},
    {"volume_import.dataset", "--dataset"},
    {"volume_import.image", "--image"},
    {"volume_import.level", "--from-level"},
    {"volume_import.axes", "--axes"},
    {"volume_import.select", "--select"},
    {"volume_import.spacing_um", "--spacing-um"},
    {"allow_unknown_spacing", "--unknown-spacing"},
    {"volume_import.order", "--order"},
    {"volume_import.dtype", "--dtype"},
    {"volume_import.start", "--box"},
    {"volume_import.count", "--box"},
    {"volume_import.value", "--value"},
    {"volume_import.quantity", "--quantity"},
    // How volumes are written.
    {"options.destination", "--commit"},
    {"options.destination", "--output"},
    {"options.destination", "--output-dir"},
    {"options.format", "--format"},
    {"options.chunk", "--chunk"},
    {"options.shard", "--shard"},
    {"options.codec", "--codec"},
    {"options.zstd_level", "--zstd"},
    {"options.level", "--level"},
    {"options.shuffle", "--shuffle"},
    {"options.pyramid_levels", "--pyramid"},
    {"options.pyramid_um", "--pyramid-um"},
    {"options.ngff", "--ngff"},
    {"options.nifti_version", "--nifti-version"},
    {"options.tiff_plane", "--tiff-plane"},
    {"options.tiff_stack", "--tiff-stack"},
    {"axes", "--axes"},
    {"spacing_um", "--spacing-um"},
    {"lease_token", "--lease"},
    // Lists.
    {"grantee", "--to"},
    {"filter", "--filter"},
    {"order_by", "--order-by"},
};

// Names of fields in the words of answers.
constexpr FieldFlag kWords[] = {{"center.search_method AUTO", "--center auto"},
                                {"preparation.rings DEAD_STRIPE", "--rings dead"},
                                {"preparation.stitching axis_right false", "--stitch-left"},
                                {"preparation.stitching axis_right true", "--stitch-right"},
                                {"ask for negative data to become 0", "--negative-to-zero"},
                                {"angles are not given", "--angles, --angles-file"}};

// What answers advise, in their words, and the command that does it.
constexpr FieldFlag kCommands[] = {
    {"a reprocess job makes a volume of them", "octavo job reprocess"},
    {"restore it to its device first", "octavo volume restore"},
    {"wait for the operation that commits it", "octavo operation list --filter 'done = false'"}};

// The first of the flags; null if the command has none of them.
const CLI::Option* OptionOf(const CLI::App* command, const char* flags) {
  return command->get_option_no_throw(std::string(flags, std::strcspn(flags, ", ")));
}

// A field under the name that the table has: without the places in lists, a file of a tile as a
// file, and the options of a job's commit as those of a commit.
std::string NameInTable(const std::string& field) {
  std::string name;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '[') i = std::min(field.find(']', i), field.size() - 1);
    if (field[i] != ']') name += field[i];
  }
  absl::StrReplaceAll({{"mosaic.tiles.file.", "file."}}, &name);
  return absl::StartsWith(name, "commit.") ? absl::StrCat("options", name.substr(6)) : name;
}

// The field as in the text of an answer: the last part of the path, if that is unambiguous.
std::string ShortName(const std::string& field) {
  const std::string last = field.substr(field.rfind('.') + 1);
  return absl::StrContains(last, '_') ? last : field;
}

// Whether `text` names the field, by its short name or its path, as a separate word; a single word
// without an underscore is too ambiguous.
bool Names(const std::string& text, const std::string& field) {
  const std::string name = ShortName(field);
  if (!absl::StrContains(name, '_') &&
      (!absl::StrContains(name, '.') || absl::StartsWith(name, "tomography.")))
    return false;
  const auto part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at > 0 && part(text[at - 1])) || (end < text.size() && part(text[end]))) continue;
    if (at == 0 || text[at - 1] != '.' || absl::EndsWith(text.substr(0, end), field))
      return true;  // otherwise the field of another message
  }
  return false;
}

}  // namespace

std::string FlagsFor(const CLI::App* app, const std::string& field, const std::string& text) {
  if (app == nullptr) return "";
  const CLI::App* command = app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::pair<std::string, std::string>> found;  // the name in the text, and the flag
  const auto add = [&](const std::string& name, const char* flag) {
    if (OptionOf(command, flag) == nullptr) return;
    // A flag with its value says more than the flag alone.
    std::erase_if(found, [&](const auto& one) {
      return absl::StartsWith(flag, absl::StrCat(one.second, " "));
    });
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const auto& one) { return one.second == flag; });
    if (!known) found.emplace_back(name, flag);
  };
  const auto given = [&](const FieldFlag& one) {
    const CLI::Option* const option = OptionOf(command, one.flag);
    return option != nullptr && option->count() > 0;
  };
  // Of several flags of a field, the one that was given.
  const auto stands_back = [&](const FieldFlag& one) {
    return !given(one) &&
           std::any_of(std::begin(kFields), std::end(kFields), [&](const auto& other) {
             return std::strcmp(one.field, other.field) == 0 && given(other);
           });
  };
  const std::string path = absl::StrCat(".", NameInTable(field), ".");
  const FieldFlag* best = nullptr;  // says most
  for (const FieldFlag& one : kFields) {
    if (absl::StrContains(path, absl::StrCat(".", one.field, ".")) &&
        OptionOf(command, one.flag) != nullptr && !stands_back(one) &&
        (best == nullptr || std::strlen(one.field) > std::strlen(best->field)))
      best = &one;
  }
  if (best != nullptr) add(ShortName(best->field), best->flag);
  // A word names its fields with their values: they need no flags beside its own.
  std::string rest = text;
  for (const FieldFlag& one : kWords) absl::StrReplaceAll({{one.field, ""}}, &rest);
  for (const FieldFlag& one : kFields) {
    if (Names(rest, one.field) && !stands_back(one)) add(ShortName(one.field), one.flag);
  }
  for (const FieldFlag& one : kWords) {
    if (absl::StrContains(text, one.field)) add("", one.flag);
  }
  for (const FieldFlag& one : kCommands) {
    if (absl::StrContains(text, one.field)) return absl::StrCat(" (", one.flag, ")");
  }
  if (found.empty()) return "";
  if (found.size() == 1) return absl::StrCat(" (", found.front().second, ")");
  return absl::StrCat(" (",
                      absl::StrJoin(found, ", ",
                                    [](std::string* out, const auto& one) {
                                      absl::StrAppend(out, one.first, one.first.empty() ? "" : ": ",
                                                      one.second);
                                    }),
                      ")");
}

}  // namespace octavo::cli
