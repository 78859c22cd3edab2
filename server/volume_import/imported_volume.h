#pragma once

#include <cstddef>
#include <string>

#include "server/model/status_types.h"
#include "server/storage/formats/input_volume.h"

namespace octavo::volume_import {

/// The held volume that an import makes: what the commit, or the file, says about it. Its files
/// will say where it came from, too, as processing.import: the job, the file, the job's parameters
/// (JSON), and of a commit the volume that was committed.
model::VolumeStatus DescribeImported(const storage::InputVolume& input, const std::string& job,
                                     const std::string& file, const std::string& parameters);

/// Texts of foreign files may have any bytes: made UTF-8, at most `most` bytes in whole characters.
std::string CleanText(const std::string& text, size_t most);
inline constexpr size_t kMostWarning = 1024;  // bytes of a sentence about a file

}  // namespace octavo::volume_import
