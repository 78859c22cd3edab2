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
  std::memcpy(static_cast<void*>(out.data()), bytes.data(), out.size() * sizeof(T));
  return out;
}

/// Measures what `Plan` plans, which has Program(). A plan without a program has nothing to
/// measure. The plan is made where the types of the inputs are known, and `plan` keeps it for the
/// answer.
template <class Plan, class Make>
absl::StatusOr<std::vector<char>> MeasureBy(buffer::BufferStore& buffers, const std::string& called,
                                            std::vector<model::BufferProgramSpec::Input> inputs,
                                            const model::Caller& caller, std::optional<Plan>* plan,
                                            Make make) {
  return buffers.Measure({.inputs = std::move(inputs),
                          .plan = [&](const std::vector<ArrayType>& types)
                              -> absl::StatusOr<std::unique_ptr<const ArrayProgram>> {
                            OCTAVO_ASSIGN_OR_RETURN(*plan, make(types));
                            return (*plan)->Program();
                          },
                          .called = called},
                         caller);
}

}  // namespace

absl::StatusOr<TilePositions> Mosaics::Register(const RegisterTilesCall& call,
                                                const model::Caller& caller) {
  std::optional<Registration> plan;
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> measured,
                          MeasureBy(buffers_, "RegisterTiles", {call.tiles}, caller, &plan,
                                    [&](const std::vector<ArrayType>& types) {
                                      return Registration::Plan(call.spec, types[0]);
                                    }));
  return plan->Solve(Elements<TileAlignment>(measured));
}

absl::StatusOr<StitchedTiles> Mosaics::Stitch(const StitchTilesCall& call,
                                              const model::Caller& caller) {
  StitchedTiles out;
  const int64_t most = buffers_.most_elements();
  OCTAVO_ASSIGN_OR_RETURN(
      out.buffer,
      buffers_.RunProgram({.inputs = {call.tiles},
                           .plan = [&](const std::vector<ArrayType>& types)
                               -> absl::StatusOr<std::unique_ptr<const ArrayProgram>> {
                             OCTAVO_ASSIGN_OR_RETURN(auto program, PlanStitch(call.spec, types[0]));
                             const int64_t voxels = program->out().numbers();
                             if (voxels > most) {
                               return WithInfo(
                                   absl::InvalidArgumentError(absl::StrCat(
                                       "position_um: the result would be ", program->out().Text(),
                                       ", ", voxels, " elements; it may have ", most)),
                                   {.reason = Reason::kTooManyElements,
                                    .field = "position_um",
                                    .numbers = {{"allowed", absl::StrCat(most)}}});
                             }
                             return program;
                           },
                           .called = "StitchTiles",
                           .labels = call.labels,
                           .ttl_seconds = call.ttl_seconds,
                           .request_id = call.request_id,
                           .request_digest = call.request_digest},
                          caller));
  out.origin_um = StitchOrigin(call.spec);
  return out;
}

absl::StatusOr<ZOverlapResult> Mosaics::FindZOverlap(const FindZOverlapCall& call,
                                                     const model::Caller& caller) {
  std::optional<ZOverlap> plan;
  OCTAVO_ASSIGN_OR_RETURN(const std::vector<char> measured,
                          MeasureBy(buffers_, "FindZOverlap", {call.fixed, call.moving}, caller,
                                    &plan, [&](const std::vector<ArrayType>& types) {
                                      return ZOverlap::Plan(call.spec, types[0], types[1]);
                                    }));
  return plan->Finish(Elements<double>(measured));
}

}  // namespace octavo::mosaic
