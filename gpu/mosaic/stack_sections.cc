#include "gpu/mosaic/stack_sections.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/field_errors.h"
#include "gpu/base/status.h"
#include "gpu/device/alignment.h"
#include "gpu/device/operators.h"

namespace octavo::inline gpu {
namespace {

constexpr int64_t kPart = 1 << 16;         // voxels
constexpr int64_t kMeanReads = 1 << 22;    // voxels that a part of the means reads
constexpr double kLeastRefinement = 0.1;   // voxels
constexpr double kLeastGainChange = 0.01;  // of 1

int64_t PartsOf(int64_t items, int64_t each) {
  return std::max<int64_t>(1, (items + each - 1) / each);
}

/// The tables of sections and planes, in one piece of memory.
class StackTableMemory {
 public:
  static int64_t Bytes(size_t sections, size_t planes) {
    return PlanesOffset(sections) +
           AlignedBytes(static_cast<int64_t>(planes * sizeof(SectionRange)));
  }
  static absl::StatusOr<StackTableMemory> Make(Device& device, std::vector<PlacedSection> sections,
                                               const std::vector<SectionRange>& planes) {
    StackTableMemory out;
    const int64_t bytes = Bytes(sections.size(), planes.size());
    OCTAVO_ASSIGN_OR_RETURN(out.memory_, device.Allocate(bytes));
    OCTAVO_ASSIGN_OR_RETURN(out.tables_, device.AllocatePinned(bytes));
    out.sections_ = std::move(sections);
    out.planes_ = static_cast<int64_t>(planes.size());
    std::memcpy(out.tables_.as<char>() + PlanesOffset(out.sections_.size()), planes.data(),
                planes.size() * sizeof(SectionRange));
    return out;
  }
  /// Enqueues their copy, with the places of the sections' data.
  absl::Status Upload(Device& device, StreamRef stream, const std::vector<const void*>& inputs) {
    for (size_t i = 0; i < sections_.size(); ++i) sections_[i].data = inputs[i];
    std::memcpy(tables_.data(), sections_.data(), sections_.size() * sizeof(PlacedSection));
    return device.CopyToDevice(stream, memory_.data(), tables_.data(), tables_.bytes());
  }
  StackTables tables() const {
    char* const memory = memory_.as<char>();
    return {
        .sections = {reinterpret_cast<const PlacedSection*>(memory),
                     static_cast<int64_t>(sections_.size())},
        .planes = {reinterpret_cast<const SectionRange*>(memory + PlanesOffset(sections_.size())),
                   planes_}};
  }

 private:
  static int64_t PlanesOffset(size_t sections) {
    return AlignedBytes(static_cast<int64_t>(sections * sizeof(PlacedSection)));
  }
  DeviceBuffer memory_;
  PinnedBuffer tables_;
  std::vector<PlacedSection> sections_;
  int64_t planes_ = 0;
};

/// What programs on all sections have in common.
struct StackPlan {
  StackSpec spec;
  std::vector<PlacedSection> sections;
  std::vector<SectionRange> planes;
  int64_t table_bytes() const { return StackTableMemory::Bytes(sections.size(), planes.size()); }
};

class StackRun final : public SlicedRun {
 public:
  StackRun(const StackSpec& spec, Device& device, MosaicOps* ops, StackTableMemory tables)
      : spec_(spec), device_(device), ops_(ops), tables_(std::move(tables)) {}
  absl::Status Run(StreamRef stream, int64_t first, int64_t end,
                   const std::vector<const void*>& inputs, void* out) override {
    if (first == 0) OCTAVO_RETURN_IF_ERROR(tables_.Upload(device_, stream, inputs));
    return ops_->Stack(stream, spec_, {first * kPart, std::min(end * kPart, spec_.voxels())},
                       tables_.tables(), out);
  }

 private:
  const StackSpec spec_;
  Device& device_;
  MosaicOps* const ops_;
  StackTableMemory tables_;
};

class StackProgram final : public SlicedProgram {
 public:
  explicit StackProgram(StackPlan plan)
      : plan_(std::move(plan)),
        out_{.scalar = plan_.spec.out, .dims = {plan_.spec.extent, plan_.spec.extent + 3}} {}
  const ArrayType& out() const override { return out_; }
  int64_t parts() const override { return PartsOf(plan_.spec.voxels(), kPart); }
  absl::StatusOr<int64_t> ScratchBytes(Device&) const override { return plan_.table_bytes(); }
  absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device, StopFlag) const override {
    OCTAVO_ASSIGN_OR_RETURN(MosaicOps* const ops, FindOperators<MosaicOps>(device));
    OCTAVO_ASSIGN_OR_RETURN(StackTableMemory tables,
                            StackTableMemory::Make(device, plan_.sections, plan_.planes));
    return std::make_unique<StackRun>(plan_.spec, device, ops, std::move(tables));
  }

 private:
  const StackPlan plan_;
  const ArrayType out_;
};

/// One round of a search for medians (JointDigits): u64 [kRanks, kBins].
class JointDigitsRun final : public SlicedRun {
 public:
  JointDigitsRun(const StackSpec& spec, const JointDigits& digits, Device& device, MosaicOps* ops,
                 StackTableMemory tables)
      : spec_(spec), digits_(digits), device_(device), ops_(ops), tables_(std::move(tables)) {}
  absl::Status Run(StreamRef stream, int64_t first, int64_t end,
                   const std::vector<const void*>& inputs, void* out) override {
    constexpr int64_t kCounts = JointDigits::kRanks * JointDigits::kBins;
    if (first == 0) {
      OCTAVO_RETURN_IF_ERROR(tables_.Upload(device_, stream, inputs));
      OCTAVO_RETURN_IF_ERROR(
          device_.Fill(stream, out, kCounts * static_cast<int64_t>(sizeof(uint64_t)), 0));
    }
    return ops_->CountJointDigits(stream, spec_, digits_,
                                  {first * kPart, std::min(end * kPart, digits_.voxels())},
                                  tables_.tables(), {static_cast<uint64_t*>(out), kCounts});
  }

 private:
  const StackSpec spec_;
  const JointDigits digits_;
  Device& device_;
  MosaicOps* const ops_;
  StackTableMemory tables_;
};

class JointDigitsProgram final : public SlicedProgram {
 public:
  JointDigitsProgram(StackPlan plan, const JointDigits& digits)
      : plan_(std::move(plan)), digits_(digits) {}
  const ArrayType& out() const override { return out_; }
  int64_t parts() const override { return PartsOf(digits_.voxels(), kPart); }
  absl::StatusOr<int64_t> ScratchBytes(Device&) const override { return plan_.table_bytes(); }
  absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device, StopFlag) const override {
    OCTAVO_ASSIGN_OR_RETURN(MosaicOps* const ops, FindOperators<MosaicOps>(device));
    OCTAVO_ASSIGN_OR_RETURN(StackTableMemory tables,
                            StackTableMemory::Make(device, plan_.sections, plan_.planes));
    return std::make_unique<JointDigitsRun>(plan_.spec, digits_, device, ops, std::move(tables));
  }

 private:
  const StackPlan plan_;
  const JointDigits digits_;
  const ArrayType out_{.scalar = Scalar::kU64, .dims = {JointDigits::kRanks, JointDigits::kBins}};
};

/// The means along z of what two sections have in common, registered as two tiles.
struct PlanePair {
  MeanSpec means[2];  // each of one plane
  int64_t elements() const { return means[0].elements(); }
  int64_t each() const { return std::max<int64_t>(1, kMeanReads / means[0].depth); }
  int64_t parts() const { return PartsOf(elements(), each()); }  // of one of them
  int64_t bytes() const { return AlignedBytes(2 * elements() * int64_t{sizeof(float)}); }
};

class PlanePairRun final : public SlicedRun {
 public:
  PlanePairRun(const PlanePair& pair, MosaicOps* ops, DeviceBuffer means,
               std::unique_ptr<SlicedRun> registration)
      : pair_(pair), ops_(ops), means_(std::move(means)), registration_(std::move(registration)) {}
  absl::Status Run(StreamRef stream, int64_t first, int64_t end,
                   const std::vector<const void*>& inputs, void* out) override {
    const int64_t parts = pair_.parts(), each = pair_.each(), n = pair_.elements();
    for (int64_t k = 0; k < 2; ++k) {
      const int64_t from = std::max(first, k * parts) - k * parts,
                    to = std::min(end, (k + 1) * parts) - k * parts;
      if (from >= to) continue;
      OCTAVO_RETURN_IF_ERROR(
          ops_->Means(stream, pair_.means[k], {from * each, std::min(to * each, n)},
                      inputs[static_cast<size_t>(k)], {means_.as<float>() + k * n, n}));
    }
    if (end <= 2 * parts) return absl::OkStatus();
    return registration_->Run(stream, std::max<int64_t>(0, first - 2 * parts), end - 2 * parts,
                              {means_.data()}, out);
  }

 private:
  const PlanePair pair_;
  MosaicOps* const ops_;
  const DeviceBuffer means_;
  const std::unique_ptr<SlicedRun> registration_;
};

class PlanePairProgram final : public SlicedProgram {
 public:
  PlanePairProgram(const PlanePair& pair, std::unique_ptr<const SlicedProgram> registration)
      : pair_(pair), registration_(std::move(registration)) {}
  const ArrayType& out() const override { return registration_->out(); }
  int64_t parts() const override { return 2 * pair_.parts() + registration_->parts(); }
  absl::StatusOr<int64_t> ScratchBytes(Device& device) const override {
    OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, registration_->ScratchBytes(device));
    return bytes + pair_.bytes();
  }
  absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device, StopFlag stop) const override {
    OCTAVO_ASSIGN_OR_RETURN(MosaicOps* const ops, FindOperators<MosaicOps>(device));
    OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer means, device.Allocate(pair_.bytes()));
    OCTAVO_ASSIGN_OR_RETURN(auto run, registration_->Prepare(device, stop));
    return std::make_unique<PlanePairRun>(pair_, ops, std::move(means), std::move(run));
  }

 private:
  const PlanePair pair_;
  const std::unique_ptr<const SlicedProgram> registration_;
};

template <class T>
std::vector<T> Elements(const std::vector<char>& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(static_cast<void*>(out.data()), bytes.data(), out.size() * sizeof(T));
  return out;
}

std::string FieldOf(size_t section, const char* member) {
  return absl::StrCat("sections[", section, "].", member);
}

absl::Status CheckTypes(const std::vector<ArrayType>& types, int64_t moving_first_plane) {
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string field = FieldOf(i, "name");
    OCTAVO_RETURN_IF_ERROR(CheckReal(types[i], field));
    if (types[i].rank() != 3) {
      return WithInfo(absl::InvalidArgumentError(
                          absl::StrCat(field, ": is ", types[i].Text(), "; allowed [z, y, x]")),
                      {.reason = Reason::kBadShape, .field = field, .numbers = {}});
    }
    if (types[i].scalar != types[0].scalar) {
      return WithInfo(absl::InvalidArgumentError(
                          absl::StrCat(field, ": is ", types[i].Text(), "; allowed ",
                                       octavo::NameOf(types[0].scalar), ", as the first section")),
                      {.reason = Reason::kTypeMismatch, .field = field, .numbers = {}});
    }
    if (i > 0 && moving_first_plane >= types[i].dims[0]) {
      return FieldNotAllowed(
          "moving_first_plane", moving_first_plane,
          absl::StrCat("less than the ", types[i].dims[0], " planes of section ", i));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const StackSectionsSpec& s) {
  OCTAVO_RETURN_IF_ERROR(InRange("moving_first_plane", s.moving_first_plane, 0, int64_t{1} << 31));
  OCTAVO_RETURN_IF_ERROR(InRange("min_correlation", s.min_correlation, -1, 1));
  OCTAVO_RETURN_IF_ERROR(
      InRange("consistency_min_pairs", s.consistency_min_pairs, 2, kMostSections));
  OCTAVO_RETURN_IF_ERROR(InRange("consistency_tolerance", s.consistency_tolerance, 0, 1e6));
  OCTAVO_RETURN_IF_ERROR(
      InRange("consistency_min_correlation", s.consistency_min_correlation, -1, 1));
  OCTAVO_RETURN_IF_ERROR(InRange("refine_limit_um", s.refine_limit_um, 0, 1e9));
  OCTAVO_RETURN_IF_ERROR(InRange("refine_min_confidence", s.refine_min_confidence, -1, 1));
  OCTAVO_RETURN_IF_ERROR(InRange("refine_min_correlation", s.refine_min_correlation, -1, 1));
  OCTAVO_RETURN_IF_ERROR(InRange("gain_min_voxels", s.gain_min_voxels, 0, int64_t{1} << 40));
  OCTAVO_RETURN_IF_ERROR(InRange("gain_least", s.gain_least, 1e-6, 1));
  OCTAVO_RETURN_IF_ERROR(InRange("gain_most", s.gain_most, 1, 1e6));
  return InRange("valid_above", s.valid_above, -1e300, 1e300);
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

std::vector<int64_t> ConsistentOverlaps(const std::vector<SectionOverlap>& found, int64_t min_pairs,
                                        double tolerance, double min_correlation,
                                        std::vector<bool>* corrected) {
  std::vector<int64_t> out;
  std::vector<double> values;
  for (const SectionOverlap& one : found) {
    out.push_back(one.overlap);
    values.push_back(static_cast<double>(one.overlap));
  }
  corrected->assign(found.size(), false);
  if (static_cast<int64_t>(found.size()) < min_pairs) return out;
  const double median = MedianOf(values);
  for (size_t k = 0; k < found.size(); ++k) {
    if (!(std::abs(values[k] - median) > tolerance * std::max(median, 1.0)) ||
        found[k].correlation >= min_correlation)
      continue;
    std::vector<double> neighbours;
    if (k > 0) neighbours.push_back(values[k - 1]);
    if (k + 1 < found.size()) neighbours.push_back(values[k + 1]);
    out[k] = std::min(static_cast<int64_t>(MedianOf(neighbours)), found[k].planes);
    (*corrected)[k] = true;
  }
  return out;
}

int64_t SectionStack::PlanesOf(size_t section) const {
  return types_[section].dims[0] - FirstOf(section);
}

double SectionStack::VoxelsOf(size_t section, int d) const {
  const double from =
      spec_.center_on_middle ? spec_.position_um[spec_.position_um.size() / 2][d] : 0;
  return (spec_.position_um[section][d] - from) / spec_.spacing_um[d] + moved_[d][section];
}

absl::StatusOr<SectionStack> SectionStack::Plan(const StackSectionsSpec& spec,
                                                const std::vector<ArrayType>& types) {
  SectionStack out;
  out.spec_ = spec;
  out.types_ = types;
  const size_t n = types.size();
  OCTAVO_RETURN_IF_ERROR(InRange("sections", static_cast<int64_t>(n), 1, kMostSections));
  constexpr const char* kAxes[] = {"z", "y", "x"};
  for (int d = 0; d < 3; ++d) {
    OCTAVO_RETURN_IF_ERROR(
        InRange(absl::StrCat("spacing_um.", kAxes[d]), spec.spacing_um[d], 1e-6, 1e9));
  }
  for (size_t i = 0; i < n; ++i) {
    for (int d = 1; d < 3; ++d) {
      OCTAVO_RETURN_IF_ERROR(InRange(FieldOf(i, absl::StrCat("position_um.", kAxes[d]).c_str()),
                                     spec.position_um[i][d], -1e9, 1e9));
    }
  }
  OCTAVO_RETURN_IF_ERROR(CheckNumbers(spec));
  OCTAVO_RETURN_IF_ERROR(CheckTypes(types, spec.moving_first_plane));
  if (spec.blend == SectionBlend::kDefault) out.spec_.blend = SectionBlend::kLater;
  out.out_ = spec.scalar == Scalar{} ? types[0].scalar : spec.scalar;
  if (IsComplex(out.out_)) return FieldNotAllowed("type", NameOf(out.out_), "a real type");
  OCTAVO_ASSIGN_OR_RETURN(out.gap_, GapOf(spec.gap, out.out_));
  for (auto& moved : out.moved_) moved.assign(n, 0);
  out.report_.resize(n);
  for (size_t i = 0; i < n; ++i) out.report_[i].planes = out.PlanesOf(i);

  const bool given = !spec.overlap.empty();
  if (given && spec.overlap.size() != n - 1) {
    return FieldNotAllowed("overlap", absl::StrCat(spec.overlap.size(), " numbers"),
                           absl::StrCat(n - 1, ", one for each two neighbours, or none"));
  }
  const bool interval = spec.slicing_interval_um != 0;
  if (n > 1 && (!given || interval)) {
    OCTAVO_RETURN_IF_ERROR(
        InRange("slicing_interval_um", spec.slicing_interval_um, spec.spacing_um[0] * 1e-3, 1e9));
    OCTAVO_RETURN_IF_ERROR(InRange("search_range_um", spec.search_range_um, 0, 1e9));
  }
  for (size_t i = 1; i < n; ++i) {
    StackedSection& section = out.report_[i];
    const int64_t most = std::min(out.PlanesOf(i - 1), out.PlanesOf(i));
    if (interval) {
      section.expected_overlap =
          ExpectedOverlap(most, spec.slicing_interval_um, spec.spacing_um[0]);
    }
    if (!given) continue;
    OCTAVO_RETURN_IF_ERROR(
        InRange(absl::StrCat("overlap[", i - 1, "]"), spec.overlap[i - 1], 0, most));
    section.overlap = spec.overlap[i - 1];
    section.overlap_state = OverlapState::kGiven;
  }
  return out;
}

absl::Status SectionStack::FindOverlap(size_t section, const MeasureSections& measure,
                                       SectionOverlap* found) {
  StackedSection& report = report_[section];
  const size_t above = section - 1;
  found->planes = std::min(PlanesOf(above), PlanesOf(section));
  found->overlap = report.expected_overlap;
  report.overlap_state = OverlapState::kFallback;
  report.correlation = 0;
  report.found_overlap = 0;
  ZOverlapSpec spec{.slicing_interval_um = spec_.slicing_interval_um,
                    .search_range_um = spec_.search_range_um,
                    .spacing_z_um = spec_.spacing_um[0],
                    .moving_first_plane = FirstOf(section),
                    .fixed_first_plane = FirstOf(above),
                    .min_correlation = spec_.min_correlation};
  double apart[3];
  for (int d = 1; d < 3; ++d) {
    apart[d] = std::nearbyint(VoxelsOf(section, d) - VoxelsOf(above, d));
    const auto n = static_cast<double>(types_[above].dims[static_cast<size_t>(d)]),
               m = static_cast<double>(types_[section].dims[static_cast<size_t>(d)]);
    if (!(apart[d] < n) || !(apart[d] + m > 0)) return absl::OkStatus();  // side by side
  }
  spec.offset_y = static_cast<int64_t>(apart[1]);
  spec.offset_x = static_cast<int64_t>(apart[2]);
  OCTAVO_ASSIGN_OR_RETURN(const ZOverlap search,
                          ZOverlap::Plan(spec, types_[above], types_[section]));
  const auto program = search.Program();
  if (program == nullptr) return absl::OkStatus();
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> sums, measure(*program, {above, section}));
  const ZOverlapResult result = search.Finish(Elements<double>(sums));
  report.correlation = result.correlation;
  report.found_overlap = result.best;
  if (result.fallback) return absl::OkStatus();
  report.overlap_state = OverlapState::kFound;
  found->overlap = result.overlap;
  found->correlation = result.correlation;
  return absl::OkStatus();
}

absl::Status SectionStack::FindOverlaps(const MeasureSections& measure) {
  std::vector<SectionOverlap> found(report_.size() - 1);
  for (size_t i = 1; i < report_.size(); ++i)
    OCTAVO_RETURN_IF_ERROR(FindOverlap(i, measure, &found[i - 1]));
  std::vector<bool> corrected;
  const std::vector<int64_t> overlaps =
      ConsistentOverlaps(found, spec_.consistency_min_pairs, spec_.consistency_tolerance,
                         spec_.consistency_min_correlation, &corrected);
  for (size_t i = 1; i < report_.size(); ++i) {
    report_[i].overlap = overlaps[i - 1];
    if (corrected[i - 1]) report_[i].overlap_state = OverlapState::kCorrected;
  }
  return absl::OkStatus();
}

absl::Status SectionStack::Refine(size_t section, const MeasureSections& measure) {
  StackedSection& report = report_[section];
  const size_t above = section - 1;
  const bool given = report.overlap_state == OverlapState::kGiven;
  report.refinement_um = {};
  report.refinement_confidence = 0;
  if (!given && report.correlation < spec_.refine_min_correlation) {
    report.refinement_state = RefinementState::kUnsure;
    return absl::OkStatus();
  }
  report.refinement_state = RefinementState::kNothingCommon;
  if (report.overlap == 0) return absl::OkStatus();
  // The boxes that both have, at whole voxels, and where the stage has them.
  PlanePair pair;
  double whole[3] = {0, 0, 0}, apart[3] = {0, 0, 0};
  int64_t begin[2][3], length[3] = {1, 1, 1};
  for (int d = 1; d < 3; ++d) {
    apart[d] = VoxelsOf(section, d) - VoxelsOf(above, d);
    whole[d] = std::nearbyint(apart[d]);
    const int64_t n = types_[above].dims[static_cast<size_t>(d)],
                  m = types_[section].dims[static_cast<size_t>(d)];
    if (!(whole[d] < static_cast<double>(n)) || !(whole[d] + static_cast<double>(m) > 0))
      return absl::OkStatus();
    const auto shift = static_cast<int64_t>(whole[d]);
    begin[0][d] = std::max<int64_t>(0, shift);
    begin[1][d] = begin[0][d] - shift;
    length[d] = std::min(n, shift + m) - begin[0][d];
  }
  const int64_t first[2] = {types_[above].dims[0] - report.overlap, FirstOf(section)};
  for (int k = 0; k < 2; ++k) {
    const std::vector<int64_t>& dims = types_[k == 0 ? above : section].dims;
    pair.means[k] = {.scalar = types_[section].scalar,
                     .offset = (first[k] * dims[1] + begin[k][1]) * dims[2] + begin[k][2],
                     .depth_stride = dims[1] * dims[2],
                     .row_stride = dims[2],
                     .depth = report.overlap,
                     .rows = length[1],
                     .columns = length[2]};
  }
  RegistrationSpec spec{.layout = {.kind = TileLayoutSpec::Kind::kStack,
                                   .spacing_um = {{1, spec_.spacing_um[1], spec_.spacing_um[2]}}},
                        .stage_um = std::vector<Vector3>(2),
                        .max_shift_um = spec_.refine_limit_um +
                                        std::max(spec_.spacing_um[1], spec_.spacing_um[2]) / 2};
  OCTAVO_ASSIGN_OR_RETURN(
      const Registration registration,
      Registration::Plan(spec, {.scalar = Scalar::kF32, .dims = {2, length[1], length[2]}}));
  auto program = registration.Program();
  if (program == nullptr) return absl::OkStatus();
  const PlanePairProgram both(pair, std::move(program));
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> bytes, measure(both, {above, section}));
  const TileAlignment found = Elements<TileAlignment>(bytes)[0];
  bool small = true, beyond = false;
  double correction[3] = {0, 0, 0};
  for (int d = 1; d < 3; ++d) {
    correction[d] = whole[d] + found.shift[d] - apart[d];
    report.refinement_um[d] = correction[d] * spec_.spacing_um[d];
    small = small && std::abs(correction[d]) < kLeastRefinement;
    beyond = beyond || std::abs(report.refinement_um[d]) > spec_.refine_limit_um;
  }
  report.refinement_confidence = found.correlation;
  report.refinement_state = !(found.correlation >= spec_.refine_min_confidence)
                                ? RefinementState::kUnsure
                            : beyond ? RefinementState::kBeyondLimit
                            : small  ? RefinementState::kSmall
                                     : RefinementState::kApplied;
  if (report.refinement_state != RefinementState::kApplied) return absl::OkStatus();
  for (int d = 1; d < 3; ++d) {
    for (size_t i = section; i < report_.size(); ++i) moved_[d][i] += correction[d];
  }
  return absl::OkStatus();
}

absl::Status SectionStack::Place() {
  const size_t n = report_.size();
  placed_.assign(n, {});
  double at[3][kMostSections], least[3] = {0, 0, 0};
  for (int d = 1; d < 3; ++d) {
    for (size_t i = 0; i < n; ++i) {
      at[d][i] = SnappedVoxels(VoxelsOf(i, d));
      if (spec_.whole_voxels) at[d][i] = std::nearbyint(at[d][i]);
      least[d] = i == 0 ? at[d][i] : std::min(least[d], at[d][i]);
    }
    // The middle section lies on whole voxels.
    if (spec_.center_on_middle) least[d] = std::ceil(least[d]);
  }
  int64_t end_z = 0;
  for (int64_t& extent : extent_) extent = 1;
  for (size_t i = 0; i < n; ++i) {
    PlacedSection& section = placed_[i];
    StackedSection& report = report_[i];
    for (size_t d = 0; d < 3; ++d) section.extent[d] = types_[i].dims[d];
    section.first = FirstOf(i);
    section.overlap = report.overlap;
    section.z = report.first_plane = end_z - report.overlap;
    end_z = section.z + report.planes;
    report.position_um[0] = static_cast<double>(section.z) * spec_.spacing_um[0];
    for (int d = 1; d < 3; ++d) {
      const double place = SnappedVoxels(at[d][i] - least[d]);
      section.position[d - 1] = place;
      const double from =
          spec_.center_on_middle ? spec_.position_um[n / 2][d] : 0;  // the frame of the request
      report.position_um[d] = from + at[d][i] * spec_.spacing_um[d];
      origin_um_[d] = from + least[d] * spec_.spacing_um[d];
      const double end = std::floor(place + static_cast<double>(section.extent[d] - 1)) + 1;
      if (!(end < 2147483647.0)) {
        return FieldNotAllowed(FieldOf(i, "position_um"),
                               absl::StrCat(end, " voxels from the first position"),
                               "less than 2^31 voxels");
      }
      extent_[d] = std::max(extent_[d], static_cast<int64_t>(end));
    }
  }
  extent_[0] = end_z;
  // Each plane has its line in the tables of the host.
  constexpr int64_t kMostPlanes = 1 << 20;
  if (end_z > kMostPlanes)
    return FieldNotAllowed("sections", absl::StrCat(end_z, " planes together"), kMostPlanes);
  if (FitsAnArray(extent_)) return absl::OkStatus();
  return WithInfo(absl::InvalidArgumentError(absl::StrCat("sections: the result would have ",
                                                          extent_[0], " x ", extent_[1], " x ",
                                                          extent_[2], " voxels; it may have 2^30")),
                  {.reason = Reason::kTooManyElements, .field = "sections", .numbers = {}});
}

StackSpec SectionStack::Spec() const {
  return {.scalar = types_[0].scalar,
          .out = out_,
          .extent = {extent_[0], extent_[1], extent_[2]},
          .blend = spec_.blend,
          .valid_above = spec_.valid_above,
          .gap = gap_};
}

std::vector<SectionRange> SectionStack::Planes() const {
  // Neither where sections begin nor where they end goes back.
  std::vector<SectionRange> out(static_cast<size_t>(extent_[0]));
  int32_t begin = 0, end = 0;
  const auto n = static_cast<int32_t>(placed_.size());
  for (int64_t z = 0; z < extent_[0]; ++z) {
    const auto last = [&](int32_t i) {
      const auto k = static_cast<size_t>(i);
      return placed_[k].z + report_[k].planes;
    };
    while (end < n && placed_[static_cast<size_t>(end)].z <= z) ++end;
    while (begin < end && last(begin) <= z) ++begin;
    out[static_cast<size_t>(z)] = {begin, end};
  }
  return out;
}

absl::Status SectionStack::MatchIntensity(size_t section, const MeasureSections& measure) {
  StackedSection& report = report_[section];
  const PlacedSection& placed = placed_[section];
  JointDigits digits{.section = static_cast<int64_t>(section)};
  digits.begin[0] = placed.z;
  digits.end[0] = placed.z + placed.overlap;
  for (int d = 1; d < 3; ++d) {
    const double at = placed.position[d - 1];
    digits.begin[d] = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(at)));
    digits.end[d] =
        static_cast<int64_t>(std::floor(at + static_cast<double>(placed.extent[d] - 1))) + 1;
  }
  if (digits.voxels() <= spec_.gain_min_voxels) {
    report.gain_voxels = 0;
    return absl::OkStatus();
  }
  std::vector<size_t> all(report_.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  StackPlan plan{.spec = Spec(), .sections = placed_, .planes = Planes()};
  // The two middle numbers of each of the two: digit by digit.
  uint64_t rank[JointDigits::kRanks] = {0, 0, 0, 0};
  for (; digits.round < JointDigits::kRounds; ++digits.round) {
    const JointDigitsProgram program(plan, digits);
    OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> bytes, measure(program, all));
    const std::vector<uint64_t> counts = Elements<uint64_t>(bytes);
    if (digits.round == 0) {
      uint64_t voxels = 0;
      for (int64_t bin = 0; bin < JointDigits::kBins; ++bin)
        voxels += counts[static_cast<size_t>(bin)];
      report.gain_voxels = static_cast<int64_t>(voxels);
      if (report.gain_voxels <= spec_.gain_min_voxels) return absl::OkStatus();
      rank[0] = rank[2] = (voxels - 1) / 2;
      rank[1] = rank[3] = voxels / 2;
    }
    for (size_t k = 0; k < JointDigits::kRanks; ++k) {
      const uint64_t* const of = counts.data() + k * JointDigits::kBins;
      uint32_t digit = 0;
      while (digit < JointDigits::kBins && rank[k] >= of[digit]) rank[k] -= of[digit++];
      if (digit == JointDigits::kBins) {
        // Memory that a client lends, or maps for writing, may change between two rounds.
        return WithInfo(
            absl::AbortedError(
                absl::StrCat(FieldOf(section, "name"), ": was written while it was read")),
            {.reason = Reason::kVersion, .field = FieldOf(section, "name"), .numbers = {}});
      }
      digits.prefix[k] = digits.round == 0 ? digit : digits.prefix[k] << 10 | digit;
    }
  }
  double numbers[JointDigits::kRanks];
  for (size_t k = 0; k < JointDigits::kRanks; ++k) {
    float number = 0;
    std::memcpy(&number, &digits.prefix[k], sizeof(float));
    numbers[k] = static_cast<double>(number);
  }
  report.measured_gain = (numbers[0] + numbers[1]) / (numbers[2] + numbers[3]);
  const double gain = std::clamp(report.measured_gain, spec_.gain_least, spec_.gain_most);
  report.gain = std::abs(gain - 1) <= kLeastGainChange ? 1 : gain;
  placed_[section].gain = report.gain;
  return absl::OkStatus();
}

absl::Status SectionStack::RefineAll(const MeasureSections& measure) {
  for (auto& moved : moved_) moved.assign(report_.size(), 0);
  for (size_t i = 1; i < report_.size(); ++i) OCTAVO_RETURN_IF_ERROR(Refine(i, measure));
  return absl::OkStatus();
}

absl::Status SectionStack::Measure(const MeasureSections& measure) {
  const bool searched = report_.size() > 1 && spec_.overlap.empty();
  if (searched) OCTAVO_RETURN_IF_ERROR(FindOverlaps(measure));
  if (spec_.refine_limit_um > 0) {
    OCTAVO_RETURN_IF_ERROR(RefineAll(measure));
    // Where sections lie a voxel or two apart, a wrong number of planes may fit as well as the true
    // one: it is searched for again where they lie now, and the places follow from that.
    const bool moved = std::any_of(report_.begin(), report_.end(), [](const StackedSection& one) {
      return one.refinement_state == RefinementState::kApplied;
    });
    if (searched && moved) {
      OCTAVO_RETURN_IF_ERROR(FindOverlaps(measure));
      OCTAVO_RETURN_IF_ERROR(RefineAll(measure));
    }
  }
  OCTAVO_RETURN_IF_ERROR(Place());
  for (size_t i = 1; i < report_.size() && spec_.match_intensity; ++i)
    OCTAVO_RETURN_IF_ERROR(MatchIntensity(i, measure));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const SlicedProgram>> SectionStack::Program() const {
  return std::make_unique<StackProgram>(
      StackPlan{.spec = Spec(), .sections = placed_, .planes = Planes()});
}

}  // namespace octavo::inline gpu
