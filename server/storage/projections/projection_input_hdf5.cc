// Data Exchange (De Carlo et al., J. Synchrotron Rad. 21, 2014) and NXtomo (NeXus application
// definition).

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gpu/base/status.h"
#include "server/storage/projections/committed_frames.h"
#include "server/storage/projections/hdf5_reader.h"
#include "server/storage/projections/internal.h"

namespace octavo::storage {
namespace {

constexpr size_t kProjection = 0, kFlat = 1, kDark = 2;

/// Micrometres per unit; 0 if it is not a unit of length.
double MicrometresOf(const std::string& unit) {
  const std::string u = absl::AsciiStrToLower(absl::StripAsciiWhitespace(unit));
  if (u == "m" || u == "meter" || u == "metre" || u == "meters" || u == "metres") return 1e6;
  if (u == "cm") return 1e4;
  if (u == "mm" || u == "millimeter" || u == "millimetre") return 1e3;
  if (u == "um" || u == "\xC2\xB5m" || u == "\xCE\xBCm" || u == "micron" || u == "microns" ||
      u == "micrometer" || u == "micrometre")
    return 1;
  if (u == "nm" || u == "nanometer" || u == "nanometre") return 1e-3;
  return 0;
}

/// The first of these scalars that exists and is a length. It is a hint: an impossible value is
/// noted and left out.
void FindPixelSize(Hdf5Reader& file, const std::vector<std::string>& names,
                   ProjectionParts* parts) {
  for (const std::string& name : names) {
    const auto there = file.Exists(name);
    if (!there.ok() || !*there) continue;
    const auto values = file.Numbers(name);
    const std::string unit = file.TextAttribute(name, "units");
    const double um = MicrometresOf(unit);
    if (values.ok() && !values->empty() && um > 0) {
      const double size = (*values)[0] * um;
      if (size > 1e-5 && size < 1e5) {
        parts->pixel_size_um = size;
        return;
      }
    }
    const std::string value =
        values.ok() && !values->empty() ? absl::StrCat((*values)[0]) : "unreadable";
    parts->doubts.push_back(absl::StrCat(
        name, " is ", value, unit.empty() ? ", without a unit," : absl::StrCat(" '", unit, "',"),
        " no pixel size from 1e-5 to 1e5 um with a unit of length: it is left out. Give "
        "pixel_size_um."));
  }
}

/// A dataset of the name given, or "" for none: "-", or the default where it is not there.
absl::StatusOr<std::string> Optional(Hdf5Reader& file, const std::string& given,
                                     const std::string& usual) {
  if (given == "-") return std::string();
  if (!given.empty()) return given;
  OCTAVO_ASSIGN_OR_RETURN(const bool there, file.Exists(usual));
  return there ? usual : std::string();
}

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenDataExchange(
    const std::shared_ptr<Hdf5Reader>& file, const ProjectionOptions& options) {
  ProjectionParts parts;
  parts.path = file->path();
  parts.format = "data_exchange";
  const std::string data = options.projections.empty() ? "/exchange/data" : options.projections;
  OCTAVO_ASSIGN_OR_RETURN(parts.array[kProjection], file->Frames(data, /*flat=*/false));
  // All other fields assume the order "theta:y:x".
  const std::string axes = file->TextAttribute(data, "axes");
  if (!axes.empty() && !absl::StartsWith(axes, "theta:") && !absl::StartsWith(axes, "angle"))
    return BadProjections(parts.path, absl::StrCat(data, "@axes"), absl::StrCat("is '", axes, "'"),
                          "theta:y:x");
  if (axes.empty())
    (void)TellAxes(absl::StrCat(data,
                                " has no attribute axes, such as theta:y:x, which would say "
                                "what its axes are"),
                   &parts);
  OCTAVO_ASSIGN_OR_RETURN(const std::string flats,
                          Optional(*file, options.flats, "/exchange/data_white"));
  if (!flats.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(parts.array[kFlat], file->Frames(flats, /*flat=*/true));
  }
  OCTAVO_ASSIGN_OR_RETURN(const std::string darks,
                          Optional(*file, options.darks, "/exchange/data_dark"));
  if (!darks.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(parts.array[kDark], file->Frames(darks, /*flat=*/true));
  }
  if (options.angle_values.empty()) {
    parts.angles_dataset = options.angles.empty() ? "/exchange/theta" : options.angles;
    OCTAVO_ASSIGN_OR_RETURN(parts.angles, file->Numbers(parts.angles_dataset));
    parts.angle_unit = file->TextAttribute(parts.angles_dataset, "units");
  }
  if (options.projections.empty()) {
    const std::string detector = "/measurement/instrument/detector/";
    FindPixelSize(*file,
                  {detector + "actual_pixel_size_x", detector + "x_actual_pixel_size",
                   detector + "x_pixel_size", detector + "pixel_size_x", detector + "pixel_size"},
                  &parts);
  }
  return AssembleProjections(std::move(parts), options);
}

// -- Files that Octavo committed: one volume, and its metadata as text beside it

constexpr char kOwnVolume[] = "/volume", kOwnMetadata[] = "/octavo";

// HDF5 knows the dataset by all of these: volume, /volume, //volume, ./volume.
bool IsOwnVolume(const std::string& name) {
  return ("/" / std::filesystem::path(name).relative_path()).lexically_normal() == kOwnVolume;
}

absl::StatusOr<bool> IsCommitted(Hdf5Reader& file) {
  OCTAVO_ASSIGN_OR_RETURN(const bool volume, file.Exists(kOwnVolume));
  OCTAVO_ASSIGN_OR_RETURN(const bool metadata, file.Exists(kOwnMetadata));
  return volume && metadata;
}

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenCommitted(
    const std::shared_ptr<Hdf5Reader>& file, const ProjectionOptions& options) {
  ProjectionParts parts;
  parts.path = file->path();
  parts.format = "data_exchange";
  OCTAVO_ASSIGN_OR_RETURN(parts.array[kProjection], file->Frames(kOwnVolume, /*flat=*/false));
  OCTAVO_RETURN_IF_ERROR(TakeOwnMetadata(file->Text(kOwnMetadata), kOwnMetadata, &parts));
  if (options.angle_values.empty()) {
    if (options.angles.empty())
      return BadProjections(parts.path, "angles", "are not given",
                            "a dataset of angles, or their values");
    parts.angles_dataset = options.angles;
    OCTAVO_ASSIGN_OR_RETURN(parts.angles, file->Numbers(parts.angles_dataset));
    parts.angle_unit = file->TextAttribute(parts.angles_dataset, "units");
  }
  return AssembleProjections(std::move(parts), options);
}

// -- NXtomo

/// The datasets of one NXtomo entry.
struct TomoEntry {
  std::string path, data, image_key, control, rotation_angle, detector;
};

/// The first of the names that exists.
absl::StatusOr<std::string> FirstOf(Hdf5Reader& file, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    OCTAVO_ASSIGN_OR_RETURN(const bool there, file.Exists(name));
    if (there) return name;
  }
  return std::string();
}

/// Groups of `parent` with this NX_class; the one with the usual name first.
std::vector<std::string> OfClass(Hdf5Reader& file, const std::string& parent,
                                 const std::string& nx_class, const std::string& usual) {
  std::vector<std::string> found;
  for (const std::string& name : file.Groups(parent)) {
    const std::string path = absl::StrCat(parent == "/" ? "" : parent, "/", name);
    if (name == usual) {
      found.insert(found.begin(), path);
    } else if (file.TextAttribute(path, "NX_class") == nx_class) {
      found.push_back(path);
    }
  }
  return found;
}

/// Finds the parts of an NXtomo entry in a group. A group without data or image_key that is not
/// called NXtomo is no entry.
absl::StatusOr<std::optional<TomoEntry>> LookAt(Hdf5Reader& file, const std::string& group) {
  TomoEntry entry{.path = group};
  std::vector<std::string> places;
  for (const std::string& instrument : OfClass(file, group, "NXinstrument", "instrument")) {
    for (const std::string& detector : OfClass(file, instrument, "NXdetector", "detector"))
      places.push_back(detector);
  }
  for (const std::string& data : OfClass(file, group, "NXdata", "data")) places.push_back(data);
  std::vector<std::string> data_names, key_names, control_names, angle_names;
  for (const std::string& place : places) {
    key_names.push_back(place + "/image_key");
    control_names.push_back(place + "/image_key_control");
  }
  for (const std::string& sample : OfClass(file, group, "NXsample", "sample"))
    angle_names.push_back(sample + "/rotation_angle");
  for (const std::string& place : places) angle_names.push_back(place + "/rotation_angle");
  OCTAVO_ASSIGN_OR_RETURN(entry.image_key, FirstOf(file, key_names));
  OCTAVO_ASSIGN_OR_RETURN(entry.control, FirstOf(file, control_names));
  // Prefer the frames next to their keys, because an instrument may have several detectors.
  if (!entry.image_key.empty())
    data_names.push_back(entry.image_key.substr(0, entry.image_key.rfind('/')) + "/data");
  for (const std::string& place : places) data_names.push_back(place + "/data");
  OCTAVO_ASSIGN_OR_RETURN(entry.data, FirstOf(file, data_names));
  OCTAVO_ASSIGN_OR_RETURN(entry.rotation_angle, FirstOf(file, angle_names));
  const bool says_so = file.Text(group + "/definition") == "NXtomo";
  if (!says_so && (entry.image_key.empty() || entry.data.empty()))
    return std::optional<TomoEntry>();
  if (!places.empty())
    entry.detector = entry.data.empty() ? places[0] : entry.data.substr(0, entry.data.rfind('/'));
  if (entry.detector.empty()) entry.detector = group + "/instrument/detector";
  if (entry.data.empty()) entry.data = entry.detector + "/data";
  if (entry.image_key.empty()) entry.image_key = entry.detector + "/image_key";
  if (entry.rotation_angle.empty()) entry.rotation_angle = group + "/sample/rotation_angle";
  return std::optional(entry);
}

/// Entries, and subentries of entries, in alphabetical order.
absl::StatusOr<std::vector<TomoEntry>> FindEntries(Hdf5Reader& file) {
  std::vector<TomoEntry> found;
  for (const std::string& name : file.Groups("/")) {
    const std::string path = "/" + name;
    OCTAVO_ASSIGN_OR_RETURN(auto entry, LookAt(file, path));
    if (entry.has_value()) {
      found.push_back(*std::move(entry));
      continue;
    }
    for (const std::string& inner : OfClass(file, path, "NXsubentry", "tomo_entry")) {
      OCTAVO_ASSIGN_OR_RETURN(auto subentry, LookAt(file, inner));
      if (subentry.has_value()) found.push_back(*std::move(subentry));
    }
  }
  return found;
}

/// Sorts the frames by their keys: 0 projection, 1 flat, 2 dark, 3 invalid; control -1: alignment,
/// not used.
absl::Status SortFrames(const std::string& path, const TomoEntry& entry,
                        const std::vector<double>& keys, const std::vector<double>& control,
                        ProjectionParts* parts) {
  int64_t invalid = 0, alignment = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!control.empty() && control[i] == -1) {
      ++alignment;
    } else if (keys[i] == 3) {
      ++invalid;
    } else if (keys[i] == 0 || keys[i] == 1 || keys[i] == 2) {
      const auto before = static_cast<double>(parts->index[kProjection].size());
      if (keys[i] == 1) parts->flat_positions.push_back(before);
      if (keys[i] == 2) parts->dark_positions.push_back(before);
      parts->index[static_cast<size_t>(keys[i])].push_back(static_cast<int64_t>(i));
    } else {
      return BadProjections(path, entry.image_key, absl::StrCat("is ", keys[i], " at ", i),
                            "0 (projection), 1 (flat), 2 (dark), 3 (invalid)");
    }
  }
  if (invalid > 0)
    parts->notes.push_back(absl::StrCat(invalid, " frames are marked as invalid; left out"));
  if (alignment > 0)
    parts->notes.push_back(absl::StrCat(alignment, " frames are for alignment; left out"));
  if (!parts->index[kProjection].empty()) return absl::OkStatus();
  return BadProjections(path, entry.image_key, "marks no frame as a projection", "at least one 0");
}

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenNxTomo(const std::shared_ptr<Hdf5Reader>& file,
                                                            const TomoEntry& entry,
                                                            const ProjectionOptions& options,
                                                            std::vector<std::string> notes) {
  for (const auto& [name, given] :
       {std::pair("flats", &options.flats), std::pair("darks", &options.darks),
        std::pair("angles", &options.angles)}) {
    if (!given->empty() && !(*given == "-" && given != &options.angles))
      return BadProjections(file->path(), name, absl::StrCat("is '", *given, "'"),
                            "nothing: image_key and rotation_angle say it in an NXtomo");
  }
  ProjectionParts parts;
  parts.path = file->path();
  parts.format = "nxtomo";
  parts.notes = std::move(notes);
  parts.indexed = true;
  OCTAVO_ASSIGN_OR_RETURN(const auto frames, file->Frames(entry.data, /*flat=*/false));
  const auto one_per_frame = [&](const std::string& name, size_t count) -> absl::Status {
    if (static_cast<int64_t>(count) == frames->shape[0]) return absl::OkStatus();
    return BadProjections(file->path(), name, absl::StrCat("has ", count, " values"),
                          absl::StrCat(frames->shape[0], ", one per frame of ", entry.data));
  };
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<double> keys, file->Numbers(entry.image_key));
  OCTAVO_RETURN_IF_ERROR(one_per_frame(entry.image_key, keys.size()));
  std::vector<double> control;
  if (!entry.control.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(control, file->Numbers(entry.control));
    OCTAVO_RETURN_IF_ERROR(one_per_frame(entry.control, control.size()));
  }
  OCTAVO_RETURN_IF_ERROR(SortFrames(file->path(), entry, keys, control, &parts));
  if (options.flats == "-") parts.index[kFlat].clear(), parts.flat_positions.clear();
  if (options.darks == "-") parts.index[kDark].clear(), parts.dark_positions.clear();
  for (size_t k = 0; k < 3; ++k) {
    if (!parts.index[k].empty()) parts.array[k] = frames;
  }
  if (options.angle_values.empty()) {
    parts.angles_dataset = entry.rotation_angle;
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<double> angles, file->Numbers(entry.rotation_angle));
    OCTAVO_RETURN_IF_ERROR(one_per_frame(entry.rotation_angle, angles.size()));
    for (const int64_t i : parts.index[kProjection])
      parts.angles.push_back(angles[static_cast<size_t>(i)]);
    parts.angle_unit = file->TextAttribute(entry.rotation_angle, "units");
  }
  FindPixelSize(*file, {entry.detector + "/x_pixel_size"}, &parts);
  if (const std::string name = entry.detector + "/x_rotation_axis_pixel_position";
      file->Exists(name).value_or(false)) {
    const auto axis = file->Numbers(name);
    if (axis.ok() && axis->size() == 1 && axis->front() > 0 &&
        axis->front() < static_cast<double>(frames->shape[2])) {
      parts.axis_column = axis->front();
    } else {
      parts.doubts.push_back(absl::StrCat(
          name, " is ",
          axis.ok() && axis->size() == 1 ? absl::StrCat(axis->front()) : "not one number",
          ", no column of this detector (0 to ", frames->shape[2] - 1,
          "): it is left out, and the axis taken elsewhere."));
    }
  }
  return AssembleProjections(std::move(parts), options);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ProjectionInput>> OpenHdf5Projections(
    const UniqueFd& opened, const std::string& path, const ProjectionOptions& options) {
  OCTAVO_ASSIGN_OR_RETURN(const auto file, Hdf5Reader::Open(opened, path, options.roots));
  if (options.format != "nxtomo" &&
      (options.projections.empty() || IsOwnVolume(options.projections))) {
    OCTAVO_ASSIGN_OR_RETURN(const bool exchange, file->Exists("/exchange"));
    OCTAVO_ASSIGN_OR_RETURN(const bool committed, IsCommitted(*file));
    if (committed && !exchange) return OpenCommitted(file, options);
  }
  if (options.format == "data_exchange") return OpenDataExchange(file, options);
  if (options.format == "nxtomo" && !options.projections.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(const bool there, file->Exists(options.projections));
    std::optional<TomoEntry> entry;
    if (there) {
      OCTAVO_ASSIGN_OR_RETURN(entry, LookAt(*file, options.projections));
    }
    if (!entry.has_value())
      return BadProjections(path, options.projections, "is no NXtomo entry",
                            "a group with frames and their image_key");
    return OpenNxTomo(file, *entry, options, {});
  }
  if (options.format.empty()) {
    if (!options.projections.empty()) return OpenDataExchange(file, options);
    OCTAVO_ASSIGN_OR_RETURN(const bool exchange, file->Exists("/exchange"));
    if (exchange) return OpenDataExchange(file, options);
  }
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<TomoEntry> entries, FindEntries(*file));
  if (entries.empty()) {
    OCTAVO_RETURN_IF_ERROR(file->LeftOut());  // an entry may be in a place that was left out
    if (options.format == "nxtomo")
      return BadProjections(path, "/", "has no NXtomo entry",
                            "an entry with frames and their image_key");
    return BadProjections(path, "/", "has neither a group /exchange nor an NXtomo entry",
                          "Data Exchange, NXtomo, or other files with the names of their datasets");
  }
  std::vector<std::string> notes;
  if (entries.size() > 1)
    notes.push_back(absl::StrCat("of ", entries.size(), " NXtomo entries the first is read, ",
                                 entries.front().path));
  return OpenNxTomo(file, entries.front(), options, std::move(notes));
}

}  // namespace octavo::storage
