#include "server/tomography/tomography_job.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "gpu/base/status.h"
#include "gpu/tomography/truncation.h"
#include "server/buffer/array_input.h"
#include "server/source/push_projections.h"
#include "server/tomography/drift_finder.h"
#include "server/tomography/flat_finder.h"
#include "server/tomography/half_turn.h"
#include "server/tomography/layout.h"
#include "server/tomography/mosaic.h"
#include "server/tomography/odd_values.h"
#include "server/tomography/plausible.h"
#include "server/tomography/projection_arrays.h"
#include "server/tomography/projection_cache.h"
#include "server/tomography/projection_file.h"
#include "server/tomography/result_volume.h"
#include "server/tomography/run.h"
#include "server/tomography/volume_series.h"
#include "server/volume/spiller.h"
#include "server/volume/volume_store.h"

namespace octavo::tomography {
namespace {

constexpr int64_t kMostSlices = 64;  // slices of a batch: more bring no gain
constexpr int64_t kLeastBatches =
    4;  // batches, so that reading, uploading and computing overlap, if a batch keeps kFewSlices
constexpr int64_t kFewSlices = 16;
constexpr int64_t kMostProjections = 65535;  // PrepareConfig::angles
constexpr int64_t kMostFields =
    512;  // flat or dark fields for which room is reserved before any was pushed
constexpr std::chrono::milliseconds kMemoryPoll(50);

struct HostMemory {
  int64_t bytes = 0;
  const char* field = "";  // that asks for it
  const char* what = "";
  const char* allowed = "";
};

/// Host memory for the larger of two searches, which follow each other: of the open beam of each
/// projection, and of the drift along the axis.
/// Beside it, that of the fields of a mosaic's tiles, which stays to the end.
absl::StatusOr<HostMemory> SearchHostMemory(const TomographyLayout& layout, int64_t of_tiles) {
  OCTAVO_ASSIGN_OR_RETURN(const int64_t flats, FlatFinderHostBytes(layout));
  OCTAVO_ASSIGN_OR_RETURN(const int64_t drift, DriftFinderHostBytes(layout));
  if (of_tiles > drift) {
    return HostMemory{
        .bytes = of_tiles + drift,
        .field = "tomography.mosaic.tiles",
        .what = "the combined fields of all tiles, and what is found before them, take ",
        .allowed = "; allowed are fewer or smaller tiles"};
  }
  if (flats > drift) {
    return HostMemory{.bytes = flats,
                      .field = "tomography.preparation.dynamic_flats",
                      .what = "the search for components of the flat fields takes ",
                      .allowed = "; allowed are fewer flat fields or projections"};
  }
  return HostMemory{.bytes = of_tiles + drift,
                    .field = "tomography.preparation.row_drift",
                    .what = "the profiles of all projections take ",
                    .allowed = "; allowed are fewer projections or rows"};
}

// What AUTO may take for a pair of slices: a quarter of the smallest budget, so that all devices of
// a kind make the same choice, and batches and results have room. devices/host may have a far
// smaller budget, and changes nothing for the others. 0 = no budgets.
int64_t MostOfAuto(const job::JobEnvironment& environment) {
  if (environment.ledger == nullptr) return 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int device = 0; device < environment.ledger->names().numbered(); ++device)
    least = std::min(least, environment.ledger->UseOf(device).budget);
  return std::max<int64_t>(1, least / 4);
}

class TomographyWork final : public job::JobWork {
 public:
  TomographyWork(model::TomographySpec spec, const job::JobEnvironment& environment,
                 std::shared_ptr<storage::ProjectionInput> input,
                 std::shared_ptr<const Mosaic> mosaic, std::shared_ptr<source::ProjectionPort> port,
                 std::shared_ptr<const buffer::ArrayInput> initial, TomographyLayout layout,
                 std::vector<model::IndexRange> half_turns, int64_t projections,
                 std::vector<std::string> warnings, std::shared_ptr<void> search_memory)
      : spec_(std::move(spec)),
        environment_(environment),
        input_(std::move(input)),
        mosaic_(std::move(mosaic)),
        port_(std::move(port)),
        initial_(std::move(initial)),
        layout_(std::move(layout)),
        half_turns_(std::move(half_turns)),
        projections_(projections),
        volumes_(WindowsIn(spec_, projections)),
        warnings_(std::move(warnings)),
        search_memory_(std::move(search_memory)) {}
  ~TomographyWork() override {
    if (port_ != nullptr) port_->Close();
  }

  job::JobKind kind() const override { return job::JobKind::kTomography; }
  std::string Parameters() const override { return spec_.json; }
  std::shared_ptr<source::ProjectionPort> projection_port() const override { return port_; }
  bool makes_series() const override { return spec_.series.has_value(); }

  std::optional<model::VolumeStatus> Expected() const override {
    return DescribeResult(spec_, layout_,
                          input_ != nullptr    ? input_->info().pixel_size_um
                          : mosaic_ != nullptr ? mosaic_->info().pixel_size_um
                                               : port_->spec().pixel_size_um);
  }

  absl::StatusOr<job::JobPlan> Plan(Device& device) const override {
    OCTAVO_ASSIGN_OR_RETURN(const Chosen chosen, Choose(device));
    const TomographyMemory& m = chosen.memory;
    const int64_t batch = m.slices_per_batch, batches = (layout_.slices() + batch - 1) / batch;
    job::JobPlan plan;
    // Sinograms of a push may become smaller, and a series shorter: how many of its frames are
    // projections is known when all have come.
    for (int64_t i = 0; i < volumes_; ++i) {
      const bool after_before = chosen.on_disk && i > 0;
      plan.results.push_back({.bytes = layout_.slices() * layout_.stored_image_bytes(),
                              .mip_bytes = after_before ? 0 : layout_.stored_image_bytes(),
                              .on_disk = chosen.on_disk,
                              .after_before = after_before});
    }
    plan.workspace_bytes = m.workspace();
    plan.warnings = warnings_;
    plan.view_extents[0] = layout_.image_rows();
    plan.view_extents[1] = layout_.image_columns();
    plan.view_extents[2] = layout_.slices();
    plan.bscan_axis = model::FrameAxis::kZ;
    plan.shape = {layout_.slices(), layout_.image_rows(), layout_.image_columns()};
    plan.text = absl::StrCat(
        layout_.Text(), mosaic_ == nullptr ? "" : absl::StrJoin(mosaic_->log(), "\n") + "\n",
        HalfTurnText(spec_, half_turns_), SeriesText(spec_, projections_), "batches: ", batches,
        " of ", batch, " slices, result ", SamplesText(), " ",
        chosen.on_disk ? "on disk" : "in device memory",
        "\nmemory of a batch: ", (m.raw + m.fields) >> 20, " MiB raw data, ", m.prepare >> 20,
        " MiB preparation, ", m.sinograms >> 20, " MiB sinograms, ", m.reconstruct >> 20,
        " MiB reconstruction\n", LiveText(m.live));
    return plan;
  }

  absl::Status Run(job::JobRun& run, std::stop_token stop) override {
    OCTAVO_ASSIGN_OR_RETURN(const Chosen chosen, ChosenBefore(run.device()));
    // Do this before the job takes other host memory, so that no two jobs wait for each other.
    OCTAVO_ASSIGN_OR_RETURN(const std::shared_ptr<void> search_memory, SearchMemory(run, stop));
    // Reads the file once for the search of the axis, the trial slices and all batches.
    std::string note;
    const bool again = chosen.memory.slices_per_batch < layout_.slices() || spec_.center.find ||
                       chosen.memory.check_slices > 0 || chosen.memory.support > 1 ||
                       spec_.samples.found() || volumes_ > 1 ||
                       spec_.half_turn == model::HalfTurn::kBest ||
                       spec_.preparation.dynamic_flats || spec_.preparation.finds_drift;
    auto input = again ? CacheChunks(input_, environment_.projection_memory, &note) : input_;
    if (!note.empty()) run.Log(note);
    std::shared_ptr<const MosaicInput> joined;
    if (mosaic_ != nullptr) {
      for (const std::string& line : mosaic_->log()) run.Log(line);
      std::vector<std::string> notes;
      const auto tiles =
          mosaic_->MakeInput(again ? environment_.projection_memory : nullptr, &notes);
      for (const std::string& of_tile : notes) run.Log(of_tile);
      joined = tiles;
      input = tiles;
    }
    return RunTomography(run, stop,
                         {.spec = &spec_,
                          .layout = &layout_,
                          .input = input,
                          .mosaic = joined.get(),
                          .tiles = mosaic_ == nullptr ? nullptr : &mosaic_->tiles(),
                          .port = port_.get(),
                          .initial = initial_.get(),
                          .half_turns = half_turns_,
                          .slices_per_batch = chosen.memory.slices_per_batch,
                          .memory = chosen.memory,
                          .on_disk = chosen.on_disk});
  }

 private:
  struct Chosen {
    TomographyMemory memory;
    bool on_disk = false;
  };

  // Host memory for the searches before the first batch. Waits until other imports and pushes leave
  // room.
  absl::StatusOr<std::shared_ptr<void>> SearchMemory(job::JobRun& run,
                                                     const std::stop_token& stop) const {
    if (search_memory_ != nullptr || environment_.projection_memory == nullptr)
      return search_memory_;
    OCTAVO_ASSIGN_OR_RETURN(
        const HostMemory wanted,
        SearchHostMemory(layout_, mosaic_ != nullptr ? mosaic_->field_bytes() : 0));
    const int64_t bytes = wanted.bytes;
    if (bytes == 0) return std::shared_ptr<void>();
    for (bool told = false;;) {
      if (auto reserved = environment_.projection_memory->Reserve(bytes)) return reserved;
      if (!std::exchange(told, true))
        run.Log(absl::StrCat("waits for ", bytes >> 20, " MiB of host memory"));
      if (stop.stop_requested()) return absl::CancelledError("cancelled");
      std::this_thread::sleep_for(kMemoryPoll);
    }
  }

  std::string SamplesText() const {
    const model::ResultSamplesSpec& samples = spec_.samples;
    const char* const type = Info(samples.type).name;
    if (!samples.windowed()) return type;
    if (samples.found()) return absl::StrCat(type, " (window is found)");
    return absl::StrCat(type, " (window ", samples.low, " to ", samples.high, ")");
  }

  // What subscribers see before all projections are in.
  const char* LiveText(LiveKind live) const {
    switch (live) {
      case LiveKind::kNone:
        return port_ == nullptr ? "" : "while projections come: no planes can be seen\n";
      case LiveKind::kOneSlice:
        return "while projections come: one plane along z can be seen; there is no room for more\n";
      case LiveKind::kSlices:
        return "while projections come: planes along z can be seen; there is no room for those "
               "along y and x\n";
      case LiveKind::kAll: break;
    }
    return "while projections come: planes along z, y and x can be seen\n";
  }

  // Keep the plan's choice: the free memory may have changed since.
  absl::StatusOr<Chosen> ChosenBefore(Device& device) const {
    MutexLock lock(mutex_);
    const auto it = chosen_.find(device.info().index);
    if (it == chosen_.end()) return absl::InternalError("the job was not planned for this device");
    return it->second;
  }

  // Batches of the best size that fits into the free memory; if not even one slice fits now, small
  // batches that will fit when other memory is freed. A result that never fits beside them is
  // stored on disk.
  absl::StatusOr<Chosen> Choose(Device& device) const {
    const int index = device.info().index;
    constexpr int64_t kAny = int64_t{1} << 60;
    const auto use = environment_.ledger == nullptr ? memory::Ledger::Use{.budget = kAny}
                                                    : environment_.ledger->UseOf(index);
    const int64_t result = volumes_ * layout_.slices() * layout_.stored_image_bytes();
    const auto results = [&](bool on_disk) {
      const int64_t mip = layout_.stored_image_bytes();
      return on_disk ? mip : result + volumes_ * mip;
    };
    const int64_t most = std::min(
        layout_.slices(), std::clamp(layout_.slices() / kLeastBatches, kFewSlices, kMostSlices));
    MemoryBook book;
    const auto largest = [&](bool on_disk, double support, bool checks,
                             LiveKind live) -> absl::StatusOr<TomographyMemory> {
      int64_t slices =
          spec_.slices_per_batch > 0 ? std::min(spec_.slices_per_batch, layout_.slices()) : most;
      for (;;) {
        OCTAVO_ASSIGN_OR_RETURN(TomographyMemory memory,
                                MemoryFor(layout_, spec_, device, slices, support, checks, live,
                                          on_disk, /*previews=*/true, book));
        if (slices == 1 || spec_.slices_per_batch > 0 ||
            memory.workspace() + results(on_disk) <= use.free())
          return memory;
        slices = slices > 8 ? slices / 8 * 4 : slices / 2;
      }
    };
    // The check of an axis, and planes that are shown while projections come, must not make a job
    // wait for memory or shrink its batches.
    const auto roomiest = [&](bool on_disk, double support) -> absl::StatusOr<TomographyMemory> {
      OCTAVO_ASSIGN_OR_RETURN(TomographyMemory best,
                              largest(on_disk, support, false, LiveKind::kNone));
      const auto take = [&](bool checks, LiveKind live) -> absl::Status {
        OCTAVO_ASSIGN_OR_RETURN(const TomographyMemory with,
                                largest(on_disk, support, checks, live));
        const bool fits = with.workspace() + results(on_disk) <= use.free();
        if (fits && with.slices_per_batch == best.slices_per_batch) best = with;
        return absl::OkStatus();
      };
      OCTAVO_RETURN_IF_ERROR(take(true, LiveKind::kNone));
      if (port_ == nullptr) return best;
      for (const LiveKind live : {LiveKind::kOneSlice, LiveKind::kSlices, LiveKind::kAll})
        OCTAVO_RETURN_IF_ERROR(take(best.check_slices > 0, live));
      return best;
    };
    Chosen chosen;
    for (const bool on_disk : {false, true}) {
      if (on_disk ? spec_.place == model::ResultPlace::kDevice
                  : spec_.place == model::ResultPlace::kDisk)
        continue;
      chosen.on_disk = on_disk;
      // Reserve room for objects wider than the detector, which are not known yet; drop it if it
      // exceeds the budget.
      OCTAVO_ASSIGN_OR_RETURN(chosen.memory, roomiest(on_disk, kWidestObject));
      if (chosen.memory.workspace() + results(on_disk) > use.budget) {
        OCTAVO_ASSIGN_OR_RETURN(chosen.memory, roomiest(on_disk, 1));
      }
      const int64_t wanted = chosen.memory.workspace() + results(on_disk);
      if (wanted <= use.budget) break;
      if (on_disk || spec_.place == model::ResultPlace::kDevice ||
          environment_.spiller == nullptr ||
          environment_.spiller->FreeOf(model::Tier::kDisk) < result)
        break;
    }
    MutexLock lock(mutex_);
    return chosen_[index] = chosen;
  }

  const model::TomographySpec spec_;
  const job::JobEnvironment environment_;
  const std::shared_ptr<storage::ProjectionInput> input_;  // null: pushed, or a mosaic
  const std::shared_ptr<const Mosaic> mosaic_;             // null: another input
  const std::shared_ptr<source::ProjectionPort> port_;
  const std::shared_ptr<const buffer::ArrayInput> initial_;  // null: none
  const TomographyLayout layout_;                            // of a series: of its first volume
  const std::vector<model::IndexRange> half_turns_;          // empty: none, or of a push
  const int64_t projections_, volumes_;  // of a push: the most that there can be
  const std::vector<std::string> warnings_;
  const std::shared_ptr<void> search_memory_;  // of a push; else taken when the job runs
  mutable Mutex mutex_;
  mutable std::map<int, Chosen> chosen_ ABSL_GUARDED_BY(mutex_);  // by device
};

/// Host memory for the searches: refused if the server never has as much. A push takes it at once,
/// with that of its frames; null otherwise.
absl::StatusOr<std::shared_ptr<void>> TakeSearchMemory(const TomographyLayout& layout,
                                                       int64_t of_tiles, bool pushed,
                                                       const job::JobEnvironment& environment) {
  source::ProjectionMemory* const memory = environment.projection_memory;
  OCTAVO_ASSIGN_OR_RETURN(const HostMemory wanted, SearchHostMemory(layout, of_tiles));
  const int64_t bytes = wanted.bytes;
  std::shared_ptr<void> taken;
  if (bytes == 0 || memory == nullptr) return taken;
  const bool possible = bytes <= memory->limit_bytes();
  if (possible && pushed) {
    const absl::string_view what = absl::StripSuffix(wanted.what, " ");
    return memory->Reserve({.bytes = bytes,
                            .payer = environment.payer,
                            .field = wanted.field,
                            .what = std::string(what)});
  }
  if (possible) return taken;
  return WithInfo(
      absl::ResourceExhaustedError(absl::StrCat(
          wanted.field, ": ", wanted.what, bytes, " bytes of host memory; the server has ",
          memory->limit_bytes(), " for such", wanted.allowed)),
      {.reason = Reason::kHostMemory,
       .field = wanted.field,
       .numbers = {{"wanted", absl::StrCat(bytes)},
                   {"limit", absl::StrCat(memory->limit_bytes())},
                   {"retryable", "false"}}});
}

/// The slices to begin with, which have the result's shape; null = the job asks for none.
absl::StatusOr<std::shared_ptr<const buffer::ArrayInput>> OpenInitial(
    const model::TomographySpec& spec, const TomographyLayout& layout,
    buffer::BufferStore* buffers) {
  if (spec.initial_volume.empty()) return nullptr;
  if (buffers == nullptr)
    return InvalidField("tomography.initial_volume", "is given, but this engine has no arrays");
  OCTAVO_ASSIGN_OR_RETURN(
      auto initial,
      buffer::ArrayInput::OpenFloats(*buffers, "tomography.initial_volume", spec.initial_volume));
  const auto& shape = initial->type().dims;
  if (shape[0] == layout.slices() && shape[1] == layout.image_rows() &&
      shape[2] == layout.image_columns())
    return initial;
  return InvalidField("tomography.initial_volume",
                      absl::StrCat("is [", shape[0], ", ", shape[1], ", ", shape[2],
                                   "]; allowed is [", layout.slices(), ", ", layout.image_rows(),
                                   ", ", layout.image_columns(), "], the result's shape"));
}

/// What the input says of itself: its numbers must be what the job takes them for. `name` and
/// `field`: of the volume or the file.
absl::Status CheckQuantity(const model::TomographySpec& spec, model::Quantity quantity,
                           const std::string& name, const char* field) {
  const model::PreparationSpec& p = spec.preparation;
  const auto refused = [&](const char* wrong, const std::string& why) {
    return InvalidField(
        wrong, absl::StrCat(why, " (", name, " holds ",
                            absl::StrReplaceAll(model::Name(quantity), {{"_", " "}}), " values)"));
  };
  switch (quantity) {
    case model::Quantity::kAttenuation:
      return refused(field, "is reconstructed already; allowed are projections or sinograms");
    case model::Quantity::kLineIntegral:
      if (!p.already_sinograms && p.config.minus_log)
        return refused("tomography.preparation.already_sinograms",
                       "is not set, and a logarithm would be taken a second time; allowed is true");
      break;
    case model::Quantity::kTransmission:
      if (p.already_sinograms)
        return refused("tomography.preparation.already_sinograms",
                       "is set, and no logarithm would be taken; allowed is false, with "
                       "ignore_fields");
      break;
    default: break;
  }
  return absl::OkStatus();
}

absl::Status CheckVolume(const model::TomographySpec& spec, const model::VolumeStatus& volume) {
  constexpr char kField[] = "tomography.arrays.projections";
  OCTAVO_RETURN_IF_ERROR(CheckQuantity(spec, volume.quantity, volume.name, kField));
  const bool taken = volume.quantity == model::Quantity::kLineIntegral ||
                     volume.quantity == model::Quantity::kTransmission;
  if (!taken || !volume.has_levels) return absl::OkStatus();
  // Its numbers are not the values.
  return InvalidField(
      kField,
      absl::StrCat("has the type ", Info(volume.dtype).name, " with the window ", volume.level_lo,
                   " to ", volume.level_hi, ", which this job does not undo; allowed is f32 (",
                   volume.name, " holds ",
                   absl::StrReplaceAll(model::Name(volume.quantity), {{"_", " "}}), " values)"));
}

/// The same for a file that Octavo committed.
absl::Status CheckFile(const model::TomographySpec& spec, const storage::ProjectionInfo& info,
                       const std::string& path) {
  const auto quantity = model::QuantityNamed(info.quantity);
  return quantity.has_value() ? CheckQuantity(spec, *quantity, path, "tomography.file.path")
                              : absl::OkStatus();
}

// All frames of a push could be projections: more than a job may use are refused before the first
// one comes.
absl::Status CheckUsed(const model::IndexRange& projections, int64_t frames) {
  const model::IndexRange used{
      .begin = projections.begin,
      .end = projections.end == 0 ? frames : std::min(projections.end, frames),
      .step = std::max<int64_t>(projections.step, 1)};
  if (used.begin >= used.end || used.count() <= kMostProjections) return absl::OkStatus();
  return InvalidField(
      "tomography.push.frames",
      absl::StrCat("is ", frames, ", of which ", used.count(),
                   " could be projections that the job uses; allowed ", kMostProjections,
                   ": let tomography.projections pick fewer, or push several jobs"));
}

// A push before any frame has arrived: all its frames could be projections. Its angles are assumed,
// for the memory alone: those that are used, or those of a volume of a series, make a complete
// turn, which no check refuses.
storage::ProjectionInfo Expected(const model::TomographySpec& spec,
                                 const model::PushedProjectionsSpec& push) {
  storage::ProjectionInfo info;
  info.format = "push";
  info.dtype = push.dtype;
  info.packing = push.packing;
  info.projections = spec.angles_rad.empty() ? push.frames : std::ssize(spec.angles_rad);
  info.rows = push.rows;
  info.columns = push.columns;
  info.flats = info.darks = std::min<int64_t>(push.frames, kMostFields);
  info.angles_rad.assign(static_cast<size_t>(info.projections), 0.0);
  const double span = 3.14159265358979323846 * (spec.preparation.config.stitching.enabled ? 2 : 1);
  const int64_t used = spec.series.has_value() ? spec.series->projections
                                               : UsedProjections(spec, info.projections),
                together = std::max<int64_t>(1, used) * std::max<int64_t>(1, spec.projections.step);
  for (int64_t i = 0; i < info.projections; ++i) {
    info.angles_rad[static_cast<size_t>(i)] =
        span * static_cast<double>(i - spec.projections.begin) / static_cast<double>(together);
  }
  info.flat_positions.assign(static_cast<size_t>(info.flats), 0.0);
  return info;
}

/// Nothing for a buffer, and for a volume that OpenProjectionArrays will not find either.
std::optional<model::VolumeStatus> HeldVolume(const job::JobEnvironment& environment,
                                              const std::string& name) {
  if (environment.volumes == nullptr || !absl::StartsWith(name, "volumes/")) return std::nullopt;
  auto volume = environment.volumes->Get(name);
  return volume.ok() ? std::optional(*std::move(volume)) : std::nullopt;
}

// An axis that the input has of its own, where the job asks for a search only without one. A search
// that is refused beside the other fields is refused for every input.
void TakeAxisOf(const storage::ProjectionInfo& info, model::TomographySpec& spec) {
  const bool may_search = spec.reconstruction.form != TomographyForm::kTomopy &&
                          !spec.preparation.config.stitching.enabled &&
                          !spec.try_centers.has_value();
  if (spec.center.unless_in_file && may_search && info.axis_column.has_value())
    spec.center = {.row = spec.center.row};
}

}  // namespace

absl::StatusOr<std::unique_ptr<job::JobWork>> MakeTomographyWork(
    const model::TomographySpec& asked, const job::JobEnvironment& environment) {
  model::TomographySpec spec = asked;
  spec.reconstruction.auto_bytes = MostOfAuto(environment);
  std::shared_ptr<storage::ProjectionInput> input;
  std::shared_ptr<const Mosaic> mosaic;
  std::shared_ptr<source::ProjectionPort> port;
  storage::ProjectionInfo info;
  if (const auto* file = std::get_if<model::ProjectionFileSpec>(&spec.input)) {
    OCTAVO_ASSIGN_OR_RETURN(input, OpenProjectionFile(*file, environment.file_roots,
                                                      "tomography.file", spec.angles_rad));
    info = input->info();
    OCTAVO_RETURN_IF_ERROR(CheckFile(spec, info, file->path));
  } else if (const auto* arrays = std::get_if<model::ProjectionArraysSpec>(&spec.input)) {
    if (environment.buffers == nullptr)
      return InvalidField("tomography.arrays", "is given, but this engine has no arrays");
    double pixel_um = 0;
    if (const auto volume = HeldVolume(environment, arrays->projections)) {
      OCTAVO_RETURN_IF_ERROR(CheckVolume(spec, *volume));
      if (!volume->spacing_assumed[2]) pixel_um = volume->spacing_um[2];
    }
    OCTAVO_ASSIGN_OR_RETURN(
        input, OpenProjectionArrays(*environment.buffers, *arrays, spec.angles_rad, pixel_um));
    info = input->info();
  } else if (const auto* push = std::get_if<model::PushedProjectionsSpec>(&spec.input)) {
    if (environment.projection_memory == nullptr)
      return InvalidField("tomography.push",
                          "is given, but this engine takes no pushed projections");
    if (!spec.angles_rad.empty())
      return InvalidField("tomography.angles_rad",
                          "is given with push, where each projection brings its angle");
    if (!spec.series.has_value()) OCTAVO_RETURN_IF_ERROR(CheckUsed(spec.projections, push->frames));
    info = Expected(spec, *push);
  } else if (const auto* tiles = std::get_if<model::ProjectionMosaicSpec>(&spec.input)) {
    OCTAVO_ASSIGN_OR_RETURN(mosaic, Mosaic::Open(spec, *tiles, environment.file_roots));
    info = mosaic->info();
    spec.preparation.ignore_fields = true;  // the tiles are divided by theirs
  } else {
    return InvalidField("tomography.input", "is not given; allowed: file, arrays, push, mosaic");
  }
  TakeAxisOf(info, spec);
  std::vector<model::IndexRange> half_turns;
  // Those of a push are known when all angles have come.
  if (spec.takes_half_turn() && (input != nullptr || mosaic != nullptr)) {
    OCTAVO_ASSIGN_OR_RETURN(half_turns, HalfTurnsOf(spec, info.angles_rad));
    spec = WithProjections(spec, PlannedHalfTurn(spec, half_turns));
  }
  OCTAVO_RETURN_IF_ERROR(CheckSeries(spec, info.projections));
  OCTAVO_ASSIGN_OR_RETURN(TomographyLayout layout,
                          TomographyLayout::Make(OfWindow(spec, 0), info, 0));
  if (spec.reconstruction.form == TomographyForm::kTomopy &&
      (spec.center.find || !spec.center.pixels.empty() || spec.try_centers.has_value())) {
    return InvalidField("tomography.center",
                        "is given with the tomopy form, which has the axis in the middle always; "
                        "allowed is the corrected form");
  }
  OCTAVO_ASSIGN_OR_RETURN(auto initial, OpenInitial(spec, layout, environment.buffers));
  Implausible doubts =
      DoubtsOf(spec, info, 0,
               std::holds_alternative<model::PushedProjectionsSpec>(spec.input) ? Angles::kAssumed
                                                                                : Angles::kKnown);
  OCTAVO_RETURN_IF_ERROR(doubts.refusal());
  if (std::string left = LeftBetween(spec, info.projections); !left.empty())
    doubts.warnings.push_back(std::move(left));
  if (input != nullptr) {
    if (const auto exchanged = FindExchangedFields(spec, *input)) return *exchanged;
    if (const auto none = FindNoTransmission(spec, *input)) doubts.warnings.push_back(*none);
    for (std::string& odd : FindOddValues(spec, *input)) doubts.warnings.push_back(std::move(odd));
  }
  if (mosaic != nullptr) {
    doubts.warnings.insert(doubts.warnings.end(), mosaic->warnings().begin(),
                           mosaic->warnings().end());
  }
  // Do this last, when nothing else can fail, because it takes host memory.
  if (const auto* push = std::get_if<model::PushedProjectionsSpec>(&spec.input)) {
    OCTAVO_ASSIGN_OR_RETURN(port,
                            source::ProjectionPort::Create(*push, environment.projection_memory,
                                                           environment.clock, environment.payer));
  }
  OCTAVO_ASSIGN_OR_RETURN(auto search_memory,
                          TakeSearchMemory(layout, mosaic != nullptr ? mosaic->field_bytes() : 0,
                                           port != nullptr, environment));
  return std::make_unique<TomographyWork>(spec, environment, std::move(input), std::move(mosaic),
                                          std::move(port), std::move(initial), std::move(layout),
                                          std::move(half_turns), info.projections,
                                          std::move(doubts.warnings), std::move(search_memory));
}

}  // namespace octavo::tomography
