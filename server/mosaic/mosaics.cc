#include "server/mosaic/mosaics.h"

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu/base/status.h"

namespace octavo::mosaic {
namespace {

/// What a program has made, as elements of T.
template <class T>
std::vector<T> Elements(const std::vector<char>& bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty())
    std::memcpy(static_cast<void*>(out.data()), bytes.data(), out.size() * sizeof(T));
  return out;
}

buffer::LongWorkSpec Work(const std::string& called, std::vector<Source> inputs,
                          const buffer::MayGoOn& may_go_on, const NewBuffer& made = {}) {
  return {.inputs = std::move(inputs),
          .called = called,
          .may_go_on = may_go_on,
          .labels = made.labels,
          .ttl_seconds = made.ttl_seconds,
          .request_id = made.request_id,
          .request_digest = made.request_digest};
}

/// What a plan measures, which has Program(); a plan without a program has nothing to measure.
template <class Plan>
absl::StatusOr<std::vector<char>> MeasureBy(buffer::LongWork& work, const Plan& plan) {
  const auto program = plan.Program();
  if (program == nullptr) return std::vector<char>();
  return work.Measure(*program);
}

}  // namespace

absl::Status Mosaics::CheckSize(const ArrayType& made, const std::string& field) const {
  const int64_t most = buffers_.most_elements();
  if (made.numbers() <= most) return absl::OkStatus();
  return WithInfo(
      absl::InvalidArgumentError(absl::StrCat(field, ": the result would be ", made.Text(), ", ",
                                              made.numbers(), " elements; it may have ", most)),
      {.reason = Reason::kTooManyElements,
       .field = field,
       .numbers = {{"allowed", absl::StrCat(most)}}});
}

absl::StatusOr<TilePositions> Mosaics::Register(const RegisterTilesCall& call,
                                                const model::Caller& caller,
                                                const buffer::MayGoOn& may_go_on) {
  std::optional<TilePositions> out;
  OCTAVO_RETURN_IF_ERROR(buffers_.RunLong(
      Work("RegisterTiles", {call.tiles}, may_go_on), caller,
      [&](buffer::LongWork& work) -> absl::Status {
        OCTAVO_ASSIGN_OR_RETURN(const Registration plan,
                                Registration::Plan(call.spec, work.types()[0]));
        OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> measured, MeasureBy(work, plan));
        out = plan.Solve(Elements<TileAlignment>(measured));
        return absl::OkStatus();
      }));
  return *std::move(out);
}

absl::StatusOr<StitchedTiles> Mosaics::Stitch(const StitchTilesCall& call,
                                              const model::Caller& caller,
                                              const buffer::MayGoOn& may_go_on) {
  StitchedTiles out;
  OCTAVO_ASSIGN_OR_RETURN(
      out.buffer,
      buffers_.MakeLong(Work("StitchTiles", {call.tiles}, may_go_on, call.made), caller,
                        [&](buffer::LongWork& work) -> absl::StatusOr<model::BufferStatus> {
                          OCTAVO_ASSIGN_OR_RETURN(const auto program,
                                                  PlanStitch(call.spec, work.types()[0]));
                          OCTAVO_RETURN_IF_ERROR(CheckSize(program->out(), "position_um"));
                          return work.Make(*program);
                        }));
  out.origin_um = StitchOrigin(call.spec);
  return out;
}

absl::StatusOr<ZOverlapResult> Mosaics::FindZOverlap(const FindZOverlapCall& call,
                                                     const model::Caller& caller,
                                                     const buffer::MayGoOn& may_go_on) {
  std::optional<ZOverlapResult> out;
  OCTAVO_RETURN_IF_ERROR(buffers_.RunLong(
      Work("FindZOverlap", {call.fixed, call.moving}, may_go_on), caller,
      [&](buffer::LongWork& work) -> absl::Status {
        OCTAVO_ASSIGN_OR_RETURN(const ZOverlap plan,
                                ZOverlap::Plan(call.spec, work.types()[0], work.types()[1]));
        OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> measured, MeasureBy(work, plan));
        out = plan.Finish(Elements<double>(measured));
        return absl::OkStatus();
      }));
  return *std::move(out);
}

void Mosaics::Keep(const std::string& buffer, Report report) {
  MutexLock lock(mutex_);
  reports_.emplace_front(buffer, std::move(report));
  if (reports_.size() > kReports) reports_.pop_back();
}

Mosaics::Report Mosaics::Kept(const std::string& buffer) {
  MutexLock lock(mutex_);
  for (const auto& [name, report] : reports_) {
    if (name == buffer) return report;
  }
  return {};
}

absl::StatusOr<StackedSections> Mosaics::Stack(const StackSectionsCall& call,
                                               const model::Caller& caller,
                                               const buffer::MayGoOn& may_go_on) {
  StackedSections out;
  OCTAVO_ASSIGN_OR_RETURN(
      out.buffer, buffers_.MakeLong(
                      Work("StackSections", call.sections, may_go_on, call.made), caller,
                      [&](buffer::LongWork& work) -> absl::StatusOr<model::BufferStatus> {
                        OCTAVO_ASSIGN_OR_RETURN(SectionStack stack,
                                                SectionStack::Plan(call.spec, work.types()));
                        OCTAVO_RETURN_IF_ERROR(stack.Measure(
                            [&](const SlicedProgram& program, const std::vector<size_t>& sections) {
                              return work.Measure(program, sections);
                            }));
                        OCTAVO_ASSIGN_OR_RETURN(const auto program, stack.Program());
                        OCTAVO_RETURN_IF_ERROR(CheckSize(program->out(), "sections"));
                        OCTAVO_ASSIGN_OR_RETURN(model::BufferStatus made, work.Make(*program));
                        Keep(made.name, {.stack = {.origin_um = stack.origin_um(),
                                                   .total_z = stack.total_z(),
                                                   .sections = stack.sections()}});
                        return made;
                      }));
  out.report = Kept(out.buffer.name).stack;
  if (out.report.sections.empty()) out.report.total_z = out.buffer.type.dims[0];
  return out;
}

absl::StatusOr<ResampledBuffer> Mosaics::Resample(const ResampleTilesCall& call,
                                                  const model::Caller& caller,
                                                  const buffer::MayGoOn& may_go_on) {
  ResampledBuffer out;
  OCTAVO_ASSIGN_OR_RETURN(
      out.buffer,
      buffers_.MakeLong(Work("ResampleTiles", {call.tiles}, may_go_on, call.made), caller,
                        [&](buffer::LongWork& work) -> absl::StatusOr<model::BufferStatus> {
                          Report report;
                          OCTAVO_ASSIGN_OR_RETURN(const ArrayType resampled,
                                                  ResampledType(call.spec, work.types()[0]));
                          OCTAVO_RETURN_IF_ERROR(CheckSize(resampled, "target_um"));
                          OCTAVO_ASSIGN_OR_RETURN(
                              const auto program,
                              PlanResample(call.spec, work.types()[0], &report.tiles));
                          OCTAVO_ASSIGN_OR_RETURN(model::BufferStatus made, work.Make(*program));
                          Keep(made.name, std::move(report));
                          return made;
                        }));
  out.tiles = Kept(out.buffer.name).tiles;
  return out;
}

}  // namespace octavo::mosaic
