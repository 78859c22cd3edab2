#pragma once

#include <set>
#include <string>
#include <vector>

#include "server/model/scan_spec.h"

namespace octavo::processing {

/// The fields of a processing that an update can name, as in octavo.v1.Processing and in its order.
const std::vector<std::string>& ProcessingFields();

/// `requested` with the named fields of `given`. `fields`: some of ProcessingFields.
model::Processing MergeProcessing(const model::Processing& requested,
                                  const model::Processing& given,
                                  const std::set<std::string>& fields);

}  // namespace octavo::processing
