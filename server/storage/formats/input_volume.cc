#include "server/storage/formats/input_volume.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "server/base/array_box.h"
#include "server/base/errors.h"
#include "server/storage/formats/writer.h"

namespace octavo::storage {
namespace {

// Planes that are read together where reading few would mean to read far more of the file.
constexpr int64_t kGranuleBytes = 256 << 20;

bool IsSpatial(const std::string& name) { return name == "x" || name == "y" || name == "z"; }

/// Programs write the axes' letters in both cases.
std::string AxisNamed(const std::string& name) {
  return name.size() == 1 ? absl::AsciiStrToLower(name) : name;
}

template <class T>
void CopyStrided(const char* in, const int64_t strides[3], const int64_t counts[3], char* out) {
  const auto* from = reinterpret_cast<const T*>(in);
  auto* to = reinterpret_cast<T*>(out);
  for (int64_t i = 0; i < counts[0]; ++i) {
    for (int64_t j = 0; j < counts[1]; ++j) {
      const T* row = from + i * strides[0] + j * strides[1];
      for (int64_t k = 0; k < counts[2]; ++k) *to++ = row[k * strides[2]];
    }
  }
}

/// Whether a conversion may clip numbers, which Load counts: to a type that does not hold all
/// numbers of the other, or to a float from numbers that are scaled.
bool MayClip(const ElementType& from, DType to, double scale, double shift) {
  using Kind = ElementType::Kind;
  const ElementType made = ElementTypeOf(to);
  const bool scaled = scale != 1 || shift != 0, integer = IsInteger(to);
  if (made == from && !scaled) return false;
  if (integer) {
    // A larger type of the same kind, or a larger signed one, has room for an integer.
    const bool room =
        made.bytes > from.bytes && (made.kind == from.kind || made.kind == Kind::kSigned);
    return scaled || from.kind == Kind::kFloat || from.kind == Kind::kComplex || !room;
  }
  // The largest integers are below 2^64.
  constexpr double kMost = 1e18;
  const bool from_integer = from.kind == Kind::kUnsigned || from.kind == Kind::kSigned;
  if (from_integer) return to == DType::kF16 || std::abs(scale) > kMost || std::abs(shift) > kMost;
  return scaled || made.number_bytes() < from.number_bytes();
}

struct Sixteen {
  uint64_t words[2];
};

void Reorder(const char* in, int64_t size, const int64_t strides[3], const int64_t counts[3],
             char* out) {
  switch (size) {
    case 1: return CopyStrided<uint8_t>(in, strides, counts, out);
    case 2: return CopyStrided<uint16_t>(in, strides, counts, out);
    case 4: return CopyStrided<uint32_t>(in, strides, counts, out);
    case 8: return CopyStrided<uint64_t>(in, strides, counts, out);
    default: return CopyStrided<Sixteen>(in, strides, counts, out);
  }
}

}  // namespace

/// Works out plan and metadata from what the file and the caller say.
class InputVolume::Planner {
 public:
  Planner(const VolumeInputInfo& info, const InputVolumeOptions& options)
      : info_(info), options_(options) {}

  absl::Status Make() {
    if (info_.octavo.has_value()) meta = *info_.octavo;
    meta.digest = info_.octavo.has_value() ? info_.octavo->digest : "";
    OCTAVO_RETURN_IF_ERROR(NameAxes());
    OCTAVO_RETURN_IF_ERROR(SelectOthers());
    OCTAVO_RETURN_IF_ERROR(OrderAxes());
    OCTAVO_RETURN_IF_ERROR(ChooseType());
    OCTAVO_RETURN_IF_ERROR(Crop());
    if (!info_.octavo.has_value()) Describe();
    if (changed_) meta.digest.clear();
    return ResolveOptions({}, meta).status();  // checks the shape
  }

  VolumeMeta meta;
  Plan plan;

 private:
  std::string Field(const std::string& option) const { return options_.field_prefix + option; }

  absl::Status NameAxes() {
    if (!options_.axes.empty() && options_.axes.size() != info_.axes.size())
      return FieldNotAllowed(Field("axes"),
                             absl::StrCat("a list of ", options_.axes.size(), " names"),
                             absl::StrCat(info_.axes.size(), " names, for the extents ",
                                          absl::StrJoin(info_.shape(), ", ")));
    for (size_t d = 0; d < info_.axes.size(); ++d) {
      const bool given = !options_.axes.empty() && !options_.axes[d].empty();
      names_.push_back(AxisNamed(given ? options_.axes[d] : info_.axes[d].name));
      const std::string& name = names_.back();
      if (const std::string in_file = AxisNamed(info_.axes[d].name);
          given && !in_file.empty() && in_file != name)
        plan.doubts.push_back(absl::StrCat("The axis of ", info_.axes[d].extent,
                                           " samples is taken as '", name,
                                           "' (axes); the file calls it '", in_file, "'."));
      if (name.empty() && info_.axes[d].extent == 1) continue;
      if (name.empty())
        return InvalidField(
            Field("axes"),
            absl::StrCat("is missing: the file does not name its axis ", d, " of the extents ",
                         absl::StrJoin(info_.shape(), ", "),
                         "; allowed are names for all axes: x, y, z, and others for the rest"));
      if (std::count(names_.begin(), names_.end(), name) > 1)
        return FieldNotAllowed(Field("axes"), absl::StrCat("'", name, "' twice"), "each name once");
    }
    return absl::OkStatus();
  }

  absl::Status SelectOthers() {
    plan.start.assign(names_.size(), 0);
    std::set<std::string> selected;
    for (const auto& [given, index] : options_.select) {
      const std::string name = AxisNamed(given);
      const auto found = std::find(names_.begin(), names_.end(), name);
      if (found == names_.end() || IsSpatial(name))
        return FieldNotAllowed(
            Field("select"), absl::StrCat("for the axis '", name, "'"),
            absl::StrCat("the axes besides x, y, z of ", absl::StrJoin(names_, ", ")));
      const auto d = static_cast<size_t>(found - names_.begin());
      OCTAVO_RETURN_IF_ERROR(
          InRange(Field(absl::StrCat("select.", name)), index, 0, info_.axes[d].extent - 1));
      plan.start[d] = index;
      selected.insert(name);
    }
    for (size_t d = 0; d < names_.size(); ++d) {
      if (!IsSpatial(names_[d]) && info_.axes[d].extent > 1 && selected.count(names_[d]) == 0)
        return InvalidField(Field(absl::StrCat("select.", names_[d])),
                            absl::StrCat("is missing: a volume has the axes x, y, z; allowed 0 to ",
                                         info_.axes[d].extent - 1));
    }
    return absl::OkStatus();
  }

  /// Axes and spacings of the volume.
  absl::Status OrderAxes() {
    std::string in_file;
    for (const std::string& name : names_) {
      if (IsSpatial(name)) in_file += name;
    }
    if (in_file.empty())
      return InvalidField(
          Field("axes"),
          absl::StrCat("has none of x, y, z (they are '", absl::StrJoin(names_, "', '"),
                       "'); allowed are names with one of them at least, and other words for axes "
                       "of which `select` takes one sample"));
    // An image is a volume of one plane.
    for (const char name : {'x', 'y', 'z'}) {
      if (in_file.size() < 3 && in_file.find(name) == std::string::npos) in_file.insert(0, 1, name);
    }
    std::string order = absl::AsciiStrToLower(options_.order);
    if (order.empty() && info_.octavo.has_value())
      order = info_.octavo->axes[0] + info_.octavo->axes[1] + info_.octavo->axes[2];
    if (order.empty()) order = in_file;
    std::string sorted = order;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != "xyz")
      return FieldNotAllowed(Field("order"), absl::StrCat("'", order, "'"),
                             "x, y and z in any order, without commas");
    if (info_.octavo.has_value() &&
        order != info_.octavo->axes[0] + info_.octavo->axes[1] + info_.octavo->axes[2])
      changed_ = true;
    plan.reordered = order != in_file;
    for (size_t i = 0; i < 3; ++i) {
      const std::string name(1, order[i]);
      const auto found = std::find(names_.begin(), names_.end(), name);
      const auto d = static_cast<size_t>(found - names_.begin());
      plan.file_axis[i] = found == names_.end() ? -1 : static_cast<int>(d);
      meta.axes[i] = name;
      meta.shape[i] = found == names_.end() ? 1 : info_.axes[d].extent;
      OCTAVO_RETURN_IF_ERROR(SetSpacing(i, name, found == names_.end() ? nullptr : &info_.axes[d]));
    }
    return absl::OkStatus();
  }

  absl::Status SetSpacing(size_t i, const std::string& name, const InputAxis* axis) {
    const std::string field = Field("spacing_um." + name);
    meta.spacing_assumed[i] = false;
    if (const auto given = options_.spacing_um.find(name); given != options_.spacing_um.end()) {
      meta.spacing_um[i] = given->second;
      return InRange(field, given->second, 1e-6, 1e9);
    }
    if (axis != nullptr && axis->spacing_um.has_value()) {
      meta.spacing_um[i] = *axis->spacing_um;
      return InRange(field, *axis->spacing_um, 1e-9, 1e12);
    }
    meta.spacing_um[i] = 1;
    meta.spacing_assumed[i] = true;
    // A commit says what it does not know; its factors of binning are kept with its spacing.
    if (info_.octavo.has_value()) {
      for (size_t d = 0; d < 3; ++d) {
        if (info_.octavo->axes[d] == name) meta.spacing_um[i] = info_.octavo->spacing_um[d];
      }
      return absl::OkStatus();
    }
    if (options_.allow_unknown_spacing || options_.array.has_value() || axis == nullptr)
      return absl::OkStatus();
    return InvalidField(
        field, absl::StrCat("is missing: the file says ",
                            axis->spacing_as_stored.empty()
                                ? "nothing about it"
                                : absl::StrCat("'", axis->spacing_as_stored, "' (",
                                               axis->spacing_place, ") without a unit of length"),
                            "; allowed 1e-06 to 1e+09, or allow_unknown_spacing"));
  }

  absl::Status ChooseType() {
    const ElementType& type = info_.type;
    if (options_.values == InputVolumeOptions::Values::kScaled &&
        info_.format != InputFormat::kNifti)
      return InvalidField(Field("scaled"),
                          absl::StrCat("is given for a file of the format ", Name(info_.format),
                                       ", which has no slope and intercept; allowed for nifti"));
    const bool scaled =
        options_.values == InputVolumeOptions::Values::kScaled && info_.slope_intercept.has_value();
    if (scaled) std::tie(plan.scale, plan.shift) = *info_.slope_intercept;
    if (options_.array.has_value()) return ChooseArrayType(scaled);
    auto dtype = options_.dtype;
    if (!dtype.has_value() && scaled)
      dtype = type.kind == ElementType::Kind::kComplex ? DType::kC64
              : type.bytes >= 4                        ? DType::kF64
                                                       : DType::kF32;
    if (!dtype.has_value()) dtype = ExactVolumeType(type);
    if (!dtype.has_value())
      return InvalidField(
          Field("dtype"),
          absl::StrCat("is missing: no type of volumes holds ", type.Name(), " exactly; allowed ",
                       type.kind == ElementType::Kind::kComplex
                           ? "c64"
                           : "u8, i8, u16, i16, f16, f32, f64, c64"));
    if (SizeOf(*dtype) == 0)
      return FieldNotAllowed(Field("dtype"), static_cast<int>(*dtype),
                             "u8, i8, u16, i16, f16, f32, f64, c64");
    if (type.kind == ElementType::Kind::kComplex && *dtype != DType::kC64)
      return FieldNotAllowed(Field("dtype"), Info(*dtype).name,
                             absl::StrCat("c64: the file holds ", type.Name()));
    OCTAVO_RETURN_IF_ERROR(CheckMeaning(*dtype));
    meta.dtype = *dtype;
    plan.type = ElementTypeOf(*dtype);
    changed_ = changed_ || scaled || plan.type != type;
    if (info_.octavo.has_value()) {
      if (plan.type != type) meta.has_levels = false;
      return absl::OkStatus();
    }
    ShowWholeRange(&meta);
    if (!scaled && info_.slope_intercept.has_value() && ElementTypeOf(*dtype) == type &&
        HighestOf(*dtype) > 0) {
      const auto [slope, intercept] = *info_.slope_intercept;
      meta.has_levels = true;
      meta.level_lo = static_cast<float>(slope * static_cast<double>(LowestOf(*dtype)) + intercept);
      meta.level_hi =
          static_cast<float>(slope * static_cast<double>(HighestOf(*dtype)) + intercept);
    } else {
      DoubtScale(scaled);
    }
    return absl::OkStatus();
  }

  /// The type of an array that is no volume. `meta` gets a type of as many bytes.
  absl::Status ChooseArrayType(bool scaled) {
    const ElementType& type = info_.type;
    const bool complex = type.kind == ElementType::Kind::kComplex;
    std::optional<ElementType> chosen = options_.array->type;
    if (!chosen.has_value() && scaled)
      chosen = complex ? ElementTypeOf(DType::kC64)
                       : ElementTypeOf(type.bytes >= 4 ? DType::kF64 : DType::kF32);
    if (!chosen.has_value()) chosen = type;
    constexpr char kAllowed[] = "u8, i8, u16, i16, u32, i32, u64, i64, f16, f32, f64, c64";
    if (chosen->kind == ElementType::Kind::kComplex && chosen->bytes == 16) {
      if (options_.array->type.has_value())
        return FieldNotAllowed(Field("dtype"), "c128", complex ? "c64" : kAllowed);
      return InvalidField(Field("dtype"),
                          "is missing: the file holds c128, which is not imported; allowed c64");
    }
    if (complex && chosen->kind != ElementType::Kind::kComplex)
      return FieldNotAllowed(Field("dtype"), chosen->Name(),
                             absl::StrCat("c64: the file holds ", type.Name()));
    plan.type = *chosen;
    meta.dtype = ExactVolumeType(plan.type).value_or(DType::kF64);
    if (SizeOf(meta.dtype) != plan.type.bytes) meta.dtype = DType::kF32;  // of u32 and i32
    changed_ = changed_ || scaled || plan.type != type;
    DoubtScale(scaled);
    return absl::OkStatus();
  }

  /// Where neither levels nor numbers say what the file's slope and intercept do.
  void DoubtScale(bool scaled) {
    if (scaled || !info_.slope_intercept.has_value() || info_.octavo.has_value()) return;
    const auto [slope, intercept] = *info_.slope_intercept;
    plan.doubts.push_back(
        absl::StrFormat("The file says that values are %.9g * number + %.9g (scl_slope, "
                        "scl_inter); the numbers are "
                        "taken as they are stored: `scaled` takes the values.",
                        slope, intercept));
  }

  /// A wish for what the numbers are that their type contradicts.
  absl::Status CheckMeaning(DType dtype) const {
    const std::string& kind = options_.value_kind;
    if (kind.empty()) return absl::OkStatus();
    const auto wrong = [&](const char* field, const std::string& allowed) {
      return FieldNotAllowed(Field(field), absl::StrCat("'", kind, "'"), allowed);
    };
    const bool complex = dtype == DType::kC64,
               packed = kind == "raw_spectra_u12p" || kind == "raw_spectra_u12_packed";
    if (packed && dtype != DType::kU8)
      return wrong("quantity", absl::StrCat("one of numbers: they are ", Info(dtype).name,
                                            ", and packed samples are bytes (u8)"));
    if (complex && (kind == "db" || kind == "magnitude" || kind == "power" || kind == "real"))
      return wrong("value", "complex, or none: the numbers are c64");
    if (!complex && kind == "complex")
      return wrong("value", absl::StrCat("db, magnitude, power, real, or none: the numbers are ",
                                         Info(dtype).name));
    return absl::OkStatus();
  }

  absl::Status Crop() {
    const std::vector<int64_t> shape(meta.shape, meta.shape + 3);
    auto box = base::ResolveBox(options_.start, options_.count, shape);
    if (!box.ok()) return base::AtField(options_.field_prefix, box.status());
    for (size_t i = 0; i < 3; ++i) {
      if (plan.file_axis[i] >= 0)
        plan.start[static_cast<size_t>(plan.file_axis[i])] = box->start[i];
      meta.shape[i] = box->count[i];
    }
    if (box->count == shape) return absl::OkStatus();
    changed_ = true;
    // Their places are those of the whole volume.
    if (meta.missing_ascans > 0 && std::ssize(meta.warnings) < kMostWarnings)
      meta.warnings.push_back(absl::StrCat("The volume is a part of one with ", meta.missing_ascans,
                                           " missing A-scans."));
    meta.missing_ascans = 0;
    meta.missing_ranges.clear();
    return absl::OkStatus();
  }

  void Describe() {
    meta.value_kind = options_.value_kind;
    meta.labels = info_.labels;
    meta.processing = nullptr;
    meta.acquisition = {{"source", "import"}, {"format", Name(info_.format)}, {"kind", info_.kind}};
    if (!info_.value_unit.empty()) meta.acquisition["value_unit"] = info_.value_unit;
    for (const std::vector<std::string>* const notes :
         std::initializer_list<const std::vector<std::string>*>{&info_.notes, &plan.doubts}) {
      for (const std::string& note : *notes) {
        if (std::ssize(meta.warnings) < kMostWarnings) meta.warnings.push_back(note);
      }
    }
    if (const auto name = info_.labels.find("name"); name != info_.labels.end())
      meta.title = name->second;
  }

  const VolumeInputInfo& info_;
  const InputVolumeOptions& options_;
  std::vector<std::string> names_;  // of the file's axes
  bool changed_ = false;            // the voxels are others than those of the commit's digest
};

absl::StatusOr<std::unique_ptr<InputVolume>> InputVolume::Make(std::unique_ptr<VolumeInput> input,
                                                               const InputVolumeOptions& options) {
  Planner planner(input->info(), options);
  OCTAVO_RETURN_IF_ERROR(planner.Make());
  return std::unique_ptr<InputVolume>(
      new InputVolume(std::move(input), std::move(planner.meta), std::move(planner.plan)));
}

InputVolume::InputVolume(std::unique_ptr<VolumeInput> input, VolumeMeta meta, Plan plan)
    : StoredVolume(std::move(meta)),
      input_(std::move(input)),
      plan_(std::move(plan)),
      plane_(meta_.shape[1] * meta_.shape[2]) {
  const VolumeInputInfo& about = input_->info();
  const int64_t bytes = plane_ * std::max(about.type.bytes, plan_.type.bytes);
  const int first = plan_.file_axis[0];
  const int64_t chunk = first < 0 ? 1 : about.chunk[static_cast<size_t>(first)];
  int64_t wanted = chunk;
  // The slowest axis of the file that has more than one sample.
  int slowest = -1;
  for (const int axis : about.file_order) {
    if (slowest < 0 && about.axes[static_cast<size_t>(axis)].extent > 1) slowest = axis;
  }
  const bool along = slowest < 0 || slowest == first;
  if (!along) wanted = std::max(wanted, kGranuleBytes / bytes / chunk * chunk);
  granule_ = std::max<int64_t>(1, std::min(wanted, 4 * kGranuleBytes / bytes));
  if (first >= 0 && granule_ % chunk == 0) phase_ = plan_.start[static_cast<size_t>(first)] % chunk;
  granule_ = std::min(granule_, phase_ + meta_.shape[0]);
  // The granule itself, and what is not in order or not of the type yet.
  read_memory_bytes_ = about.read_memory_bytes + 3 * granule_ * bytes;
}

absl::Status InputVolume::Read(int64_t y_begin, int64_t bscans, void* out) {
  if (y_begin < 0 || bscans < 1 || y_begin > meta_.shape[0] - bscans)
    return absl::InvalidArgumentError(
        absl::StrCat("planes [", y_begin, ", ", y_begin + bscans, "); there are ", meta_.shape[0]));
  auto* to = static_cast<char*>(out);
  const int64_t plane = plane_ * plan_.type.bytes;
  if (granule_ == 1) {
    // In pieces, so that what is not in order yet stays small.
    const bool direct = !plan_.reordered && plan_.scale == 1 && plan_.shift == 0 &&
                        plan_.type == input_->info().type;
    const int64_t most = direct ? bscans : 1;
    for (int64_t i = 0; i < bscans; i += most)
      OCTAVO_RETURN_IF_ERROR(Load(y_begin + i, most, to + i * plane));
    return absl::OkStatus();
  }
  while (bscans > 0) {
    const int64_t granule = (y_begin + phase_) / granule_,
                  first = std::max<int64_t>(0, granule * granule_ - phase_),
                  there = std::min((granule + 1) * granule_ - phase_, meta_.shape[0]) - first;
    if (granule != kept_) {
      kept_ = -1;
      slab_.resize(static_cast<size_t>(there * plane));
      OCTAVO_RETURN_IF_ERROR(Load(first, there, slab_.data()));
      kept_ = granule;
    }
    const int64_t count = std::min(bscans, first + there - y_begin);
    std::memcpy(to, slab_.data() + (y_begin - first) * plane, static_cast<size_t>(count * plane));
    y_begin += count, bscans -= count, to += count * plane;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<InputVolume::Direct>> InputVolume::OpenDirect() const {
  const VolumeInputInfo& about = input_->info();
  base::ArrayBox box{.start = plan_.start, .count = std::vector<int64_t>(plan_.start.size(), 1)};
  Direct direct;
  for (size_t i = 0; i < 3; ++i) {
    direct.box_axis[i] = plan_.file_axis[i];
    if (plan_.file_axis[i] >= 0)
      box.count[static_cast<size_t>(plan_.file_axis[i])] = meta_.shape[i];
  }
  // Numbers that stay as they are travel as bits, of any type: an array's own may be none of
  // volumes.
  const bool as_they_are =
      plan_.type == about.type && plan_.scale == 1 && plan_.shift == 0 &&
      SizeOf(meta_.dtype) == about.type.bytes &&
      (about.type.kind == ElementType::Kind::kComplex) == (meta_.dtype == DType::kC64);
  const auto from = as_they_are ? ScalarOf(meta_.dtype) : ElementScalar(about.type);
  if (!as_they_are && (!from.has_value() || ElementTypeOf(meta_.dtype) != type() ||
                       MayClip(about.type, meta_.dtype, plan_.scale, plan_.shift)))
    return std::optional<Direct>();
  direct.spec = {.from = *from, .to = meta_.dtype, .scale = plan_.scale, .shift = plan_.shift};
  OCTAVO_ASSIGN_OR_RETURN(direct.source, input_->Pieces(box));
  if (direct.source == nullptr) return std::optional<Direct>();
  return std::optional<Direct>(std::move(direct));
}

absl::Status InputVolume::Load(int64_t first, int64_t count, char* out) {
  const VolumeInputInfo& about = input_->info();
  base::ArrayBox box{.start = plan_.start, .count = std::vector<int64_t>(plan_.start.size(), 1)};
  const int64_t counts[3] = {count, meta_.shape[1], meta_.shape[2]};
  for (size_t i = 0; i < 3; ++i) {
    if (plan_.file_axis[i] < 0) continue;
    const auto d = static_cast<size_t>(plan_.file_axis[i]);
    box.count[d] = counts[i];
    if (i == 0) box.start[d] += first;
  }
  const int64_t elements = count * plane_, size = about.type.bytes;
  const bool same = plan_.type == about.type && plan_.scale == 1 && plan_.shift == 0;
  char* in = out;
  if (plan_.reordered || !same) {
    stored_.resize(static_cast<size_t>(elements * size));
    in = stored_.data();
  }
  OCTAVO_RETURN_IF_ERROR(
      input_->Read(box, absl::MakeSpan(in, static_cast<size_t>(elements * size))));
  if (plan_.reordered) {
    std::vector<int64_t> in_file(box.count.size(), 1);
    for (size_t d = in_file.size(); d-- > 1;) in_file[d - 1] = in_file[d] * box.count[d];
    int64_t strides[3];
    for (size_t i = 0; i < 3; ++i)
      strides[i] = plan_.file_axis[i] < 0 ? 0 : in_file[static_cast<size_t>(plan_.file_axis[i])];
    char* to = out;
    if (!same) {
      ordered_.resize(stored_.size());
      to = ordered_.data();
    }
    Reorder(in, size, strides, counts, to);
    in = to;
  }
  if (!same && !ConvertElements(about.type, plan_.type, plan_.scale, plan_.shift, elements, in, out,
                                &clipped_))
    return absl::InternalError("no conversion between the types of file and volume");
  return absl::OkStatus();
}

}  // namespace octavo::storage
