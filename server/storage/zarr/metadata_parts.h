#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

#include "server/storage/zarr/chain.h"
#include "server/storage/zarr/metadata.h"

// What the parsers of both versions of Zarr's metadata share. Errors as those of metadata.h.
namespace octavo::storage {

/// The place of a member, for messages: "codecs[0].configuration" and "level".
std::string MemberPath(const std::string& where, absl::string_view name);

/// Legal, but not supported: Unimplemented "<name> is <value>; what is read here <read>".
absl::Status NotRead(const std::string& name, const nlohmann::json& value, const std::string& read);

/// Refuses members of an object that are not among `known`. `extensible`: those that say
/// "must_understand": false are accepted.
absl::Status OnlyMembers(const nlohmann::json& object, const std::string& where,
                         std::initializer_list<absl::string_view> known, bool extensible = false);

/// zarr_format, an integer.
absl::Status CheckZarrFormat(const nlohmann::json& object, int64_t wanted);

/// An array of at most 32 integers.
absl::Status ReadExtents(const nlohmann::json& value, const std::string& name, int64_t least,
                         AxisValues* out);

/// That the array has less than 2^62 bytes.
absl::Status CheckArrayBytes(const ZarrMetadata& array);

/// The parameters of a codec that its decoder does not need: known members of the right types.
absl::Status CheckCodecParameters(const std::string& name, const nlohmann::json& configuration,
                                  const std::string& where);

/// A chain whose chunks are the elements, in an order of the axes from the slowest to the fastest
/// one. `name`: of the chunk's extents. DataLoss: more bytes than a chunk may have.
absl::StatusOr<ZarrChain> ElementChain(const AxisValues& shape, const std::string& name,
                                       const std::vector<size_t>& order, int64_t element_bytes);

/// Appends a codec to a chain. DataLoss if it cannot encode what the chain makes; `where`: of the
/// codec.
absl::Status AppendStep(const ByteCodec& codec, const std::string& where, ZarrChain* chain);

}  // namespace octavo::storage
