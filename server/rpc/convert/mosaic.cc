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
      .tiles = {in.tiles().name(), in.tiles().lease_token()},
      .spec = {.layout = Decode(in.tiles()),
               .stage_um = Decode(in.stage_um()),
               .max_shift_um = in.max_shift_um(),
               .in_depth = in.in_depth(),
               .min_confidence = in.has_min_confidence() ? in.min_confidence() : 0.5,
               .min_overlap = in.min_overlap(),
               .outlier_um = in.outlier_um()}};
}

absl::StatusOr<mosaic::StitchTilesCall> DecodeStitchTiles(const v1::StitchTilesRequest& in) {
  OCTAVO_RETURN_IF_ERROR(CheckRequestId(in.request_id()));
  OCTAVO_RETURN_IF_ERROR(CheckLabels(in.labels()));
  OCTAVO_RETURN_IF_ERROR(CheckDuration("ttl", in.ttl()));
  OCTAVO_RETURN_IF_ERROR(CheckHeights(in.tiles(), "position_um", in.position_um()));
  if (!v1::TileBlend_IsValid(in.blend())) {
    return InvalidField("blend",
                        absl::StrCat("has the unknown value ", static_cast<int>(in.blend()),
                                     "; allowed LINEAR, HANN, AVERAGE"));
  }
  if (!v1::Dtype_IsValid(in.type())) {
    return InvalidField("type", absl::StrCat("has the unknown value ", static_cast<int>(in.type()),
                                             "; allowed the real types"));
  }
  v1::StitchTilesRequest body = in;
  body.clear_request_id();
  mosaic::StitchTilesCall out{.tiles = {in.tiles().name(), in.tiles().lease_token()},
                              .spec = {.layout = Decode(in.tiles()),
                                       .position_um = Decode(in.position_um()),
                                       .blend = static_cast<TileBlend>(in.blend()),
                                       .scalar = static_cast<Scalar>(in.type())},
                              .labels = {in.labels().begin(), in.labels().end()},
                              .ttl_seconds = ToSeconds(in.ttl()),
                              .request_id = in.request_id(),
                              .request_digest = absl::StrCat("stitch:", RequestDigest(body))};
  if (in.has_gap()) out.spec.gap = in.gap();
  // Before anything else, because the answer speaks of the first position.
  if (out.spec.position_um.empty())
    return InvalidField("position_um", "is empty; allowed one for each tile");
  return out;
}

mosaic::FindZOverlapCall DecodeFindZOverlap(const v1::FindZOverlapRequest& in) {
  return {.fixed = {in.fixed(), in.fixed_lease_token()},
          .moving = {in.moving(), in.moving_lease_token()},
          .spec = {.slicing_interval_um = in.slicing_interval_um(),
                   .search_range_um = in.search_range_um(),
                   .spacing_z_um = in.spacing_z_um(),
                   .moving_first_plane = in.moving_first_plane(),
                   .offset_y = in.offset_y(),
                   .offset_x = in.offset_x(),
                   .min_correlation = in.has_min_correlation() ? in.min_correlation() : 0.5}};
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
