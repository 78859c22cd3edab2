#pragma once

#include "server/storage/formats/writer.h"

namespace octavo::storage {

/// Whether the metadata go into the files only when all voxels are there, so that what of them is
/// not known before (digest, levels to show, warnings) may be told then. NRRD, NIfTI and MATLAB
/// have them all in a head of a size that must be known before the first voxel.
inline constexpr bool DescribesLast(const WriterOptions& options) {
  return options.format != Format::kNrrd && options.format != Format::kNifti &&
         options.format != Format::kMatlab;
}

}  // namespace octavo::storage
