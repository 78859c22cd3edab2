#include "server/rpc/convert/mosaic.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/rpc/convert/buffer.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/request_digest.h"
#include "server/rpc/convert/time.h"

namespace octavo::rpc {
namespace {

Vector3 Decode(const v1::MosaicVector& in) { return {{in.z(), in.y(), in.x()}}; }

std::vector<Vector3> Decode(const google::protobuf::RepeatedPtrField<v1::MosaicVector>& in) {
  std::vector<Vector3> out;
  for (const v1::MosaicVector& one : in) out.push_back(Decode(one));
  return out;
}

TileLayoutSpec Decode(const v1::TileSource& in) {
  TileLayoutSpec out{.spacing_um = Decode(in.spacing_um())};
  if (out.spacing_um[0] == 0) out.spacing_um[0] = 1;
  if (in.layout_case() == v1::TileSource::kStack) {
    out.kind = TileLayoutSpec::Kind::kStack;
    out.depth = in.stack().depth() == 0 ? 1 : in.stack().depth();
  } else if (in.layout_case() == v1::TileSource::kGrid) {
    out.kind = TileLayoutSpec::Kind::kGrid;
    out.tile_y = in.grid().tile_y();
    out.tile_x = in.grid().tile_x();
  }
  return out;
}

mosaic::Source SourceOf(const v1::TileSource& in) {
  return {.name = in.name(),
          .lease_token = in.lease_token(),
          .field = "tiles.name",
          .any_axes = in.axes_as_zyx()};
}

absl::Status CheckDtype(v1::Dtype type) {
  if (v1::Dtype_IsValid(type)) return absl::OkStatus();
  return InvalidField("type", absl::StrCat("has the unknown value ", static_cast<int>(type),
                                           "; allowed the real types"));
}

/// The buffer that a request asks for, whose fields of it have the same names in all of them.
template <class Request>
absl::StatusOr<mosaic::NewBuffer> NewBufferOf(const Request& in, const char* called) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(in.request_id()));
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", in.ttl()));
  Request body = in;
  body.clear_request_id();
  return mosaic::NewBuffer{.labels = {in.labels().begin(), in.labels().end()},
                           .ttl_seconds = ToSeconds(in.ttl()),
                           .request_id = in.request_id(),
                           .request_digest = absl::StrCat(called, ":", RequestDigest(body))};
}

/// Heights in um say nothing of tiles whose planes have no distance.
absl::Status CheckHeights(const v1::TileSource& tiles, const char* field,
                          const google::protobuf::RepeatedPtrField<v1::MosaicVector>& positions) {
  if (tiles.spacing_um().z() != 0) return absl::OkStatus();
  for (const v1::MosaicVector& one : positions) {
    if (one.z() == positions[0].z()) continue;
    return InvalidField("tiles.spacing_um.z",
                        absl::StrCat("is missing, but ", field, " has the heights ",
                                     positions[0].z(), " and ", one.z(), "; allowed above 0"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<mosaic::RegisterTilesCall> DecodeRegisterTiles(const v1::RegisterTilesRequest& in) {
  OCTAVO_RETURN_IF_ERROR(CheckHeights(in.tiles(), "stage_um", in.stage_um()));
  return mosaic::RegisterTilesCall{
      .tiles = SourceOf(in.tiles()),
      .spec = {.layout = Decode(in.tiles()),
               .stage_um = Decode(in.stage_um()),
               .max_shift_um = in.max_shift_um(),
               .in_depth = in.in_depth(),
               .min_confidence = in.has_min_confidence() ? in.min_confidence() : 0.5,
               .min_overlap = in.min_overlap(),
               .outlier_um = in.outlier_um()}};
}

absl::StatusOr<mosaic::StitchTilesCall> DecodeStitchTiles(const v1::StitchTilesRequest& in) {
  OCTAVO_RETURN_IF_ERROR(CheckHeights(in.tiles(), "position_um", in.position_um()));
  if (!v1::TileBlend_IsValid(in.blend())) {
    return InvalidField("blend",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.blend()),
                                     "; allowed LINEAR, HANN, AVERAGE"));
  }
  OCTAVO_RETURN_IF_ERROR(CheckDtype(in.type()));
  mosaic::StitchTilesCall out{.tiles = SourceOf(in.tiles()),
                              .spec = {.layout = Decode(in.tiles()),
                                       .position_um = Decode(in.position_um()),
                                       .blend = static_cast<TileBlend>(in.blend()),
                                       .scalar = static_cast<Scalar>(in.type())}};
  OCTAVO_ASSIGN_OR_RETURN(out.made, NewBufferOf(in, "stitch"));
  if (in.has_gap()) out.spec.gap = in.gap();
  // Before anything else, because the answer speaks of the first position.
  if (out.spec.position_um.empty())
    return InvalidField("position_um", "is empty; allowed one for each tile");
  return out;
}

mosaic::FindZOverlapCall DecodeFindZOverlap(const v1::FindZOverlapRequest& in) {
  return {.fixed = {in.fixed(), in.fixed_lease_token(), "fixed", in.axes_as_zyx()},
          .moving = {in.moving(), in.moving_lease_token(), "moving", in.axes_as_zyx()},
          .spec = {.slicing_interval_um = in.slicing_interval_um(),
                   .search_range_um = in.search_range_um(),
                   .spacing_z_um = in.spacing_z_um(),
                   .moving_first_plane = in.moving_first_plane(),
                   .offset_y = in.offset_y(),
                   .offset_x = in.offset_x(),
                   .min_correlation = in.has_min_correlation() ? in.min_correlation() : 0.5}};
}

namespace {

/// A field that changes nothing without another one is a mistake: who gives it means something.
absl::Status CheckEffects(const v1::StackSectionsRequest& in) {
  const auto idle = [](const char* field, const char* why) {
    return InvalidField(field, absl::StrCat("is given, but ", why, "; allowed unset"));
  };
  if (!in.overlap().empty()) {
    constexpr const char* kGiven = "overlap says what the sections have in common";
    if (in.search_range_um() != 0) return idle("search_range_um", kGiven);
    if (in.has_min_correlation()) return idle("min_correlation", kGiven);
    if (in.consistency_min_pairs() != 0) return idle("consistency_min_pairs", kGiven);
    if (in.has_consistency_tolerance()) return idle("consistency_tolerance", kGiven);
    if (in.has_consistency_min_correlation()) return idle("consistency_min_correlation", kGiven);
  }
  if (in.refine_limit_um() == 0) {
    constexpr const char* kNone = "refine_limit_um is 0: nothing is put right in the plane";
    if (in.has_refine_min_confidence()) return idle("refine_min_confidence", kNone);
    if (in.has_refine_min_correlation()) return idle("refine_min_correlation", kNone);
  }
  if (!in.match_intensity()) {
    constexpr const char* kNone = "match_intensity is not set: no brightness is changed";
    if (in.has_gain_min_voxels()) return idle("gain_min_voxels", kNone);
    if (in.gain_least() != 0) return idle("gain_least", kNone);
    if (in.gain_most() != 0) return idle("gain_most", kNone);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<mosaic::StackSectionsCall> DecodeStackSections(const v1::StackSectionsRequest& in) {
  if (in.sections().empty()) {
    return InvalidField("sections", absl::StrCat("is empty; allowed 1 to ", kMostSections));
  }
  if (!v1::SectionBlend_IsValid(in.blend())) {
    return InvalidField("blend",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.blend()),
                                     "; allowed LATER, EARLIER, HANN"));
  }
  OCTAVO_RETURN_IF_ERROR(CheckDtype(in.type()));
  OCTAVO_RETURN_IF_ERROR(CheckEffects(in));
  const auto or_default = [](double value, double otherwise) {
    return value == 0 ? otherwise : value;
  };
  mosaic::StackSectionsCall out{.spec = {.spacing_um = Decode(in.spacing_um()),
                                         .center_on_middle = in.center_on_middle(),
                                         .whole_voxels = in.whole_voxels(),
                                         .overlap = {in.overlap().begin(), in.overlap().end()},
                                         .moving_first_plane = in.moving_first_plane(),
                                         .slicing_interval_um = in.slicing_interval_um(),
                                         .search_range_um = in.search_range_um(),
                                         .consistency_min_pairs = in.consistency_min_pairs() == 0
                                                                      ? 3
                                                                      : in.consistency_min_pairs(),
                                         .refine_limit_um = in.refine_limit_um(),
                                         .match_intensity = in.match_intensity(),
                                         .gain_least = or_default(in.gain_least(), 0.5),
                                         .gain_most = or_default(in.gain_most(), 2),
                                         .blend = static_cast<SectionBlend>(in.blend()),
                                         .scalar = static_cast<Scalar>(in.type())}};
  StackSectionsSpec& spec = out.spec;
  if (in.has_min_correlation()) spec.min_correlation = in.min_correlation();
  if (in.has_consistency_tolerance()) spec.consistency_tolerance = in.consistency_tolerance();
  if (in.has_consistency_min_correlation())
    spec.consistency_min_correlation = in.consistency_min_correlation();
  if (in.has_refine_min_confidence()) spec.refine_min_confidence = in.refine_min_confidence();
  if (in.has_refine_min_correlation()) spec.refine_min_correlation = in.refine_min_correlation();
  if (in.has_gain_min_voxels()) spec.gain_min_voxels = in.gain_min_voxels();
  if (in.has_valid_above()) spec.valid_above = in.valid_above();
  if (in.has_gap()) spec.gap = in.gap();
  for (const v1::StackSection& section : in.sections()) {
    out.sections.push_back({.name = section.name(),
                            .lease_token = section.lease_token(),
                            .field = absl::StrCat("sections[", out.sections.size(), "].name"),
                            .any_axes = section.axes_as_zyx()});
    spec.position_um.push_back(Decode(section.position_um()));
  }
  OCTAVO_ASSIGN_OR_RETURN(out.made, NewBufferOf(in, "stack"));
  return out;
}

absl::StatusOr<mosaic::ResampleTilesCall> DecodeResampleTiles(const v1::ResampleTilesRequest& in) {
  OCTAVO_RETURN_IF_ERROR(CheckDtype(in.type()));
  // Elsewhere 0 counts planes; here it would be a length that nobody gave.
  if (in.target_um().z() != 0 && in.tiles().spacing_um().z() == 0) {
    return InvalidField("tiles.spacing_um.z",
                        "is missing, and target_um.z needs it; allowed 1e-06 to 1e+09");
  }
  mosaic::ResampleTilesCall out{.tiles = SourceOf(in.tiles()),
                                .spec = {.layout = Decode(in.tiles()),
                                         .target_um = Decode(in.target_um()),
                                         .corner_aligned = in.corner_aligned(),
                                         .anti_aliasing = !in.no_anti_aliasing(),
                                         .scalar = static_cast<Scalar>(in.type())}};
  OCTAVO_ASSIGN_OR_RETURN(out.made, NewBufferOf(in, "resample"));
  return out;
}

void EncodeVector(const Vector3& in, v1::MosaicVector* out) {
  out->set_z(in[0]);
  out->set_y(in[1]);
  out->set_x(in[2]);
}

void EncodePositions(const TilePositions& in, const std::vector<Vector3>& stage_um,
                     v1::RegisterTilesResponse* out) {
  for (size_t i = 0; i < in.tiles.size(); ++i) {
    const RegisteredTile& tile = in.tiles[i];
    v1::RegisteredTile* const to = out->add_tiles();
    EncodeVector(tile.position_um, to->mutable_position_um());
    EncodeVector(tile.correction_um, to->mutable_correction_um());
    to->set_joints(tile.joints);
    to->set_used_joints(tile.used_joints);
    to->set_state(static_cast<v1::TileState>(tile.state));
    if (tile.state != TileState::kRegistered) out->add_suspects(static_cast<int64_t>(i));
  }
  for (const TileJoint& joint : in.joints) {
    v1::TileJoint* const to = out->add_joints();
    to->set_first(joint.first);
    to->set_second(joint.second);
    Vector3 correction = joint.difference_um;
    for (int d = 0; d < 3; ++d) {
      correction[d] -= stage_um[static_cast<size_t>(joint.second)][d] -
                       stage_um[static_cast<size_t>(joint.first)][d];
    }
    EncodeVector(joint.difference_um, to->mutable_difference_um());
    EncodeVector(correction, to->mutable_correction_um());
    to->set_confidence(joint.confidence);
    to->set_residual_um(joint.residual_um);
    to->set_overlap_voxels(joint.voxels);
    to->set_state(static_cast<v1::JointState>(joint.state));
  }
  out->set_rms_residual_um(in.rms_residual_um);
}

void EncodeStacked(const mosaic::StackedSections& in, v1::StackSectionsResponse* out) {
  EncodeBuffer(in.buffer, out->mutable_buffer());
  EncodeVector(in.report.origin_um, out->mutable_origin_um());
  out->set_total_z(in.report.total_z);
  for (size_t i = 0; i < in.report.sections.size(); ++i) {
    const StackedSection& section = in.report.sections[i];
    v1::StackedSection* const to = out->add_sections();
    EncodeVector(section.position_um, to->mutable_position_um());
    to->set_first_plane(section.first_plane);
    to->set_planes(section.planes);
    to->set_overlap(section.overlap);
    to->set_overlap_state(static_cast<v1::OverlapState>(section.overlap_state));
    to->set_correlation(section.correlation);
    to->set_found_overlap(section.found_overlap);
    to->set_expected_overlap(section.expected_overlap);
    EncodeVector(section.refinement_um, to->mutable_refinement_um());
    to->set_refinement_confidence(section.refinement_confidence);
    to->set_refinement_state(static_cast<v1::RefinementState>(section.refinement_state));
    to->set_gain(section.gain);
    to->set_measured_gain(section.measured_gain);
    to->set_gain_voxels(section.gain_voxels);
    if (section.overlap_state == OverlapState::kFallback ||
        section.overlap_state == OverlapState::kCorrected)
      out->add_suspects(static_cast<int64_t>(i));
  }
}

void EncodeResampled(const mosaic::ResampledBuffer& in, v1::ResampleTilesResponse* out) {
  EncodeBuffer(in.buffer, out->mutable_buffer());
  out->set_depth(in.tiles.depth);
  out->set_tile_y(in.tiles.tile_y);
  out->set_tile_x(in.tiles.tile_x);
  EncodeVector(in.tiles.spacing_um, out->mutable_spacing_um());
}

void EncodeZOverlap(const ZOverlapResult& in, v1::FindZOverlapResponse* out) {
  out->set_overlap(in.overlap);
  out->set_correlation(in.correlation);
  out->set_expected_overlap(in.expected);
  out->set_fallback(in.fallback);
  out->set_best_overlap(in.best);
  out->set_first_overlap(in.first);
  out->mutable_correlations()->Add(in.correlations.begin(), in.correlations.end());
}

}  // namespace octavo::rpc
