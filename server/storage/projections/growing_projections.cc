#include "server/storage/projections/growing_projections.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/crc32c.h"
#include "server/storage/io/errno_status.h"
#include "server/storage/io/files.h"
#include "server/storage/projections/growing_array.h"

namespace octavo::storage {
namespace {

// Values that are read in one look to see whether they are written.
constexpr int64_t kValueBytes = int64_t{256} << 20;
// How long the last frame that has begun must stay as it is.
constexpr std::chrono::seconds kSettle{1};
// How often frames that were read are read again.
constexpr std::chrono::seconds kCheckEvery{1};
// Of a frame, as the server takes them.
constexpr int64_t kMostRows = 65535, kMostColumns = 32768;

template <class T>
bool AllAre(const char* bytes, int64_t count, double fill) {
  const T wanted = static_cast<T>(fill);
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if (value != wanted && !(std::isnan(fill) && value != value)) return false;
  }
  return true;
}

bool AllAre(DType dtype, const char* bytes, int64_t count, double fill) {
  switch (dtype) {
    case DType::kU8: return AllAre<uint8_t>(bytes, count, fill);
    case DType::kU16: return AllAre<uint16_t>(bytes, count, fill);
    case DType::kI16: return AllAre<int16_t>(bytes, count, fill);
    default: return AllAre<float>(bytes, count, fill);
  }
}

// How many of `count` values are the fill value.
int64_t Unwritten(DType dtype, const char* bytes, int64_t count, double fill) {
  int64_t unwritten = 0;
  for (int64_t i = 0; i < count; ++i)
    unwritten += AllAre(dtype, bytes + i * SizeOf(dtype), 1, fill) ? 1 : 0;
  return unwritten;
}

// How many of the values are written.
int64_t Written(const std::vector<double>& values, double fill) {
  const int64_t size = std::ssize(values);
  const auto at = [&](int64_t i) { return values[static_cast<size_t>(i)]; };
  int64_t written = size;
  while (written > 0 &&
         (at(written - 1) == fill || (std::isnan(fill) && std::isnan(at(written - 1)))))
    --written;
  constexpr double kPartOfStep = 0.01;
  if (written >= 2 && written == size - 1) {
    const double step = at(written - 1) - at(written - 2), next = fill - at(written - 1);
    if (step != 0 && std::abs(next - step) <= kPartOfStep * std::abs(step)) ++written;
  }
  return written;
}

}  // namespace

uint64_t Mixed(uint64_t hash, uint64_t number) {
  hash ^= number + 0x9E3779B97F4A7C15U + (hash << 6) + (hash >> 2);
  hash *= 0xBF58476D1CE4E5B9U;  // of SplitMix64
  return hash ^ hash >> 31;
}

std::optional<uint64_t> GrowingArray::EvidenceOfValues(int64_t frame, double fill,
                                                       std::string* lacks) {
  const auto values = Values(frame);
  if (!values.ok()) {
    *lacks = std::string(values.status().message());
    return std::nullopt;
  }
  if (AllAre(type.Loaded(), values->data(), shape[1] * shape[2], fill)) {
    *lacks = absl::StrCat("frame ", frame, " of ", dataset, " holds nothing but the fill value ",
                          fill, ", so it does not count as written");
    return std::nullopt;
  }
  return Mixed(1, Crc32c(values->data(), values->size()));
}

absl::StatusOr<std::vector<char>> GrowingArray::Values(int64_t frame) {
  const DType dtype = type.Loaded();
  const int64_t start[3] = {frame, 0, 0}, count[3] = {1, shape[1], shape[2]};
  std::vector<char> values(static_cast<size_t>(shape[1] * shape[2] * SizeOf(dtype)));
  OCTAVO_RETURN_IF_ERROR(Read(start, count, dtype, values.data()));
  return values;
}

std::string GrowingArray::SeemsHalfWritten(int64_t frame, const std::vector<char>& values) {
  const DType dtype = type.Loaded();
  const int64_t row_bytes = shape[2] * SizeOf(dtype);
  std::vector<int64_t> empty;
  for (int64_t row = 0; row < shape[1]; ++row) {
    if (AllAre(dtype, values.data() + row * row_bytes, shape[2], fill())) empty.push_back(row);
  }
  // The first frame has none to compare with. A frame of nothing but the fill value has been judged
  // by its evidence.
  if (frame == 0 || empty.empty() || std::ssize(empty) == shape[1]) return "";
  const auto before = Values(frame - 1);
  if (!before.ok()) return std::string(before.status().message());
  int64_t unwritten = 0;
  for (const int64_t row : empty)
    unwritten += Unwritten(dtype, before->data() + row * row_bytes, shape[2], fill());
  // Rows that were mostly empty in the frame before may stay empty, as beside the beam.
  constexpr double kMostlyEmpty = 0.5;
  if (static_cast<double>(unwritten) >
      kMostlyEmpty * static_cast<double>(std::ssize(empty) * shape[2]))
    return "";
  return absl::StrCat(empty.size(), " of ", shape[1], " rows of frame ", frame, " of ", dataset,
                      ", the first is ", empty.front(), ", hold nothing but the fill value ",
                      fill(), ", unlike those of frame ", frame - 1,
                      ": it counts as half written until a later frame is there");
}

void GrowingArray::LimitWindow() {
  // Extents that a file names may be too large for a product; frames of them are refused later.
  const int64_t pixels = kValueBytes / std::max<int64_t>(1, type.bytes),
                rows = pixels / std::max<int64_t>(1, shape[2]);
  window = std::clamp<int64_t>(rows / std::max<int64_t>(1, shape[1]), 1, window);
}

GrowingProjections::GrowingProjections(std::string path, ProjectionOptions options)
    : path_(std::move(path)), options_(std::move(options)) {}

GrowingProjections::~GrowingProjections() = default;

bool GrowingProjections::Wants(FrameKind kind) const {
  return kind == FrameKind::kProjection ||
         (kind == FrameKind::kFlat ? options_.flats : options_.darks) != "-";
}

bool GrowingProjections::HasTaken() const {
  return (WantsAngles() && !angles_.empty()) ||
         std::any_of(frames_.begin(), frames_.end(),
                     [](const GrowingFrames& frames) { return frames.whole > 0; });
}

void GrowingProjections::Forget() {
  frames_ = {};
  evidence_ = {};
  last_ = taken_last_ = {};
  read_ = {};
  before_.clear();
  angles_.clear();
  planned_angles_.reset();
  angles_dataset_.clear();
}

absl::StatusOr<std::unique_ptr<GrowingProjections>> GrowingProjections::Open(
    const std::string& path, const ProjectionOptions& options) {
  if (absl::EndsWith(path, ".npy")) {
    return BadProjections(path, "the file",
                          "is .npy, whose header says how long it is from the first",
                          "HDF5, Zarr, or a folder of TIFF files, which can grow");
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return absl::UnavailableError(absl::StrCat(path, " is not there yet"));
    return ErrnoStatus(errno, "examining", path);
  }
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode))
    return BadProjections(path, "the path", "is no regular file", "files and folders");
  if (!S_ISDIR(info.st_mode)) {
    if (IsTiffName(path) || absl::EndsWithIgnoreCase(path, ".btf")) {
      return BadProjections(path, "the file", "is a single file of TIFF",
                            "HDF5, Zarr, or a folder of TIFF files, one for each projection");
    }
    return FollowHdf5(path, options);
  }
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == "zarr.json" || name == ".zarray" || name == ".zgroup")
      return FollowZarr(path, options);
    if (name[0] != '.' && IsTiffName(name)) return FollowTiff(path, options);
  }
  if (error)
    return absl::UnavailableError(absl::StrCat(path, " cannot be listed: ", error.message()));
  return absl::UnavailableError(
      absl::StrCat(path, " has neither metadata of Zarr nor files *.tif yet"));
}

absl::Status GrowingProjections::Look() {
  OCTAVO_RETURN_IF_ERROR(Open());
  const bool check = Clock::now() - checked_ >= kCheckEvery;
  if (check) checked_ = Clock::now();
  for (const FrameKind kind : {FrameKind::kProjection, FrameKind::kFlat, FrameKind::kDark}) {
    if (!Wants(kind)) continue;
    OCTAVO_RETURN_IF_ERROR(Follow(kind));
    if (!check) continue;
    for (const Kept& kept : read_[static_cast<size_t>(kind)])
      OCTAVO_RETURN_IF_ERROR(CheckKept(kind, kept));
  }
  return FollowAngles();
}

absl::Status GrowingProjections::Follow(FrameKind kind) {
  GrowingArray* const array = arrays_[static_cast<size_t>(kind)].get();
  GrowingFrames& frames = frames_[static_cast<size_t>(kind)];
  if (array == nullptr) {
    if (!frames.there) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(path_, " has no ", frames.dataset, " now"));
  }
  const int64_t extent = array->shape[0], rows = array->shape[1], columns = array->shape[2];
  if (frames.there && (rows != frames.rows || columns != frames.columns ||
                       array->type.Loaded() != frames.dtype || extent < frames.whole)) {
    return BadProjections(
        path_, frames.dataset,
        absl::StrCat("now has ", extent, " frames of ", rows, " x ", columns, ", ",
                     array->type.Name(), "; another scan has taken its place"),
        absl::StrCat("at least ", frames.whole, " frames of ", frames.rows, " x ", frames.columns,
                     ", ", Info(frames.dtype).name, ", as before"));
  }
  if (rows < 1 || rows > kMostRows || columns < 2 || columns > kMostColumns)
    return BadProjections(
        path_, array->dataset,
        absl::StrCat("has frames of ", rows, " rows and ", columns, " columns"),
        absl::StrCat("1 to ", kMostRows, " rows and 2 to ", kMostColumns, " columns"));
  frames.there = true;
  frames.dataset = array->dataset;
  frames.dtype = array->type.Loaded();
  frames.rows = rows;
  frames.columns = columns;
  frames.extent = extent;
  frames.planned = array->planned;
  frames.lacks.clear();
  frames.settles = false;
  OCTAVO_RETURN_IF_ERROR(CheckTaken(kind));
  std::map<int64_t, uint64_t>& last = evidence_[static_cast<size_t>(kind)];
  std::map<int64_t, uint64_t> now;
  // One more than are taken tells whether the last of these is followed by another.
  const int64_t end = std::min(extent, frames.whole + array->window + 1);
  for (int64_t frame = frames.whole; frame < end; ++frame) {
    const auto evidence = array->Evidence(frame, &frames.lacks);
    if (!evidence.has_value()) break;
    now[frame] = *evidence;
  }
  for (const auto& [frame, evidence] : now) {
    const auto before = last.find(frame);
    if (before == last.end() || before->second != evidence) break;
    if (frame == now.rbegin()->first && !Settled(kind, frame)) break;
    ++frames.whole;
  }
  last = std::move(now);
  return absl::OkStatus();
}

bool GrowingProjections::Settled(FrameKind kind, int64_t frame) {
  GrowingArray& array = *arrays_[static_cast<size_t>(kind)];
  GrowingFrames& frames = frames_[static_cast<size_t>(kind)];
  frames.settles = false;
  const auto values = array.Values(frame);
  if (!values.ok()) {
    frames.lacks = std::string(values.status().message());
    return false;
  }
  if (std::string half = array.SeemsHalfWritten(frame, *values); !half.empty()) {
    frames.lacks = std::move(half);
    return false;
  }
  frames.settles = true;
  const uint64_t sum = Crc32c(values->data(), values->size());
  Last& last = last_[static_cast<size_t>(kind)];
  const Clock::time_point now = Clock::now();
  if (last.frame != frame || last.sum != sum) last = {.frame = frame, .sum = sum, .since = now};
  if (now - last.since < kSettle) return false;
  frames.settles = false;
  taken_last_[static_cast<size_t>(kind)] = last;
  return true;
}

absl::Status GrowingProjections::CheckTaken(FrameKind kind) {
  const GrowingFrames& frames = frames_[static_cast<size_t>(kind)];
  Last& taken = taken_last_[static_cast<size_t>(kind)];
  if (taken.frame < 0) return absl::OkStatus();
  const auto values = arrays_[static_cast<size_t>(kind)]->Values(taken.frame);
  if (!values.ok()) return absl::OkStatus();  // the next look may read it
  if (Crc32c(values->data(), values->size()) != taken.sum) {
    // In another scan the first frame is another one, too.
    const Kept& first = read_[static_cast<size_t>(kind)][0];
    if (first.frame != taken.frame) OCTAVO_RETURN_IF_ERROR(CheckKept(kind, first));
    return BadProjections(
        path_, absl::StrCat("frame ", taken.frame, " of ", frames.dataset),
        "has changed after it was taken: it was half-written for longer than a second",
        "frames that are written without a pause, or the whole of each before the next");
  }
  if (taken.frame < frames.whole - 1) taken.frame = -1;  // the one behind it has begun
  return absl::OkStatus();
}

absl::Status GrowingProjections::CheckKept(FrameKind kind, const Kept& kept) {
  GrowingArray* const array = arrays_[static_cast<size_t>(kind)].get();
  const GrowingFrames& frames = frames_[static_cast<size_t>(kind)];
  if (kept.frame < 0 || array == nullptr) return absl::OkStatus();
  const int64_t start[3] = {kept.frame, 0, 0}, count[3] = {1, frames.rows, frames.columns};
  std::vector<char> values(static_cast<size_t>(frames.rows * frames.columns * SizeOf(kept.dtype)));
  // The next look may read it.
  if (!array->Read(start, count, kept.dtype, values.data()).ok()) return absl::OkStatus();
  if (Crc32c(values.data(), values.size()) == kept.sum) return absl::OkStatus();
  return BadProjections(
      path_, absl::StrCat("frame ", kept.frame, " of ", frames.dataset),
      "has changed after it was read: another scan is written in its place, or it was half written",
      "files whose frames stay as they are once they are written; a new scan in a new file");
}

absl::Status GrowingProjections::FollowAngles() {
  if (!WantsAngles()) {
    angles_dataset_ = "the given angles";
    const double unit = options_.angle_unit == AngleUnit::kRadians ? 1 : M_PI / 180;
    for (size_t i = angles_.size(); i < options_.angle_values.size(); ++i)
      angles_.push_back(options_.angle_values[i] * unit);
    planned_angles_ = std::ssize(angles_);
    return absl::OkStatus();
  }
  if (!found_.has_value()) return absl::OkStatus();
  const std::vector<double>& values = found_->values;
  angles_dataset_ = found_->dataset;
  std::optional<double> unit;
  switch (options_.angle_unit) {
    case AngleUnit::kDegrees: unit = M_PI / 180; break;
    case AngleUnit::kRadians: unit = 1; break;
    case AngleUnit::kDeclared: unit = RadiansOf(found_->unit); break;
  }
  if (!unit.has_value())
    return BadProjections(path_, absl::StrCat(angles_dataset_, "@units"),
                          absl::StrCat("is '", found_->unit, "'"), "degrees or radians");
  if (found_->fixed) planned_angles_ = std::ssize(values);
  const int64_t written = std::min(Written(values, found_->fill), Written(before_, found_->fill));
  for (int64_t i = std::ssize(angles_); i < written; ++i) {
    const double value = values[static_cast<size_t>(i)], before = before_[static_cast<size_t>(i)];
    if (before != value && !(std::isnan(before) && std::isnan(value))) break;
    if (!std::isfinite(value))
      return BadProjections(path_, angles_dataset_, absl::StrCat("is ", value, " at ", i),
                            "finite angles");
    angles_.push_back(value * *unit);
  }
  before_ = values;
  return absl::OkStatus();
}

absl::Status GrowingProjections::Read(FrameKind kind, int64_t frame, DType dtype, char* out) {
  const GrowingFrames& frames = frames_[static_cast<size_t>(kind)];
  GrowingArray* const array = arrays_[static_cast<size_t>(kind)].get();
  if (array == nullptr || frame < 0 || frame >= frames.whole)
    return absl::InvalidArgumentError(
        absl::StrCat(Name(kind), " frame ", frame, "; ", frames.whole, " are written"));
  const int64_t start[3] = {frame, 0, 0}, count[3] = {1, frames.rows, frames.columns};
  OCTAVO_RETURN_IF_ERROR(array->Read(start, count, dtype, out));
  const auto bytes = static_cast<size_t>(frames.rows * frames.columns * SizeOf(dtype));
  const Kept kept{.frame = frame, .dtype = dtype, .sum = Crc32c(out, bytes)};
  auto& [first, last] = read_[static_cast<size_t>(kind)];
  if (first.frame < 0) first = kept;
  last = kept;
  return absl::OkStatus();
}

}  // namespace octavo::storage
