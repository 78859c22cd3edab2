#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "server/model/tomography_spec.h"

namespace octavo::engine {

/// In which way a result is another one than a tomography job would make: of another file, of
/// another kind (sinograms or slices), or of another half turn; a sentence without an end, such as
/// "it was made of 'a.h5', and this scan is 'night2/a.h5'". Empty: in none of these, or the result
/// does not say it: of pushed projections and of arrays no place is recorded.
///
/// `processing`: the record in the result (VolumeMeta::processing). `roots`: the folders in which
/// relative paths lie; a link is the file that it leads to.
std::string HowResultDiffers(const nlohmann::json& processing, const model::TomographySpec& wanted,
                             const std::vector<std::string>& roots);

}  // namespace octavo::engine
