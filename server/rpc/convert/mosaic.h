#pragma once

#include "absl/status/statusor.h"

#include "octavo/v1/mosaic.pb.h"

#include "server/mosaic/mosaics.h"

namespace octavo::rpc {

absl::StatusOr<mosaic::RegisterTilesCall> DecodeRegisterTiles(
    const v1::RegisterTilesRequest& request);
absl::StatusOr<mosaic::StitchTilesCall> DecodeStitchTiles(const v1::StitchTilesRequest& request);
mosaic::FindZOverlapCall DecodeFindZOverlap(const v1::FindZOverlapRequest& request);
absl::StatusOr<mosaic::StackSectionsCall> DecodeStackSections(
    const v1::StackSectionsRequest& request);
absl::StatusOr<mosaic::ResampleTilesCall> DecodeResampleTiles(
    const v1::ResampleTilesRequest& request);
void EncodePositions(const TilePositions& positions, const std::vector<Vector3>& stage_um,
                     v1::RegisterTilesResponse* out);
void EncodeVector(const Vector3& vector, v1::MosaicVector* out);
void EncodeStacked(const mosaic::StackedSections& stacked, v1::StackSectionsResponse* out);
void EncodeResampled(const mosaic::ResampledBuffer& resampled, v1::ResampleTilesResponse* out);
void EncodeZOverlap(const ZOverlapResult& result, v1::FindZOverlapResponse* out);

}  // namespace octavo::rpc
