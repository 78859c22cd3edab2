#include "server/rpc/convert/field_mask.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/util/field_mask_util.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"

namespace octavo::rpc {
namespace {

using google::protobuf::FieldMask;
using google::protobuf::util::FieldMaskUtil;

bool IsAll(const FieldMask& mask) { return mask.paths_size() == 1 && mask.paths(0) == "*"; }

}  // namespace

absl::StatusOr<std::set<std::string>> FieldsOfMask(const FieldMask& mask,
                                                   const std::vector<std::string>& allowed) {
  if (IsAll(mask)) return std::set<std::string>(allowed.begin(), allowed.end());
  if (mask.paths().empty())
    return InvalidField("update_mask", absl::StrCat("is empty; allowed are the fields to change: ",
                                                    absl::StrJoin(allowed, ", "), ", or *"));
  for (const std::string& path : mask.paths()) {
    if (std::find(allowed.begin(), allowed.end(), path) == allowed.end())
      return InvalidField("update_mask", absl::StrCat("has the path '", path, "'; allowed ",
                                                      absl::StrJoin(allowed, ", "), ", or *"));
  }
  return std::set<std::string>(mask.paths().begin(), mask.paths().end());
}

absl::StatusOr<v1::Processing> MergeProcessing(const v1::Processing& current,
                                               const v1::Processing& update,
                                               const FieldMask& mask) {
  if (mask.paths().empty() || IsAll(mask)) return update;
  v1::Processing merged = current;
  for (const std::string& path : mask.paths()) {
    if (!FieldMaskUtil::IsValidPath<v1::Processing>(path)) {
      std::vector<std::string> fields;
      for (int i = 0; i < v1::Processing::descriptor()->field_count(); ++i)
        fields.push_back(v1::Processing::descriptor()->field(i)->name());
      return InvalidField("update_mask",
                          absl::StrCat("has the path '", path, "'; allowed are fields of `",
                                       "processing`, or *: ", absl::StrJoin(fields, ", ")));
    }
  }
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  options.set_replace_repeated_fields(true);
  // A field that the update leaves out is cleared first, because a merge would keep the old value.
  FieldMask kept;
  FieldMaskUtil::Subtract<v1::Processing>(FieldMaskUtil::GetFieldMaskForAllFields<v1::Processing>(),
                                          mask, &kept);
  FieldMaskUtil::TrimMessage(kept, &merged);
  FieldMaskUtil::MergeMessageTo(update, mask, options, &merged);
  return merged;
}

}  // namespace octavo::rpc
