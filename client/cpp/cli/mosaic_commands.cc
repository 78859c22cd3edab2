// octavo mosaic: tiles and slabs in the memory of the server's devices.

#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "octavo/v1/mosaic.grpc.pb.h"

#include "client/cpp/cli/commands.h"
#include "client/cpp/cli/new_buffer.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/cli/terminal.h"
#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

std::unique_ptr<v1::MosaicService::Stub> StubOf(const Session& session) {
  return v1::MosaicService::NewStub(session.channel());
}

/// Positions of tiles, from a CSV file with a line of headings.
class PositionsFile {
 public:
  PositionsFile(std::string flag, const std::string& path) : flag_(std::move(flag)), path_(path) {
    std::ifstream file(path);
    std::string line;
    if (!file || !std::getline(file, line)) Refuse("cannot be read, or is empty");
    for (absl::string_view name : absl::StrSplit(absl::StripPrefix(line, "\xEF\xBB\xBF"), ','))
      columns_.emplace_back(absl::StripAsciiWhitespace(name));
    while (std::getline(file, line)) {
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      rows_.push_back(absl::StrSplit(line, ','));
    }
  }

  std::vector<v1::MosaicVector> Read() const {
    CheckColumns();
    for (const auto& [unit, um] : {std::pair("um", 1.0), std::pair("mm", 1000.0)}) {
      if (Has(absl::StrCat("x_", unit)) && Has(absl::StrCat("y_", unit)))
        return Rows(absl::StrCat("_", unit), um);
      if (!Has(absl::StrCat("x_shift_", unit)) || !Has(absl::StrCat("y_shift_", unit))) continue;
      // The way from each tile to the next one.
      std::vector<v1::MosaicVector> out(1);
      for (const v1::MosaicVector& step : Rows(absl::StrCat("_shift_", unit), um)) {
        v1::MosaicVector next = out.back();
        next.set_z(next.z() + step.z());
        next.set_y(next.y() + step.y());
        next.set_x(next.x() + step.x());
        out.push_back(next);
      }
      return out;
    }
    // The file may be anything: what is said of it is ASCII.
    std::string columns = absl::StrJoin(columns_, ", ").substr(0, 200);
    for (char& c : columns) c = absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
    Refuse(absl::StrCat("has the columns ", columns,
                        "; expected x_um and y_um, x_mm and y_mm, or x_shift_mm and y_shift_mm"));
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw CLI::ValidationError(flag_, absl::StrCat(path_, " ", what));
  }
  /// What is known is there once, and in one form and unit.
  void CheckColumns() const {
    std::set<std::string> seen, forms;
    for (const std::string& column : columns_) {
      for (const char* form : {"_um", "_mm", "_shift_um", "_shift_mm"}) {
        if (column != absl::StrCat("x", form) && column != absl::StrCat("y", form) &&
            column != absl::StrCat("z", form))
          continue;
        forms.insert(form);
        if (!seen.insert(column).second) Refuse(absl::StrCat("has the column ", column, " twice"));
      }
    }
    if (forms.size() > 1) {
      Refuse(absl::StrCat("has the columns ", absl::StrJoin(seen, ", "),
                          "; expected all in one form and unit"));
    }
  }
  bool Has(const std::string& column) const {
    return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
  }
  double At(size_t row, const std::string& column) const {
    const auto at =
        static_cast<size_t>(std::find(columns_.begin(), columns_.end(), column) - columns_.begin());
    if (at == columns_.size()) return 0;  // z
    double value = 0;
    if (at >= rows_[row].size() ||
        !absl::SimpleAtod(absl::StripAsciiWhitespace(rows_[row][at]), &value))
      Refuse(absl::StrCat("has no number in the column ", column, " of line ", row + 2));
    return value;
  }
  std::vector<v1::MosaicVector> Rows(const std::string& ending, double um) const {
    std::vector<v1::MosaicVector> out(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i) {
      out[i].set_z(At(i, "z" + ending) * um);
      out[i].set_y(At(i, "y" + ending) * um);
      out[i].set_x(At(i, "x" + ending) * um);
    }
    return out;
  }

  const std::string flag_, path_;
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

constexpr const char* kAnyAxes =
    "the axes are z, y, x, whatever a volume calls them (else volumes [y, x, z] are refused)";

/// z, y, x, or one number for all of them.
v1::MosaicVector VectorOf(const char* flag, const std::vector<double>& numbers) {
  if (numbers.size() != 1 && numbers.size() != 3)
    throw CLI::ValidationError(flag, "has to be one number, or z,y,x");
  v1::MosaicVector out;
  out.set_z(numbers.front());
  out.set_y(numbers[numbers.size() / 2]);
  out.set_x(numbers.back());
  return out;
}

/// The type of a result.
struct TypeFlag {
  std::string name;
  void AddTo(CLI::App* command, const char* otherwise) {
    command
        ->add_option(
            "--type", name,
            absl::StrCat("of the result: u8, u16, f32, ... (default: of the ", otherwise, ")"))
        ->check(OneOf({"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "f32", "f64"}));
  }
  v1::Dtype dtype() const {
    v1::Dtype out = v1::DTYPE_UNSPECIFIED;
    if (!name.empty())
      (void)v1::Dtype_Parse(absl::StrCat("DTYPE_", absl::AsciiStrToUpper(name)), &out);
    return out;
  }
};

/// One line about a new buffer, without its end.
void PrintMade(const v1::Buffer& made) {
  std::cout << made.name() << "  [" << absl::StrJoin(made.shape(), ", ") << "] "
            << ShortName(made.type().dtype()) << "  "
            << Bytes(static_cast<double>(made.byte_size()));
}

/// The array of tiles, and how they lie in it.
struct TileFlags {
  std::string name, lease;
  std::vector<double> spacing_um;
  int64_t depth = 1;
  std::vector<int64_t> tile;
  bool any_axes = false;
  // Whether --depth or --tile has to be given. Where positions are, their number tells a wrong
  // layout; elsewhere a grid would be taken for tiles of one plane.
  bool layout_needed = false;

  void AddTo(CLI::App* command) {
    command->add_option("tiles", name, "buffers/... or volumes/...")
        ->required()
        ->check(BufferOrVolumeName());
    command
        ->add_option("--spacing-um", spacing_um,
                     "micrometres from voxel to voxel: one number, or z,y,x")
        ->required()
        ->delimiter(',');
    depth_ = command->add_option(
        "--depth", depth,
        absl::StrCat("planes of a tile, of tiles one after the other (",
                     layout_needed ? "this or --tile is needed" : "default 1", ")"));
    command->add_option("--tile", tile, "tiles lie side by side: their voxels along y,x (512,512)")
        ->delimiter(',')
        ->expected(2)
        ->excludes(depth_);
    command->add_option("--lease", lease, "the token of your own lease of the tiles");
    command->add_flag("--axes-as-zyx", any_axes, kAnyAxes);
  }
  void Fill(v1::TileSource* source) const {
    if (layout_needed && depth_->count() == 0 && tile.empty()) {
      throw CLI::ValidationError("--tile",
                                 "or --depth is missing: --tile Y,X for tiles side by side, "
                                 "--depth PLANES for tiles one after the other");
    }
    source->set_name(name);
    source->set_lease_token(lease);
    source->set_axes_as_zyx(any_axes);
    *source->mutable_spacing_um() = VectorOf("--spacing-um", spacing_um);
    if (tile.empty()) {
      source->mutable_stack()->set_depth(depth);
    } else {
      source->mutable_grid()->set_tile_y(tile[0]);
      source->mutable_grid()->set_tile_x(tile[1]);
    }
  }

 private:
  CLI::Option* depth_ = nullptr;
};

void WritePositions(Session& session, const std::string& path,
                    const v1::RegisterTilesResponse& found) {
  std::ofstream file(path);
  file << "tile,z_um,y_um,x_um,state,joints,used_joints\n";
  for (int i = 0; i < found.tiles_size(); ++i) {
    const v1::RegisteredTile& tile = found.tiles(i);
    const v1::MosaicVector& at = tile.position_um();
    file << absl::StrFormat("%d,%.6f,%.6f,%.6f,%s,%d,%d\n", i, at.z(), at.y(), at.x(),
                            ShortName(tile.state()), tile.joints(), tile.used_joints());
  }
  file.close();
  if (file) return;
  std::cerr << "octavo: could not write " << path << "\n";
  session.exit_code = kFailed;
}

void PrintPositions(const v1::RegisterTilesResponse& found) {
  int used = 0, fallback = 0, outliers = 0;
  for (const v1::TileJoint& joint : found.joints()) {
    used += joint.state() == v1::JOINT_STATE_USED ? 1 : 0;
    fallback += joint.state() == v1::JOINT_STATE_FALLBACK ? 1 : 0;
    outliers += joint.state() == v1::JOINT_STATE_OUTLIER ? 1 : 0;
  }
  std::cout << absl::StrFormat(
      "%d tiles  %d joints: %d used, %d from the stage, %d outliers  rms residual %.3g um\n",
      found.tiles_size(), found.joints_size(), used, fallback, outliers, found.rms_residual_um());
  for (const int64_t i : found.suspects()) {
    const v1::RegisteredTile& tile = found.tiles(static_cast<int>(i));
    std::cout << absl::StrFormat(
        "tile %d is %s: %d of %d joints used, moved by %.4g, %.4g um (y, x)\n", i,
        ShortName(tile.state()), tile.used_joints(), tile.joints(), tile.correction_um().y(),
        tile.correction_um().x());
  }
}

void AddRegister(CLI::App* mosaic, Session& session) {
  auto* command = mosaic->add_subcommand(
      "register", "finds where tiles lie, by their overlaps; names those that are wrong");
  const auto flags = std::make_shared<TileFlags>();
  const auto stage = std::make_shared<std::string>(), output = std::make_shared<std::string>();
  const auto request = std::make_shared<v1::RegisterTilesRequest>();
  flags->AddTo(command);
  command
      ->add_option("--stage", *stage,
                   "CSV file with where the stage had each tile: columns x_um, y_um (z_um), or in "
                   "mm; or x_shift_mm, y_shift_mm from each tile to the next one")
      ->required();
  command->add_option("-o,--output", *output, "writes the positions to this CSV file");
  const auto max_shift = std::make_shared<double>(0), confidence = std::make_shared<double>(0.5),
             outlier = std::make_shared<double>(0);
  const auto min_overlap = std::make_shared<int64_t>(0);
  const auto in_depth = std::make_shared<bool>(false);
  command->add_option("--max-shift-um", *max_shift,
                      "the largest error of the stage that is looked for (default: a quarter of "
                      "the overlap, at most 32 voxels)");
  command->add_flag("--in-depth", *in_depth, "in three dimensions (default: means along z)");
  command->add_option("--min-confidence", *confidence,
                      "joints with less fall back to the stage (default 0.5)");
  command->add_option("--min-overlap", *min_overlap, "voxels of the least overlap (default 8)");
  command->add_option("--outlier-um", *outlier,
                      "joints with a larger residual are outliers (default 1.5 voxels)");
  command->callback([&session, flags, stage, output, request, max_shift, confidence, outlier,
                     min_overlap, in_depth] {
    flags->Fill(request->mutable_tiles());
    for (const v1::MosaicVector& one : PositionsFile("--stage", *stage).Read())
      *request->add_stage_um() = one;
    request->set_max_shift_um(*max_shift);
    request->set_in_depth(*in_depth);
    request->set_min_confidence(*confidence);
    request->set_min_overlap(*min_overlap);
    request->set_outlier_um(*outlier);
    if (!output->empty()) CheckWritable("--output", *output);
    v1::RegisterTilesResponse found;
    grpc::ClientContext context;  // as long as it takes
    if (!Check(session, StubOf(session)->RegisterTiles(&context, *request, &found))) return;
    if (!output->empty()) WritePositions(session, *output, found);
    session.json ? PrintJson(found) : PrintPositions(found);
  });
}

void AddStitch(CLI::App* mosaic, Session& session) {
  auto* command = mosaic->add_subcommand("stitch", "one array of tiles, in a new buffer");
  const auto flags = std::make_shared<TileFlags>();
  const auto positions = std::make_shared<std::string>(),
             blend = std::make_shared<std::string>("linear");
  const auto type = std::make_shared<TypeFlag>();
  const auto gap = std::make_shared<double>(0);
  const auto made = std::make_shared<ComputedBuffer>();
  flags->AddTo(command);
  command
      ->add_option("--positions", *positions,
                   "CSV file with where each tile lies: of `octavo mosaic register -o`, or of the "
                   "stage")
      ->required();
  command->add_option("--blend", *blend, "linear (default), hann, average")
      ->check(OneOf({"linear", "hann", "average"}));
  type->AddTo(command, "tiles");
  auto* filled = command->add_option(
      "--gap", *gap, "value where no tile is (default NaN; 0 if the type has none)");
  made->AddTo(command);
  command->callback([&session, flags, positions, blend, type, gap, filled, made] {
    v1::StitchTilesRequest request;
    made->Fill(&request);
    flags->Fill(request.mutable_tiles());
    for (const v1::MosaicVector& one : PositionsFile("--positions", *positions).Read())
      *request.add_position_um() = one;
    v1::TileBlend how = v1::TILE_BLEND_UNSPECIFIED;
    (void)v1::TileBlend_Parse(absl::StrCat("TILE_BLEND_", absl::AsciiStrToUpper(*blend)), &how);
    request.set_blend(how);
    request.set_type(type->dtype());
    if (filled->count() > 0) request.set_gap(*gap);
    v1::StitchTilesResponse answer;
    grpc::ClientContext context;  // as long as it takes
    if (!Check(session, StubOf(session)->StitchTiles(&context, request, &answer))) return;
    if (session.json) return PrintJson(answer);
    PrintMade(answer.buffer());
    std::cout << absl::StrFormat("  first voxel at %.6g, %.6g, %.6g um (z, y, x)\n",
                                 answer.origin_um().z(), answer.origin_um().y(),
                                 answer.origin_um().x());
  });
}

void AddResample(CLI::App* mosaic, Session& session) {
  auto* command = mosaic->add_subcommand(
      "resample", "tiles at another spacing, each by itself, in a new buffer");
  const auto flags = std::make_shared<TileFlags>();
  const auto to = std::make_shared<std::vector<double>>();
  const auto type = std::make_shared<TypeFlag>();
  const auto corners = std::make_shared<bool>(false), sharp = std::make_shared<bool>(false);
  flags->layout_needed = true;
  flags->AddTo(command);
  command
      ->add_option("--to-um", *to,
                   "micrometres from voxel to voxel in the result: one number, or z,y,x (0: as it "
                   "is)")
      ->required()
      ->delimiter(',');
  command->add_flag("--corner-aligned", *corners,
                    "the first and the last voxel of a tile stay where they are, as in linumpy");
  command->add_flag("--no-anti-aliasing", *sharp, "do not smooth axes that shrink");
  type->AddTo(command, "tiles");
  const auto made = std::make_shared<ComputedBuffer>();
  made->AddTo(command);
  command->callback([&session, flags, to, type, corners, sharp, made] {
    v1::ResampleTilesRequest request;
    made->Fill(&request);
    flags->Fill(request.mutable_tiles());
    *request.mutable_target_um() = VectorOf("--to-um", *to);
    request.set_corner_aligned(*corners);
    request.set_no_anti_aliasing(*sharp);
    request.set_type(type->dtype());
    v1::ResampleTilesResponse answer;
    grpc::ClientContext context;  // as long as it takes
    if (!Check(session, StubOf(session)->ResampleTiles(&context, request, &answer))) return;
    if (session.json) return PrintJson(answer);
    PrintMade(answer.buffer());
    std::cout << absl::StrFormat(
        "  tiles of %d x %d x %d, %.6g, %.6g, %.6g um (z, y, x)\n", answer.depth(), answer.tile_y(),
        answer.tile_x(), answer.spacing_um().z(), answer.spacing_um().y(), answer.spacing_um().x());
  });
}

/// What `octavo mosaic stack` is told.
struct StackFlags {
  std::vector<std::string> sections;
  std::string positions, blend = "later";
  std::vector<double> spacing_um;
  std::vector<int64_t> overlap;
  TypeFlag type;
  ComputedBuffer made;
  bool any_axes = false;
  v1::StackSectionsRequest request;  // the numbers, as they are read

  void AddTo(CLI::App* command);
  void Fill();  // the rest

 private:
  template <class T>
  static void Number(CLI::App* command, const char* flag, const char* text,
                     std::function<void(T)> set) {
    command->add_option_function<T>(flag, set, text);
  }
};

void StackFlags::AddTo(CLI::App* command) {
  auto* const r = &request;
  command
      ->add_option("sections", sections,
                   "buffers/... or volumes/... [z, y, x], from the first cut to the last one")
      ->required()
      ->check(BufferOrVolumeName());
  command
      ->add_option("--positions", positions,
                   "CSV file with where the stage had each section: columns x_um, y_um, or in mm; "
                   "or x_shift_mm, y_shift_mm from each section to the next one")
      ->required();
  command
      ->add_option("--spacing-um", spacing_um,
                   "micrometres from voxel to voxel: one number, or z,y,x")
      ->required()
      ->delimiter(',');
  command
      ->add_option(
          "--overlap", overlap,
          "planes that each two neighbours have in common: n,n,... (default: searched for)")
      ->delimiter(',');
  Number<double>(command, "--interval-um", "thickness that the blade takes off, to search",
                 [r](double v) { r->set_slicing_interval_um(v); });
  Number<double>(command, "--range-um", "how far from there to look",
                 [r](double v) { r->set_search_range_um(v); });
  Number<double>(command, "--min-correlation",
                 "with less the expected overlap is taken (default 0.5)",
                 [r](double v) { r->set_min_correlation(v); });
  Number<int64_t>(command, "--moving-first-plane",
                  "the first planes of all sections but the first that are left out (default 0)",
                  [r](int64_t v) { r->set_moving_first_plane(v); });
  command->add_flag_function(
      "--center", [r](int64_t) { r->set_center_on_middle(true); },
      "the middle section lies on whole voxels of the result");
  command->add_flag_function(
      "--whole-voxels", [r](int64_t) { r->set_whole_voxels(true); },
      "round places to whole voxels (default: interpolate)");
  Number<double>(
      command, "--refine-um",
      "the largest error of the stage that is put right by the overlaps (default 0: none)",
      [r](double v) { r->set_refine_limit_um(v); });
  Number<double>(command, "--refine-min-confidence",
                 "confidence of a pair in the plane that is needed (default 0.5)",
                 [r](double v) { r->set_refine_min_confidence(v); });
  Number<double>(command, "--refine-min-correlation",
                 "correlation of a pair in depth that is needed to refine it (default 0.2)",
                 [r](double v) { r->set_refine_min_correlation(v); });
  Number<int32_t>(command, "--consistency-min-pairs",
                  "pairs from which on overlaps at odds with the others are put right (default 3; "
                  "256: never)",
                  [r](int32_t v) { r->set_consistency_min_pairs(v); });
  Number<double>(command, "--consistency-tolerance",
                 "part of the median that an overlap may differ from it (default 0.3)",
                 [r](double v) { r->set_consistency_tolerance(v); });
  Number<double>(command, "--consistency-min-correlation",
                 "overlaps with this correlation are trusted (default 0.6)",
                 [r](double v) { r->set_consistency_min_correlation(v); });
  command->add_flag_function(
      "--match-intensity", [r](int64_t) { r->set_match_intensity(true); },
      "bring all sections to one brightness; needs linear numbers, not dB");
  Number<int64_t>(command, "--gain-min-voxels",
                  "with so many common voxels or fewer no brightness is matched (default 1000)",
                  [r](int64_t v) { r->set_gain_min_voxels(v); });
  Number<double>(command, "--gain-least", "least factor of the brightness (default 0.5)",
                 [r](double v) { r->set_gain_least(v); });
  Number<double>(command, "--gain-most", "largest factor of the brightness (default 2)",
                 [r](double v) { r->set_gain_most(v); });
  command
      ->add_option("--blend", blend,
                   "where sections overlap: later (default), earlier, hann (from one to the other)")
      ->check(OneOf({"later", "earlier", "hann"}));
  Number<double>(command, "--valid-above",
                 "numbers up to this one are no measurement where sections overlap (default 0; "
                 "-1e300 for dB)",
                 [r](double v) { r->set_valid_above(v); });
  Number<double>(command, "--gap",
                 "value where no section is (default NaN; 0 if the type has none)",
                 [r](double v) { r->set_gap(v); });
  type.AddTo(command, "sections");
  command->add_flag("--axes-as-zyx", any_axes, kAnyAxes);
  made.AddTo(command);
}

void StackFlags::Fill() {
  *request.mutable_spacing_um() = VectorOf("--spacing-um", spacing_um);
  const std::vector<v1::MosaicVector> at = PositionsFile("--positions", positions).Read();
  if (at.size() != sections.size()) {
    throw CLI::ValidationError(
        "--positions", absl::StrCat(positions, " has the positions of ", at.size(),
                                    " sections; expected ", sections.size(), ", one for each"));
  }
  for (size_t i = 0; i < sections.size(); ++i) {
    v1::StackSection* const section = request.add_sections();
    section->set_name(sections[i]);
    *section->mutable_position_um() = at[i];
    section->set_axes_as_zyx(any_axes);
  }
  for (const int64_t planes : overlap) request.add_overlap(planes);
  v1::SectionBlend how = v1::SECTION_BLEND_UNSPECIFIED;
  (void)v1::SectionBlend_Parse(absl::StrCat("SECTION_BLEND_", absl::AsciiStrToUpper(blend)), &how);
  request.set_blend(how);
  request.set_type(type.dtype());
  made.Fill(&request);
}

void PrintStacked(const v1::StackSectionsResponse& answer) {
  PrintMade(answer.buffer());
  std::cout << absl::StrFormat("  first voxel at %.6g, %.6g um (y, x)\n", answer.origin_um().y(),
                               answer.origin_um().x());
  for (int i = 0; i < answer.sections_size(); ++i) {
    const v1::StackedSection& section = answer.sections(i);
    std::cout << absl::StrFormat("section %d  planes %d to %d", i, section.first_plane(),
                                 section.first_plane() + section.planes() - 1);
    if (i > 0) {
      std::cout << absl::StrFormat("  overlap %d %s", section.overlap(),
                                   InWords(section.overlap_state()));
      if (section.correlation() != 0)
        std::cout << absl::StrFormat(" (correlation %.3f)", section.correlation());
    }
    if (section.refinement_state() != v1::REFINEMENT_STATE_UNSPECIFIED) {
      std::cout << absl::StrFormat("  shift %.4g, %.4g um %s", section.refinement_um().y(),
                                   section.refinement_um().x(),
                                   InWords(section.refinement_state()));
    }
    if (section.gain_voxels() > 0) std::cout << absl::StrFormat("  gain %.4f", section.gain());
    std::cout << "\n";
  }
}

/// Says of which sections the brightness was asked for and not matched.
void WarnOfUnmatched(const v1::StackSectionsRequest& request,
                     const v1::StackSectionsResponse& answer) {
  if (!request.match_intensity()) return;
  std::vector<std::string> unmatched;
  for (int i = 1; i < answer.sections_size(); ++i) {
    if (answer.sections(i).measured_gain() == 0) {
      unmatched.push_back(absl::StrCat("section ", i, " (counted ",
                                       answer.sections(i).gain_voxels(), " voxels above 0)"));
    }
  }
  if (unmatched.empty()) return;
  const int64_t least = request.has_gain_min_voxels() ? request.gain_min_voxels() : 1000;
  std::cerr << "octavo: warning: --match-intensity did not match the brightness of "
            << absl::StrJoin(unmatched, ", ") << ": an overlap has to have more than " << least
            << " voxels (--gain-min-voxels) that are above 0 in both; numbers in dB have to be "
               "linear ones for this\n";
}

void AddStack(CLI::App* mosaic, Session& session) {
  auto* command = mosaic->add_subcommand(
      "stack", "one array of sections that were cut one after the other, in a new buffer");
  const auto flags = std::make_shared<StackFlags>();
  flags->AddTo(command);
  command->callback([&session, flags] {
    flags->Fill();
    v1::StackSectionsResponse answer;
    grpc::ClientContext context;  // as long as it takes
    if (!Check(session, StubOf(session)->StackSections(&context, flags->request, &answer))) return;
    session.json ? PrintJson(answer) : PrintStacked(answer);
    WarnOfUnmatched(flags->request, answer);
  });
}

void AddOverlap(CLI::App* mosaic, Session& session) {
  auto* command = mosaic->add_subcommand(
      "overlap", "how many planes two slabs have in common that were cut one after the other");
  const auto request = std::make_shared<v1::FindZOverlapRequest>();
  const auto fixed = std::make_shared<std::string>(), moving = std::make_shared<std::string>();
  const auto interval = std::make_shared<double>(0), range = std::make_shared<double>(0),
             spacing = std::make_shared<double>(0), least = std::make_shared<double>(0.5);
  const auto first = std::make_shared<int64_t>(0);
  const auto offset = std::make_shared<std::vector<int64_t>>();
  const auto curve = std::make_shared<bool>(false), any_axes = std::make_shared<bool>(false);
  command->add_option("fixed", *fixed, "buffers/... [z, y, x]: the slab above")
      ->required()
      ->check(BufferOrVolumeName());
  command->add_option("moving", *moving, "buffers/...: the next slab")
      ->required()
      ->check(BufferOrVolumeName());
  command->add_option("--interval-um", *interval, "thickness that the blade takes off")->required();
  command->add_option("--range-um", *range, "how far from there to look")->required();
  command->add_option("--spacing-z-um", *spacing, "from plane to plane")->required();
  command->add_option("--moving-first-plane", *first,
                      "the first planes of the next slab that are left out (default 0)");
  command
      ->add_option("--offset", *offset,
                   "where the next slab's first voxel lies in the one above: y,x (default 0,0)")
      ->delimiter(',')
      ->expected(2);
  command->add_option("--min-correlation", *least,
                      "with less the expected overlap is the answer (default 0.5)");
  command->add_flag("--curve", *curve, "also the correlation of every overlap that was tried");
  command->add_flag("--axes-as-zyx", *any_axes, kAnyAxes);
  command->callback([&session, request, fixed, moving, interval, range, spacing, least, first,
                     offset, curve, any_axes] {
    request->set_axes_as_zyx(*any_axes);
    request->set_fixed(*fixed);
    request->set_moving(*moving);
    request->set_slicing_interval_um(*interval);
    request->set_search_range_um(*range);
    request->set_spacing_z_um(*spacing);
    request->set_moving_first_plane(*first);
    request->set_min_correlation(*least);
    if (!offset->empty()) {
      request->set_offset_y(offset->at(0));
      request->set_offset_x(offset->at(1));
    }
    v1::FindZOverlapResponse found;
    grpc::ClientContext context;  // as long as it takes
    if (!Check(session, StubOf(session)->FindZOverlap(&context, *request, &found))) return;
    if (session.json) return PrintJson(found);
    std::cout << found.overlap() << " planes"
              << (found.fallback() ? "  not found; the expected overlap stands in: " : "  ")
              << absl::StrFormat("correlation %.4f", found.correlation())
              << (found.fallback() ? absl::StrCat(" at ", found.best_overlap()) : "")
              << "  expected " << found.expected_overlap() << "\n";
    for (int i = 0; *curve && i < found.correlations_size(); ++i) {
      std::cout << absl::StrFormat("  %d  %.4f\n", found.first_overlap() + i,
                                   found.correlations(i));
    }
  });
}

}  // namespace

void AddMosaicCommands(CLI::App& app, Session& session) {
  auto* mosaic =
      app.add_subcommand("mosaic", "tiles and slabs in buffers: where they lie, one array")
          ->require_subcommand(1);
  AddRegister(mosaic, session);
  AddStitch(mosaic, session);
  AddOverlap(mosaic, session);
  AddStack(mosaic, session);
  AddResample(mosaic, session);
}

}  // namespace octavo::cli
