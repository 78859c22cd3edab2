#include "server/engine/deriver.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "gpu/base/status.h"
#include "gpu/math/resample.h"
#include "gpu/resample.h"
#include "gpu/shareable.h"
#include "server/engine/names.h"
#include "server/engine/pattern/plan.h"
#include "server/engine/raw_records.h"
#include "server/engine/reprocess.h"
#include "server/engine/resolve.h"

namespace octavo::engine {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

bool IsMissing(const Ranges& missing, int64_t ascan) {
  auto it = std::upper_bound(missing.begin(), missing.end(), ascan, [](int64_t a, const auto& range) { return a < range.first; });
  return it != missing.begin() && ascan < std::prev(it)->first + std::prev(it)->second;
}

// Neighbouring A-scans as ranges.
void AddAscan(int64_t ascan, Ranges* ranges) {
  if (!ranges->empty() && ranges->back().first + ranges->back().second == ascan) {
    ++ranges->back().second;
  } else {
    ranges->emplace_back(ascan, 1);
  }
}

int64_t BytesOf(const VolumeStatus& v) { return v.shape[0] * v.shape[1] * v.shape[2] * SizeOf(v.dtype); }

}  // namespace

math::StoredScale ScaleOf(const VolumeStatus& v) {
  math::StoredScale scale;
  scale.kind = v.value == ValueKind::kDb ? math::Value::kDb : v.value == ValueKind::kPower ? math::Value::kPower : math::Value::kMagnitude;
  if (v.has_levels) {
    const float top = v.dtype == DType::kU8 ? 255.0f : v.dtype == DType::kU16 ? 65535.0f : 1.0f;
    scale.lo = v.level_lo;
    scale.step = (v.level_hi - v.level_lo) / top;
  }
  return scale;
}

double ContrastDisplayHi(MotionContrast kind, const VolumeStatus& v) {
  if (kind == MotionContrast::kAmplitudeDecorrelation || !v.has_levels) return 1;
  const float top = v.dtype == DType::kU8 ? 255.0f : v.dtype == DType::kU16 ? 65535.0f : 1.0f;
  const auto bright = static_cast<double>(math::AmplitudeOf(ScaleOf(v), top));
  return 0.01 * bright * bright;
}

/// One operation, ready to run: tables in host memory, and what its result is like.
struct Deriver::Step {
  Operation operation;
  VolumeStatus in, out;  // shape, dtype, value, levels, spacing, missing
  Pattern pattern;       // of `in`
  CartesianTaps taps;
  std::vector<int32_t> order;                // [bscans, repeats]
  Ranges missing;                            // of `out`
  std::shared_ptr<const ResolvedScan> scan;  // reprocessing
  std::shared_ptr<const ArrayChain> chain;
  int64_t workspace_bytes = 0;  // the same
  int64_t table_bytes() const { return workspace_bytes + static_cast<int64_t>(taps.index.size() * 8 + order.size() * 4); }
};

struct Deriver::Work {
  PinnedVolume source;
  std::vector<Step> steps;
  std::string name;                       // of the new volume
  std::string chain;                      // of the scan
  std::vector<Ledger::ChargeId> charges;  // [0]: the new volume; [1]: what lies between
  std::shared_ptr<VolumeSlot> slot;
  bool granted = false;  // what lies between is charged to the scan; so is `slot`, if there is one
};

// What each operation makes of the volume before it; nothing is allocated on the device.
absl::StatusOr<std::shared_ptr<Deriver::Work>> Deriver::Plan(const DeriveSpec& spec) {
  auto work = std::make_shared<Work>();
  auto pinned = context_.volumes->Pin(spec.name);
  if (InfoOf(pinned.status()).reason == "SPILLED") {
    OCTAVO_RETURN_IF_ERROR(context_.restore(spec.name));
    pinned = context_.volumes->Pin(spec.name);
  }
  OCTAVO_RETURN_IF_ERROR(pinned.status());
  work->source = *std::move(pinned);
  if (spec.operations.empty() || spec.operations.size() > 8) {
    return InvalidField("operations", absl::StrCat("has ", spec.operations.size(), " operations; allowed 1 to 8"));
  }
  VolumeStatus state = work->source.status;
  if (state.origin == nullptr && !state.recovered) {
    return InvalidField("name", absl::StrCat("is ", spec.name, ", which no scan acquired: it has no A-scans"));
  }
  if (state.origin == nullptr) {
    return WithInfo(absl::FailedPreconditionError(absl::StrCat(
                        spec.name, " was recovered after a restart: how it was acquired is in its files only; commit it and derive from those")),
                    {.reason = "RECOVERED", .field = "name", .numbers = {}});
  }
  const bool reprocessed = state.operations.size() == 1 && state.operations[0].rfind("reprocess", 0) == 0;  // as good as acquired
  const bool arrays =
      std::all_of(spec.operations.begin(), spec.operations.end(), [](const auto& o) { return std::holds_alternative<ArrayOperation>(o); });
  if (!state.derived_from.empty() && !reprocessed && !arrays) {
    return InvalidField("name", absl::StrCat("is ", spec.name, ", which was derived itself; give all operations at once, from ", state.derived_from));
  }
  Pattern pattern = state.origin->spec.pattern;
  bool cartesian = pattern.kind == PatternKind::kRaster || pattern.kind == PatternKind::kRepeatedRaster;
  Ranges missing = state.all_missing != nullptr ? *state.all_missing : state.missing;
  bool plain = false;  // an array: no pattern any more
  for (size_t i = 0; i < spec.operations.size(); ++i) {
    const std::string at = absl::StrCat("operations[", i, "].");
    const auto needs = [&](const char* operation, bool fine, const std::string& wants) {
      if (fine) return absl::OkStatus();
      return InvalidField(at + operation, absl::StrCat("cannot be made of this: ", wants));
    };
    Step step{.operation = spec.operations[i], .in = state, .pattern = pattern};
    if (const auto* again = std::get_if<ReprocessOperation>(&step.operation)) {
      OCTAVO_RETURN_IF_ERROR(needs("reprocess", i == 0 && state.raw != nullptr,
                                   "it is the first operation, of raw spectra; scan with retention.hold_raw and name the raw volume"));
      auto scan = ResolveReprocess(state, again->processing);
      if (!scan.ok()) return AtField(at + "reprocess.", scan.status());
      step.scan = std::make_shared<const ResolvedScan>(*std::move(scan));
      step.workspace_bytes = Reprocessor::DeviceBytes(*step.scan, *state.raw, *context_.device_of(work->source.device));
      step.missing = missing = state.raw->missing_ascans;
      state = DescribeReprocessed(state, step.scan);
      step.out = state;
      work->steps.push_back(std::move(step));
      continue;
    }
    if (state.is_raw) return InvalidField(absl::StrCat("operations[", i, "]"), absl::StrCat("is of raw spectra; begin with reprocess"));
    const bool amplitudes = state.dtype == DType::kU8 || state.dtype == DType::kU16 || state.dtype == DType::kF32;
    const std::string is_dtype = absl::StrCat("the voxels are ", Info(state.dtype).name);
    if (const auto* array = std::get_if<ArrayOperation>(&step.operation)) {
      OCTAVO_ASSIGN_OR_RETURN(step.chain, PlanVolumeOperation(*array, at.substr(0, at.size() - 1), &state));
      plain = true;
      missing.clear();  // places are not A-scans any more; floats say NaN
      step.out = state;
      work->steps.push_back(std::move(step));
      continue;
    }
    for (const char* operation : {"cartesian", "angiography", "doppler"}) {
      const bool chosen = step.operation.index() == (operation[0] == 'c' ? 0u : operation[0] == 'a' ? 1u : 2u);
      if (chosen && plain) return InvalidField(at + operation, "comes after an operation on arrays; it needs the A-scans where the pattern put them");
    }
    if (auto* grid = std::get_if<CartesianGrid>(&step.operation)) {
      OCTAVO_RETURN_IF_ERROR(needs("cartesian", !cartesian, absl::StrCat("it lies on a Cartesian grid already (", Name(pattern.kind), ")")));
      OCTAVO_RETURN_IF_ERROR(needs("cartesian", amplitudes, is_dtype + "; allowed u8, u16, f32"));
      OCTAVO_RETURN_IF_ERROR(ResolveGrid(pattern, at + "cartesian.", grid));
      if (grid->rows * grid->columns > (int64_t{1} << 40) / (state.shape[2] * SizeOf(state.dtype))) {
        return InvalidField(at + "cartesian.rows", "times columns makes more than 2^40 bytes");
      }
      state.shape[0] = grid->rows;
      state.shape[1] = grid->columns;
      state.spacing_um[0] = grid->extent_y_mm * 1e3 / static_cast<double>(grid->rows);
      state.spacing_um[1] = grid->extent_x_mm * 1e3 / static_cast<double>(grid->columns);
      state.operations.push_back(absl::StrFormat("cartesian %d x %d over %g x %g mm of %s", grid->rows, grid->columns, grid->extent_y_mm,
                                                 grid->extent_x_mm, Name(pattern.kind)));
      cartesian = true;
      pattern.kind = PatternKind::kRaster;
    } else if (const auto* angiography = std::get_if<AngiographyOperation>(&step.operation)) {
      OCTAVO_RETURN_IF_ERROR(
          needs("angiography", pattern.repeats() >= 2 && state.quantity.empty() && state.shape[0] == pattern.rows(),
                absl::StrCat("it has no repeats (", Name(pattern.kind), "); scan repeated_raster or repeated_radial with count >= 2")));
      OCTAVO_RETURN_IF_ERROR(needs("angiography", amplitudes, is_dtype + "; allowed u8, u16, f32"));
      const bool variance = angiography->method == MotionContrast::kSpeckleVariance;
      state.quantity = variance ? "speckle_variance" : "amplitude_decorrelation";
      state.display_hi = ContrastDisplayHi(angiography->method, state);
      state.operations.push_back(absl::StrCat(state.quantity, " over ", pattern.repeat_count, " repeats"));
    } else if (auto* doppler = std::get_if<DopplerOperation>(&step.operation)) {
      if (doppler->between == DopplerBetween::kDefault)
        doppler->between = pattern.repeats() >= 2 ? DopplerBetween::kRepeats : DopplerBetween::kAscans;
      OCTAVO_RETURN_IF_ERROR(needs("doppler", state.dtype == DType::kC64, is_dtype + "; a phase needs complex ones (c64)"));
      const bool repeats = doppler->between == DopplerBetween::kRepeats;
      OCTAVO_RETURN_IF_ERROR(needs("doppler.between", !repeats || (pattern.repeats() >= 2 && state.shape[0] == pattern.rows()),
                                   absl::StrCat("it has no repeats (", Name(pattern.kind), ")")));
      OCTAVO_RETURN_IF_ERROR(needs("doppler.between", repeats || (!pattern.bidirectional && state.shape[1] >= 2),
                                   "ASCANS needs B-scans of one direction and at least two A-scans"));
      if (doppler->half_window >= state.shape[2]) {
        return InvalidField(at + "doppler.half_window", absl::StrCat("is ", doppler->half_window, "; allowed 0 to ", state.shape[2] - 1));
      }
      state.quantity = "phase_rad";
      state.display_lo = -std::numbers::pi;
      state.display_hi = std::numbers::pi;
      if (!repeats) --state.shape[1];
      state.operations.push_back(
          absl::StrCat("doppler between ", repeats ? "repeats" : "A-scans", ", ", 2 * doppler->half_window + 1, " depth samples"));
    }
    const bool over_repeats =
        std::holds_alternative<AngiographyOperation>(step.operation) ||
        (std::holds_alternative<DopplerOperation>(step.operation) && std::get<DopplerOperation>(step.operation).between == DopplerBetween::kRepeats);
    if (over_repeats) {
      for (int64_t b = 0; b < pattern.bscans_per_volume; ++b) {
        for (int64_t r = 0; r < pattern.repeat_count; ++r) step.order.push_back(static_cast<int32_t>(RepeatRow(pattern, b, r)));
      }
      for (int64_t a = 0; a < pattern.bscans_per_volume * state.shape[1]; ++a) {
        bool lacks = false;
        for (int64_t r = 0; r < pattern.repeat_count; ++r) {
          lacks |= IsMissing(missing,
                             step.order[static_cast<size_t>(a / state.shape[1] * pattern.repeat_count + r)] * state.shape[1] + a % state.shape[1]);
        }
        if (lacks) AddAscan(a, &step.missing);
      }
      state.shape[0] = pattern.bscans_per_volume;
      pattern.kind = pattern.kind == PatternKind::kRepeatedRaster ? PatternKind::kRaster : PatternKind::kRadial;
    } else if (std::holds_alternative<DopplerOperation>(step.operation)) {
      for (int64_t a = 0; a < state.shape[0] * state.shape[1]; ++a) {
        const int64_t from = a / state.shape[1] * (state.shape[1] + 1) + a % state.shape[1];
        if (IsMissing(missing, from) || IsMissing(missing, from + 1)) AddAscan(a, &step.missing);
      }
      // One A-scan less a B-scan: no pattern any more that could be resampled.
      cartesian = true;
    } else {
      const auto& grid = std::get<CartesianGrid>(step.operation);
      step.taps = MakeCartesianTaps(step.pattern, grid, missing);
      if (!missing.empty()) {  // points that would be covered if nothing were missing
        const CartesianTaps whole = MakeCartesianTaps(step.pattern, grid, {});
        for (int64_t a = 0; a < grid.rows * grid.columns; ++a) {
          const auto sum = [&](const CartesianTaps& taps) {
            float weights = 0;
            for (int64_t t = 0; t < taps.taps; ++t) weights += taps.weight[static_cast<size_t>(a * taps.taps + t)];
            return weights;
          };
          if (sum(step.taps) < math::kLeastWeight && sum(whole) >= math::kLeastWeight) AddAscan(a, &step.missing);
        }
      }
    }
    if (!state.quantity.empty()) {
      state.dtype = DType::kF32;
      state.has_levels = false;
    }
    missing = step.missing;
    state.bytes = BytesOf(state);
    step.out = state;
    work->steps.push_back(std::move(step));
  }
  return work;
}

absl::Status Deriver::Derive(const DeriveSpec& spec, std::function<void(absl::StatusOr<VolumeStatus>)> done) {
  std::string answered;
  {
    MutexLock lock(mutex_);
    if (auto it = requests_.find(spec.request_id); !spec.request_id.empty() && it != requests_.end()) {
      if (it->second.first != spec.request_digest) {
        return WithInfo(absl::AlreadyExistsError(absl::StrCat("request_id '", spec.request_id, "' was used with another body")),
                        {.reason = "IDEMPOTENCY_MISMATCH", .field = "request_id", .numbers = {}});
      }
      if (it->second.second.empty()) {
        return WithInfo(absl::UnavailableError(absl::StrCat("request_id '", spec.request_id, "' is still at work; ask again")),
                        {.reason = "IN_PROGRESS", .field = "request_id", .numbers = {{"retryable", "true"}}});
      }
      answered = it->second.second;
    } else {
      if (!spec.request_id.empty()) requests_[spec.request_id] = {spec.request_digest, ""};
      ++pending_;
    }
  }
  if (!answered.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(VolumeStatus volume, context_.volumes->Get(answered));
    done(std::move(volume));
    return absl::OkStatus();
  }
  // Planning takes as long as its tables are large: it is the worker's too.
  auto task = [this, spec, done = std::move(done)] {
    bool told = false;
    auto result = [&]() -> absl::StatusOr<VolumeStatus> {
      OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<Work> work, Plan(spec));
      work->chain = spec.chain;
      if (spec.memory != nullptr) {
        work->granted = true;
        work->slot = spec.memory->TryTake(spec.chain);
      }
      return Run(*work, [&](const VolumeStatus& planned) {
        if (!spec.asynchronous) return;
        told = true;
        Remember(spec, planned.name);
        done(planned);
      });
    }();
    Finish(spec, result);
    if (!told) done(std::move(result));
  };
  if (spec.memory != nullptr) {
    spec.memory->Post(context_.workers, spec.memory, std::move(task));
  } else {
    context_.workers->Post(std::move(task));
  }
  return absl::OkStatus();
}

void Deriver::Remember(const DeriveSpec& spec, const std::string& name) {
  MutexLock lock(mutex_);
  if (!spec.request_id.empty()) requests_[spec.request_id].second = name;
}

void Deriver::Finish(const DeriveSpec& spec, const absl::StatusOr<VolumeStatus>& result) {
  MutexLock lock(mutex_);
  --pending_;
  if (spec.request_id.empty()) return;
  if (result.ok()) {
    requests_[spec.request_id].second = result->name;
  } else {
    requests_.erase(spec.request_id);
  }
}

int64_t Deriver::Pending() {
  MutexLock lock(mutex_);
  return pending_;
}

absl::StatusOr<VolumeStatus> Deriver::Run(Work& work, const std::function<void(const VolumeStatus&)>& planned) {
  const VolumeStatus& source = work.source.status;
  VolumeStatus result = work.steps.back().out;
  int64_t between = 0;
  for (const Step& step : work.steps) {
    between += step.table_bytes() + (&step == &work.steps.back() ? 0 : step.out.bytes);
    if (step.chain == nullptr) continue;
    OCTAVO_ASSIGN_OR_RETURN(const int64_t scratch, ScratchBytes(*step.chain, *context_.device_of(work.source.device)));
    between += scratch;
  }
  std::vector<AdmissionReport::Item> needs;
  if (work.slot == nullptr) needs.push_back({.what = "derived volume", .bytes = ClientMemory::Bytes(result.bytes) + 256, .count = 1});
  if (!work.granted) needs.push_back({.what = "tables and volumes between", .bytes = std::max<int64_t>(between, 256), .count = 1});
  if (!needs.empty()) {
    OCTAVO_ASSIGN_OR_RETURN(work.charges, context_.ledger->Reserve(work.source.device, source.scan, source.title, needs, nullptr));
  }
  Device& device = *context_.device_of(work.source.device);
  const auto pool = std::make_shared<SlotPool>(context_.ledger);
  const absl::Status status = [&]() -> absl::Status {
    if (work.slot != nullptr) return absl::OkStatus();
    auto slot = std::make_unique<VolumeSlot>();
    slot->charge = work.charges[0];
    OCTAVO_ASSIGN_OR_RETURN(slot->volume, ClientMemory::Allocate(device, result.bytes));
    OCTAVO_ASSIGN_OR_RETURN(slot->digest, device.Allocate(256));
    // From here on the slot's charge ends with the slot.
    pool->Add(std::move(slot));
    work.slot = pool->TryTake();
    work.charges.erase(work.charges.begin());
    return absl::OkStatus();
  }();
  pool->Close();
  result.name = absl::StrCat("volumes/", NewId(context_.server_id));
  result.derived_from = source.derived_from.empty() ? source.name : source.derived_from;
  result.chain = work.chain;
  result.state = VolumeState::kAcquiring;
  result.has_commit = false;
  result.tier = Tier::kDevice;
  result.moving.clear();
  result.marked = result.orphaned = false;
  result.last_error.clear();
  result.held_seconds = 0;
  const Ranges& missing = work.steps.back().missing;
  result.missing_ascans = 0;
  for (const auto& range : missing) result.missing_ascans += range.second;
  result.missing.assign(missing.begin(), missing.begin() + std::min<std::ptrdiff_t>(32, std::ssize(missing)));
  result.all_missing = missing.size() > 32 ? std::make_shared<const Ranges>(missing) : nullptr;
  absl::Status computed = status;
  if (status.ok()) {
    context_.volumes->Add(result, work.slot, work.source.device);
    planned(result);
    computed = Compute(work, device);
    if (computed.ok()) {
      PinnedBuffer word;
      auto stream = device.NewStream(StreamPriority::kLow);
      computed = stream.status();
      if (computed.ok()) {
        computed = [&]() -> absl::Status {
          OCTAVO_ASSIGN_OR_RETURN(word, device.AllocatePinned(8));
          OCTAVO_RETURN_IF_ERROR(device.Digest(stream->ref(), work.slot->volume.data(), result.bytes, work.slot->digest.as<uint64_t>()));
          OCTAVO_RETURN_IF_ERROR(device.CopyToHost(stream->ref(), word.data(), work.slot->digest.data(), 8));
          return stream->ref().Synchronize();
        }();
      }
      if (computed.ok()) result.digest = absl::StrFormat("sum64:%016x", *word.as<uint64_t>());
    }
    work.slot = nullptr;
    if (computed.ok()) {
      context_.volumes->Seal(result, /*kept=*/true);
    } else {
      context_.volumes->Fail(result.name, std::string(computed.message()));
    }
  }
  for (const auto id : work.charges) context_.ledger->Release(id);
  OCTAVO_RETURN_IF_ERROR(Annotate(computed, absl::StrCat("while deriving from ", source.name)));
  return context_.volumes->Get(result.name);
}

// All steps on one stream; what lies between lives until it is through.
absl::Status Deriver::Compute(Work& work, Device& device) {
  std::vector<DeviceBuffer> buffers;  // declared before the stream: freed after its work is done
  std::unique_ptr<Reprocessor> reprocessor;
  std::vector<std::unique_ptr<ChainRun>> runs;
  OCTAVO_ASSIGN_OR_RETURN(Stream stream, device.NewStream(StreamPriority::kLow));
  const auto upload = [&](const void* data, size_t bytes) -> absl::StatusOr<const void*> {
    OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer buffer, device.Allocate(static_cast<int64_t>(bytes)));
    OCTAVO_RETURN_IF_ERROR(device.CopyToDevice(stream.ref(), buffer.data(), data, static_cast<int64_t>(bytes)));
    buffers.push_back(std::move(buffer));
    return buffers.back().data();
  };
  const void* in = work.source.slot->volume.data();
  for (const Step& step : work.steps) {
    void* out = work.slot->volume.data();
    if (&step != &work.steps.back()) {
      OCTAVO_ASSIGN_OR_RETURN(DeviceBuffer between, device.Allocate(step.out.bytes));
      buffers.push_back(std::move(between));
      out = buffers.back().data();
    }
    const int64_t rows = step.in.shape[0], columns = step.in.shape[1], depth = step.in.shape[2];
    if (step.scan != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(reprocessor, Reprocessor::Create(*step.scan, work.source, device, stream.ref()));
      OCTAVO_RETURN_IF_ERROR(reprocessor->Run(stream.ref(), {.volume = out}, nullptr));
    } else if (step.chain != nullptr) {
      OCTAVO_ASSIGN_OR_RETURN(auto run, ChainRun::Create(step.chain, device));
      runs.push_back(std::move(run));
      OCTAVO_RETURN_IF_ERROR(runs.back()->Run(stream.ref(), in, {}, out));
    } else if (std::holds_alternative<CartesianGrid>(step.operation)) {
      OCTAVO_ASSIGN_OR_RETURN(const void* index, upload(step.taps.index.data(), step.taps.index.size() * 4));
      OCTAVO_ASSIGN_OR_RETURN(const void* weight, upload(step.taps.weight.data(), step.taps.weight.size() * 4));
      OCTAVO_RETURN_IF_ERROR(GatherAscans(stream.ref(), device, {.data = in, .dtype = step.in.dtype, .ascans = rows * columns, .depth = depth},
                                          {.index = static_cast<const int32_t*>(index),
                                           .weight = static_cast<const float*>(weight),
                                           .ascans = step.out.shape[0] * step.out.shape[1],
                                           .taps = step.taps.taps},
                                          out));
    } else {
      RepeatView view{.data = in,
                      .dtype = step.in.dtype,
                      .rows = rows,
                      .columns = columns,
                      .depth = depth,
                      .order = nullptr,
                      .bscans = step.pattern.bscans_per_volume,
                      .repeats = step.pattern.repeats()};
      if (!step.order.empty()) {
        OCTAVO_ASSIGN_OR_RETURN(const void* order, upload(step.order.data(), step.order.size() * 4));
        view.order = static_cast<const int32_t*>(order);
      }
      auto* phases = static_cast<float*>(out);
      if (const auto* angiography = std::get_if<AngiographyOperation>(&step.operation)) {
        OCTAVO_RETURN_IF_ERROR(Angiogram(stream.ref(), device, angiography->method, view, ScaleOf(step.in), phases));
      } else {
        const auto& doppler = std::get<DopplerOperation>(step.operation);
        OCTAVO_RETURN_IF_ERROR(doppler.between == DopplerBetween::kRepeats
                                   ? DopplerOverRepeats(stream.ref(), device, view, doppler.half_window, phases)
                                   : DopplerOverAscans(stream.ref(), device, view, doppler.half_window, phases));
      }
      // Integers and phases do not tell by themselves that a part of them was missing.
      for (const auto& [first, count] : step.missing) {
        OCTAVO_RETURN_IF_ERROR(device.Fill(stream.ref(), phases + first * step.out.shape[2], count * step.out.shape[2] * 4, 0x7FC00000u));
      }
    }
    in = out;
  }
  return stream.ref().Synchronize();
}

}  // namespace octavo::engine
