#pragma once

#include "absl/status/status.h"

#include "server/storage/commit/commit_store.h"
#include "server/storage/formats/volume_meta.h"

namespace octavo::storage {

/// Before Publish, once all slabs are written: the metadata of a volume that was still being made
/// when the transaction began, with its digest. Name, shape, type, axes and spacing are those of
/// the begin. Only formats that have the metadata last (DescribesLast); Internal otherwise.
absl::Status DescribeLate(CommitTransaction& transaction, const VolumeMeta& meta);

}  // namespace octavo::storage
