#pragma once

// Private to this folder: the inputs behind OpenVolumeInput.

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/storage/formats/volume_input.h"
#include "server/storage/io/byte_source.h"

namespace octavo::storage {

/// A file or folder that is open, and what is around it.
struct OpenedInput {
  UniqueFd fd;
  std::string name;  // without folders, for messages
  std::string path;  // where other files are looked for; "" = it was opened by descriptor
  std::shared_ptr<ByteSource> bytes;  // of a file
  std::string head;                   // its first bytes, at most kHeadBytes
};
inline constexpr size_t kHeadBytes = 4096;

/// Opens a file that `input` refers to by `name`, relative to its folder. InvalidArgument
/// (UNSUPPORTED_FILE) if `input` was opened by descriptor; `place` is where it names it.
absl::StatusOr<std::shared_ptr<ByteSource>> OpenReferred(const OpenedInput& input,
                                                         const std::string& name,
                                                         const std::string& place,
                                                         const VolumeInputOptions& options);
/// "<prefix><option>".
inline std::string FieldOf(const VolumeInputOptions& options, const char* option) {
  return options.field_prefix + option;
}

/// Checks extents and type of a file: each extent from 1, at most 2^40 elements together.
absl::Status CheckInputShape(const std::string& name, const std::string& place,
                             const std::vector<int64_t>& shape);
/// Elements of an array whose shape was checked.
int64_t ElementsOf(const std::vector<int64_t>& shape);

/// Fills the spacing of an axis: `value` of `unit` ("" = none). A unit of length is converted. A
/// value that is not finite and positive is left out, with a note.
void SetSpacing(double value, const std::string& unit, const std::string& place, InputAxis* axis,
                std::vector<std::string>* notes);
/// Micrometres of one of the unit, by its names and signs ("mm", "millimeter", "µm", "micron",
/// "inch", ...); nothing if it is no unit of length.
std::optional<double> MicrometresOf(const std::string& unit);

/// Takes over metadata that a commit wrote: `order[i]` is the axis of meta.shape of the file's i-th
/// axis. DataLoss if shape or type of the file are others.
absl::Status AdoptMeta(const std::string& name, VolumeMeta meta, const std::vector<int>& order,
                       VolumeInputInfo* info);
/// Parses metadata of a commit that a format carries. DataLoss names the file and the place.
absl::StatusOr<VolumeMeta> ParseOwnMeta(const std::string& name, const std::string& place,
                                        const std::string& text, nlohmann::json* parsed = nullptr);
/// The metadata beside a file (`<path>.json`), if a commit wrote them.
struct SideMeta {
  VolumeMeta meta;
  int64_t bytes = -1;  // the file's; -1 = not recorded
  uint32_t crc32c = 0;
};
absl::StatusOr<std::optional<SideMeta>> ReadSideMeta(const OpenedInput& input,
                                                     const VolumeInputOptions& options);
/// "x" -> index in meta.axes, for each name; nothing if one is no axis or comes twice.
std::optional<std::vector<int>> OrderOfNames(const VolumeMeta& meta,
                                             const std::vector<std::string>& names);

using OpenedVolume = absl::StatusOr<std::unique_ptr<VolumeInput>>;
OpenedVolume OpenNpyInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenRawInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenTiffInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenTiffStackInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenNiftiInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenNrrdInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenMatlabInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenHdf5Input(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenLinumpyInput(OpenedInput input, const VolumeInputOptions& options);
OpenedVolume OpenZarrInput(OpenedInput input, const VolumeInputOptions& options);

}  // namespace octavo::storage
