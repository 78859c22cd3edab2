#include "server/volume/pattern_json.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/pattern/plan.h"
#include "server/storage/io/json_members.h"

namespace octavo::volume {
namespace {

constexpr pattern::PatternKind kKinds[] = {
    pattern::PatternKind::kRaster,  pattern::PatternKind::kRepeatedRaster,
    pattern::PatternKind::kRadial,  pattern::PatternKind::kRepeatedRadial,
    pattern::PatternKind::kSpiral,  pattern::PatternKind::kLissajous,
    pattern::PatternKind::kFreeform};

template <class E>
absl::Status ReadEnum(const nlohmann::json& json, const char* name, E most, E* out) {
  OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json* const value, storage::Member(json, "", name));
  int64_t number = 0;
  OCTAVO_RETURN_IF_ERROR(
      storage::ReadInteger(*value, name, 0, static_cast<int64_t>(most), &number));
  *out = static_cast<E>(number);
  return absl::OkStatus();
}

}  // namespace

nlohmann::json PatternJson(const pattern::Pattern& p) {
  nlohmann::json json = {{"kind", Name(p.kind)},
                         {"ascans_per_bscan", p.ascans_per_bscan},
                         {"bscans_per_volume", p.bscans_per_volume},
                         {"bidirectional", p.bidirectional},
                         {"extent_mm", {p.extent_x_mm, p.extent_y_mm}},
                         {"offset_mm", {p.offset_x_mm, p.offset_y_mm}},
                         {"rotation_deg", p.rotation_deg}};
  if (p.repeated())
    json["repeat"] = {{"count", p.repeat_count},
                      {"period", p.repeat_period},
                      {"strategy", static_cast<int>(p.repeat_strategy)}};
  json["radius_mm"] = {p.radius_begin_mm, p.radius_end_mm};
  json["angle_deg"] = {p.angle_begin_deg, p.angle_end_deg};
  json["sampling"] = static_cast<int>(p.spiral_sampling);
  json["cycles"] = {p.cycles_x, p.cycles_y};
  json["phase_deg"] = {p.phase_x_deg, p.phase_y_deg};
  if (p.kind == pattern::PatternKind::kFreeform) {
    json["x_mm"] = p.points_x_mm;
    json["y_mm"] = p.points_y_mm;
  }
  return json;
}

absl::StatusOr<pattern::Pattern> PatternFromJson(const nlohmann::json& json) {
  pattern::Pattern p;
  std::string kind;
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "kind", &kind));
  const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                         [&](pattern::PatternKind k) { return kind == Name(k); });
  if (found == std::end(kKinds)) return absl::DataLossError(absl::StrCat("kind is '", kind, "'"));
  p.kind = *found;
  double extent[2], offset[2], radius[2], angle[2], phase[2];
  int64_t cycles[2];
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "ascans_per_bscan", &p.ascans_per_bscan));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "bscans_per_volume", &p.bscans_per_volume));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "bidirectional", &p.bidirectional));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "extent_mm", &extent));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "offset_mm", &offset));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "rotation_deg", &p.rotation_deg));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "radius_mm", &radius));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "angle_deg", &angle));
  OCTAVO_RETURN_IF_ERROR(
      ReadEnum(json, "sampling", pattern::SpiralSampling::kLinear, &p.spiral_sampling));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "cycles", &cycles));
  OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "phase_deg", &phase));
  if (p.repeated()) {
    OCTAVO_ASSIGN_OR_RETURN(const nlohmann::json* const repeat,
                            storage::Member(json, "", "repeat"));
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(*repeat, "count", &p.repeat_count, "repeat"));
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(*repeat, "period", &p.repeat_period, "repeat"));
    OCTAVO_RETURN_IF_ERROR(
        ReadEnum(*repeat, "strategy", pattern::RepeatStrategy::kAverage, &p.repeat_strategy));
  }
  if (p.kind == pattern::PatternKind::kFreeform) {
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "x_mm", &p.points_x_mm));
    OCTAVO_RETURN_IF_ERROR(storage::ReadMember(json, "y_mm", &p.points_y_mm));
  }
  p.extent_x_mm = extent[0], p.extent_y_mm = extent[1];
  p.offset_x_mm = offset[0], p.offset_y_mm = offset[1];
  p.radius_begin_mm = radius[0], p.radius_end_mm = radius[1];
  p.angle_begin_deg = angle[0], p.angle_end_deg = angle[1];
  p.cycles_x = cycles[0], p.cycles_y = cycles[1];
  p.phase_x_deg = phase[0], p.phase_y_deg = phase[1];
  if (const absl::Status status = pattern::ResolvePattern(p, 0); !status.ok())
    return absl::DataLossError(status.message());
  p.plan = nullptr;  // large, and what is done with recovered volumes needs none
  return p;
}

}  // namespace octavo::volume
