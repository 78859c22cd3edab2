#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "octavo/v1/array_operation.pb.h"
#include "octavo/v1/scan.pb.h"

#include "gpu/array/array_ops.h"
#include "server/model/volume_operation.h"

namespace octavo::rpc {

/// DTYPE_UNSPECIFIED stays Scalar{}.
absl::StatusOr<Scalar> DecodeScalar(const std::string& field, int scalar);

/// `at` names the operation in errors. `others` receives the names of second arrays; null: there
/// are none. `in_um` receives lengths in um, of slabs and filters; null: there is no spacing.
absl::StatusOr<Op> DecodeArrayOperation(const v1::ArrayOperation& operation, const std::string& at,
                                        std::vector<std::string>* others, model::OpSpec* in_um);

/// The same for a volume: no second arrays, lengths may be in um.
absl::StatusOr<model::OpSpec> DecodeVolumeOperation(const v1::ArrayOperation& operation,
                                                    const std::string& at);

/// ScanSpec.chains; null if there are none.
absl::StatusOr<std::shared_ptr<const model::DerivedVolumeRecipes>> DecodeChains(
    const google::protobuf::RepeatedPtrField<v1::VolumeChain>& chains);
void EncodeChains(const model::DerivedVolumeRecipes* chains,
                  google::protobuf::RepeatedPtrField<v1::VolumeChain>* out);

}  // namespace octavo::rpc
