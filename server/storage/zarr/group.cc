#include "server/storage/zarr/group.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/json_members.h"
#include "server/storage/zarr/metadata_parts.h"

namespace octavo::storage {
namespace {

using nlohmann::json;

/// The first part of each path that consolidated metadata name; nothing if they are not usable.
void AddConsolidatedNames(const json& metadata, std::set<std::string>* names) {
  if (!metadata.is_object()) return;
  for (const auto& [path, value] : metadata.items()) {
    const std::string name = path.substr(0, path.find('/'));
    if (IsPathBelow(name) && name[0] != '.' && name != "zarr.json") names->insert(name);
  }
}

}  // namespace

absl::StatusOr<ZarrNodeKind> ZarrNodeKindOf(const ZarrFolder& folder) {
  OCTAVO_ASSIGN_OR_RETURN(const auto v3, folder.ReadJson("zarr.json"));
  if (v3.has_value()) {
    std::string node;
    if (const absl::Status read = ReadMember(*v3, "node_type", &node); !read.ok())
      return Annotate(read, folder.PathOf("zarr.json"));
    if (node == "array") return ZarrNodeKind::kArray;
    if (node == "group") return ZarrNodeKind::kGroup;
    return Annotate(BadValue("node_type", node, "are \"array\" and \"group\""),
                    folder.PathOf("zarr.json"));
  }
  for (const auto& [name, kind] : {std::pair{".zarray", ZarrNodeKind::kArray},
                                   {".zgroup", ZarrNodeKind::kGroup},
                                   {".zattrs", ZarrNodeKind::kGroup}}) {
    const absl::Status there = folder.OpenFile(name).status();
    if (there.ok()) return kind;
    if (!absl::IsNotFound(there)) return there;
  }
  return ZarrNodeKind::kNone;
}

absl::StatusOr<ZarrGroup> ZarrGroup::Open(ZarrFolder folder) {
  ZarrGroup group{.folder = std::move(folder)};
  const ZarrFolder& at = group.folder;
  OCTAVO_ASSIGN_OR_RETURN(const auto v3, at.ReadJson("zarr.json"));
  if (v3.has_value()) {
    const auto parse = [&]() -> absl::Status {
      OCTAVO_RETURN_IF_ERROR(CheckZarrFormat(*v3, 3));
      std::string node;
      OCTAVO_RETURN_IF_ERROR(ReadMember(*v3, "node_type", &node));
      if (node != "group") return BadValue("node_type", node, "is \"group\"");
      json known = *v3;
      // zarr-python also writes null here.
      if (known.contains("consolidated_metadata")) known.erase("consolidated_metadata");
      OCTAVO_RETURN_IF_ERROR(OnlyMembers(known, "", {"zarr_format", "node_type", "attributes"},
                                         /*extensible=*/true));
      if (!v3->contains("attributes")) return absl::OkStatus();
      group.attributes = v3->at("attributes");
      if (!group.attributes.is_object())
        return BadValue("attributes", group.attributes, "are objects");
      return absl::OkStatus();
    };
    if (const absl::Status parsed = parse(); !parsed.ok())
      return Annotate(parsed, at.PathOf("zarr.json"));
    return group;
  }
  group.version = ZarrVersion::kV2;
  OCTAVO_ASSIGN_OR_RETURN(const auto v2, at.ReadJson(".zgroup"));
  OCTAVO_ASSIGN_OR_RETURN(auto attributes, at.ReadJson(".zattrs"));
  if (!v2.has_value() && !attributes.has_value())
    return absl::NotFoundError(absl::StrCat(at.path(), " has neither zarr.json nor .zgroup"));
  if (v2.has_value()) {
    if (const absl::Status format = CheckZarrFormat(*v2, 2); !format.ok())
      return Annotate(format, at.PathOf(".zgroup"));
  }
  if (attributes.has_value()) {
    if (!attributes->is_object())
      return absl::DataLossError(absl::StrCat(at.PathOf(".zattrs"), " is no object"));
    group.attributes = *std::move(attributes);
  }
  return group;
}

absl::StatusOr<std::vector<ZarrGroup::Child>> ZarrGroup::Children() const {
  std::set<std::string> names;
  const auto listed = folder.Names(kMostNames);
  if (listed.ok()) names.insert(listed->begin(), listed->end());
  if (!listed.ok() && !absl::IsPermissionDenied(listed.status())) return listed.status();
  const auto consolidated =
      folder.ReadJson(version == ZarrVersion::kV3 ? "zarr.json" : ".zmetadata");
  if (consolidated.ok() && consolidated->has_value() && (*consolidated)->is_object()) {
    const json& all = **consolidated;
    const json& inner = version == ZarrVersion::kV3 && all.contains("consolidated_metadata")
                            ? all["consolidated_metadata"]
                            : all;
    if (inner.is_object() && inner.contains("metadata"))
      AddConsolidatedNames(inner["metadata"], &names);
  }
  std::vector<Child> children;
  for (const std::string& name : names) {
    if (name[0] == '.' || name == "zarr.json") continue;
    const auto below = folder.OpenFolder(name);
    if (!below.ok()) continue;  // no folder, or not there
    const auto kind = ZarrNodeKindOf(*below);
    if (!kind.ok()) return kind.status();
    if (*kind != ZarrNodeKind::kNone) children.push_back({name, *kind});
  }
  return children;
}

}  // namespace octavo::storage
