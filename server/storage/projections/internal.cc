#include "server/storage/projections/internal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"
#include "server/storage/io/files.h"

namespace octavo::storage {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr int64_t kMostFrames = 1 << 24, kMostExtent = 65536, kMostBytes = int64_t{1} << 46;

// The half-precision number with these bits (IEEE 754 binary16), exact.
float FromHalf(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

struct HalfBits {
  uint16_t bits;
  operator float() const {
    return FromHalf(bits);
  }  // NOLINT(google-explicit-constructor): reads as a number
};

template <class From, class To>
void Load(const char* in, bool swap, int64_t count, To* out) {
  for (int64_t i = 0; i < count; ++i) {
    char bytes[sizeof(From)];
    std::memcpy(bytes, in + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    if (swap) std::reverse(bytes, bytes + sizeof(From));
    From value;
    std::memcpy(&value, bytes, sizeof(From));
    if constexpr (std::is_same_v<From, HalfBits>) {
      out[i] = static_cast<To>(static_cast<float>(value));
    } else {
      out[i] = static_cast<To>(value);
    }
  }
}

template <class To>
void LoadAs(const char* in, const StoredType& type, int64_t count, To* out) {
  const auto load = [&]<class From>(From) { Load<From>(in, type.big_endian, count, out); };
  using Kind = StoredType::Kind;
  switch (type.bytes) {
    case 1: type.kind == Kind::kSigned ? load(int8_t{}) : load(uint8_t{}); return;
    case 2:
      type.kind == Kind::kFloat    ? load(HalfBits{})
      : type.kind == Kind::kSigned ? load(int16_t{})
                                   : load(uint16_t{});
      return;
    case 4:
      type.kind == Kind::kFloat    ? load(float{})
      : type.kind == Kind::kSigned ? load(int32_t{})
                                   : load(uint32_t{});
      return;
    default:
      type.kind == Kind::kFloat    ? load(double{})
      : type.kind == Kind::kSigned ? load(int64_t{})
                                   : load(uint64_t{});
      return;
  }
}

std::string Shape(const FrameArray& a) {
  return absl::StrCat("[", a.shape[0], ", ", a.shape[1], ", ", a.shape[2], "]");
}

/// The unit assumed for the file's angles, if it differs from the declared one.
void NoteUnit(const ProjectionOptions& options, ProjectionParts* parts) {
  if (!options.angle_values.empty()) return;
  const bool declared = !parts->angle_unit.empty();
  const char* const asked = options.angle_unit == AngleUnit::kRadians ? "radians" : "degrees";
  const std::string says =
      declared ? absl::StrCat(" declares the unit '", parts->angle_unit, "'") : " declares no unit";
  if (options.angle_unit != AngleUnit::kDeclared) {
    parts->notes.push_back(
        absl::StrCat(parts->angles_dataset, says, "; taken as ", asked, ", as the request says"));
  } else if (!declared) {
    parts->notes.push_back(absl::StrCat(parts->angles_dataset, says, "; taken as degrees"));
  }
}

/// The arrays of a file and the frames that each kind takes from them.
class ArrayProjections final : public ProjectionInput {
 public:
  ArrayProjections(ProjectionInfo info, ProjectionParts parts)
      : ProjectionInput(std::move(info)), parts_(std::move(parts)) {}

  int64_t row_granularity() const override { return parts_.array[0]->row_granularity; }

 private:
  absl::Status ReadInside(const ProjectionBox& box, void* out) override {
    const auto kind = static_cast<size_t>(box.kind);
    const std::vector<int64_t>& index = parts_.index[kind];
    auto* to = static_cast<char*>(out);
    for (int64_t i = 0; i < box.frames;) {
      int64_t first = box.first_frame + i, run = box.frames - i;
      if (parts_.indexed) {  // as many frames as are consecutive in the file
        const auto at = static_cast<size_t>(first);
        run = 1;
        while (i + run < box.frames && index[at + static_cast<size_t>(run)] == index[at] + run)
          ++run;
        first = index[at];
      }
      const int64_t start[3] = {first, box.first_row, box.first_column},
                    count[3] = {run, box.rows, box.columns};
      OCTAVO_RETURN_IF_ERROR(parts_.array[kind]->Read(start, count, info_.dtype, to));
      to += run * box.rows * box.columns * SizeOf(info_.dtype);
      i += run;
    }
    return absl::OkStatus();
  }

  const ProjectionParts parts_;
};

absl::Status CheckPositions(const ProjectionInfo& info, const std::string& what,
                            const std::vector<double>& positions, int64_t frames) {
  if (positions.empty()) return absl::OkStatus();
  if (std::ssize(positions) != frames) {
    return BadProjections(info.path, what, absl::StrCat("has ", positions.size(), " values"),
                          absl::StrCat(frames, ", one per frame"));
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] >= 0 && positions[i] <= static_cast<double>(info.projections))
      continue;  // not NaN
    return BadProjections(info.path, what, absl::StrCat("is ", positions[i], " at ", i),
                          absl::StrCat("0 to ", info.projections));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<double> RadiansOf(absl::string_view unit) {
  const std::string u = absl::AsciiStrToLower(absl::StripAsciiWhitespace(unit));
  if (u.empty() || u == "deg" || u == "degs" || u == "degree" || u == "degrees" || u == "\xC2\xB0")
    return std::numbers::pi / 180;
  if (u == "rad" || u == "rads" || u == "radian" || u == "radians") return 1;
  if (u == "mrad" || u == "milliradian" || u == "milliradians") return 1e-3;
  return std::nullopt;
}

std::string StoredType::Name() const {
  const char* letter = kind == Kind::kUnsigned ? "u" : kind == Kind::kSigned ? "i" : "f";
  return absl::StrCat(letter, 8 * bytes, big_endian && bytes > 1 ? ", big-endian" : "");
}

DType StoredType::Loaded() const {
  if (kind == Kind::kUnsigned && bytes == 1) return DType::kU8;
  if (kind == Kind::kUnsigned && bytes == 2) return DType::kU16;
  if (kind == Kind::kSigned && bytes == 2) return DType::kI16;
  return DType::kF32;
}

bool StoredType::IsAs(DType dtype) const { return dtype == Loaded() && Name() == Info(dtype).name; }

std::optional<StoredType> StoredType::FromNumpy(absl::string_view code) {
  if (code.size() != 2) return std::nullopt;
  StoredType type{.bytes = code[1] - '0'};
  if (code[0] == 'u') {
    type.kind = Kind::kUnsigned;
  } else if (code[0] == 'i') {
    type.kind = Kind::kSigned;
  } else if (code[0] != 'f' || type.bytes == 1) {
    return std::nullopt;
  }
  if (type.bytes != 1 && type.bytes != 2 && type.bytes != 4 && type.bytes != 8) return std::nullopt;
  return type;
}

std::optional<StoredType> StoredType::FromZarr(absl::string_view name) {
  const size_t digits = name.find_first_of("0123456789");
  int bits = 0;
  if (digits == absl::string_view::npos || !absl::SimpleAtoi(name.substr(digits), &bits) ||
      bits % 8 != 0 || bits > 64)
    return std::nullopt;
  const absl::string_view kind = name.substr(0, digits);
  const char* letter = kind == "uint" ? "u" : kind == "int" ? "i" : kind == "float" ? "f" : "?";
  return FromNumpy(absl::StrCat(letter, bits / 8));
}

void LoadNumbers(const char* in, const StoredType& type, int64_t count, DType dtype, char* out) {
  if (dtype == DType::kF32) {
    if (type.kind == StoredType::Kind::kFloat && type.bytes == 4 && !type.big_endian) {
      std::memcpy(out, in, static_cast<size_t>(4 * count));
    } else {
      LoadAs(in, type, count, reinterpret_cast<float*>(out));
    }
  } else if (!type.big_endian || type.bytes == 1) {
    std::memcpy(out, in, static_cast<size_t>(type.bytes * count));
  } else {
    Load<uint16_t>(in, /*swap=*/true, count,
                   reinterpret_cast<uint16_t*>(out));  // u16 and i16: the same bits
  }
}

std::vector<double> LoadDoubles(const char* in, const StoredType& type, int64_t count) {
  std::vector<double> out(static_cast<size_t>(count));
  LoadAs(in, type, count, out.data());
  return out;
}

absl::Status CheckFrameShape(const std::string& path, const FrameArray& a) {
  const bool each = a.shape[0] >= 1 && a.shape[0] <= kMostFrames && a.shape[1] >= 1 &&
                    a.shape[1] <= kMostExtent && a.shape[2] >= 1 && a.shape[2] <= kMostExtent;
  if (each && a.shape[0] <= kMostBytes / 8 / a.shape[1] / a.shape[2]) return absl::OkStatus();
  return BadProjections(
      path, a.dataset, absl::StrCat("has the shape ", Shape(a)),
      absl::StrCat("1 to ", kMostFrames, " frames of 1 to ", kMostExtent, " rows and columns"));
}

bool TellAxes(const std::string& unsaid, ProjectionParts* parts) {
  const FrameArray& array = *parts->array[0];
  const int64_t angles = array.shape[0];
  const std::string taken = absl::StrCat(unsaid, "; taken as [angle, row, column]");
  if (angles < 2) return false;
  if (angles == array.shape[1]) {
    parts->doubts.push_back(absl::StrCat(
        taken,
        ". It has as many angles as rows: of sinograms [row, angle, column], as Octavo "
        "writes them, the result is wrong; swap the first two axes of such."));
  } else if (angles == array.shape[2]) {
    parts->notes.push_back(absl::StrCat(taken, ", of which it has as many angles as columns"));
  } else {
    return false;
  }
  return true;
}

absl::StatusOr<std::shared_ptr<ProjectionInput>> AssembleProjections(
    ProjectionParts parts, const ProjectionOptions& options) {
  const std::string& path = parts.path;
  const FrameArray& data = *parts.array[0];
  ProjectionInfo info{.path = path,
                      .format = parts.format,
                      .dtype = data.type.Loaded(),
                      .stored_type = data.type.Name(),
                      .angles_rad = {}};
  info.rows = data.shape[1];
  info.columns = data.shape[2];
  if (info.columns < 2)
    return BadProjections(path, data.dataset, absl::StrCat("has the shape ", Shape(data)),
                          "at least 2 columns");
  int64_t frames[3] = {0, 0, 0};
  for (size_t k = 0; k < 3; ++k) {
    if (parts.array[k] == nullptr) continue;
    const FrameArray& a = *parts.array[k];
    OCTAVO_RETURN_IF_ERROR(CheckFrameShape(path, a));
    if (a.shape[1] != info.rows || a.shape[2] != info.columns) {
      return BadProjections(
          path, a.dataset,
          absl::StrCat("has frames of ", a.shape[1], " rows and ", a.shape[2], " columns"),
          absl::StrCat(info.rows, " and ", info.columns, ", as ", data.dataset, " has"));
    }
    if (a.type.Loaded() != info.dtype) info.dtype = DType::kF32;
    frames[k] = parts.indexed ? std::ssize(parts.index[k]) : a.shape[0];
  }
  info.projections = frames[0];
  info.flats = frames[1];
  info.darks = frames[2];

  NoteUnit(options, &parts);
  std::string where = parts.angles_dataset;
  if (!options.angle_values.empty()) {
    parts.angles = options.angle_values;
    parts.angle_unit.clear();
    where = "angles_rad";
  }
  if (std::ssize(parts.angles) != info.projections) {
    const auto angles = std::ssize(parts.angles);
    const char* const other = angles == info.rows      ? "row"
                              : angles == info.columns ? "column"
                                                       : nullptr;
    return BadProjections(
        path, where, absl::StrCat("has ", angles, " values"),
        absl::StrCat(
            info.projections, ", one per projection of ", data.dataset,
            ", whose axes are taken as [angle, row, column]",
            other == nullptr
                ? ""
                : absl::StrCat("; as many as it has ", other,
                               "s: if that axis is the one of the angles, make it the first")));
  }
  std::optional<double> unit;
  switch (options.angle_unit) {
    case AngleUnit::kDegrees: unit = std::numbers::pi / 180; break;
    case AngleUnit::kRadians: unit = 1; break;
    case AngleUnit::kDeclared: unit = RadiansOf(parts.angle_unit); break;
  }
  if (!unit.has_value())
    return BadProjections(path, absl::StrCat(where, "@units"),
                          absl::StrCat("is '", parts.angle_unit, "'"), "degrees or radians");
  for (size_t i = 0; i < parts.angles.size(); ++i) {
    if (!std::isfinite(parts.angles[i]))
      return BadProjections(path, where, absl::StrCat("is ", parts.angles[i], " at ", i),
                            "finite angles");
    info.angles_rad.push_back(parts.angles[i] * *unit);
  }
  const auto taken = [](const std::vector<double>& given, const std::vector<double>& found) {
    return given.empty() ? found : given;
  };
  info.flat_positions = taken(options.flat_positions, parts.flat_positions);
  info.dark_positions = taken(options.dark_positions, parts.dark_positions);
  OCTAVO_RETURN_IF_ERROR(CheckPositions(info, "flat_positions", info.flat_positions, info.flats));
  OCTAVO_RETURN_IF_ERROR(CheckPositions(info, "dark_positions", info.dark_positions, info.darks));
  info.angle_unit_assumed = options.angle_unit == AngleUnit::kDeclared && parts.angle_unit.empty();
  info.quantity = parts.quantity;
  info.pixel_size_um = parts.pixel_size_um;
  info.axis_column = parts.axis_column;
  info.notes = parts.notes;
  info.doubts = parts.doubts;
  if (info.dtype == DType::kF32 && info.stored_type != "f32")
    info.notes.push_back(absl::StrCat("read as f32 (stored as ", info.stored_type, ")"));
  return std::make_shared<ArrayProjections>(std::move(info), std::move(parts));
}

}  // namespace octavo::storage
