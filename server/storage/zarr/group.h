#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "server/storage/zarr/folder.h"
#include "server/storage/zarr/metadata.h"

namespace octavo::storage {

enum class ZarrNodeKind : uint8_t { kNone, kArray, kGroup };

/// What a folder is, by its own metadata: an array, a group (also a v2 folder with attributes
/// only), or nothing of Zarr. DataLoss: its metadata are damaged; PermissionDenied as ZarrFolder.
absl::StatusOr<ZarrNodeKind> ZarrNodeKindOf(const ZarrFolder& folder);

/// A group of a Zarr hierarchy.
struct ZarrGroup {
  /// The most names of a folder that a listing looks at.
  static constexpr size_t kMostNames = size_t{1} << 16;

  ZarrFolder folder;
  ZarrVersion version = ZarrVersion::kV3;
  nlohmann::json attributes = nlohmann::json::object();

  /// Reads the group's own metadata: zarr.json, or .zgroup and .zattrs. NotFound: the folder is no
  /// group; DataLoss names the file and the member; Unimplemented: a member that must be
  /// understood.
  static absl::StatusOr<ZarrGroup> Open(ZarrFolder folder);

  /// The paths of the arrays and groups directly below, sorted: the folders that have metadata of
  /// their own. Consolidated metadata are only asked for further names (of a folder that may not be
  /// listed); what they say about a node is never used.
  struct Child {
    std::string name;
    ZarrNodeKind kind = ZarrNodeKind::kNone;
  };
  absl::StatusOr<std::vector<Child>> Children() const;
};

}  // namespace octavo::storage
