#include "client/cpp/cli/pattern_flags.h"

#include <fstream>
#include <sstream>

#include "client/cpp/cli/words.h"

namespace octavo::cli {
namespace {

// Calls f with the message that holds the fields of a raster or radial pattern, bare or repeated.
template <class F>
void OnLines(v1::Pattern* p, F f) {
  switch (p->pattern_case()) {
    case v1::Pattern::kRaster: f(p->mutable_raster()); break;
    case v1::Pattern::kRepeatedRaster: f(p->mutable_repeated_raster()->mutable_raster()); break;
    case v1::Pattern::kRadial: f(p->mutable_radial()); break;
    case v1::Pattern::kRepeatedRadial: f(p->mutable_repeated_radial()->mutable_radial()); break;
    default: break;
  }
}

v1::Raster* RasterOf(v1::Pattern* p) {
  return p->has_raster()            ? p->mutable_raster()
         : p->has_repeated_raster() ? p->mutable_repeated_raster()->mutable_raster()
                                    : nullptr;
}
v1::Radial* RadialOf(v1::Pattern* p) {
  return p->has_radial()            ? p->mutable_radial()
         : p->has_repeated_radial() ? p->mutable_repeated_radial()->mutable_radial()
                                    : nullptr;
}
v1::Repeat* RepeatOf(v1::Pattern* p) {
  return p->has_repeated_raster()   ? p->mutable_repeated_raster()->mutable_repeat()
         : p->has_repeated_radial() ? p->mutable_repeated_radial()->mutable_repeat()
                                    : nullptr;
}

void Choose(const std::string& kind, v1::Pattern* p) {
  if (kind == "raster")
    p->mutable_raster();
  else if (kind == "repeated-raster")
    p->mutable_repeated_raster();
  else if (kind == "radial")
    p->mutable_radial();
  else if (kind == "repeated-radial")
    p->mutable_repeated_radial();
  else if (kind == "spiral")
    p->mutable_spiral();
  else if (kind == "lissajous")
    p->mutable_lissajous();
  else
    p->mutable_freeform();
}

// One "x y" a line, in mm; lines that begin with # are skipped.
void ReadPoints(const std::string& path, v1::Freeform* form) {
  std::ifstream file(path);
  if (!file) throw CLI::ValidationError("--points", "cannot read " + path);
  form->clear_x_mm();
  form->clear_y_mm();
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    for (char& c : line) c = c == ',' || c == ';' || c == '\t' || c == '\r' ? ' ' : c;
    std::istringstream text(line);
    double x = 0, y = 0;
    if (line.find_first_not_of(' ') == std::string::npos ||
        line[line.find_first_not_of(' ')] == '#')
      continue;
    if (!(text >> x >> y))
      throw CLI::ValidationError("--points",
                                 path + ":" + std::to_string(number) + " is no \"x y\"");
    form->add_x_mm(x);
    form->add_y_mm(y);
  }
}

const std::vector<std::string> kPatterns = {
    "raster", "repeated-raster", "radial", "repeated-radial", "spiral", "lissajous", "freeform"};

// The flags that only some patterns have.
const std::vector<FlagOf> kOfPatterns = {
    {"--bidirectional", {"raster", "repeated-raster", "radial", "repeated-radial", "freeform"}},
    {"--bidirectional-volumes",
     {"raster", "repeated-raster", "radial", "repeated-radial", "spiral", "freeform"}},
    {"--flyback", {"raster", "repeated-raster", "radial", "repeated-radial", "freeform"}},
    {"--bscans", {"raster", "repeated-raster", "radial", "repeated-radial", "spiral", "lissajous"}},
    {"--extent-x", {"raster", "repeated-raster", "lissajous"}},
    {"--extent-y", {"raster", "repeated-raster", "lissajous"}},
    {"--radius", {"radial", "repeated-radial", "spiral"}},
    {"--angle", {"radial", "repeated-radial"}},
    {"--repeats", {"repeated-raster", "repeated-radial"}},
    {"--repeat-period", {"repeated-raster", "repeated-radial"}},
    {"--repeat-order", {"repeated-raster", "repeated-radial"}},
    {"--repeat-average", {"repeated-raster", "repeated-radial"}},
    {"--sampling", {"spiral"}},
    {"--cycles", {"lissajous"}},
    {"--phase", {"lissajous"}},
    {"--points", {"freeform"}}};

std::string NameOf(const v1::Pattern& p) {
  switch (p.pattern_case()) {
    case v1::Pattern::kRaster: return "raster";
    case v1::Pattern::kRepeatedRaster: return "repeated-raster";
    case v1::Pattern::kRadial: return "radial";
    case v1::Pattern::kRepeatedRadial: return "repeated-radial";
    case v1::Pattern::kSpiral: return "spiral";
    case v1::Pattern::kLissajous: return "lissajous";
    case v1::Pattern::kFreeform: return "freeform";
    case v1::Pattern::PATTERN_NOT_SET: break;
  }
  return "";
}

}  // namespace

void AddPatternFlags(CLI::App* app, PatternFlags& f) {
  app->add_option("--pattern", f.kind, Listed(kPatterns) + "; default raster")
      ->check(OneOf(kPatterns));
  app->add_option("--ascans", f.ascans,
                  "A-scans per B-scan (x), default 512; spiral: per turn; Lissajous: per row");
  app->add_option(
      "--bscans", f.bscans,
      "B-scans per volume (y), default 256; radial: segments; spiral: turns; Lissajous: rows");
  app->add_option("--volumes", f.volumes, "volumes, default 1; 0 = until stopped");
  app->add_flag("--bidirectional", f.bidirectional, "every second segment runs backwards");
  app->add_flag("--bidirectional-volumes", f.bidirectional_volumes,
                "odd volumes visit the segments in reverse order");
  app->add_option("--flyback", f.flyback, "records dropped after each B-scan");
  app->add_option("--volume-flyback", f.volume_flyback,
                  "records dropped after each volume, in addition");
  app->add_option("--flyback-policy", f.flyback_policy,
                  "fixed | fixed-linear | minimum-time (needs --max-velocity, --max-acceleration)")
      ->check(OneOf({"fixed", "fixed-linear", "minimum-time"}));
  app->add_option("--extent-x", f.extent_x, "mm");
  app->add_option("--extent-y", f.extent_y, "mm");
  app->add_option("--repeats", f.repeats,
                  "repeated patterns: passes over each segment (default 3)");
  app->add_option(
      "--repeat-period", f.repeat_period,
      "repeated patterns: segments scanned in order before they are repeated (default 2)");
  app->add_flag("--repeat-order", f.repeat_order,
                "repeated patterns: store in the order of the scan instead of packed");
  app->add_flag("--repeat-average", f.repeat_average,
                "repeated patterns: store the mean power of the repeats")
      ->excludes("--repeat-order");
  app->add_option("--radius", f.radius, "begin,end in mm (spiral: inner,outer)")
      ->delimiter(',')
      ->expected(2);
  app->add_option("--angle", f.angle, "radial: begin,end in degrees")->delimiter(',')->expected(2);
  app->add_option("--sampling", f.sampling, "spiral: angular | linear")
      ->check(OneOf({"angular", "linear"}));
  app->add_option("--cycles", f.cycles, "Lissajous: periods in x,y")->delimiter(',')->expected(2);
  app->add_option("--phase", f.phase, "Lissajous: degrees in x,y")->delimiter(',')->expected(2);
  app->add_option("--points", f.points, "freeform: a file with one \"x y\" in mm a line");
  app->add_option("--offset", f.offset, "x,y in mm")->delimiter(',')->expected(2);
  app->add_option("--rotation", f.rotation, "degrees, counter-clockwise");
  app->add_option("--warp", f.warp, "none | angular | telecentric")
      ->check(OneOf({"none", "angular", "telecentric"}));
  app->add_option("--warp-factor", f.warp_factor, "angular warp: mm per degree");
  app->add_option("--lens-spacing", f.lens_spacing, "telecentric warp: mm");
  app->add_option("--max-velocity", f.max_velocity, "scanner units per s, both axes");
  app->add_option("--max-acceleration", f.max_acceleration, "scanner units per s^2, both axes");
  app->add_option("--positions", f.positions, "least,largest scanner position, both axes")
      ->delimiter(',')
      ->expected(2);
}

void BuildPattern(const PatternFlags& f, const CLI::App* app, v1::Pattern* p) {
  const auto given = [&](const char* flag) { return app->count(flag) > 0; };
  const auto before = p->pattern_case();
  if (given("--pattern") || before == v1::Pattern::PATTERN_NOT_SET) Choose(f.kind, p);
  RefuseStrangers(*app, kOfPatterns, NameOf(*p), "the pattern is " + NameOf(*p));
  const bool all = p->pattern_case() != before;  // no server state is known, so defaults count too
  OnLines(p, [&](auto* lines) {
    if (all || given("--ascans")) lines->set_ascans_per_bscan(f.ascans);
    if (all || given("--bscans")) lines->set_bscans_per_volume(f.bscans);
    if (all || given("--volumes")) lines->set_volumes(f.volumes);
    if (f.bidirectional) lines->set_bidirectional(true);
    if (f.bidirectional_volumes) lines->set_bidirectional_volumes(true);
  });
  if (p->has_spiral()) {
    if (all || given("--ascans")) p->mutable_spiral()->set_ascans_per_ring(f.ascans);
    if (all || given("--bscans")) p->mutable_spiral()->set_rings(f.bscans);
    if (all || given("--volumes")) p->mutable_spiral()->set_volumes(f.volumes);
    if (f.bidirectional_volumes) p->mutable_spiral()->set_bidirectional_volumes(true);
    if (!f.sampling.empty())
      p->mutable_spiral()->set_sampling(f.sampling == "linear" ? v1::Spiral::SAMPLING_LINEAR
                                                               : v1::Spiral::SAMPLING_ANGULAR);
  }
  if (p->has_lissajous()) {
    if (all || given("--ascans")) p->mutable_lissajous()->set_ascans_per_row(f.ascans);
    if (all || given("--bscans")) p->mutable_lissajous()->set_rows(f.bscans);
    if (all || given("--volumes")) p->mutable_lissajous()->set_volumes(f.volumes);
    if (f.cycles.size() == 2)
      p->mutable_lissajous()->set_cycles_x(f.cycles[0]),
          p->mutable_lissajous()->set_cycles_y(f.cycles[1]);
    if (f.phase.size() == 2)
      p->mutable_lissajous()->set_phase_x_deg(f.phase[0]),
          p->mutable_lissajous()->set_phase_y_deg(f.phase[1]);
  }
  if (p->has_freeform()) {
    if (f.points.empty() && all)
      throw CLI::ValidationError("--points", "is not given; the pattern freeform needs a file");
    if (!f.points.empty()) ReadPoints(f.points, p->mutable_freeform());
    if (given("--ascans")) p->mutable_freeform()->set_ascans_per_bscan(f.ascans);
    if (all || given("--volumes")) p->mutable_freeform()->set_volumes(f.volumes);
    if (f.bidirectional) p->mutable_freeform()->set_bidirectional(true);
    if (f.bidirectional_volumes) p->mutable_freeform()->set_bidirectional_volumes(true);
  }
  if (f.flyback != 0) {
    OnLines(p, [&](auto* lines) { lines->set_flyback_records(f.flyback); });
    if (p->has_freeform()) p->mutable_freeform()->set_flyback_records(f.flyback);
  }
  if (f.volume_flyback != 0) {
    OnLines(p, [&](auto* lines) { lines->set_volume_flyback_records(f.volume_flyback); });
    if (p->has_freeform()) p->mutable_freeform()->set_volume_flyback_records(f.volume_flyback);
    if (p->has_spiral()) p->mutable_spiral()->set_volume_flyback_records(f.volume_flyback);
    if (p->has_lissajous()) p->mutable_lissajous()->set_volume_flyback_records(f.volume_flyback);
  }
  v1::Raster* raster = RasterOf(p);
  if (f.extent_x != 0 || f.extent_y != 0) {
    if (f.extent_x != 0)
      raster != nullptr ? raster->set_extent_x_mm(f.extent_x)
                        : p->mutable_lissajous()->set_extent_x_mm(f.extent_x);
    if (f.extent_y != 0)
      raster != nullptr ? raster->set_extent_y_mm(f.extent_y)
                        : p->mutable_lissajous()->set_extent_y_mm(f.extent_y);
  }
  v1::Radial* radial = RadialOf(p);
  if (f.radius.size() == 2) {
    if (radial != nullptr) {
      radial->set_radius_begin_mm(f.radius[0]);
      radial->set_radius_end_mm(f.radius[1]);
    } else {
      p->mutable_spiral()->set_inner_radius_mm(f.radius[0]);
      p->mutable_spiral()->set_outer_radius_mm(f.radius[1]);
    }
  }
  if (f.angle.size() == 2) {
    radial->set_angle_begin_deg(f.angle[0]);
    radial->set_angle_end_deg(f.angle[1]);
  }
  if (f.repeats != 0 || f.repeat_period != 0 || f.repeat_order || f.repeat_average) {
    v1::Repeat* repeat = RepeatOf(p);
    if (f.repeats != 0) repeat->set_count(f.repeats);
    if (f.repeat_period != 0) repeat->set_period(f.repeat_period);
    if (f.repeat_order) repeat->set_strategy(v1::Repeat::STRATEGY_ORDER);
    if (f.repeat_average) repeat->set_strategy(v1::Repeat::STRATEGY_AVERAGE);
  }
  if (f.offset.size() == 2) {
    p->set_offset_x_mm(f.offset[0]);
    p->set_offset_y_mm(f.offset[1]);
  }
  if (f.rotation != 0) p->set_rotation_deg(f.rotation);
  if (given("--warp-factor") && !p->has_angular_warp() && f.warp != "angular")
    throw CLI::ValidationError("--warp-factor", "is for --warp angular");
  if (given("--lens-spacing") && !p->has_telecentric_warp() && f.warp != "telecentric") {
    throw CLI::ValidationError("--lens-spacing", "is for --warp telecentric");
  }
  if (f.warp == "none") p->clear_warp();
  if (f.warp == "angular") p->mutable_angular_warp()->set_factor(f.warp_factor);
  if (f.warp == "telecentric")
    p->mutable_telecentric_warp()->set_galvo_lens_spacing_mm(f.lens_spacing);
  if (!f.flyback_policy.empty()) {
    p->set_flyback(f.flyback_policy == "fixed"          ? v1::FLYBACK_POLICY_FIXED
                   : f.flyback_policy == "fixed-linear" ? v1::FLYBACK_POLICY_FIXED_LINEAR
                                                        : v1::FLYBACK_POLICY_MINIMUM_TIME);
  }
  if (given("--max-velocity") || given("--max-acceleration") || given("--positions")) {
    for (auto* axis : {p->mutable_scanner()->mutable_x(), p->mutable_scanner()->mutable_y()}) {
      if (given("--max-velocity")) axis->set_velocity(f.max_velocity);
      if (given("--max-acceleration")) axis->set_acceleration(f.max_acceleration);
      if (f.positions.size() == 2)
        axis->set_position_min(f.positions[0]), axis->set_position_max(f.positions[1]);
    }
  }
}

uint32_t VolumesOf(const v1::Pattern& p) {
  switch (p.pattern_case()) {
    case v1::Pattern::kRaster: return p.raster().volumes();
    case v1::Pattern::kRepeatedRaster: return p.repeated_raster().raster().volumes();
    case v1::Pattern::kRadial: return p.radial().volumes();
    case v1::Pattern::kRepeatedRadial: return p.repeated_radial().radial().volumes();
    case v1::Pattern::kSpiral: return p.spiral().volumes();
    case v1::Pattern::kLissajous: return p.lissajous().volumes();
    case v1::Pattern::kFreeform: return p.freeform().volumes();
    case v1::Pattern::PATTERN_NOT_SET: break;
  }
  return 0;
}

}  // namespace octavo::cli
